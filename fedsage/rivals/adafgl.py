"""AdaFGL (Li et al., ICDE 2024, https://arxiv.org/abs/2401.11750)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from fedsage.graph.graph import Graph
from fedsage.methods import method
from fedsage.models.backbone import dense, feature_rows
from fedsage.models.edges import edges_of_graph, smoothed
from fedsage.models.layers import glorot
from fedsage.models.parameters import Logits
from fedsage.protocol.guard import too_many_hits
from fedsage.protocol.messages import Ask, Classifier, Hits
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import Summed, procedure
from fedsage.protocol.server import ByModels
from fedsage.rng import generator
from fedsage.shapes import NodeIds

SAME = 0.999  # nodes whose answers are that close are taken as linked, as its authors do
HIDDEN, SPREADS = 64, 10  # width of a layer; steps of label propagation


def closeness(soft: Float[Tensor, "V d"]) -> Float[Tensor, "V V"]:
    r"""The cosine of two nodes' answers :math:`\hat P`; 0 of a node with itself."""
    unit = F.normalize(soft, dim=1)
    return (unit @ unit.T).fill_diagonal_(0)


def propagation(
    graph: Graph, soft: Float[Tensor, "V d_y"], alpha: float
) -> Float[Tensor, "V V"]:
    r"""The matrix by which features are propagated at home.

    .. math::
        P = \alpha A + (1 - \alpha) [\cos(\hat P_u, \hat P_v) > s], \quad
        \tilde P = D^{-1/2} (P + I) D^{-1/2}

    from links and from what the shared classifier answers, :math:`\hat P`.
    """
    links = torch.from_numpy(graph.adjacency.toarray())
    mixed = alpha * links + (1 - alpha) * (closeness(soft) > SAME).float()
    mixed += torch.eye(len(mixed))
    scale = mixed.sum(dim=1).rsqrt()
    return scale[:, None] * mixed * scale[None]


def homophily(graph: Graph, train: NodeIds, seed: int, owner: int, alpha: float) -> float:
    """How well half of the training labels tell the others, propagated over links."""
    order = generator(seed, "adafgl", "homophily", owner).permutation(train)
    known, asked = np.array_split(order, 2)
    if not len(known) or not len(asked):
        return 0.5
    start = torch.full((graph.num_nodes, graph.num_classes), 1 / graph.num_classes)
    start[known] = F.one_hot(torch.from_numpy(graph.y[known]), graph.num_classes).float()
    edges, found = edges_of_graph(graph), start
    for _ in range(SPREADS):
        found = alpha * start + (1 - alpha) * smoothed(found, edges)
        found[known] = start[known]
    right = found[asked].argmax(dim=1) == torch.from_numpy(graph.y[asked])
    return float(right.float().mean())


class Perceptron(nn.Module):
    """Linear layers, with a ReLU and dropout between them."""

    def __init__(self, d_in: int, d_out: int, stream: np.random.Generator) -> None:
        super().__init__()
        sizes = [(d_in, HIDDEN), (HIDDEN, d_out)]
        self.weights = nn.ParameterList(glorot(*size, stream) for size in sizes)
        self.biases = nn.ParameterList(torch.zeros(size[1]) for size in sizes)

    def forward(
        self, x: Float[Tensor, "V d"], keep: Float[Tensor, "V h"] | None
    ) -> Float[Tensor, "V d_y"]:
        """The last layer's output; ``keep`` is what dropout multiplies hidden values by."""
        h = torch.relu(x @ self.weights[0] + self.biases[0])
        logits: Tensor = (h if keep is None else h * keep) @ self.weights[1] + self.biases[1]
        return logits


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What the second step works on; none of it changes."""

    x: Float[Tensor, "V d_x"]
    spread: Float[Tensor, "V many"]  # features after 0, 1, … steps of propagation
    soft: Float[Tensor, "V d_y"]  # what the shared classifier answers


class AtHome(nn.Module):
    """An owner's own model on top of the shared one: two ways to propagate, mixed."""

    def __init__(self, seen: Seen, sure: float, stream: np.random.Generator) -> None:
        super().__init__()
        classes = seen.soft.shape[1]
        self.seen, self.sure = seen, sure
        self.smooth, self.apart, self.signed = (
            Perceptron(size, classes, stream)
            for size in (seen.spread.shape[1], seen.x.shape[1], seen.spread.shape[1])
        )

    def parts(self, stream: np.random.Generator | None) -> list[Float[Tensor, "V d_y"]]:
        """Logits of smoothed features, of plain ones, and after signed messages."""
        x, spread, nodes = self.seen.x, self.seen.spread, len(self.seen.x)

        def keep() -> Float[Tensor, "V h"] | None:
            if stream is None:
                return None
            drawn = stream.random((nodes, HIDDEN), dtype=np.float32) < 0.5
            return torch.from_numpy(drawn.astype(np.float32)) * 2

        own = self.signed(spread, keep())
        alike = closeness(own.softmax(dim=1))
        centred = alike - alike.mean()
        plus, minus = torch.relu(centred), torch.relu(-centred)
        plus, minus = (one / one.max().clamp_min(1e-9) for one in (plus, minus))
        messages = (plus @ own).softmax(dim=1) - (minus @ own).softmax(dim=1)
        return [self.smooth(spread, keep()), self.apart(x, keep()), (messages + own) / 2]

    def loss(self, y: Tensor, train: Tensor, stream: np.random.Generator) -> Float[Tensor, ""]:
        r"""Cross entropy of every part, and :math:`\lVert H - \hat P \rVert^2` of the first."""
        parts = self.parts(stream)
        entropy = sum(F.cross_entropy(one[train], y[train]) for one in parts)
        return entropy + F.mse_loss(parts[0], self.seen.soft)

    def forward(self) -> Float[Tensor, "V d_y"]:
        """The share of each class, mixed by how far labels follow links."""
        smooth, apart, signed = (one.softmax(dim=1) for one in self.parts(None))
        follows = (smooth + self.seen.soft) / 2
        differs = (smooth + apart + signed) / 3
        return self.sure * follows + (1 - self.sure) * differs


