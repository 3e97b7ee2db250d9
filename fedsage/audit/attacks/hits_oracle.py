"""Hits oracle: a classifier made up by a server turns counts of hits into answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.engines.inprocess import InProcessEngine
from fedsage.errors import FedSageError
from fedsage.models.parameters import Parameters
from fedsage.protocol.changes.follow import News
from fedsage.protocol.changes.owner import receive_change
from fedsage.protocol.changes.server import everything, news_of
from fedsage.protocol.changes.state import NO_CHANGE, Common, first_common
from fedsage.protocol.messages import Classifier, Hits
from fedsage.protocol.owner import DataOwner
from fedsage.protocol.procedures import in_full, in_private
from fedsage.runs.setup import data_owners

QUERIES = 20
OWN, HEAD, BIAS = "layers.{}.phi_own", "head.weight", "head.bias"
ATTEMPT = Attempt(
    "hits-oracle",
    "hostile server",
    "answers to classifiers that it made up",
    f"exact answers to {QUERIES} questions",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """How many validation nodes have this feature and this class, or lack it and have that one?

    The made-up classifier predicts ``having`` if the feature is present, else ``lacking``.
    """

    feature: int
    having: int
    lacking: int


@attack("hits-oracle")
def hits_oracle(case: Case) -> Finding:
    """Which features and classes do validation nodes have? One count for each question."""
    if in_private(case.plan.config):
        return ATTEMPT.not_run("private runs count no hits")
    if not {OWN.format(0), HEAD, BIAS} <= case.plan.phi.phi.keys():
        return ATTEMPT.not_run("it works only for GraphSage with a linear head")
    owner = data_owners(case.setup)[0][0]
    engine, stream = InProcessEngine([owner]), case.stream("questions")
    told, refused = 0, ""
    for k in range(QUERIES):
        having, lacking = stream.permutation(case.plan.d_y)[:2]
        asked = Asked(int(stream.integers(case.plan.d_x)), int(having), int(lacking))
        try:
            told += int(answer_to(case, engine, made_up(case, asked), k) == truth(owner, asked))
        except FedSageError as error:
            refused = f"refused: {error}"
    return ATTEMPT.found(told, 0, told > 0, note=refused or "every question was answered")


def made_up(case: Case, asked: Asked) -> Parameters:
    """The classifier that asks the question."""
    phi = {name: torch.zeros_like(weight) for name, weight in case.plan.phi.phi.items()}
    for k in range(len(case.plan.config.model.widths)):
        phi[OWN.format(k)][asked.feature if k == 0 else 0, 0] = 1.0
    phi[HEAD][asked.having, 0] = 1000.0
    phi[BIAS][asked.lacking] = 0.001
    return phi


def answer_to(case: Case, engine: InProcessEngine, phi: Parameters, k: int) -> int:
    """The owner's answer, asked in each of the possible ways in turn."""
    (i,) = engine.owners
    if in_full(case.plan.config):
        replies = engine.carry(DataOwner.receive_classifier, {i: Classifier(phi, {})})
    else:
        held = first_common(case.plan, len(case.plan.nodes), 1.0)
        engine.carry(receive_change, {i: news_of(held)})
        replies = engine.carry(receive_change, {i: foreign(held, phi, whole=k % 2 == 0)})
    reply = replies[i]
    return reply.plain if isinstance(reply, Hits) else -1


def foreign(held: Common, phi: Parameters, whole: bool) -> News:
    """A broadcast of a made-up classifier: as the best so far, or as the whole state."""
    if not whole:
        return News(1, 0, 0.0, phi, {}, NO_CHANGE, {})
    news = everything(held)
    return News(1, news.owners, news.weight, phi, news.memory, NO_CHANGE, {})


def truth(owner: DataOwner, asked: Asked) -> int:
    """The true count; −2 if it is zero, since that tells nothing about anybody."""
    nodes = owner.split.val
    column = owner.graph.x[:, [asked.feature]]
    has = np.asarray((column != 0).sum(axis=1)).reshape(-1)[nodes] > 0
    y = owner.graph.y[nodes]
    count = int((np.where(has, asked.having, asked.lacking) == y).sum())
    return count or -2
