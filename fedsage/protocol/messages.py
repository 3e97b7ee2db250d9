"""Everything that may cross an owner's boundary. If it is not here, it does not cross."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from jaxtyping import Float
from torch import Tensor

from fedsage.models.parameters import Parameters

OwnerId: TypeAlias = int
View: TypeAlias = Literal["plain", "mended", "both"]  # of a graph that is queried


@dataclass(frozen=True, slots=True)
class Ask:
    """S → D_i: run a procedure; says which round, and nothing else."""

    t: int


@dataclass(frozen=True, slots=True)
class GenOffer:
    """Procedure C, D_i → S → every D_j: what others need to run H^g_i on Z_i^t."""

    t: int
    z: Float[Tensor, "batch d_z"]  # Z_i^t
    hg: Parameters  # H^g_i; the encoder H^e_i stays home


@dataclass(frozen=True, slots=True)
class GenOffers:
    """Procedure A, S → D_j: the offers of all other owners."""

    of: dict[OwnerId, GenOffer]


@dataclass(frozen=True, slots=True)
class GenGradients:
    """Procedure D, D_j → S: for every other D_i, the gradient of L^f_{i,j} in H^g_i."""

    of: dict[OwnerId, Parameters]


@dataclass(frozen=True, slots=True)
class GenGradient:
    """Procedure A, S → D_i: the sum of those gradients over all other owners, unweighted."""

    t: int
    hg: Parameters  # empty where there is no other owner


@dataclass(frozen=True, slots=True)
class GenDone:
    """Procedure E, D_i → S: the round is over; the mean of each loss over its steps."""

    loss: float  # Eq. (5), what D_i sees of it
    degree: float  # L^d
    feature: float  # L^f, first term
    classification: float  # L^c


@dataclass(frozen=True, slots=True)
class SharedNeighGen:
    """S → every D_i, in ``fedsage+shared`` alone: the averaged NeighGen with its encoder."""

    t: int
    theta: Parameters


@dataclass(frozen=True, slots=True)
class NeighGenUpdate:
    """D_i → S, in ``fedsage+shared`` alone: NeighGen after local training."""

    theta: Parameters
    done: GenDone


@dataclass(frozen=True, slots=True)
class ClassLinks:
    """D_i → S, then summed S → every D_i, in ``fedsage+classes`` alone.

    How many links there are from class to class between training nodes: d_y × d_y numbers of
    which S needs the sum alone, so that a secure sum can hide each owner's.
    """

    count: Float[Tensor, "d_y d_y"]


@dataclass(frozen=True, slots=True)
class Subspace:
    """S → every D_i, in ``fedsage+subspace`` alone: where all owners' features lie."""

    basis: Float[Tensor, "d_x rank"]


@dataclass(frozen=True, slots=True)
class Sketch:
    """D_i → S, in ``fedsage+subspace`` alone: X_iᵀ X_i times that basis.

    A sum over all nodes of D_i, of which S needs the sum over owners alone, so that a secure
    sum can hide each owner's.
    """

    product: Float[Tensor, "d_x rank"]


@dataclass(frozen=True, slots=True)
class Mended:
    """Algorithm 1, line 3, D_i → S: G'_i is ready, and stays where it is."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """Procedure B, S → every D_i: the shared classifier."""

    phi: Parameters
    moments: Parameters  # of the optimizer; empty unless they are averaged too


@dataclass(frozen=True, slots=True)
class ClassifierUpdate:
    """Procedure F, D_i → S: the classifier after local training."""

    phi: Parameters  # φ_i
    moments: Parameters  # empty unless they are averaged too
    weight: float  # 1, or the number of training nodes if the mean is weighted by them
    loss: float


@dataclass(frozen=True, slots=True)
class Hits:
    """D_i → S: how many of its validation (or test) nodes the classifier gets right."""

    plain: int  # queried on G_i
    mended: int  # queried on G'_i; the same where nothing is mended
    both: int  # by the product of both answers
    total: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """S → D_i, before anything else: which run this is, and all of its settings."""

    run: str
    owner: OwnerId  # i
    version: str  # of fedsage, at the server
    settings: str  # JSON


@dataclass(frozen=True, slots=True)
class Joined:
    """D_i → S: what must be the same at all owners, and how much there is."""

    version: str
    schema: str  # checksum of names of features and classes
    features: int  # d_x
    classes: int  # d_y
    nodes: int  # |V_i|
    weight: float  # what D_i will weigh: 1, or its number of training nodes
    names: str  # of the classes, as in the schema; JSON


@dataclass(frozen=True, slots=True)
class ColumnSums:
    """D_i → S: over all its nodes, how many numbers each column has, and their sum."""

    count: Float[Tensor, " numbers"]
    total: Float[Tensor, " numbers"]


@dataclass(frozen=True, slots=True)
class ColumnMeans:
    """S → every D_i: the mean of each column over all owners."""

    mean: Float[Tensor, " numbers"]


@dataclass(frozen=True, slots=True)
class ColumnSquares:
    """D_i → S: the sum of squared distances from that mean, column by column."""

    total: Float[Tensor, " numbers"]


@dataclass(frozen=True, slots=True)
class ColumnScale:
    """S → every D_i: how every column of numbers is scaled."""

    mean: Float[Tensor, " numbers"]
    std: Float[Tensor, " numbers"]


@dataclass(frozen=True, slots=True)
class Step:
    """S → D_i, after a restart: a moment of the run to go on from."""

    phase: str
    t: int  # rounds of that phase that D_i took part in
    mended: bool  # whether its graph was mended by then


@dataclass(frozen=True, slots=True)
class Able:
    """D_i → S: whether D_i has kept its state of that moment."""

    yes: bool


@dataclass(frozen=True, slots=True)
class Finish:
    """S → D_i: the run is over; which of its graphs D_i had better query."""

    view: str
    model: str  # checksum of the classifier that D_i must have by now


@dataclass(frozen=True, slots=True)
class Ready:
    """D_i → S: done, and nothing else."""


MESSAGES = (
    Ask, GenOffer, GenOffers, GenGradients, GenGradient, GenDone, SharedNeighGen,
    NeighGenUpdate, ClassLinks, Subspace, Sketch, Mended, Classifier, ClassifierUpdate, Hits,
    Agreement, Joined, ColumnSums, ColumnMeans, ColumnSquares, ColumnScale, Step, Able, Finish,
    Ready,
)  # fmt: skip
