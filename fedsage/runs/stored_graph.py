"""What answers come from after a run: an owner's graph, its neighbors, and how it is asked.

A run's folder keeps this for every owner whose data the process held: in ``owners/NAME/``, or,
with an owner of a federation, in the folder itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from jaxtyping import Float
from safetensors import SafetensorError

from fedsage.config import Inference, MendConfig, NeighGenConfig
from fedsage.data.npz import graph_in, read_arrays, save_graph
from fedsage.errors import DataError
from fedsage.files import write_atomically, write_json
from fedsage.graph.graph import Graph
from fedsage.machine import dense_threads
from fedsage.mending.way import WAYS
from fedsage.models.backbone import query
from fedsage.models.classifier import NodeClassifier
from fedsage.models.home import Home, home_of, home_shares, known_labels
from fedsage.models.parameters import Logits, Parameters
from fedsage.protocol.messages import View
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.private import PrivateOwner
from fedsage.rng import generator
from fedsage.shapes import Array, NodeIds

OWNERS, QUERIES = "owners", "queries.json"
PLAIN, MENDED, PREDICTIONS = "graph.npz", "mended.npz", "predictions.csv"
HOME = "home.safetensors"  # an owner's own second stage
FILES = (QUERIES, PLAIN, MENDED, PREDICTIONS, HOME)
MEMORY = ".safetensors"  # what a way of mending remembers: subspace.safetensors
FORMAT = 1


@dataclass(frozen=True, slots=True, eq=False)
class Answering:
    """One owner's nodes as they are queried when a run is over.

    Features have the form of training (``data.features``), because generated ones do too.
    """

    owner: str
    ids: Sequence[str]  # what the owner calls its nodes
    graph: Graph  # G_i, with the split of the run
    mended: Graph | None  # G'_i: the same nodes first, then the generated ones
    view: View  # which of the two is queried, or both
    inference: Inference
    fanouts: tuple[int, ...]
    seed: int  # for sampled neighborhoods
    number: int  # of the owner in the run
    mended_by: str = "none"  # the way of mending
    remembered: Parameters = field(default_factory=dict)  # by it, for nodes to come
    mend: MendConfig = field(default_factory=MendConfig)
    neighgen: NeighGenConfig = field(default_factory=NeighGenConfig)
    home: Home | None = None  # the owner's own second stage, after a private run

    def shares(
        self, model: NodeClassifier, nodes: NodeIds | None = None
    ) -> Float[Array, "n d_y"]:
        """The probability of each class, for ``nodes`` or for all of the owner's."""
        asked = np.arange(self.graph.num_nodes) if nodes is None else nodes
        return shares_on(self, model, self.with_known(), self.mended, asked)

    def with_known(self) -> Graph:
        """The graph; for a second stage, with labels of training nodes alone."""
        if self.home is None or self.graph.split is None:
            return self.graph
        known = known_labels(self.graph, self.graph.split.train)
        return replace(self.graph, y=known, split=None)

    def as_of(self, day: float) -> Answering:
        """The same without links that came after ``day``, in days since 2000."""
        mended = None if self.mended is None else self.mended.as_of(day)
        return replace(self, graph=self.graph.as_of(day), mended=mended)

    @property
    def rests_on(self) -> Graph | None:
        """G'_i if answers use it."""
        return None if self.view == "plain" else self.mended

    def neighbors(self, nodes: NodeIds) -> tuple[NodeIds, NodeIds]:
        """How many neighbors ``nodes`` have: visible ones, and generated ones that are used."""
        visible = self.graph.degrees[nodes]
        if self.rests_on is None:
            return visible, np.zeros_like(visible)
        return visible, self.rests_on.degrees[nodes] - visible


def shares_on(
    how: Answering, model: NodeClassifier, plain: Graph, mended: Graph | None, nodes: NodeIds
) -> Float[Array, "n d_y"]:
    """The probability of each class on the graph or graphs that the view names."""
    module = model.module()

    def asked(graph: Graph) -> Logits:
        stream = generator(how.seed, "query", how.number)
        found = query(module, model.checked(graph), nodes, how.inference, how.fanouts, stream)
        return found.log_softmax(dim=1)

    if how.home is not None:
        with dense_threads(1):
            return home_shares(how.home, module, model.fitting(plain), plain.y, nodes)
    with dense_threads(1), torch.no_grad():  # the same rounding wherever it is asked
        if mended is None or how.view == "plain":
            scores = asked(plain)
        elif how.view == "mended":
            scores = asked(mended)
        else:
            scores = (asked(plain) + asked(mended)) / 2
        return np.asarray(model.calibration.shares(scores).numpy())


def answering_of(
    owner: DataOwner, name: str, ids: Sequence[str], view: View, way: str
) -> Answering:
    """How an owner answers at the end of a run, in which it mended that ``way``."""
    config = owner.config
    return Answering(
        owner=name,
        ids=ids,
        graph=replace(owner.graph, split=owner.split),
        mended=owner.mended,
        view=view,
        inference=config.evaluation.inference,
        fanouts=tuple(config.classifier.fanouts),
        seed=owner.seed,
        number=owner.id,
        mended_by=way,
        remembered=owner.remembered,
        mend=config.mend,
        neighgen=config.neighgen,
        home=owner.home if isinstance(owner, PrivateOwner) else None,
    )


