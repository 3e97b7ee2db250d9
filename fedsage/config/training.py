"""Settings of the graph, of the classifier and its training, and of what is run."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsage.config.kinds import (
    Batch,
    Draw,
    Features,
    Head,
    Inference,
    Kernel,
    Layers,
    Norm,
    OptimizerName,
    OrNone,
    Rate,
    Rounds,
    Section,
    Threads,
    Weight,
)
from fedsage.presets import Preset


class DataConfig(Section):
    """The graph, who owns which part of it, and the shares for training and validation."""

    dataset: str = Field(
        "cora", description="a dataset's name, 'synthetic', pyg:CLASS/NAME, ogb:NAME, or a path"
    )
    owners: int = Field(3, gt=0, le=10**5, description="number of owners (M)")
    partition: str = Field(
        "louvain", description="how the graph is cut: louvain, metis, random or label:BETA"
    )
    train: float = Field(0.6, ge=1e-4, lt=0.99, description="share of training nodes")
    val: float = Field(0.2, ge=0, lt=1, description="share of validation nodes")
    split: Literal["own", "drawn"] = Field(
        "own", description="keep the split that a graph came with, or draw one by seed"
    )
    features: Features = Field(
        "raw",
        description="form of features: as they are, rows of one length (unit), roots, "
        "logarithms, tf-idf, or what suits the values (auto)",
    )
    missing_features: float = Field(0.0, ge=0, lt=1, description="share of values lost")
    missing_links: float = Field(0.0, ge=0, lt=1, description="share of links lost")
    few_labels: float = Field(0.0, ge=0, lt=1, description="share of training nodes lost")
    noisy_labels: float = Field(0.0, ge=0, lt=1, description="share of training labels wrong")

    @property
    def stressed(self) -> bool:
        """Whether anything is to be taken away or made wrong."""
        lost = self.missing_features, self.missing_links, self.few_labels, self.noisy_labels
        return any(lost)


class SyntheticConfig(Section):
    """The built-in graph, for --dataset synthetic."""

    nodes: int = Field(3000, ge=20, le=10**9, description="number of nodes")
    degree: float = Field(4.0, gt=0, le=10**4, description="mean number of neighbors")
    classes: int = Field(7, ge=2, le=10**4, description="classes, of a few communities each")
    features: int = Field(1000, ge=2, le=10**7, description="d_x, the number of words")
    words: float = Field(18.0, gt=0, le=10**4, description="mean number of words in a node")
    homophily: float = Field(0.8, ge=0, le=1, description="links inside a community")
    topicality: float = Field(0.25, ge=0, le=1, description="words from the class's topic")
    seed: int = Field(0, description="of the graph, independent of the run's seed")


class EvaluationConfig(Section):
    """How nodes are queried."""

    inference: Inference = Field("sampled", description="neighborhoods that queries use")
    models: Literal["main", "both"] = Field(
        "main", description="both: measure the shared model and every owner's own"
    )


SMALLEST = 16  # batches that are made smaller stay this large: a step tells less of each node


class ModelConfig(Section):
    """The classifier F."""

    backbone: str = Field(
        "graphsage",
        description="Eq. (1), or ensemble, mix, gcn, gat, propagate, or your own file",
    )
    widths: Layers = Field((64, 32), description="of the layers")
    head: Head = Field(
        "l2", description="how h^K becomes logits: linear on ReLU, linear on L2, unchanged"
    )
    norm: Norm = Field("none", description="normalization between layers")
    dropout: float = Field(
        0.0, ge=0, le=0.99, description="dropout on hidden layers, in steps of 1/256"
    )
    heads: int = Field(4, ge=1, le=64, description="attention heads, for gat")
    ensemble: int = Field(3, ge=1, le=64, description="classifiers, for ensemble")
    steps: int = Field(
        10, ge=1, le=1000, description="propagation steps, for propagate and mix"
    )
    teleport: float = Field(
        0.1, ge=0, le=1, description="share of the start in every step, in propagate and mix"
    )
    share: float = Field(
        0.5, ge=0, le=1, description="of the propagated answers, in mix; the rest is GraphSage"
    )


class ClassifierConfig(Section):
    """Training of the classifier: procedures B and F."""

    rounds_c: Rounds = Field(50, description="e_c")
    local_epochs: int = Field(1, ge=1, le=1000, description="epochs of an owner in a round")
    small_epochs: int = Field(
        1, ge=1, le=1000, description="the same, at least, if its nodes fit into one batch"
    )
    batch_size: Batch = Field(64, description="|V_i^t| of a step")
    min_steps: Draw = Field(
        1, description="steps in an epoch: with few nodes, smaller batches, down to 16 nodes"
    )
    fanouts: tuple[Draw, ...] = Field((5, 5), description="neighbors drawn, for each layer")
    eta: Rate = Field(1e-3, description="learning rate")
    eta_whole: float = Field(
        0.0, ge=0, le=1000, description="learning rate of GlobSage; 0: the same as of others"
    )
    cooling: float = Field(
        0.0, ge=0, le=1, description="share of the rounds, at the end, in which η falls to zero"
    )
    optimizer: OptimizerName = Field("adam", description="of the classifier")
    weight_decay: Weight = Field(0.0, description="weight decay; L2 penalty in adam and sgd")
    moments: Literal["own", "reset", "averaged"] = Field(
        "averaged", description="what happens to the optimizer's state between rounds"
    )
    self_training: float = Field(
        0.0,
        ge=0,
        le=1,
        description="owners with labels for less than a third of their nodes also train on "
        "nodes whose class is this sure, validation and test nodes too, e.g. 0.8; 0: on labels",
    )
    class_weights: Literal["none", "balanced"] = Field(
        "none", description="balanced: rare classes weigh as much as frequent ones"
    )
    weighting: Literal["owners", "nodes"] = Field(
        "owners", description="average owners equally, or by their number of training nodes"
    )
    aggregate: str = Field(
        "mean",
        description="how to combine the owners' classifiers: a rule from 'fedsage methods', or "
        "a .py file",
    )
    selection: Literal["validation", "last"] = Field(
        "last",
        description="which classifier is kept: the best on validation nodes, or the last",
    )
    patience: OrNone = Field(
        0, description="stop after this many rounds without a better validation; 0: never"
    )

    def at(self, t: int) -> ClassifierConfig:
        r"""The settings of round ``t``: η falls in equal steps over the last rounds.

        .. math::
            \eta_t = \eta \cdot \min(1, (e_c - t) / (\text{cooling} \cdot e_c))

        Rounds after the last one, which owners train at home, have η itself.
        """
        left = self.rounds_c - t
        if not 0 < left < self.cooling * self.rounds_c:
            return self
        return self.model_copy(update={"eta": self.eta * left / (self.cooling * self.rounds_c)})

    def batch_for(self, nodes: int) -> int:
        """The size of the batches of an owner with so many training nodes."""
        if self.min_steps == 1:
            return self.batch_size
        smaller = max(-(-nodes // self.min_steps), SMALLEST)
        return min(self.batch_size, smaller)

    def epochs(self, batches: float) -> int:
        """Epochs in a round of an owner with so many batches: more if there is only one."""
        return self.local_epochs if batches > 1 else self.most_epochs

    @property
    def most_epochs(self) -> int:
        """How many epochs any owner may train for in a round."""
        return max(self.local_epochs, self.small_epochs)


class RunConfig(Section):
    """What is run, and on what."""

    method: str = Field("fedsage+", description="one of 'fedsage methods', or your file")
    seed: int = Field(0, ge=0, description="of owners, split and training")
    preset: Preset = Field("best", description="the paper's settings, or what we found best")
    engine: Literal["inprocess", "nvflare"] = Field(
        "inprocess", description="all owners in one process, or real processes by NVFlare"
    )
    device: str = Field(
        "cpu", pattern=r"^(cpu|mps|cuda(:\d+)?)$", description="cpu, cuda, cuda:1, mps"
    )
    start_from: str = Field(
        "", description="folder of an earlier run, to begin with its classifier and generators"
    )
    kernel: Kernel = Field("auto", description="compiled training step if possible, or torch's")
    threads: Threads = Field(1, description="for dense products; results may depend on it")
    workers: Threads = Field(1, description="owners at a time; results do not depend on it")


class MethodConfig(Section, extra="allow"):
    """Settings that a method has for itself, as it names them; 'fedsage methods' lists them."""

    __pydantic_extra__: dict[str, float]

    @property
    def values(self) -> dict[str, float]:
        """By name."""
        return dict(self.__pydantic_extra__)

    def __getitem__(self, name: str) -> float:
        """One of them."""
        return self.values[name]
