"""Settings of graph mending: which way, and what each way needs."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from fedsage.config.kinds import (
    Batch,
    Draw,
    Layers,
    OrNone,
    Output,
    Rate,
    Rounds,
    Section,
    Weight,
    Width,
)


class MendConfig(Section):
    """Graph mending: neighbors attached to the nodes of an owner."""

    how: str = Field(
        "neighgen",
        description="where fedsage+ gets neighbors from: a way listed by 'fedsage methods', or "
        "a .py file; auto: subspace, and copy where sums are hidden",
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
    eta: Rate = Field(1e-3, description="learning rate of Adam")
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


class LinksConfig(Section):
    """Links to other owners that owners know of, for mending by links."""

    share: float = Field(1.0, ge=0, le=1, description="share that is known, in simulations")
    at_least: int = Field(
        2, ge=2, le=1000, description="fewest remote nodes that are summed together"
    )
    match: Literal["intersection", "hashes"] = Field(
        "intersection",
        description="how owners find each other's nodes: by private set intersection, or by "
        "keyed hashes where both ends know every link",
    )
    others: Literal["copy", "nothing"] = Field(
        "copy", description="what is attached to nodes that get no sum"
    )