def save_answering(held: Answering, folder: Path) -> None:
    """Write one owner's graph and how it is queried."""
    name = PLAIN if held.mended is None else MENDED
    graph = replace(held.mended or held.graph, split=held.graph.split)
    save_graph(graph, folder / name, ids=np.array(held.ids))
    if held.remembered:
        packed = {name: tensor.contiguous() for name, tensor in held.remembered.items()}
        weights = safetensors.torch.save(packed)
        write_atomically(folder / memory_of(held), lambda file: file.write(weights))
    if held.home is not None:
        own = safetensors.torch.save(held.home.parameters())
        write_atomically(folder / HOME, lambda file: file.write(own))
    sampled = {"seed": held.seed, "number": held.number} if held.inference != "full" else {}
    card = {
        "format": FORMAT,
        "owner": held.owner,
        "graph": name,
        "nodes": held.graph.num_nodes,
        "view": held.view,
        "inference": held.inference,
        "fanouts": held.fanouts,
        **sampled,
        **({"home": HOME} if held.home is not None else {}),
        "mending": {
            "how": held.mended_by,
            "remembered": memory_of(held) if held.remembered else None,
            "mend": held.mend.model_dump(mode="json"),
            "neighgen": held.neighgen.model_dump(mode="json"),
        },
    }
    write_json(folder / QUERIES, card)


def memory_of(held: Answering) -> str:
    """The file for what a way of mending remembers."""
    return f"{held.mended_by}{MEMORY}"


def load_answering(folder: Path) -> Answering:
    """What :func:`save_answering` wrote."""
    card = card_in(folder)
    try:
        path = folder / {PLAIN: PLAIN, MENDED: MENDED}[card["graph"]]
        arrays = read_arrays(path)
        whole, ids = graph_in(arrays, path), tuple(str(one) for one in arrays["ids"])
        held = answering_from(card, whole, ids)
        if card["mending"]["remembered"]:
            memory = safetensors.torch.load((folder / memory_of(held)).read_bytes())
            held = replace(held, remembered=memory)
        if card.get("home"):
            own = safetensors.torch.load((folder / HOME).read_bytes())
            held = replace(held, home=home_of(own))
        return held
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise unreadable(folder, error) from None


def answering_from(card: Mapping[str, Any], whole: Graph, ids: tuple[str, ...]) -> Answering:
    """One owner's nodes, from the graph with generated neighbors behind them."""
    nodes = int(card["nodes"])
    if len(ids) != nodes or card["view"] not in ("plain", "mended", "both"):
        raise ValueError(f"{QUERIES} does not fit {card['graph']}")
    mended = card["graph"] == MENDED
    return Answering(
        owner=str(card["owner"]),
        ids=ids,
        graph=whole.induced(np.arange(nodes)) if mended else whole,
        mended=replace(whole, split=None) if mended else None,
        view=card["view"],
        inference=card["inference"],
        fanouts=tuple(int(count) for count in card["fanouts"]),
        seed=int(card.get("seed", 0)),
        number=int(card.get("number", 0)),
        mended_by=Path(card["mending"]["how"]).name,
        mend=MendConfig(**card["mending"]["mend"]),
        neighgen=NeighGenConfig(**card["mending"]["neighgen"]),
    )


def places(folder: Path) -> dict[str, Path]:
    """Where a run's folder keeps what answers come from, by the name of the owner."""
    inside = [folder, *sorted((folder / OWNERS).glob("*"))]
    found = [place for place in inside if (place / QUERIES).is_file()]
    return {card_in(place)["owner"]: place for place in found}


def num_nodes_in(place: Path) -> int:
    """How many nodes the owner has whose answers are kept there."""
    return int(card_in(place)["nodes"])


def card_in(place: Path) -> dict[str, Any]:
    """What stands in a folder's ``queries.json``."""
    try:
        card: dict[str, Any] = json.loads((place / QUERIES).read_text())
        if card["format"] != FORMAT:
            raise ValueError(f"it has format {card['format']}, this version reads {FORMAT}")
        card |= {"owner": str(card["owner"]), "nodes": int(card["nodes"])}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise unreadable(place, error) from None
    return card


def unreadable(place: Path, error: Exception) -> DataError:
    """What answers come from is there, but damaged."""
    return DataError(
        f"{place}: what answers come from cannot be read ({error!r}). Copy the folder again, "
        "or repeat the run."
    )


def forget_answers(folder: Path) -> None:
    """Remove what another run left for queries; other files in its folders stay."""
    for place in [folder, *(folder / OWNERS).glob("*")]:
        if (place / QUERIES).is_file():
            memories = [place / f"{way}{MEMORY}" for way in WAYS.ours()]
            for path in [*(place / name for name in FILES), *memories]:
                path.unlink(missing_ok=True)
            if place != folder and not any(place.iterdir()):
                place.rmdir()
    if (folder / OWNERS).is_dir() and not any((folder / OWNERS).iterdir()):
        (folder / OWNERS).rmdir()
