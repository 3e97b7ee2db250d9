r"""FedDEP-like training (Zhang et al., SDM 2024, https://arxiv.org/abs/2401.04336).

In FedSage+ owners generate features of missing neighbors. Here they generate *embeddings*,
which know of the neighbors' own neighbors, and what others add to that is sent only once:

1. At home, an encoder is trained on the owner's labels. :math:`z_u`, what enters its last
   layer, is computed from neighbors drawn at random. The paper's claim of privacy for links
   without added noise rests on these draws.
2. All :math:`z_u` of an owner are clustered. The means of the clusters, its prototypes, are
   sent to all others. :math:`p(u)` is the prototype of u's own cluster.
3. At home, a generator learns from prototypes alone, in as many steps as NeighGen takes in
   its rounds; no gradient travels (the paper's pseudo-FL). The loss is in
   :func:`fedsage.models.deep_gen.prototype_loss`.
4. A classifier whose layers add the mean generated embedding :math:`\bar z_v`
   (:mod:`fedsage.models.fusing`) is trained by FedAvg.

We had the paper's abstract, summaries of it and the authors' code. What differs:

- The code sends weights, embeddings and gradients of the generator among owners in every
  round. The abstract says that prototypes make this unnecessary, and we send them once.
- Clusters are of k-means, not of an autoencoder (DEC).
- All encoders begin with the same weights, so that their embeddings can be compared.
- Abroad the target is the nearest of all of an owner's prototypes; in the code, of a few
  that are drawn.
- dGen, fGen and how nodes are hidden are those of our NeighGen, with its settings. The code
  trains at home first and then freezes all but fGen; we train everything at once.
- Every layer has a matrix of its own for :math:`\bar z_v`; in the code they are chained.
- Neighbors are generated on the owner's whole graph; in the code, on what was not hidden.
- We claim no ε: neighbors are drawn anew in every epoch of the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.cluster.vq import kmeans2
from scipy.sparse import csr_array, hstack, issparse
from torch import Tensor

from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.mend import impair
from fedsage.graph.sampling import sample_hops
from fedsage.methods import method
from fedsage.models.backbone import BATCH, Backbone, feature_rows, new_model
from fedsage.models.deep_gen import DeepGen, Lesson, loss_of
from fedsage.models.gen_training import draw_batch
from fedsage.models.optimizer import make_optimizer
from fedsage.models.parameters import Logits
from fedsage.models.train import train_epoch
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, AtMost, Classifier, Form, Mended, OwnerId, message
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Sealed, procedure
from fedsage.protocol.server import ByModels, Rule
from fedsage.rivals.moon import into_head
from fedsage.rng import generator
from fedsage.shapes import Array, NodeIds


@message
class Prototypes:
    """D_i → S → every D_j: means of clusters of embeddings."""

    rows: Float[Tensor, "clusters d_z"]


@message
class OthersPrototypes:
    """S → D_j: those of all other owners."""

    of: dict[OwnerId, Prototypes]


def clustered(
    z: Float[Array, "V d_z"], clusters: int, stream: np.random.Generator
) -> tuple[Float[Array, "clusters d_z"], Int[Array, " V"]]:
    """The mean of every cluster that has nodes, and the cluster of each node."""
    _, found = kmeans2(z, min(clusters, len(z)), minit="++", seed=stream, missing="warn")
    kinds, of = np.unique(found, return_inverse=True)
    means = np.stack([z[of == k].mean(axis=0) for k in range(len(kinds))])
    return means.astype(np.float32), of


class DepOwner(DataOwner):
    """An owner that adds embeddings of missing neighbors to its features."""

    means: Float[Array, "clusters d_z"]
    kinds: Int[Array, " V"]
    deep: Graph | None = None  # G_i with z̄_v in columns after the features

    def encode(self) -> Float[Array, "V d_z"]:
        """z_u of all nodes, by an encoder trained at home."""
        how, plan = self.config.classifier, self.plan
        graphsage = plan.shape.model.model_copy(update={"backbone": "graphsage"})
        encoder = new_model(replace(plan.shape, model=graphsage), plan.stream("feddep"))
        optimizer = make_optimizer(encoder, "adam", how.eta, how.weight_decay)
        for epoch in range(int(self.config.method["epochs"])):
            stream = generator(self.seed, "feddep, encoder", self.id, epoch)
            train_epoch(encoder, optimizer, self.graph, self.split.train, how, stream)
        stream = generator(self.seed, "feddep, draws", self.id)
        return embeddings_of(encoder, self.graph, how.fanouts, stream)

    def cluster(self) -> Float[Array, "clusters d_z"]:
        """Its prototypes."""
        stream = generator(self.seed, "feddep, clusters", self.id)
        count = int(self.config.method["prototypes"])
        self.means, self.kinds = clustered(self.encode(), count, stream)
        return self.means

    def learn(self, abroad: Sequence[Float[Array, "clusters d_z"]]) -> None:
        """Train the generator, and attach what it generates."""
        plan = self.plan
        gen = DeepGen(plan.shape, plan.config.neighgen, plan.stream("feddep generator"))
        how = gen.settings
        optimizer = make_optimizer(gen, "adam", how.eta, 0.0)
        stream = generator(self.seed, "feddep, generator", self.id)
        impaired = impair(self.graph, how.hide_ratio, stream)
        at_home = self.means[self.kinds[impaired.hidden]]
        is_train = np.isin(impaired.kept, self.split.train)
        cpu, fanouts = torch.device("cpu"), self.config.classifier.fanouts
        for _ in range(how.rounds_gen * how.local_steps):
            batch = draw_batch(impaired, how.batch_size, fanouts, cpu, stream)
            known = np.flatnonzero(is_train[batch.nodes])
            counts = torch.from_numpy(impaired.num_missing[batch.nodes].astype(np.float32))
            y = torch.from_numpy(impaired.graph.y[batch.nodes[known]])
            lesson = Lesson(batch, counts, impaired.missing[batch.nodes], known, y)
            optimizer.zero_grad()
            loss_of(gen, lesson, at_home, abroad, stream).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        with torch.no_grad():
            bar = gen.bar(gen.encoder.on_graph(self.graph), stream)
        self.deep = with_columns(self.graph, bar.numpy())

    def trained_on(self, t: int) -> dict[str, Graph]:
        """The graph with embeddings."""
        return super().trained_on(t) if self.deep is None else {"local_update_c": self.deep}

    def answers(self, graph: Graph, nodes: NodeIds) -> Logits:
        """With its embeddings on its own graph; they are zero on any other."""
        own = self.deep is not None and graph is self.graph
        return super().answers(self.deep if own else graph, nodes)  # type: ignore[arg-type]


@torch.no_grad()
def embeddings_of(
    encoder: Backbone, graph: Graph, fanouts: Sequence[int], stream: np.random.Generator
) -> Float[Array, "V d_z"]:
    """What enters the encoder's head, each node's from neighbors drawn at random."""
    parts = []
    for start in range(0, graph.num_nodes, BATCH):
        nodes = np.arange(start, min(start + BATCH, graph.num_nodes))
        hops = sample_hops(graph, nodes, fanouts, stream)
        rows = feature_rows(graph.x, hops[0].inputs, encoder.device)
        parts.append(into_head(encoder, rows, hops))
    return torch.cat(parts).cpu().numpy()


def with_columns(graph: Graph, more: Float[Array, "V d_z"]) -> Graph:
    """The same graph with more columns of features."""
    if not issparse(graph.x):
        return replace(graph, x=np.concatenate([graph.x, more], axis=1))
    return replace(graph, x=csr_array(hstack([graph.x, csr_array(more)])))


def form_of_prototypes(plan: Plan) -> dict[str, Form]:
    """At most as many as agreed; an owner may have fewer nodes."""
    return {
        "rows": (AtMost(int(plan.config.method["prototypes"])), plan.config.model.widths[-1])
    }


@procedure(
    phase="mending",
    uses=Sealed,
    shapes=form_of_prototypes,
    leaves="Once, before training: means of groups of embeddings of your nodes, which the "
    "server passes to all other owners.",
)
def prototypes(owner: DataOwner, ask: Ask) -> Prototypes:
    """Train an encoder at home, cluster its embeddings, and send the means."""
    assert isinstance(owner, DepOwner)
    return Prototypes(torch.from_numpy(owner.cluster()))


@procedure(phase="mending", owed=True)
def learn_neighbors(owner: DataOwner, others: OthersPrototypes) -> Mended:
    """Train the generator at home on one's own and the others' prototypes."""
    assert isinstance(owner, DepOwner)
    owner.learn([one.rows.numpy() for _, one in sorted(others.of.items())])
    return Mended()


@method(
    "feddep",
    owner=DepOwner,
    options={"prototypes": 5, "epochs": 50},
    search={"method.prototypes": (5, 10, 20)},
)
class FedDEP(ByModels):
    """FedDEP-like: owners generate embeddings of missing neighbors from shared prototypes.

    Take it with ``model.backbone=fusing``. On the whole graph no neighbor is missing, and
    none is generated.

    Note:
        For the level ``open``: prototypes pass through the server, as does every model.
    """

    def __init__(self, exchange: Exchange, rule: Rule) -> None:
        super().__init__(exchange, rule)
        model = exchange.plan.config.model
        if model.backbone != "fusing" or model.head == "direct":
            raise ConfigError(
                "feddep needs a classifier that takes embeddings and has a last layer of its "
                "own. Use --set model.backbone=fusing with model.head=relu or l2, or the name "
                "feddep@fusing in the arena."
            )

    def start(self, classifier: Classifier) -> None:
        """Before the first classifier is sent, exchange prototypes and generate neighbors."""
        sent = self.exchange.pass_on(prototypes, Ask(0))
        others = {
            i: OthersPrototypes({j: one for j, one in sent.items() if j != i}) for i in sent
        }
        self.exchange.all(learn_neighbors, others)
