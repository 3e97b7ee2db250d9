"""Settings: frozen, typed, ranged, defaults written once; presets ``paper`` and ``best``.

The defaults below are the paper's settings; ``presets.py`` lists where ours differ.
Functions take the one section that they need, or a plain value or two; never all of it.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, PositiveFloat, ValidationError, model_validator

from fedsage.errors import ConfigError, nearest
from fedsage.layering import Settings, explained, overlaid, renamed
from fedsage.presets import PRESETS, RENAMED, Preset

Width: TypeAlias = Annotated[int, Field(ge=1, le=4096)]  # of a layer, or a rank
Layers: TypeAlias = Annotated[tuple[Width, ...], Field(min_length=1, max_length=16)]
Draw: TypeAlias = Annotated[int, Field(ge=1, le=10**4)]  # neighbors, steps
Rounds: TypeAlias = Annotated[int, Field(ge=1, le=10**5)]
OrNone: TypeAlias = Annotated[int, Field(ge=0, le=10**5)]
Batch: TypeAlias = Annotated[int, Field(ge=1, le=10**9)]  # may be everything
Threads: TypeAlias = Annotated[int, Field(ge=1, le=1024)]
Weight: TypeAlias = Annotated[float, Field(ge=0, le=10**6)]  # of a term of a loss
Head: TypeAlias = Literal["relu", "l2", "direct"]
Norm: TypeAlias = Literal["none", "l2", "layer"]
OptimizerName: TypeAlias = Literal["adam", "adamw", "sgd"]
Output: TypeAlias = Literal["relu", "sigmoid", "tanh", "linear"]
Inference: TypeAlias = Literal["full", "sampled"]
Kernel: TypeAlias = Literal["auto", "fused", "torch"]
Privacy: TypeAlias = Literal["auto", "open", "sums"]


class Section(BaseModel, frozen=True, extra="forbid", allow_inf_nan=False):
    """A group of settings."""


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


class ModelConfig(Section):
    """The classifier F."""

    backbone: str = Field(
        "graphsage", description="Eq. (1), or gcn, gat, propagate, or your own file"
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
    steps: int = Field(10, ge=1, le=1000, description="propagation steps, for propagate")
    teleport: float = Field(
        0.1, ge=0, le=1, description="share of the start in every step, in propagate"
    )


class ClassifierConfig(Section):
    """Training of the classifier: procedures B and F."""

    rounds_c: Rounds = Field(50, description="e_c")
    local_epochs: int = Field(1, ge=1, le=1000, description="epochs of an owner in a round")
    batch_size: Batch = Field(64, description="|V_i^t| of a step")
    fanouts: tuple[Draw, ...] = Field((5, 5), description="neighbors drawn, for each layer")
    eta: PositiveFloat = Field(1e-3, description="learning rate")
    optimizer: OptimizerName = "adam"
    weight_decay: Weight = Field(0.0, description="weight decay; L2 penalty in adam and sgd")
    moments: Literal["own", "reset", "averaged"] = Field(
        "averaged", description="what happens to the optimizer's state between rounds"
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


class MendConfig(Section):
    """Graph mending: neighbors attached to the nodes of an owner."""

    how: str = Field(
        "neighgen",
        description="where fedsage+ gets neighbors from: a way listed by 'fedsage methods', or "
        "a .py file",
    )
    rank: Width = Field(64, description="of the subspace; less if owners are small")
    leaves: int = Field(1, ge=1, le=100, description="neighbors per node, copy and classes")
    mix: Literal["off", "rounds", "epochs"] = Field(
        "off", description="also train on the plain graph: every second round, or epoch"
    )
    queries: Literal["auto", "mended", "plain", "both"] = Field(
        "mended", description="graph that owners query; auto: best on validation nodes"
    )


class NeighGenConfig(Section):
    """NeighGen and its training: procedures A, C, D and E."""

    rounds_gen: Rounds = Field(20, description="e_g")
    hide_ratio: float = Field(0.15, gt=0, le=0.9, description="h% as a fraction: 0.15 for 15%")
    fresh: bool = Field(False, description="hide other nodes in every round")
    batch_size: Batch = Field(64, description="|V_i^t|")
    local_steps: Draw = Field(
        1, description="steps of an owner in a round; the first with others' gradients"
    )
    eta: PositiveFloat = Field(1e-3, description="learning rate of Adam")
    alpha: Weight = Field(1.0, description="weight of the others' gradients, Eq. (6)")
    lambda_d: Weight = Field(1.0, description="weight of the degree loss, Eq. (4)")
    lambda_f: Weight = Field(1.0, description="weight of the feature loss, Eq. (4)")
    lambda_c: Weight = Field(1.0, description="weight of the classification loss, Eq. (5)")
    widths: Layers = Field((64, 64), description="width of each encoder layer; the last is d_z")
    hidden: tuple[Width, ...] = Field(
        (64,), max_length=16, description="width of each layer of fGen between z and features"
    )
    output: Output = Field("relu", description="activation of fGen's last layer")
    noise: Weight = Field(1.0, description="scale of the noise N(0, 1)")
    counts: Literal["round", "draw"] = Field(
        "round", description="how dGen's number is rounded: to the nearest, or at random"
    )
    at_least: int = Field(0, ge=0, le=100, description="fewest neighbors generated for a node")
    at_most: int = Field(5, ge=1, le=100, description="most neighbors generated for a node")
    keep_words: bool = Field(
        False, description="keep only as many values in a generated row as real rows have"
    )
    match_norms: bool = Field(False, description="make generated rows as long as real ones")
    min_batch: int = Field(
        8,
        ge=2,
        le=10**6,
        description="smallest batch, and fewest rows, for which owners return a gradient",
    )
    partners: OrNone = Field(
        0, description="owners that get another's offer in a round; 0 means all"
    )
    memory_mb: Batch = Field(256, description="memory for the table of distances in matching")


class TrafficConfig(Section):
    """What owners and server send each other: procedures B and F, and mending."""

    how: Literal["full", "whole", "low-rank"] = Field(
        "full",
        description="full: weights and moments; whole: changes as whole numbers; low-rank: "
        "large layers in a few directions too",
    )
    rank: Width = Field(8, description="directions of a large layer")
    bits: Literal[8, 16] = Field(8, description="of a whole number; more for many owners")
    every: Rounds = Field(5, description="rounds between two measurements of second moments")
    feedback: float = Field(
        0.8, ge=0, le=1, description="share of the unsent rest that is sent later"
    )


class PrivacyConfig(Section):
    """Who can see what of an owner's replies."""

    level: Privacy = Field(
        "auto", description="open; sums: the server sees only sums; auto: sums in federations"
    )


