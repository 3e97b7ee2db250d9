"""A second stage that never leaves its owner: what it does costs no ε.

Each owner fits a logistic regression of its own on what it alone can see of a node: the shared
classifier's answers for it and around it, the known labels nearby, and the answers of a ridge
regression of its own on the node's features and their mean over its neighbors. For training
nodes these are the answers without their own label, so that the stage learns what they are
worth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy  # loads its parts when they are used, and only private runs use these
import torch
from jaxtyping import Float, Int
from scipy.sparse import csr_array, hstack

from fedsage.graph.graph import Graph
from fedsage.models.backbone import Backbone, feature_rows
from fedsage.models.edges import Edges, edges_of_graph, edges_of_hops
from fedsage.models.linear import unit_rows
from fedsage.models.parameters import Parameters
from fedsage.shapes import Array, NodeIds

STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)  # of the L2 penalty; by validation nodes
RIDGES = (0.3, 1.0, 3.0, 10.0)  # of the ridge regression; by answers without their own label
ROWS = 3000  # training nodes that the ridge regression uses at most
STEPS = 200


@dataclass(frozen=True, slots=True, eq=False)
class Home:
    """The weights of one owner's own stage."""

    weight: Float[Array, "k d_y"]
    bias: Float[Array, " d_y"]
    ridge: Float[Array, "d d_y"]  # on features and their means, a constant last

    def parameters(self) -> Parameters:
        """As tensors, for a file."""
        found = {"weight": self.weight, "bias": self.bias, "ridge": self.ridge}
        return {name: torch.from_numpy(one.copy()) for name, one in found.items()}


def home_of(parameters: Parameters) -> Home:
    """The inverse of :meth:`Home.parameters`."""
    return Home(*(parameters[name].numpy() for name in ("weight", "bias", "ridge")))


def mean_of_neighbors(graph: Graph) -> csr_array:
    """The matrix that takes means over neighbors."""
    share = 1 / np.maximum(graph.degrees, 1).astype(np.float32)
    weights = np.repeat(share, graph.degrees)
    return csr_array((weights, graph.indices, graph.indptr), shape=(graph.num_nodes,) * 2)


def features_at_home(graph: Graph, mean: csr_array) -> csr_array:
    """Every node's features, their means over its neighbors, and a constant."""
    rows = unit_rows(feature_rows(graph.x, slice(None), torch.device("cpu")))
    x = rows if isinstance(rows, csr_array) else csr_array(rows.numpy())
    one = csr_array(np.ones((graph.num_nodes, 1), np.float32))
    return csr_array(hstack([x, mean @ x, one]))


def seen_at_home(
    model: Backbone, graph: Graph, known: Int[Array, " V"], mean: csr_array
) -> Float[Array, "V k"]:
    """Answers around every node and labels nearby; ``known`` is −1 where there is none."""
    edges, nodes = edges_of_graph(graph), graph.num_nodes
    answers = [
        shares_of(model, graph, edges),
        shares_of(model, graph, edges_of_hops((), nodes)),
    ]
    answers += [mean @ answers[1], mean @ (mean @ answers[1])]
    labels = one_hot(known, graph.num_classes)
    near = mean @ labels
    back = np.asarray(mean.multiply(mean.T.tocsr()).sum(axis=1))  # to a neighbor and back
    far = mean @ near - back[:, None] * labels  # no node sees its own label
    return np.hstack([*answers, near, far])


def one_hot(known: Int[Array, " n"], classes: int) -> Float[Array, "n d_y"]:
    """A one at each known label."""
    found = np.zeros((len(known), classes), np.float32)
    told = np.flatnonzero(known >= 0)
    found[told, known[told]] = 1
    return found


def ridge_of(
    rows: csr_array, y: Int[Array, " n"], classes: int
) -> tuple[Float[Array, "d d_y"], Float[Array, "n d_y"]]:
    """Ridge regression, and its answer for each row as if that row had not been there.

    With G = (K + λ)⁻¹ and α = G Y, that answer is Y − α / diag(G). λ has the smallest error.
    """
    labels = one_hot(y, classes).astype(np.float64)
    values, vectors = np.linalg.eigh((rows @ rows.T).toarray().astype(np.float64))
    best, found = np.inf, (np.empty(0), np.empty(0))
    for strength in RIDGES:
        inverse = 1 / (np.maximum(values, 0) + strength)
        alpha = vectors @ (inverse[:, None] * (vectors.T @ labels))
        error = alpha / (np.square(vectors) @ inverse)[:, None]
        if (size := float(np.square(error).sum())) < best:
            best, found = size, (alpha, labels - error)
    return np.asarray(rows.T @ found[0]), found[1]


