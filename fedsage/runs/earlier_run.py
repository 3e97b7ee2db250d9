"""An earlier run that another one begins with: its classifier, its generators, its split."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fedsage.config import NeighGenConfig
from fedsage.errors import ConfigError
from fedsage.graph.feature_forms import FeatureForm
from fedsage.graph.partition import Partition
from fedsage.graph.split import Split
from fedsage.mending.generator import fresh_theta
from fedsage.mending.way import Way
from fedsage.models.backbone import Shape, is_ours
from fedsage.models.classifier import NodeClassifier, load_models
from fedsage.models.parameters import Parameters
from fedsage.models.warm_start import Places, carried_over, check_same_model, places_in
from fedsage.protocol.messages import OwnerId
from fedsage.protocol.plan import Plan, Start
from fedsage.readable import counted
from fedsage.runs.stored_graph import Answering, load_answering, places
from fedsage.tables.schema import Schema

PARTS = ("train", "val", "test")


@dataclass(frozen=True, slots=True, eq=False)
class Earlier:
    """A finished run: its model, and what it keeps of owners."""

    where: str  # what to call it
    model: NodeClassifier
    held: Mapping[str, Answering]  # by owner

    def places(self, plan: Plan, class_names: Sequence[str], schema: Schema | None) -> Places:
        """Where today's features and classes stood; refuses another model or other data."""
        check_same_model(self.model.shape, plan.shape, self.where)
        return places_in(self.model, self.where, plan.d_x, class_names, schema)

    def generators(
        self, way: Way, how: NeighGenConfig, owners: Mapping[OwnerId, str]
    ) -> dict[OwnerId, Parameters]:
        """What each owner's generator knew, where it mended in the same way."""
        known = {i: self.held[name] for i, name in owners.items() if name in self.held}
        same = {i: one for i, one in known.items() if one.mended_by == way.name}
        if way.continues == "nothing" or not same:
            return {}
        for key in ("widths", "hidden"):
            if (was := getattr(next(iter(same.values())).neighgen, key)) != getattr(how, key):
                raise ConfigError(
                    f"{self.where} has other generators: neighgen.{key} was {was} and is now "
                    f"{getattr(how, key)}. Leave it as it was, or train from scratch."
                )
        return {i: one.remembered for i, one in same.items()}

    def kept_split(self, drawn: Split, name: str, ids: Sequence[str]) -> Split:
        """The split of the earlier run, for nodes that it had; for others as ``drawn``."""
        own = [self.held[name]] if name in self.held else list(self.held.values())
        before = {key: part for held in own for key, part in parts_of(held).items()}
        return with_parts(drawn, [before.get(one) for one in ids])


def earlier_run(folder: Path, backbone: str) -> Earlier:
    """The run in ``folder``."""
    models = load_models(folder, None if is_ours(backbone) else backbone)
    if len(models) > 1:
        raise ConfigError(
            f"{folder} holds {counted(len(models), 'local model')}, one per owner, and no "
            "shared one to start from. Start from a run of fedsage or fedsage+."
        )
    held = {name: load_answering(place) for name, place in places(folder).items()}
    return Earlier(str(folder), models[0], held)


def check_same_form(earlier: Earlier, form: FeatureForm) -> None:
    """Refuse to continue a classifier on features of another form than it was trained on."""
    before = earlier.model.form.name
    if before != form.name:
        raise ConfigError(
            f"The features of {earlier.where} had the form '{before}', those of this run would "
            f"have '{form.name}'. Add --set data.features={before}, or train from scratch."
        )


def begun_with(
    folder: str,
    plan: Plan,
    way: Way,
    owners: Partition,
    splits: Sequence[Split],
    form: FeatureForm,
) -> tuple[Plan, list[Split], tuple[str, ...]]:
    """A run that begins with the one in ``folder``, and what has changed since, in words.

    Nodes that were in its split stay in the same part: none that was trained on is tested.
    Splits that owners came with are theirs to choose.
    """
    earlier = earlier_run(Path(folder), plan.config.model.backbone)
    check_same_form(earlier, form)
    names = {i: owners.name_of(i) for i in range(owners.num_owners)}
    schema = owners.tables[0] if owners.tables else None
    places = earlier.places(plan, owners.subgraphs[0].class_names, schema)
    memories = earlier.generators(way, plan.config.neighgen, names)
    given = owners.splits or (None,) * owners.num_owners
    kept = [
        split if given[i] else earlier.kept_split(split, names[i], owners.ids_of(i))
        for i, split in enumerate(splits)
    ]
    begun = replace(plan, start=start_of(earlier, plan, places, memories))
    return begun, kept, places.notes


def start_of(
    earlier: Earlier, plan: Plan, places: Places, memories: Mapping[OwnerId, Parameters]
) -> Start:
    """The first weights of a run: the earlier ones, fitted to today's features and classes."""

    def fresh_phi(d_x: int, d_y: int) -> Parameters:
        return plan.fresh_phi(Shape(d_x, d_y, plan.config.model))

    generators = {
        i: carried_over(theta, places, lambda d_x, _: fresh_theta(plan, d_x))
        for i, theta in memories.items()
    }
    return Start(carried_over(earlier.model.phi, places, fresh_phi), generators)


def parts_of(held: Answering) -> dict[str, str]:
    """The part of the split that each labelled node was in, by id."""
    split = held.graph.split
    assert split is not None  # a run keeps it
    return {held.ids[v]: part for part in PARTS for v in getattr(split, part)}


def with_parts(split: Split, parts: Sequence[str | None]) -> Split:
    """The same split, except that nodes with a part are there."""
    told = np.array([part or "" for part in parts], dtype=object)
    labelled = np.concatenate([getattr(split, part) for part in PARTS])
    found = np.full(len(parts), "", dtype=object)
    for part in PARTS:
        found[getattr(split, part)] = part
    known = labelled[told[labelled] != ""]
    found[known] = told[known]
    return Split(*(np.flatnonzero(found == part) for part in PARTS))
