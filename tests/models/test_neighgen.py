from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedsage.config import NeighGenConfig
from fedsage.graph.arrays import squared_norms
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, impair, mend
from fedsage.models.backbone import feature_rows
from fedsage.models.gen_training import draw_batch, generated_neighbors, joint_losses
from fedsage.models.graphsage import GraphSage
from fedsage.models.losses import degree_loss
from fedsage.models.neighgen import (
    DGen,
    Hg,
    NeighGen,
    sample_rows,
    whole_counts,
)
from fedsage.models.row_form import like_real_rows, row_form_of
from fedsage.rng import generator
from tests.models.conftest import everyone, shape_of

GEN = NeighGenConfig(widths=(8, 6), hidden=(10,))


def counting(how: str, at_least: int, at_most: int) -> NeighGenConfig:
    return GEN.model_copy(update={"counts": how, "at_least": at_least, "at_most": at_most})


def test_dgen_and_fgen_are_equation_3() -> None:
    hg = Hg(40, counting("round", 1, 3), generator(0, "theta"))
    z = torch.from_numpy(generator(0, "z").standard_normal((5, 6), dtype=np.float32))
    predicted = hg.dgen(z)
    for v in range(5):
        value = ((z[v] * hg.dgen.theta_d).sum() + hg.dgen.bias).item()
        assert predicted[v].item() == pytest.approx(math.log1p(math.exp(value)), abs=1e-6)
    rows, of = hg(z, generator(0, "noise"))
    stream = generator(0, "noise")
    noise = torch.from_numpy(stream.standard_normal((len(of), 6), dtype=np.float32))
    first, second = hg.fgen.theta_f
    for k, v in enumerate(of):
        hidden = torch.relu((z[v] + noise[k]) @ first + hg.fgen.bias[0])
        expected = torch.relu(hidden @ second + hg.fgen.bias[1])
        torch.testing.assert_close(rows[k], expected, rtol=1e-4, atol=1e-6)