def shares_of(model: Backbone, graph: Graph, edges: Edges) -> Float[Array, "V d_y"]:
    """What the shared classifier answers with these links."""
    with torch.no_grad():
        scores = model.on_edges(feature_rows(graph.x, slice(None), model.device), edges)
        return scores.softmax(dim=1).cpu().numpy()


def fit_home(model: Backbone, graph: Graph, train: NodeIds, val: NodeIds) -> Home:
    """Fit on training nodes; how strongly weights are held small is chosen on validation nodes.

    Without validation nodes it is the middle strength.
    """
    mean = mean_of_neighbors(graph)
    rows = features_at_home(graph, mean)
    some = train[:: -(-len(train) // ROWS) or 1]
    ridge, without = ridge_of(rows[some], graph.y[some], graph.num_classes)
    own = np.asarray(rows @ ridge)
    own[some] = without
    seen = np.hstack([seen_at_home(model, graph, known_labels(graph, train), mean), own])
    strengths = STRENGTHS if len(val) else STRENGTHS[len(STRENGTHS) // 2 :][:1]
    tried = [fitted(seen[train], graph.y[train], graph.num_classes, one) for one in strengths]
    weight, bias = min(tried, key=lambda one: loss_of(one[0], one[1], seen[val], graph.y[val]))
    return Home(weight, bias, ridge)


def known_labels(graph: Graph, train: NodeIds) -> Int[Array, " V"]:
    """The labels of training nodes, −1 for all others."""
    known = np.full(graph.num_nodes, -1)
    known[train] = graph.y[train]
    return known


def loss_of(
    weight: Float[Array, "k d_y"],
    bias: Float[Array, " d_y"],
    seen: Float[Array, "n k"],
    y: Int[Array, " n"],
) -> float:
    """Mean cross entropy; 0 for no nodes."""
    scores = scipy.special.log_softmax(seen @ weight + bias, axis=1)
    return -float(scores[np.arange(len(y)), y].mean()) if len(y) else 0.0


def fitted(
    seen: Float[Array, "n k"], y: Int[Array, " n"], classes: int, strength: float
) -> tuple[Float[Array, "k d_y"], Float[Array, " d_y"]]:
    """Multinomial logistic regression with an L2 penalty, by L-BFGS."""
    size = seen.shape[1] + 1, classes
    labels = one_hot(y, classes)

    def loss(flat: Float[Array, " n"]) -> tuple[float, Float[Array, " n"]]:
        weights = flat.reshape(size)
        scores = scipy.special.log_softmax(seen @ weights[:-1] + weights[-1], axis=1)
        residual = (np.exp(scores) - labels) / len(y)
        value = -(labels * scores).sum() / len(y)
        value += strength / 2 * np.square(weights[:-1]).sum()
        gradient = np.vstack([seen.T @ residual, residual.sum(axis=0)])
        gradient[:-1] += strength * weights[:-1]
        return float(value), gradient.ravel()

    how = {"jac": True, "method": "L-BFGS-B", "options": {"maxiter": STEPS}}
    found = scipy.optimize.minimize(loss, np.zeros(size).ravel(), **how).x.reshape(size)
    return found[:-1], found[-1]


def home_shares(
    home: Home, model: Backbone, graph: Graph, known: Int[Array, " V"], nodes: NodeIds
) -> Float[Array, "n d_y"]:
    """The probability of each class of ``nodes``, as their owner answers.

    A training node is answered with its own label in mind; for others there is none.
    """
    mean = mean_of_neighbors(graph)
    own = np.asarray(features_at_home(graph, mean)[nodes] @ home.ridge)
    seen = np.hstack([seen_at_home(model, graph, known, mean)[nodes], own])
    return np.asarray(np.exp(scipy.special.log_softmax(seen @ home.weight + home.bias, axis=1)))
