"""What is attached for known links: a row for each, in the run and to nodes that come later."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float

from fedsage.errors import DataError
from fedsage.graph.graph import Graph
from fedsage.graph.mend import Generated, usual_weights
from fedsage.mending.links.far_ends import once
from fedsage.mending.links.groups import ALONE, class_guesses
from fedsage.mending.links.likely_rows import likely_rows
from fedsage.mending.links.received import HeldMeans, fingerprints, stacked
from fedsage.mending.way import NewNodes
from fedsage.models.parameters import Parameters
from fedsage.shapes import Array, NodeFeatures, NodeIds

COPIES = "copies"  # whether nodes without such links get a copy of themselves
WORDS = "words"  # the first column of which presence was summed
LINKS = "links"  # own node, and place of the other end among the nodes that are held


def remembered(
    held: HeldMeans, here: NodeIds, node: NodeIds, words: int, copies: bool
) -> Parameters:
    """What an owner keeps of a run for nodes that come after it."""
    links = torch.from_numpy(np.stack([here, node]).astype(np.int64))
    settings = {WORDS: torch.tensor([words]), COPIES: torch.tensor([int(copies)])}
    return held.tensors() | {LINKS: links} | settings


def for_new_nodes(new: NewNodes) -> Generated:
    """Neighbors of nodes that came after the run: their links are looked up in what was got.

    Their rows are guessed as in the run, as if the owner had always had the new nodes.
    """
    if LINKS not in new.remembered:
        raise DataError(
            "The run was made by an earlier version, which did not keep which known links lead "
            "to the sums that it got. Run fedsage+links again, then ask for new nodes."
        )
    held, old = HeldMeans.from_tensors(new.remembered), new.known
    assert old.split is not None  # the run's own
    place = held.places(fingerprints(new.remote.there))
    here, weights = new.remote.here, new.remote.weights
    found = once(here, place, weights, np.flatnonzero(place != ALONE))
    here, place = here[found], place[found]
    weights = None if weights is None else weights[found]
    near = np.flatnonzero(np.isin(held.group, held.group[place]))  # others change nothing
    before, node = new.remembered[LINKS].numpy()
    same = np.isin(node, near)
    ends = np.searchsorted(near, np.concatenate([node[same], place]))
    x = stacked(old.x, np.arange(old.num_nodes), new.graph.x[new.nodes])
    y = np.concatenate([old.y, np.full(len(new.nodes), -1)])
    rows = likely_rows(
        held.only(near),
        np.concatenate([before[same], old.num_nodes + here]),
        ends,
        x,
        class_guesses(x, y, old.split.train, old.num_classes),
        int(new.remembered[WORDS]),
    )
    parents, copies = new.nodes[here], bool(new.remembered[COPIES])
    mine = ends[len(ends) - len(here) :]
    return leaves(rows, parents, mine, weights, new.graph, new.nodes, copies)


def leaves(
    rows: NodeFeatures,
    here: NodeIds,
    there: NodeIds,
    weights: Float[Array, " links"] | None,
    graph: Graph,
    nodes: NodeIds,
    copies: bool,
) -> Generated:
    """Rows as neighbors of ``here``; those of ``nodes`` without get a copy, if so set."""
    rest = np.setdiff1d(nodes, here) if copies else nodes[:0]
    if weights is not None:
        weights = np.concatenate([weights, usual_weights(graph)[rest]])
    features = stacked(rows, there, graph.x[rest])
    return Generated(np.concatenate([here, rest]), features, weights)
