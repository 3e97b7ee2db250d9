"""Sites in one process: everything of a federation but the network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsage.config import Config, load_config
from fedsage.data.owned import read_owned
from fedsage.engines.simulated import known_keys
from fedsage.federation.consent.policy import policy_in, with_rules
from fedsage.federation.owner.site import Site
from fedsage.protocol.plan import Engine, Miss
from fedsage.protocol.wire import decode, encode
from fedsage.rng import generator
from fedsage.runs.events import Event, HistoryLine, Observer

SMALL = {
    "classifier": {"rounds_c": 4},
    "model": {"widths": [16, 8]},
    "neighgen": {"rounds_gen": 3, "widths": [8, 6], "hidden": [10], "batch_size": 16},
}
TINY = policy_in(
    with_rules(
        {
            "fewest.training_nodes": 8,
            "fewest.validation_nodes": 4,
            "most.starts_of_a_run": 999,
            "ranges.neighgen.min_batch": [2, 999],
            "unasked.methods": ["any"],
            "unasked.privacy": ["any"],
            "unasked.files": ["any"],
            "unasked.runs_a_day": 999,
        }
    )
)  # of owners as small as those below
NAMES = ("east", "north", "west")
SCHEMA = """classes = ["ill", "well"]

[features.age]
kind = "number"

[features.pulse]
kind = "number"

[features.ward]
kind = "category"
categories = ["A", "B", "C"]
"""


class SiteEngine(Engine):
    """Carries frames to sites in this process, through each site's door.

    Sites answer in threads of their own, as NVFlare has them do.
    """

    def __init__(self, sites: list[Site], least: int | None = None) -> None:
        super().__init__(range(len(sites)), least)
        self.sites = sites
        self.log: list[tuple[int, str]] = []
        self.frames: list[tuple[int, bytes]] = []

    def carry(
        self, procedure: Any, requests: Mapping[int, Any], lot: int | None = None
    ) -> dict[int, Any]:
        replies: dict[int, Any | Miss] = {}
        for i, request in requests.items():
            self.log.append((i, procedure.name))
            with ThreadPoolExecutor(1) as pool:
                asked = procedure.name, encode(request), lot
                frame = pool.submit(self.sites[i].answer, *asked).result()
            self.frames.append((i, frame))
            replies[i] = decode(procedure.reply, frame)
        return replies


@pytest.fixture(scope="session")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three folders of made-up tables, of different sizes and scales."""
    root = tmp_path_factory.mktemp("hospitals")
    for k, name in enumerate(NAMES):
        stream = generator(k, "hospital")
        count = 60 + 20 * k
        ill = stream.random(count) < 0.4
        age = 40 + 5 * k + 20 * ill + stream.normal(size=count)
        pulse = 70 + 12 * ill + 3 * stream.normal(size=count)
        folder = root / name
        folder.mkdir()
        (folder / "schema.toml").write_text(SCHEMA)
        lines = ["id,age,pulse,ward,label"]
        for v in range(count):
            label = ("ill" if ill[v] else "well") if stream.random() < 0.9 else ""
            ward = "ABC"[int(stream.integers(3))]
            lines.append(f"{name}-{v},{age[v]:.3f},{pulse[v]:.3f},{ward},{label}")
        (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
        links = ["source,target"]
        for _ in range(2 * count):
            a, b = stream.integers(count, size=2)
            if a != b and (ill[a] == ill[b] or stream.random() < 0.2):
                links.append(f"{name}-{a},{name}-{b}")
        (folder / "edges.csv").write_text("\n".join(dict.fromkeys(links)) + "\n")
    assert np.all([(root / name / "nodes.csv").exists() for name in NAMES])
    return root


@pytest.fixture
def sites(hospitals: Path, tmp_path: Path) -> Callable[[], list[Site]]:
    """Fresh processes, as it were: what they keep is on disk."""

    def make() -> list[Site]:
        keys = known_keys(range(len(NAMES)))
        return [
            Site(n, read_owned(hospitals / n), tmp_path / n, "1.0", print, keys[i], TINY)
            for i, n in enumerate(NAMES)
        ]

    return make


def into(lines: list[HistoryLine]) -> Observer:
    """An observer that keeps the rounds."""

    def observe(event: Event) -> None:
        if event.line is not None:
            lines.append(event.line)

    return observe


class Stop(Exception):
    """Stands for a kill."""


def stop_after(count: int) -> Observer:
    """An observer that raises when so many rounds are over."""
    seen: list[HistoryLine] = []

    def observe(event: Event) -> None:
        if event.line is not None:
            seen.append(event.line)
            if len(seen) == count:
                raise Stop

    return observe


def config_for(method: str, **more: dict[str, object]) -> Config:
    return load_config(SMALL, {"run": {"method": method}}, more)
