"""The gate of an owner's house: what may leave, and a line for everything that left."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fedsage.errors import PrivacyError, StorageError
from fedsage.models.optimizer import strange_moments
from fedsage.models.parameters import parameters_of
from fedsage.prepare import Plan, blank_neighgen
from fedsage.protocol.guard import Shapes, leaves, other_shapes, shapes_of
from fedsage.protocol.joining import JOINING
from fedsage.protocol.messages import (
    ClassifierUpdate,
    ClassLinks,
    ColumnSquares,
    ColumnSums,
    GenGradients,
    GenOffer,
    NeighGenUpdate,
    Sketch,
)
from fedsage.protocol.procedures import PROCEDURES, Procedure
from fedsage.protocol.wire import decode

SENT = "sent.jsonl"
ASKED: dict[str, Procedure[Any, Any, Any]] = {**PROCEDURES, **JOINING}
TRAINING = ("receive_classifier", "local_update_c", "test_classifier")
MENDING: dict[str, tuple[str, ...]] = {
    "none": (),
    "copy": ("mend_by_copies",),
    "classes": ("count_class_links", "mend_by_classes"),
    "subspace": ("sketch_features", "mend_by_subspace"),
    "neighgen": ("local_request", "feed_forward", "update_neighgen", "mend_graph"),
    "shared": ("update_shared_neighgen", "receive_shared_neighgen"),
}  # what may be asked of an owner, by the agreed way of mending


@dataclass(frozen=True, slots=True)
class Agreed:
    """The shapes of everything that leaves in the agreed run."""

    phi: Shapes
    hg: Shapes
    theta: Shapes
    features: int  # d_x
    classes: int  # d_y
    numbers: int  # columns that are scaled
    batch: int  # embeddings in an offer, at most
    rank: int  # columns of a sketch, at most

    def misfit(self, message: Any) -> str | None:
        """Why a message does not fit the run; nothing if it does."""
        if isinstance(message, ClassifierUpdate):
            return other_shapes(message.phi, self.phi) or strange_moments(
                message.moments, self.phi
            )
        if isinstance(message, NeighGenUpdate):
            return other_shapes(message.theta, self.theta)
        if isinstance(message, GenOffer):
            if len(message.z) > self.batch:
                return f"{len(message.z)} embeddings, at most {self.batch} were agreed"
            return other_shapes(message.hg, self.hg)
        if isinstance(message, GenGradients):
            return next(filter(None, map(self.strange_gradient, message.of.values())), None)
        if isinstance(message, Sketch):
            rows, columns = message.product.shape
            fits = rows == self.features and columns <= self.rank
            return None if fits else f"a sketch of {rows} × {columns}"
        if isinstance(message, ClassLinks):
            fits = tuple(message.count.shape) == (self.classes, self.classes)
            return None if fits else f"class links of shape {tuple(message.count.shape)}"
        if isinstance(message, ColumnSums | ColumnSquares):
            count = message.count if isinstance(message, ColumnSums) else message.total
            fits = count.shape == message.total.shape == (self.numbers,)
            return None if fits else f"sums of {tuple(message.total.shape)} columns"
        return None

    def strange_gradient(self, gradient: Mapping[str, Tensor]) -> str | None:
        """Why this is no gradient in H^g."""
        return other_shapes(gradient, {k: s for k, s in self.hg.items() if k in gradient})


def agreed_shapes(plan: Plan, numbers: int) -> Agreed:
    """What leaves in a run by this plan."""
    neighgen = blank_neighgen(plan)
    return Agreed(
        phi=shapes_of(plan.phi.phi),
        hg=shapes_of(parameters_of(neighgen.hg)),
        theta=shapes_of(parameters_of(neighgen)),
        features=plan.shape.num_features,
        classes=plan.shape.num_classes,
        numbers=numbers,
        batch=plan.config.neighgen.batch_size,
        rank=plan.config.mend.rank,
    )


@dataclass(slots=True)
class Gate:
    """Opens every message before it leaves; refuses, or writes down that it left."""

    folder: Path  # of the run
    agreed: Agreed | None = None  # once there is an agreement
    way: str = "none"  # of mending, as agreed

    def check_asked(self, procedure: str) -> None:
        """Refuse to do what the agreed run does not need."""
        if procedure not in (*JOINING, *TRAINING, *MENDING[self.way]):
            raise PrivacyError(
                f"'{procedure}' was asked for, which is no part of the agreed run. Nothing was "
                "sent."
            )

    def check(self, procedure: str, frame: bytes) -> None:
        """Refuse what is no answer to ``procedure`` or does not fit; log the rest."""
        self.check_asked(procedure)
        message = decode(ASKED[procedure].reply, frame)
        why = self.agreed.misfit(message) if self.agreed else None
        if why:
            raise PrivacyError(
                f"A {type(message).__name__} must not leave: {why}. It does not fit the agreed "
                "run; nothing was sent."
            )
        self.log(procedure, message, frame)

    def log(self, procedure: str, message: Any, frame: bytes) -> None:
        """One line of ``sent.jsonl``."""
        tensors = [v for _, v in leaves(message, "") if isinstance(v, Tensor)]
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "procedure": procedure,
            "type": type(message).__name__,
            "tensors": len(tensors),
            "shapes": sorted({tuple(tensor.shape) for tensor in tensors}),
            "bytes": len(frame),
            "sha256": hashlib.sha256(frame).hexdigest(),
        }
        self.write(line)

    def log_error(self, procedure: str, words: str) -> None:
        """One line for an error that leaves in place of an answer."""
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.write({"time": now, "procedure": procedure, "type": "error", "words": words})

    def write(self, line: Mapping[str, Any]) -> None:
        """Add a line; what cannot be logged must not leave."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with (self.folder / SENT).open("a") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise StorageError(
                f"{SENT} cannot be written ({error.strerror}), so nothing was sent."
            ) from None