class LinksConfig(Section):
    """Links to other owners that owners know of, for mending by links."""

    share: float = Field(1.0, ge=0, le=1, description="share that is known, in simulations")
    at_least: int = Field(
        2, ge=2, le=1000, description="nodes of each sum that are in no other sum"
    )
    match: Literal["intersection", "hashes"] = Field(
        "intersection",
        description="how owners find each other's nodes: by private set intersection, or by "
        "keyed hashes where both ends know every link",
    )
    others: Literal["copy", "nothing"] = Field(
        "copy", description="what is attached to nodes that get no sum"
    )


class EvaluationConfig(Section):
    """How nodes are queried."""

    inference: Inference = Field("sampled", description="neighborhoods that queries use")


class FederationConfig(Section):
    """Owners on separate machines."""

    deadline: float = Field(
        600.0, gt=0, le=10**7, description="seconds that an owner has to answer"
    )
    min_owners: OrNone = Field(0, description="fewer answers stop the run; 0 means all owners")


class RunConfig(Section):
    """What is run, and on what."""

    method: str = "fedsage+"
    seed: int = Field(0, ge=0)
    preset: Preset = "best"
    engine: Literal["inprocess", "nvflare"] = "inprocess"
    device: str = Field(
        "cpu", pattern=r"^(cpu|mps|cuda(:\d+)?)$", description="cpu, cuda, cuda:1, mps"
    )
    kernel: Kernel = Field("auto", description="compiled training step if possible, or torch's")
    threads: Threads = Field(1, description="for dense products; results may depend on it")
    workers: Threads = Field(1, description="owners at a time; results do not depend on it")


class Config(Section):
    """All settings of a run."""

    run: RunConfig = RunConfig()
    data: DataConfig = DataConfig()
    synthetic: SyntheticConfig = SyntheticConfig()
    model: ModelConfig = ModelConfig()
    classifier: ClassifierConfig = ClassifierConfig()
    mend: MendConfig = MendConfig()
    neighgen: NeighGenConfig = NeighGenConfig()
    traffic: TrafficConfig = TrafficConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    links: LinksConfig = LinksConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    federation: FederationConfig = FederationConfig()

    @model_validator(mode="after")
    def fits(self) -> Config:
        """Check settings that must agree with each other."""
        if len(self.classifier.fanouts) != len(self.model.widths):
            raise ConfigError(
                f"{len(self.model.widths)} layers (model.widths) need as many fan-outs, but "
                f"classifier.fanouts has {len(self.classifier.fanouts)}. Give one for each."
            )
        if self.neighgen.at_least > self.neighgen.at_most:
            raise ConfigError(
                f"neighgen.at_least is {self.neighgen.at_least}, above neighgen.at_most "
                f"{self.neighgen.at_most}. Raise neighgen.at_most."
            )
        if self.data.train + self.data.val >= 1:
            raise ConfigError(
                f"data.train {self.data.train:g} and data.val {self.data.val:g} leave no test "
                "nodes. Together they must stay below 1."
            )
        return self


def load_config(*layers: Settings, preset: str = "best") -> Config:
    """The preset with ``layers`` laid over it, later ones on top; checked once."""
    if preset not in PRESETS:
        raise ConfigError(f"Unknown preset '{preset}'.{nearest(preset, PRESETS)}")
    given = [renamed(layer, RENAMED) for layer in layers]
    merged = overlaid(PRESETS[preset], *given, {"run": {"preset": preset}})
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError(explained(error.errors()[0], Config)) from None
