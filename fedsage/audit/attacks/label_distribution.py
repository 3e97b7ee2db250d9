"""Label distribution: at first, frequent classes of an owner pull their bias up."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from fedsage.audit.case import Case
from fedsage.audit.finding import Attempt, Finding, attack
from fedsage.audit.scores import total_variation
from fedsage.audit.seen import Party, gradients, last_bias
from fedsage.protocol.messages import OwnerId
from fedsage.shapes import Array

ROUNDS = 2  # the first rounds: later, the classifier has learned how frequent classes are
MUCH_BETTER = 0.75  # times the error of a blind guess
Shares = Float[Array, " d_y"]
ATTEMPT = Attempt(
    "label-distribution",
    "curious server",
    "the updates of one owner in the first rounds",
    "error (total variation)",
)


@attack("label-distribution")
def label_distribution(case: Case) -> Finding:
    """What share of an owner's training nodes has each class?"""
    name = last_bias(case)
    if name is None:
        return ATTEMPT.not_run("this classifier has no weight for each class")
    owners = range(len(case.graphs))
    blind = np.full(case.plan.d_y, 1 / case.plan.d_y)
    truth = [shares(case, i) for i in owners]
    guessed = [total_variation(truth[i], shares_seen(case, i, name)) for i in owners]
    by_chance = [total_variation(one, blind) for one in truth]
    sizes = [len(split.train) for split in case.setup.splits]
    of_all = np.average(truth, axis=0, weights=sizes)
    of_sum = total_variation(of_all, shares_seen(case, None, name))
    value, chance = float(np.mean(guessed)), float(np.mean(by_chance))
    note = f"of all owners together, from the sum: {of_sum:.3f}"
    return ATTEMPT.found(value, chance, value < MUCH_BETTER * chance, of_sum, note)


def shares(case: Case, owner: OwnerId) -> Shares:
    """The true shares."""
    labels = case.graphs[owner].y[case.setup.splits[owner].train]
    return np.bincount(labels, minlength=case.plan.d_y) / len(labels)


def shares_seen(case: Case, party: Party, name: str) -> Shares:
    """The guess: equal shares minus the mean gradient of each class's bias."""
    rounds = [one.numpy() for one in gradients(case, party, name)[:ROUNDS]]
    guess = (1 / case.plan.d_y - np.mean(rounds, axis=0)).clip(1e-9)
    return np.asarray(guess / guess.sum())
