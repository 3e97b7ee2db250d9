"""Messages before and after training, between parties on separate machines."""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from fedsage.protocol.messages import OwnerId, message


@message
class Agreement:
    """S → D_i, before anything else: which run this is, and all its settings."""

    run: str
    owner: OwnerId  # i
    version: str  # the server's version of fedsage
    settings: str  # JSON
    files: str  # JSON: checksums of the user's own files, by setting


@message
class Consent:
    """D_i → S: whether D_i takes part in the run, once it has decided."""

    decided: bool
    yes: bool
    words: str  # of an owner that declines


@message
class Joined:
    """D_i → S: what must be the same for all owners, and how much data there is."""

    version: str
    schema: str  # checksum of the names of features and classes
    features: int  # d_x
    classes: int  # d_y
    nodes: int  # |V_i|; if sums are hidden, only as large as the settings depend on
    weight: float  # D_i's weight: 1, or its number of training nodes; 0 if hidden
    names: str  # JSON: the names of the classes, as in the schema
    columns: str  # JSON: name and kind of each, two bytes of a checksum of its settings


@message
class NodeCount:
    """D_i → S: |V_i|. S needs only the sum; asked for if sums are hidden."""

    nodes: int


@message
class ColumnSums:
    """D_i → S: how many values each numeric column has over all its nodes, and their sum."""

    count: Int[Tensor, " numbers"]
    total: Int[Tensor, "numbers digits"]  # as digits, so that sums are exact


@message
class ColumnMeans:
    """S → every D_i: the mean of each column over all owners."""

    mean: Float[Tensor, " numbers"]


@message
class ColumnSquares:
    """D_i → S: the sum of squared distances from that mean, for each column, as digits."""

    total: Int[Tensor, "numbers digits"]


@message
class ColumnScale:
    """S → every D_i: how to scale every numeric column."""

    mean: Float[Tensor, " numbers"]
    std: Float[Tensor, " numbers"]


@message
class FeatureLooks:
    """D_i → S, then in ``FeatureSums``: what the words of all its nodes look like."""

    rows: int  # nodes with words
    length: int  # of their rows together, in whole numbers
    values: int
    others: int  # values that are not one
    broken: int  # values that are not whole
    negative: int  # values below zero


@message
class WordCounts:
    """D_i → S: in how many of its nodes each feature is not zero."""

    count: Int[Tensor, " d_x"]


@message
class FeatureSums:
    """S → every D_i: the sums of both over all owners; a form of features follows from them."""

    looks: FeatureLooks
    counts: Int[Tensor, " d_x"]  # empty if they are not needed


@message
class WordsFrom:
    """D_i → S: the form is known; the first feature that it applies to, as in the schema."""

    first: int


@message
class Step:
    """S → D_i, after a restart: the point of the run to continue from."""

    phase: str
    t: int  # how many rounds of that phase D_i took part in
    mended: bool  # whether its graph was mended by then


@message
class Able:
    """D_i → S: whether D_i still has its state at that point."""

    yes: bool


@message
class Finish:
    """S → D_i: the run is over; on which of its graphs D_i should make its predictions."""

    view: str
    model: str  # checksum of the classifier that D_i must hold by now
    temperature: float  # with the slope: how scores become probabilities
    slope: float


@message
class Ready:
    """D_i → S: done; carries nothing else."""
