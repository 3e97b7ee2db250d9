"""What leaves an owner: every message of a run is recorded and searched for what must not."""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.mending.classes import ClassLinks
from fedsage.protocol import exchange, server
from fedsage.protocol.changes.owner import sizes_of_parts
from fedsage.protocol.changes.state import Change, first_common
from fedsage.protocol.messages import MESSAGES, WHOLE
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.wire import Message, encode, unpacked
from tests.small import exchange_on, owners_of, small_setup, traffic_of, trained

pytestmark = pytest.mark.slow

WAYS = ("none", "neighgen", "shared", "copy", "classes", "subspace")
UP = {"GenOffer", "GenGradients", "GenDone", "NeighGenUpdate", "Mended", "ClassifierUpdate",
      "Hits", "Sketch", "Change", "SketchSizes", "WholeSketch", "Offer", "Answers",
      "NeighGenChange", "Ready"}  # fmt: skip
NUMBERS = {
    "t", "loss", "degree", "feature", "classification", "weight", "plain", "mended", "both",
    "total",
}  # fmt: skip
OF_CHANGES = {
    "again",
    "keep",
    "proof",
    "owners",
    "steps",
    "count",
    "rank",
    "whole",
    "since",
    "exponent",
    "scale",
}  # and in whole numbers these
WIDTH = 16  # of the first layer


