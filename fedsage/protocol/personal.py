"""Owners that end with a classifier of their own: the server makes one for each of them.

How is a method's affair: a subclass of ``Personal`` says how much each owner's classifier
counts for each other owner, and a subclass of ``PersonalOwner`` what it needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from fedsage.models.optimizer import strange_moments
from fedsage.models.parameters import Parameters, parameters_of
from fedsage.protocol.changes.follow import Turn
from fedsage.protocol.guard import too_many_hits
from fedsage.protocol.messages import (
    Ask,
    AtMost,
    Classifier,
    Form,
    Hits,
    OwnerId,
    form_of,
    message,
)
from fedsage.protocol.owner import DataOwner, OwnMoments, trained_nodes
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Open, Summed, in_full, procedure
from fedsage.protocol.server import ByModels, average

ABOUT = 64  # the most numbers for each class that an owner tells about itself


@message
class OwnUpdate:
    """D_i → S: φ_i after local training, and numbers by which S compares owners."""

    phi: Parameters
    moments: Parameters  # empty unless they are averaged too
    weight: float
    loss: float
    about: Float[Tensor, " about"]


@message
class OwnClassifier:
    """S → D_i: the classifier that was made for D_i; ``again`` if it is one of before."""

    phi: Parameters
    moments: Parameters
    again: bool


class PersonalOwner(DataOwner):
    """An owner that gets a classifier of its own."""

    def about(self) -> Float[Tensor, " about"]:
        """What the server compares owners by, after local training."""
        return torch.zeros(0)

    def keep(self) -> None:
        """The classifier that it holds is the best so far; what stays at home is kept."""

    def go_back(self) -> None:
        """The best classifier of before comes again."""

    def own_phi(self) -> Parameters:
        """The weights that it answers with."""
        return parameters_of(self.model)


def form_of_own(plan: Plan) -> Mapping[str, Form]:
    """Weights as of F, moments that fit them, and some numbers."""
    shapes = {name: weight.shape for name, weight in plan.phi.phi.items()}
    return {
        "phi": form_of(plan.phi.phi),
        "moments": lambda moments: strange_moments(moments, shapes),
        "about": (AtMost(ABOUT * plan.d_y),),
    }


@procedure(
    phase="training",
    uses=Open,
    shapes=form_of_own,
    keeps=OwnMoments,
    leaves=lambda config: (
        f"In each of {config.classifier.rounds_c} rounds: the classifier's weights after "
        f"training on {trained_nodes(config)}, as they are, the mean training loss, and a few "
        "numbers for each class by which the server finds owners like you."
    ),
    when=in_full,
)
def personal_update(owner: DataOwner, turn: Turn) -> OwnUpdate:
    """Procedure F on the owner's own classifier."""
    assert isinstance(owner, PersonalOwner)
    if turn.keep:
        owner.keep()
    update = owner.local_update_c(Ask(turn.t))
    return OwnUpdate(update.phi, update.moments, update.weight, update.loss, owner.about())


@procedure(
    phase="training",
    uses=Summed,
    check=too_many_hits,
    leaves="In each of these rounds: how many of your validation nodes your classifier gets "
    "right.",
    when=in_full,
)
def receive_own(owner: DataOwner, classifier: OwnClassifier) -> Hits:
    """Take over the owner's own classifier, and count its hits on validation nodes."""
    assert isinstance(owner, PersonalOwner)
    owner.take_over(classifier.phi, classifier.moments)
    if classifier.again:
        owner.go_back()
    return owner.hits(owner.split.val)


class Personal(ByModels):
    """The server's side of training where every owner gets a classifier of its own."""

    def send(self, classifier: Classifier) -> None:
        """Send the same first classifier to all owners."""
        self.own = dict.fromkeys(self.exchange.owners, classifier)
        self.best = self.own
        self.hand_out(again=False)

    def round(self, t: int, keep: bool) -> tuple[Classifier, float, Hits]:
        """One round; what it returns as shared is the mean of the owners' classifiers."""
        if keep:
            self.best = self.own
        updates = self.exchange.all(personal_update, Turn(t, keep))
        shares = self.shares(updates)
        weights = [update.weight for update in updates.values()]
        self.own = self.own | {i: mixed(updates, shares[i]) for i in updates}
        loss = sum(update.loss for update in updates.values()) / len(updates)
        shared = average([self.own[i].phi for i in updates], weights)
        return Classifier(shared, {}), loss, self.hand_out(again=False)

    def shares(
        self, updates: Mapping[OwnerId, OwnUpdate]
    ) -> dict[OwnerId, dict[OwnerId, float]]:
        """For each owner, how much every owner's classifier counts for it."""
        raise NotImplementedError

    def end(self, best: Classifier, t: int, last: int) -> Hits | None:
        """Make sure that every owner holds its classifier of round ``t``."""
        if t != last:
            self.own = self.best
            self.hand_out(again=True)
        return None

    def hand_out(self, again: bool) -> Hits:
        """Send every owner its own."""
        asked = {i: OwnClassifier(one.phi, one.moments, again) for i, one in self.own.items()}
        return self.exchange.sum(receive_own, asked)


def mixed(updates: Mapping[OwnerId, OwnUpdate], share: Mapping[OwnerId, float]) -> Classifier:
    """The mean of some owners' classifiers, weighted by their shares."""
    chosen = [i for i, one in share.items() if one > 0]
    weights = [share[i] for i in chosen]
    return Classifier(
        average([updates[i].phi for i in chosen], weights),
        average([updates[i].moments for i in chosen], weights),
    )
