"""What leaves an owner: every message of a run is recorded and searched for what must not."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import safetensors.torch
import torch

from fedsage.engines.inprocess import InProcessEngine
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.protocol import exchange, server
from fedsage.protocol.messages import MESSAGES
from fedsage.protocol.wire import Message, encode
from tests.small import exchange_on, owners_of, small_setup, trained

WAYS = ("none", "neighgen", "shared", "copy", "classes", "subspace")
UP = {"GenOffer", "GenGradients", "GenDone", "NeighGenUpdate", "Mended", "ClassifierUpdate",
      "Hits", "Sketch"}  # fmt: skip
NUMBERS = {
    "t", "loss", "degree", "feature", "classification", "weight", "plain", "mended", "both",
    "total",
}  # fmt: skip


def recorded(
    graph: Graph, owners: Partition, way: str
) -> tuple[InProcessEngine, list[Message]]:
    sizes = {"widths": [8, 6], "hidden": [10], "batch_size": 12, "rounds_gen": 3}
    setup = small_setup(graph, owners, way, neighgen=sizes)
    sent: list[Message] = []
    engine = InProcessEngine(owners_of(setup), on_message=lambda i, m: sent.append(m))
    trained(setup, exchange_on(setup, engine), 3)
    return engine, sent


@pytest.fixture(scope="module", params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def frames(graph: Graph, owners: Partition, way: str) -> list[bytes]:
    return [encode(message) for message in recorded(graph, owners, way)[1]]


def parts(frame: bytes) -> tuple[dict[str, object], dict[str, torch.Tensor]]:
    head, _, body = frame.partition(b"\n")
    return json.loads(head)["values"], safetensors.torch.load(body)


def test_no_row_of_features_crosses(frames: list[bytes], graph: Graph) -> None:
    x = graph.x.toarray()
    searched = 0
    for frame in frames:
        for tensor in parts(frame)[1].values():
            flat = tensor.reshape(1, -1) if tensor.ndim < 2 else tensor
            for side in (flat.numpy(), flat.numpy().T):
                if side.shape[1] != x.shape[1]:
                    continue
                gaps = np.abs(side[:, None, :] - x[None]).max(axis=2)
                assert gaps.min() > 1e-3
                searched += len(side)
    assert searched > 0


def whole_numbers(values: np.ndarray) -> bool:
    """Whether it could be a list of labels, node ids or counts: several, whole, not all one."""
    return (
        len(values) >= 4
        and bool((np.abs(values - np.round(values)) < 1e-6).all())
        and len(np.unique(np.round(values))) > 1
    )


def test_no_label_link_or_node_id_crosses(frames: list[bytes], way: str) -> None:
    """No row or column of whole numbers, nothing with a place for each node, no odd value."""
    for frame in frames:
        values, tensors = parts(frame)
        for name, tensor in tensors.items():
            assert tensor.dtype == torch.float32, name
            assert not {20, 60} & set(tensor.shape), "one entry for each node"
            table = (
                tensor.numpy().reshape(len(tensor), -1) if tensor.ndim else tensor[None, None]
            )
            for line in (*np.asarray(table), *np.asarray(table).T):
                assert not whole_numbers(line), f"{name} looks like labels or node ids"
        for path, value in values.items():
            if isinstance(value, list):  # keys: names of weights, or of owners
                assert all(isinstance(key, str) or key in (0, 1, 2) for key in value)
            else:
                assert path.rpartition("/")[2] in NUMBERS
                assert isinstance(value, int | float)


def test_only_the_messages_of_the_method_cross(
    graph: Graph, owners: Partition, way: str
) -> None:
    expected = {
        "none": {},
        "neighgen": {"Ask": 12, "GenOffer": 9, "GenOffers": 9, "GenGradients": 9,
                     "GenGradient": 9, "GenDone": 9, "Mended": 3},
        "shared": {"SharedNeighGen": 12, "NeighGenUpdate": 9, "Mended": 3},
        "copy": {"Ask": 3, "Mended": 3},
        "subspace": {"Subspace": 15, "Sketch": 12, "Mended": 3},
        "classes": {"Ask": 3, "ClassLinks": 6, "Mended": 3},
    }[way]  # fmt: skip
    sent = Counter(type(message).__name__ for message in recorded(graph, owners, way)[1])
    classifier = Counter(Ask=3 * 3 + 3, ClassifierUpdate=9, Classifier=12, Hits=15)
    more = sent["Classifier"] - 12  # the kept round is sent again unless it was the last
    classifier += Counter(Classifier=more, Hits=more)
    assert sent == classifier + Counter(expected)


def test_bytes_reported_are_bytes_serialized_in_each_phase(
    graph: Graph, owners: Partition, way: str
) -> None:
    engine, sent = recorded(graph, owners, way)
    assert sum(len(encode(m)) for m in sent) == sum(
        traffic.up + traffic.down for traffic in engine.traffic.values()
    )
    if way != "classes":  # whose one message goes both ways
        up = sum(len(encode(m)) for m in sent if type(m).__name__ in UP)
        assert up == sum(traffic.up for traffic in engine.traffic.values())
    before = engine.traffic["mending"]
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


def test_the_encoder_stays_home(graph: Graph, owners: Partition) -> None:
    for message in recorded(graph, owners, "neighgen")[1]:
        names = parts(encode(message))[1]
        assert not any("encoder" in name for name in names)


def test_what_is_no_message_is_not_sent(graph: Graph) -> None:
    from fedsage.errors import ProtocolError

    with pytest.raises(ProtocolError, match="is no message and must not leave"):
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
