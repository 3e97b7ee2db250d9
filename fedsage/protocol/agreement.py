"""Messages before and after training, between parties on separate machines."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from fedsage.protocol.messages import OwnerId, message


@message
class Agreement:
    """S → D_i, before anything else: which run this is, and all of its settings."""

    run: str
    owner: OwnerId  # i
    version: str  # of fedsage, at the server
    settings: str  # JSON
    files: str  # of a user's own, by setting: their checksums; JSON


@message
class Joined:
    """D_i → S: what must be the same at all owners, and how much there is."""

    version: str
    schema: str  # checksum of names of features and classes
    features: int  # d_x
    classes: int  # d_y
    nodes: int  # |V_i|; where sums are hidden, no more than settings depend on
    weight: float  # what D_i will weigh: 1, or its number of training nodes; 0 if hidden
    names: str  # of the classes, as in the schema; JSON


@message
class NodeCount:
    """D_i → S: |V_i|, of which S needs the sum where sums are hidden."""

    nodes: int


@message
class ColumnSums:
    """D_i → S: over all its nodes, how many numbers each column has, and their sum."""

    count: Int[Tensor, " numbers"]
    total: Int[Tensor, "numbers digits"]  # as digits, whose sums are exact


@message
class ColumnMeans:
    """S → every D_i: the mean of each column over all owners."""

    mean: Float[Tensor, " numbers"]


@message
class ColumnSquares:
    """D_i → S: the sum of squared distances from that mean, column by column, as digits."""

    total: Int[Tensor, "numbers digits"]


@message
class ColumnScale:
    """S → every D_i: how every column of numbers is scaled."""

    mean: Float[Tensor, " numbers"]
    std: Float[Tensor, " numbers"]


@message
class Step:
    """S → D_i, after a restart: a moment of the run to go on from."""

    phase: str
    t: int  # rounds of that phase that D_i took part in
    mended: bool  # whether its graph was mended by then


@message
class Able:
    """D_i → S: whether D_i has kept its state of that moment."""

    yes: bool


@message
class Finish:
    """S → D_i: the run is over; which of its graphs D_i had better query."""

    view: str
    model: str  # checksum of the classifier that D_i must have by now


@message
class Ready:
    """D_i → S: done, and nothing else."""
