"""The form of node features: as they are, of one length, roots, logarithms, or tf-idf.

What a form needs to know of all owners comes from sums of whole numbers over their nodes: these
have the same bits however they are added up. Sparse features stay sparse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.sparse import csr_array, hstack, issparse

from fedsage.errors import ConfigError
from fedsage.graph.graph import Graph
from fedsage.graph.partition import Partition
from fedsage.shapes import Array, NodeFeatures

POINT = 16  # binary places of a summed length
RAREST = 8  # nodes: a word in fewer of them weighs as if it were in so many


class Looks(NamedTuple):
    """What features look like, in whole numbers; those of several owners add up."""

    rows: int  # that are not empty
    length: int  # of all rows together, as a multiple of 2^-POINT
    values: int  # that are not zero
    others: int  # of these: not one
    broken: int  # of these: not whole
    negative: int  # of these: below zero


@dataclass(frozen=True, slots=True, eq=False)
class FeatureForm:
    """The form that features take before training, and in every query of the model."""

    name: str = "raw"
    length: float = 0.0  # of every row, for unit and tfidf
    weights: Float[Array, " _"] = field(default_factory=lambda: np.zeros(0))  # for tfidf
    first: int = 0  # the first column that it applies to; words come last

    def of(self, x: NodeFeatures) -> NodeFeatures:
        """The same features in this form."""
        if self.name == "raw":
            return x
        if not self.first:
            return FORMS[self.name](x, self)
        before, words = x[:, : self.first], x[:, self.first :]
        made = FORMS[self.name](words, self)
        if issparse(x):
            return csr_array(hstack([before, made], format="csr"))
        return np.concatenate([before, made], axis=1)

    def of_graph(self, graph: Graph) -> Graph:
        """The same graph with features in this form."""
        return graph if self.name == "raw" else replace(graph, x=self.of(graph.x))

    def of_owners(self, owners: Partition) -> Partition:
        """The same owners with features in this form."""
        return replace(owners, subgraphs=tuple(map(self.of_graph, owners.subgraphs)))


RAW = FeatureForm()


def looks_of(x: NodeFeatures) -> Looks:
    """What some features look like."""
    values = x.data if issparse(x) else x
    values, lengths = values[values != 0], lengths_of(x)
    return Looks(
        rows=int((lengths > 0).sum()),
        length=int(np.rint(np.ldexp(lengths, POINT)).astype(np.int64).sum()),
        values=len(values),
        others=int((values != 1).sum()),
        broken=int((values != np.rint(values)).sum()),
        negative=int((values < 0).sum()),
    )


def word_counts(x: NodeFeatures) -> Int[Array, " _"]:
    """In how many rows each word occurs."""
    return np.asarray((x != 0).sum(axis=0), dtype=np.int64).ravel()


def form_from(
    setting: str, looks: Looks, counts: Int[Array, " _"], first: int = 0
) -> FeatureForm:
    """The form that follows from what the features of all owners look like.

    Args:
        setting: ``data.features``.
        looks: The sum over owners.
        counts: In how many nodes of all owners each word occurs; only for tfidf.
        first: The first column that the form applies to.
    """
    name = chosen_by_looks(looks) if setting == "auto" else setting
    if name not in SUMMED:
        return FeatureForm(name, first=first)
    if not looks.rows:  # nobody has any words
        return FeatureForm(first=first)
    frequent = np.maximum(counts, min(RAREST, looks.rows))
    weights = np.log(np.maximum(looks.rows / frequent, 1.0)).astype(np.float32)
    return FeatureForm(name, looks.length / 2**POINT / looks.rows, weights, first)


def setting_for(setting: str, said: str, leaves_open: str = "") -> str:
    """The form that a run takes where a schema says one; refuses a run that says another.

    Args:
        setting: ``data.features``.
        said: By the schema; ``any`` if it says nothing.
        leaves_open: The setting that a schema may decide.
    """
    if said in ("any", setting):
        return setting
    if setting == leaves_open:
        return said
    raise ConfigError(
        f"The schema has sparse_form = \"{said}\", but data.features is '{setting}'. Start the "
        f"run with --set data.features={said}, or change the schema of all owners."
    )


def chosen_by_looks(looks: Looks) -> str:
    """The rule of ``auto``: weights as roots, counts of one length, all else as it is.

    Weights are not whole, like tf-idf; counts are whole and not all of them are one. Where a
    value is below zero, features are no words.
    """
    if looks.negative or not looks.others:
        return "raw"
    return "root" if looks.broken else "unit"


def pooled_form(setting: str, graphs: Sequence[Graph], first: int = 0) -> FeatureForm:
    """The form that owners would agree on, for a process that holds all their graphs."""
    words = [graph.x[:, first:] if first else graph.x for graph in graphs]
    looks, counts = NOTHING, np.zeros(0, np.int64)
    if setting in SUMMED:
        looks = Looks(*map(sum, zip(*map(looks_of, words), strict=True)))
    if setting == "tfidf":
        counts = np.sum([word_counts(x) for x in words], axis=0)
    return form_from(setting, looks, counts, first)


def lengths_of(x: NodeFeatures) -> Float[Array, " V"]:
    """‖x_v‖ of every row, in double precision."""
    if not issparse(x):
        return np.linalg.norm(x.astype(np.float64), axis=1)
    squares = csr_array((x.data.astype(np.float64) ** 2, x.indices, x.indptr), shape=x.shape)
    return np.sqrt(np.asarray(squares.sum(axis=1)).ravel())


def by_value(x: NodeFeatures, change: Callable[[Array], Array]) -> NodeFeatures:
    """Every value changed by itself; a function of its size, which keeps its sign."""
    values = x.data if issparse(x) else x
    made = (np.sign(values) * change(np.abs(values))).astype(np.float32)
    return with_values(x, made) if issparse(x) else made


def lengthened(x: NodeFeatures, length: float) -> NodeFeatures:
    """Every row brought to that length; an empty one stays empty."""
    found = lengths_of(x)
    factor = np.divide(length, found, out=np.zeros_like(found), where=found > 0)
    if not issparse(x):
        return (x * factor[:, None]).astype(np.float32)
    return with_values(x, x.data * np.repeat(factor, np.diff(x.indptr)))


def weighed(x: NodeFeatures, weights: Float[Array, " _"]) -> NodeFeatures:
    """Every column times its weight."""
    if not issparse(x):
        return (x * weights).astype(np.float32)
    made = with_values(x, x.data * weights[x.indices])
    made.eliminate_zeros()
    return made


def with_values(x: NodeFeatures, values: Float[Array, " values"]) -> NodeFeatures:
    """The same sparse features with other values."""
    made = values.astype(np.float32), x.indices.copy(), x.indptr.copy()
    return csr_array(made, shape=x.shape)


FORMS: dict[str, Callable[[NodeFeatures, FeatureForm], NodeFeatures]] = {
    "root": lambda x, form: by_value(x, np.sqrt),
    "log": lambda x, form: by_value(x, np.log1p),
    "unit": lambda x, form: lengthened(x, form.length),
    "tfidf": lambda x, form: lengthened(weighed(x, form.weights), form.length),
}
SUMMED = ("unit", "tfidf", "auto")  # forms that need sums over all owners
NOTHING = Looks(0, 0, 0, 0, 0, 0)


def written_form(form: FeatureForm) -> dict[str, Any]:
    """The form of features, for a file."""
    weights = [float(weight) for weight in form.weights]
    return {
        "form": form.name, "length": form.length, "first": form.first, "weights": weights
    }  # fmt: skip


def read_form(held: dict[str, Any] | None) -> FeatureForm:
    """The inverse of ``written_form``; features as they are if the file has none."""
    if held is None:
        return RAW
    if held["form"] not in FORMS:
        raise ValueError(f"form '{held['form']}' of features, which this version does not know")
    weights = np.array(held["weights"], dtype=np.float32)
    return FeatureForm(held["form"], float(held["length"]), weights, int(held["first"]))
