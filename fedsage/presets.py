"""What the presets ``paper`` and ``best`` set, and what settings were once called."""

from __future__ import annotations

from typing import Literal, TypeAlias

from fedsage.layering import Settings

Preset: TypeAlias = Literal["paper", "best"]
RENAMED = {"traffic.patience": "classifier.patience"}  # old names are still understood

# What a private run sets over its preset: a classifier of features alone, and nothing to mend.
# Chosen on validation nodes, seeds 100 and 101, of PubMed and MSAcademic at ε = 1 and 4.
PRIVATE: Settings = {
    "model": {
        "backbone": "linear", "widths": [2048], "steps": 5, "teleport": 0.25, "dropout": 0.0,
    },
    "classifier": {"rounds_c": 40, "fanouts": [5], "selection": "last"},
    "mend": {"how": "none", "queries": "plain"},
    "evaluation": {"inference": "full"},
    "data": {"features": "raw"},
}  # fmt: skip

# The defaults in ``config/`` are the paper's settings.
PRESETS: dict[Preset, Settings] = {
    "paper": {},
    "best": {
        "data": {"features": "auto"},
        "model": {"head": "relu", "dropout": 0.3},
        "classifier": {
            "eta": 3e-3,
            "weight_decay": 5e-4,
            "small_epochs": 4,
            "weighting": "nodes",
            "selection": "validation",
        },
        "mend": {"how": "auto", "mix": "rounds", "queries": "auto"},
        "neighgen": {
            "fresh": True,
            "local_steps": 3,
            "eta": 3e-3,
            "counts": "draw",
            "at_least": 1,
            "keep_words": True,
            "match_norms": True,
        },
        "traffic": {"how": "low-rank"},
        "evaluation": {"inference": "full"},
    },
}
