"""Hostile settings: a server proposes runs that would reveal single nodes or break owners."""

from __future__ import annotations

from collections.abc import Mapping

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.federation.consent.policy import DEFAULT, Policy, refusal
from fedsage.presets import Settings

HOSTILE: Mapping[str, Settings] = {
    "one training node": {"data": {"train": 1e-6}},
    "one test node": {"data": {"train": 0.999, "val": 0.0}},
    "layers of 65,536": {"model": {"widths": [65536, 65536]}},
    "a subspace of rank 1,000,000": {"mend": {"how": "subspace", "rank": 10**6}},
    "1,000,000,000 epochs in a round": {"classifier": {"local_epochs": 10**9}},
    "100,000 threads": {"run": {"threads": 10**5}},
    "batches of one node": {"classifier": {"batch_size": 1}},
    "1,000,000 neighbors a node": {"classifier": {"fanouts": [10**6, 10**6]}},
    "1,000,000 rounds": {"classifier": {"rounds_c": 10**6}},
    "gradients over two rows": {"mend": {"how": "neighgen"}, "neighgen": {"min_batch": 2}},
    "all nodes but a few hidden": {
        "mend": {"how": "neighgen"},
        "neighgen": {"hide_ratio": 0.999},
    },
    "1,000,000 directions": {"traffic": {"how": "low-rank", "rank": 10**6}},
    "how many nodes have each word": {"data": {"features": "tfidf"}},
}
WITHIN: Mapping[str, Settings] = {
    "one training node in a thousand": {"data": {"train": 0.001}},
    "nine of ten nodes trained on": {"data": {"train": 0.9, "val": 0.05}},
    "layers of 4,096": {"model": {"widths": [4096, 4096]}},
    "a subspace of rank 4,000": {"mend": {"how": "subspace", "rank": 4000}},
    "1,000 epochs in a round": {"classifier": {"local_epochs": 1000}},
    "1,000 threads": {"run": {"threads": 1000}},
    "batches of two nodes": {"classifier": {"batch_size": 2}},
    "one neighbor a node": {"classifier": {"fanouts": [1, 1]}},
    "100,000 rounds": {"classifier": {"rounds_c": 10**5}},
    "gradients over seven rows": {"mend": {"how": "neighgen"}, "neighgen": {"min_batch": 7}},
    "nine of ten nodes hidden": {"mend": {"how": "neighgen"}, "neighgen": {"hide_ratio": 0.9}},
    "4,000 directions": {"traffic": {"how": "low-rank", "rank": 4000}},
    "how many nodes have each word": {"data": {"features": "tfidf"}},
}  # the same, within the settings' limits: only an owner's policy refuses these
ATTEMPT = Attempt(
    "hostile-settings",
    "hostile server",
    "whether owners agree to settings that it made up",
    f"proposals of {len(HOSTILE) + len(WITHIN)} agreed to",
)


@attack("hostile-settings")
def hostile_settings(case: Case) -> Finding:
    """How many of the hostile proposals does an owner with the default policy agree to?"""
    agreed = agreed_to(DEFAULT, HOSTILE) + agreed_to(DEFAULT, WITHIN)
    return ATTEMPT.found(len(agreed), 0, bool(agreed), note=", ".join(agreed))


def agreed_to(policy: Policy, asked: Mapping[str, Settings]) -> list[str]:
    """Which proposals an owner with that policy agrees to."""
    return [name for name, settings in asked.items() if refusal(policy, settings) is None]