def test_dgen_recovers_from_a_state_in_which_nobody_misses_anything() -> None:
    dgen = DGen(6, generator(0, "theta"))
    with torch.no_grad():
        dgen.bias.fill_(-6.0)
    z = torch.from_numpy(generator(0, "z").standard_normal((64, 6), dtype=np.float32))
    optimizer = torch.optim.Adam(dgen.parameters(), lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        degree_loss(dgen(z), torch.full((64,), 2.0)).backward()
        optimizer.step()
    assert dgen(z).mean().item() == pytest.approx(2.0, abs=0.2)


def test_counts_are_rounded_and_clipped_or_drawn() -> None:
    predicted = torch.tensor([0.0, 0.3, 0.5, 1.4, 9.0])
    stream = generator(0, "counts")
    assert whole_counts(predicted, counting("round", 0, 5), stream).tolist() == [0, 0, 1, 1, 5]
    assert whole_counts(predicted, counting("round", 1, 5), stream).tolist() == [1, 1, 1, 1, 5]
    drawn = [whole_counts(predicted, counting("draw", 0, 5), stream) for _ in range(4000)]
    mean = np.mean(drawn, axis=0)
    np.testing.assert_allclose(mean, [0, 0.3, 0.5, 1.4, 5], atol=0.04)


def test_the_sampler_gives_every_node_its_number_of_rows() -> None:
    assert sample_rows(np.array([2, 0, 1])).tolist() == [0, 0, 2]


def test_the_same_stream_gives_the_same_neighbors_and_fresh_noise_other_ones() -> None:
    hg = Hg(40, counting("round", 2, 2), generator(0, "theta"))
    z = torch.zeros(4, 6)
    one, again, other = (hg(z, generator(0, "noise", k))[0] for k in (0, 0, 1))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert len({tuple(row.tolist()) for row in one}) == 8  # neighbors of one node differ


@pytest.mark.parametrize("head", ["relu", "l2", "direct"])
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_the_mended_batch_is_the_classifier_on_the_mended_graph(
    graph: Graph, head: str, kind: str
) -> None:
    """With a batch of all nodes and full neighborhoods both are the same sums."""
    if kind == "dense":
        graph = Graph.from_arrays(graph.x.toarray(), graph.links, graph.y, graph.class_names)
    model = GraphSage(shape_of(graph, head=head), generator(0, "phi"))
    parents = np.array([0, 0, 7, 12, 59])
    rows = generator(0, "rows").standard_normal((5, 40), dtype=np.float32)
    rows_like_x = rows if kind == "dense" else like_real_rows(
        torch.from_numpy(rows), row_form_of(graph.x, False, False)
    )  # fmt: skip
    expected = model.on_graph(mend(graph, Generated(parents, rows_like_x)))[:60]
    h = feature_rows(graph.x, slice(None), model.device)
    found = model.on_mended(h, [everyone(graph)] * 2, torch.from_numpy(rows), parents)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_classifier_teaches_the_generator(graph: Graph) -> None:
    model = GraphSage(shape_of(graph), generator(0, "phi"))
    rows = torch.ones(2, 40, requires_grad=True)
    logits = model.on_mended(graph.x, [everyone(graph)] * 2, rows, np.array([1, 2]))
    logits[[1, 2]].sum().backward()
    assert rows.grad is not None and (rows.grad != 0).any(dim=1).all()


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_lifelike_rows_are_as_long_and_as_full_as_real_ones(graph: Graph, kind: str) -> None:
    x = graph.x if kind == "sparse" else graph.x.toarray()
    rows = torch.from_numpy(generator(0, "rows").random((30, 40), dtype=np.float32)) / 100
    made = like_real_rows(rows, row_form_of(x, keep_words=True, match_norms=True))
    np.testing.assert_allclose(
        np.sqrt(squared_norms(made)), np.sqrt(squared_norms(x).mean()), rtol=1e-4
    )
    if kind == "sparse":
        words = round(graph.x.nnz / 60)
        assert (np.diff(made.indptr) == words).all()
        largest = rows[0].topk(words).indices
        assert sorted(made[[0]].indices) == sorted(largest.tolist())
    as_it_is = like_real_rows(rows, row_form_of(x, keep_words=False, match_norms=False))
    dense = as_it_is.toarray() if kind == "sparse" else as_it_is
    np.testing.assert_array_equal(dense, rows.numpy())


def test_every_node_gets_what_dgen_predicts(graph: Graph) -> None:
    settings = counting("round", 0, 3)
    neighgen = NeighGen(40, settings, generator(0, "theta"))
    made = generated_neighbors(neighgen, graph, settings, generator(0, "mend"))
    with torch.no_grad():
        predicted = neighgen.hg.dgen(neighgen.encoder.on_graph(graph))
    expected = np.floor(predicted.numpy() + 0.5).clip(0, 3).astype(int)
    assert np.array_equal(np.bincount(made.parents, minlength=60), expected)
    assert made.x.shape == (expected.sum(), 40)


def test_hiding_nothing_of_the_labels_but_training_nodes(graph: Graph) -> None:
    """L^c looks at labels of training nodes alone."""
    impaired = impair(graph, 0.2, generator(0, "impair"))
    is_train = np.zeros(60, dtype=bool)
    is_train[:30] = True
    y = np.where(is_train, graph.y, (graph.y + 1) % 3)
    other = Graph(graph.x, graph.indptr, graph.indices, y, graph.class_names)
    changed = impair(other, 0.2, generator(0, "impair"))
    found = []
    for one in (impaired, changed):
        neighgen = NeighGen(40, GEN, generator(0, "theta"))
        classifier = GraphSage(shape_of(graph), generator(0, "phi"))
        cpu = torch.device("cpu")
        batch = draw_batch(one, 64, (5, 5), cpu, generator(0, "batch"))
        stream = generator(0, "noise")
        losses = joint_losses(neighgen, classifier, one, batch, is_train, GEN, stream)
        found.append(losses.joint.item())
    assert found[0] == found[1]
