"""What was tried to break it, and what it said: the tables of ``docs/reliability.md``.

    FEDSAGE_WRITE_DOCS=1 pytest tests/test_reliability.py

writes them anew; without that, they must be as they are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fedsage.cli.settings import read_assignments, read_toml
from fedsage.config import load_config
from fedsage.data.npz import load_graph
from fedsage.errors import DataErrors, FedSageError
from fedsage.federation.kits.kit import open_kit
from fedsage.federation.kits.make import checked_address, checked_names
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.models.classifier import load_models
from fedsage.protocol.messages import ClassifierUpdate, Hits
from fedsage.protocol.wire import decode, encode
from fedsage.tables.schema import read_schema
from fedsage.tables.tables import read_tables
from tests.protocol.test_guard import WRONG, Faulty, agreed, hows_of
from tests.small import exchange_on, owners_of, trained
from tests.tables.test_schema import BAD
from tests.tables.test_tables import MALFORMED, folder_of

DOC = Path(__file__).parent.parent / "docs" / "reliability.md"
WRITE = "FEDSAGE_WRITE_DOCS"
Row = tuple[str, str, str]


def said(kind: str, what: str, act: Callable[[], object], folder: Path) -> Row:
    """The first line of the error that ``act`` must raise."""
    with pytest.raises(FedSageError) as caught:
        act()
    error = caught.value
    text = error.lines[0] if isinstance(error, DataErrors) else str(error)
    text = text.replace(f"{folder}/", "").replace(str(folder), "FOLDER")
    return kind, what, re.sub(r"\s+", " ", text)


def tables(folder: Path) -> Iterator[Row]:
    for k, (what, (changes, _)) in enumerate(MALFORMED.items()):
        place = folder_of(folder / f"t{k}", **changes)
        yield said("table", what, lambda p=place: read_tables(p), place)  # type: ignore[misc]


def schemas(folder: Path) -> Iterator[Row]:
    for k, (what, (text, _)) in enumerate(BAD.items()):
        place = folder / f"s{k}"
        place.mkdir()
        (place / "schema.toml").write_text(text)
        yield said("schema", what, lambda p=place: read_schema(p / "schema.toml"), place)  # type: ignore[misc]


def graph_files(folder: Path) -> Iterator[Row]:
    x, edges, y = np.ones((4, 3)), np.array([[0, 1], [1, 2]]), np.array([0, 1, 0, 1])
    cases: dict[str, dict[str, object]] = {
        "no links": {"x": x, "y": y},
        "a link to nowhere": {"x": x, "edge_index": np.array([[0], [9]]), "y": y},
        "NaN in the features": {"x": x * np.nan, "edge_index": edges, "y": y},
        "labels of another length": {"x": x, "edge_index": edges, "y": y[:2]},
        "labels that are no classes": {"x": x, "edge_index": edges, "y": y - 3},
        "features that are text": {"x": x.astype(str), "edge_index": edges, "y": y},
    }
    for k, (what, arrays) in enumerate(cases.items()):
        path = folder / f"g{k}.npz"
        np.savez(path, **arrays)  # type: ignore[arg-type]
        yield said("graph.npz", what, lambda p=path: load_graph(p), folder)  # type: ignore[misc]
    for what, body in (("cut short", path.read_bytes()[:50]), ("not a zip file", b"hello")):
        other = folder / "broken.npz"
        other.write_bytes(body)
        yield said("graph.npz", what, lambda p=other: load_graph(p), folder)  # type: ignore[misc]


def messages(folder: Path) -> Iterator[Row]:
    update = ClassifierUpdate({"w": torch.ones(3)}, {}, 1.0, 0.5)
    frame = encode(update)
    head, _, body = frame.partition(b"\n")
    fields = json.loads(head)
    without = {k: v for k, v in fields["values"].items() if k != "/loss"}
    cases = {
        "not a frame": b"\x00\x01\x02",
        "empty": b"",
        "cut short": frame[: len(frame) - 5],
        "a header that is no JSON": b"{" + frame,
        "another type": encode(Hits(1, 1, 1, 2)),
        "a field missing": json.dumps(fields | {"values": without}).encode() + b"\n" + body,
        "tensors that are none": head + b"\n" + b"x" * len(body),
        "a pickle": b"cos\nsystem\n(S'true'\ntR.",
    }
    for what, bad in cases.items():
        yield said("message", what, lambda b=bad: decode(ClassifierUpdate, b), folder)  # type: ignore[misc]
    yield said("message", "an object that is no message", lambda: encode(object()), folder)


def replies(graph: Graph, owners: Partition) -> Iterator[Row]:
    for what, (way, kind, alter, _) in WRONG.items():
        setup = agreed(graph, owners, way, hows_of(kind)[0])
        exchange = exchange_on(setup, Faulty(owners_of(setup), kind, alter))
        trained(setup, exchange, 1)
        yield "reply", what, f"refused, the run goes on without it: {exchange.misses[0].why}"


def settings(folder: Path) -> Iterator[Row]:
    (folder / "bad.toml").write_text("[run\n")
    (folder / "model.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"no")
    cases: dict[str, Callable[[], object]] = {
        "an unknown key": lambda: load_config(read_assignments(["classifier.etta=1"])),
        "a value out of range": lambda: load_config(read_assignments(["classifier.eta=-1"])),
        "no section": lambda: load_config(read_assignments(["eta=1"])),
        "a file that is no TOML": lambda: read_toml(folder / "bad.toml"),
        "a model that is none": lambda: load_models(folder),
        "a kit that is none": lambda: open_kit(folder),
        "an address without a port": lambda: checked_address("fed.example.org"),
        "an owner's name twice": lambda: checked_names(["a", "a"]),
        "an owner's name with a blank": lambda: checked_names(["a b"]),
    }
    for what, act in cases.items():
        yield said("settings and kits", what, act, folder)


def markdown(rows: list[Row]) -> str:
    lines = ["| # | in | what was wrong | what fedsage said |", "|---|---|---|---|"]
    lines += [
        f"| {k + 1} | {kind} | {what} | {text.replace('|', '&#124;')} |"
        for k, (kind, what, text) in enumerate(rows)
    ]
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_every_malformed_input_has_its_error_and_the_table_says_so(
    graph: Graph, owners: Partition, tmp_path: Path
) -> None:
    rows = [
        *tables(tmp_path), *schemas(tmp_path), *graph_files(tmp_path), *messages(tmp_path),
        *replies(graph, owners), *settings(tmp_path),
    ]  # fmt: skip
    assert len(rows) >= 60
    assert all(len(text) > 15 for _, _, text in rows)
    before, mark, rest = DOC.read_text().partition("<!-- malformed -->\n")
    held, end, after = rest.partition("<!-- /malformed -->")
    made = markdown(rows)
    if os.environ.get(WRITE):
        DOC.write_text(before + mark + made + end + after)
    else:
        assert core(held) == core(made), f"write it anew with {WRITE}=1"


def core(text: str) -> str:
    """Without what other versions of Python or of a library may word differently."""
    return re.sub(r"\(.*\)|[\d.e+-]+", "", text)