class AdaOwner(DataOwner):
    """An owner that goes on at home when the shared classifier is done."""

    at_home: Float[Tensor, "V d_y"] | None = None  # logarithms of its own shares

    def answers(self, graph: Graph, nodes: NodeIds) -> Logits:
        """Its own on its own graph, once there are any; else the shared classifier's."""
        if self.at_home is None or graph is not self.graph:
            return super().answers(graph, nodes)
        return self.at_home[torch.tensor(nodes)]

    def train_at_home(self) -> None:
        """The second step; the epoch that is best on validation nodes is kept."""
        own, graph = self.config.method, self.graph
        soft = super().answers(graph, np.arange(graph.num_nodes)).exp()
        matrix = propagation(graph, soft, own["alpha"])
        x = dense(feature_rows(graph.x, slice(None), torch.device("cpu")), torch.device("cpu"))
        spread = [x]
        for _ in range(int(own["steps"])):
            spread.append(matrix @ spread[-1])
        seen = Seen(x, torch.cat(spread, dim=1), soft)
        stream = generator(self.seed, "adafgl", self.id)
        sure = homophily(graph, self.split.train, self.seed, self.id, own["alpha"])
        model = AtHome(seen, sure, stream)
        step = torch.optim.Adam(model.parameters(), lr=own["eta"], weight_decay=5e-4)
        y, train = torch.tensor(graph.y), torch.tensor(self.split.train)
        val, best = torch.tensor(self.split.val), -1.0
        for _ in range(int(own["epochs"])):
            step.zero_grad()
            model.loss(y, train, stream).backward()  # type: ignore[no-untyped-call]
            step.step()
            with torch.no_grad():
                shares = model()
            right = float((shares[val].argmax(dim=1) == y[val]).float().mean())
            if right > best or not len(val):
                best, self.at_home = right, (shares + 1e-12).log()


@procedure(
    phase="training",
    uses=Summed,
    check=too_many_hits,
    leaves="After training: how many of your validation nodes your own model gets right.",
)
def train_at_home(owner: DataOwner, ask: Ask) -> Hits:
    """The second step, at home; its hits on validation nodes leave, and nothing else."""
    assert isinstance(owner, AdaOwner)
    owner.train_at_home()
    return owner.hits(owner.split.val)


@method(
    "adafgl",
    owner=AdaOwner,
    options={"alpha": 0.5, "steps": 3, "epochs": 50, "eta": 1e-2},
    search={"method.alpha": (0.5, 0.8, 0.3)},
)
class AdaFGL(ByModels):
    """AdaFGL: FedAvg, and then every owner trains a model of its own on top of it.

    The shared classifier says which of an owner's nodes are alike. At home its features are
    propagated over links and over such pairs, and three small models learn from them; how far
    labels follow links decides how they are mixed. What the server averages is as in FedSage.

    Note:
        Local accuracy is that of the owner's own model. It knows the owner's own nodes alone,
        so that there is none on the whole graph: there the shared classifier is asked.
    """

    def end(self, best: Classifier, t: int, last: int) -> Hits:
        """Send the best classifier, then let owners go on."""
        super().end(best, t, last)
        return self.exchange.sum(train_at_home, Ask(t))