class Recorded:
    """A run, and all messages of it."""

    def __init__(self, graph: Graph, owners: Partition, way: str, how: str) -> None:
        sizes = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 3}
        traffic = traffic_of(how)
        self.setup = small_setup(graph, owners, way, neighgen=sizes, traffic=traffic)
        self.owners = owners_of(self.setup)
        self.sent: list[Message] = []
        self.engine = InProcessEngine(
            self.owners, on_message=lambda i, message: self.sent.append(message)
        )
        trained(self.setup, exchange_on(self.setup, self.engine), 3)
        self.frames = [encode(message) for message in self.sent]


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["full", "whole", "low-rank"])
def how(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def recorded(graph: Graph, owners: Partition, way: str, how: str) -> Recorded:
    return Recorded(graph, owners, way, how)


def parts(frame: bytes) -> tuple[dict[str, object], dict[str, torch.Tensor]]:
    head, _, body = frame.partition(b"\n")
    return json.loads(head)["values"], unpacked(memoryview(body))


def runs_of(tensor: torch.Tensor, length: int) -> Iterator[np.ndarray]:
    """So many numbers in a row, or in a column of a first layer that was laid out flat."""
    flat = tensor.double().numpy().ravel()
    for step in (1, WIDTH):
        if len(flat) > step * (length - 1):
            seen = np.lib.stride_tricks.sliding_window_view(flat, step * (length - 1) + 1)
            yield seen[:, ::step]
    if tensor.ndim == 2 and len(tensor) == length:
        yield tensor.double().numpy().T


def likeness(runs: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The cosines of rows of both, whatever the unit that they are in."""
    sizes = [np.linalg.norm(rows, axis=1, keepdims=True) for rows in (runs, wanted)]
    one, other = (
        rows / np.where(size > 0, size, 1)
        for rows, size in zip((runs, wanted), sizes, strict=True)
    )
    return np.abs(one @ other.T)


def test_no_row_of_features_crosses(recorded: Recorded, graph: Graph) -> None:
    """Not as it is, and in whole numbers not in any unit either."""
    x = graph.x.toarray()
    searched = 0
    for frame in set(recorded.frames):
        for name, tensor in parts(frame)[1].items():
            if tensor.dtype in WHOLE:
                for runs in runs_of(tensor, x.shape[1]):
                    assert likeness(runs, x).max() < 0.99, name
                    searched += len(runs)
            flat = tensor.reshape(1, -1) if tensor.ndim < 2 else tensor
            for side in (flat.numpy(), flat.numpy().T):
                if side.shape[1] != x.shape[1]:
                    continue
                gaps = np.abs(side[:, None, :] - x[None]).max(axis=2)
                assert gaps.min(initial=1.0) > 1e-3
                searched += len(side)
    assert searched > 0


def whole_numbers(values: np.ndarray) -> bool:
    """Whether it could be a list of labels, node ids or counts: several, whole, not all one."""
    return (
        len(values) >= 4
        and bool((np.abs(values - np.round(values)) < 1e-6).all())
        and len(np.unique(np.round(values))) > 1
    )


def lists_of(owner: DataOwner) -> dict[str, np.ndarray]:
    """What an owner has of its nodes and links, one number for each."""
    graph, train = owner.graph, owner.split.train
    return {
        "labels": graph.y, "labels of training nodes": graph.y[train],
        "training nodes": train, "nodes": np.arange(graph.num_nodes),
        "links": graph.links[0], "their other ends": graph.links[1],
        "degrees": np.bincount(graph.links.ravel(), minlength=graph.num_nodes),
    }  # fmt: skip


def holds(tensor: torch.Tensor, wanted: np.ndarray) -> bool:
    """Whether these numbers are in it one after the other, in whatever unit, from any zero."""
    centered = (wanted - wanted.mean())[None]
    return any(
        bool((likeness(runs - runs.mean(axis=1, keepdims=True), centered) > 0.999).any())
        for runs in runs_of(tensor, len(wanted))
    )


def test_no_label_link_or_node_id_crosses(recorded: Recorded, how: str) -> None:
    """Nothing with a place for each node, no odd value, and no list of an owner's.

    A row or column of whole numbers is there only where a change is sent, whose form follows
    from the settings.
    """
    lists = [(of, one) for owner in recorded.owners for of, one in lists_of(owner).items()]
    changes = 0
    for frame, message in dict(zip(recorded.frames, recorded.sent, strict=True)).items():
        values, tensors = parts(frame)
        for name, tensor in tensors.items():
            assert not {20, 60} & set(tensor.shape), "one entry for each node"
            whole = tensor.dtype in WHOLE or name.startswith("/memory/")  # the common state
            if (how != "full" or isinstance(message, ClassLinks)) and whole:
                for of, wanted in lists:
                    assert not holds(tensor, wanted), f"{name} holds {of}"
                continue
            assert tensor.dtype == torch.float32, name
            table = (
                tensor.numpy().reshape(len(tensor), -1) if tensor.ndim else tensor[None, None]
            )
            for line in (*np.asarray(table), *np.asarray(table).T):
                assert not whole_numbers(line), f"{name} looks like labels or node ids"
        for path, value in values.items():
            if isinstance(value, list):  # keys: names of weights, or of owners
                assert all(isinstance(key, str) or key in (0, 1, 2) for key in value)
            elif path.rpartition("/")[2] == "state":
                assert value == ""  # a checksum where sums are hidden
            else:
                allowed = NUMBERS if how == "full" else NUMBERS | OF_CHANGES
                assert path.rpartition("/")[2] in allowed
                assert isinstance(value, int | float)
        if isinstance(message, Change):
            sizes = sizes_of_parts(first_common(recorded.setup.plan, 3, 12.0))
            assert all(tuple(one.shape) == sizes[name] for name, one in message.parts.items())
            changes += 1
    assert changes == (0 if how == "full" else 9)


def test_only_the_messages_of_the_method_cross(recorded: Recorded, way: str, how: str) -> None:
    in_whole = {
        "neighgen": {"OfferTurn": 9, "Offer": 9, "Offers": 9, "Answers": 9, "AnswerSum": 9,
                     "GenDone": 9, "Ask": 3, "Mended": 3},
        "shared": {"News": 15, "Ready": 12, "Turn": 9, "NeighGenChange": 9, "Mended": 3},
        "subspace": {"Directions": 12, "SketchSizes": 9, "SketchUnits": 9, "WholeSketch": 9,
                     "Mended": 3},
    }  # fmt: skip
    expected = {
        "none": {},
        "neighgen": {"Ask": 12, "GenOffer": 9, "GenOffers": 9, "GenGradients": 9,
                     "GenGradient": 9, "GenDone": 9, "Mended": 3},
        "shared": {"SharedNeighGen": 12, "NeighGenUpdate": 9, "Mended": 3},
        "copy": {"Ask": 3, "Mended": 3},
        "subspace": {"Subspace": 15, "Sketch": 12, "Mended": 3},
        "classes": {"Ask": 3, "ClassLinks": 6, "Mended": 3},
    }[way]  # fmt: skip
    if how != "full":
        expected = in_whole.get(way, expected)
    sent = Counter(type(message).__name__ for message in recorded.sent)
    down, up = ("Classifier", "ClassifierUpdate") if how == "full" else ("News", "Change")
    asks = {"Ask": 12} if how == "full" else {"Turn": 9, "Ask": 3}
    classifier = Counter({**asks, up: 9, down: 12, "Hits": 15})
    more = (
        sent[down] - 12 - expected.get(down, 0)
    )  # the kept round is asked for again unless it was the last
    assert more in (0, 3)
    classifier += Counter({down: more, "Hits": more})
    assert sent == classifier + Counter(expected)


def test_bytes_reported_are_bytes_serialized_in_each_phase(
    recorded: Recorded, way: str
) -> None:
    traffic = recorded.engine.traffic
    assert sum(map(len, recorded.frames)) == sum(
        counted.up + counted.down for counted in traffic.values()
    )
    if way != "classes":  # whose one message goes both ways
        up = sum(len(encode(m)) for m in recorded.sent if type(m).__name__ in UP)
        assert up == sum(counted.up for counted in traffic.values())
    before = traffic["mending"]
    assert (before.up > 0) == (before.down > 0) == (way != "none")


@pytest.mark.parametrize("what", ["ids", "labels"])
def test_the_search_would_find_labels_and_node_ids(
    graph: Graph, owners: Partition, what: str
) -> None:
    z = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)
    nodes = np.arange(12) * 5
    z[:, 2] = nodes if what == "ids" else graph.y[nodes]
    assert any(whole_numbers(column) for column in z.T)
    assert not any(whole_numbers(column) for column in np.delete(z, 2, axis=1).T)


@pytest.mark.parametrize("where", ["in a row", "in a column", "shifted, in other units"])
def test_the_search_would_find_lists_and_rows_in_whole_numbers(
    graph: Graph, owners: Partition, where: str
) -> None:
    drawn = np.random.default_rng(0).integers(-40, 41, 900)
    assert not holds(torch.from_numpy(drawn), graph.y[:20])
    assert (
        max(likeness(r, graph.x.toarray()).max() for r in runs_of(torch.from_numpy(drawn), 40))
        < 0.9
    )
    step = WIDTH if where == "in a column" else 1
    factor, shift = (-3, 7) if where.startswith("shifted") else (1, 0)
    for wanted in (graph.y[:20], graph.x.toarray()[5].astype(int)):
        hidden = drawn.copy()
        hidden[100 : 100 + step * len(wanted) : step] = factor * wanted + shift
        assert holds(torch.from_numpy(hidden.astype(np.int8)), wanted)


@pytest.mark.parametrize("way", ["neighgen"], indirect=True, scope="module")
def test_the_encoder_stays_home(recorded: Recorded) -> None:
    for frame in recorded.frames:
        assert not any("encoder" in name for name in parts(frame)[1])


def test_what_is_no_message_is_not_sent(graph: Graph) -> None:
    from fedsage.errors import ProtocolError

    with pytest.raises(ProtocolError, match="is not a message and must not leave"):
        encode(graph)


def imported_by(source: str) -> list[str]:
    nodes = list(ast.walk(ast.parse(source)))
    found = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    plain = [node for node in nodes if isinstance(node, ast.Import)]
    return found + [alias.name for node in plain for alias in node.names]


@pytest.mark.parametrize("module", [server, exchange])
def test_the_server_knows_no_graph(module: ModuleType) -> None:
    assert imported_by("import numpy as np\nfrom scipy import sparse") == ["scipy", "numpy"]
    imported = imported_by(Path(str(module.__file__)).read_text())
    assert imported
    assert not any(name.startswith(("fedsage.graph", "numpy", "scipy")) for name in imported)


def test_every_message_says_who_may_see_it() -> None:
    for message in (one for one in MESSAGES if one.__module__.startswith("fedsage.")):
        assert "→" in (message.__doc__ or ""), message.__name__
