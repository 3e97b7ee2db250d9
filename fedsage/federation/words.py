"""What leaves the house in a run, in plain words, before anything is sent."""

from __future__ import annotations

from fedsage.config import Config
from fedsage.prepare import way_of_mending

ALWAYS = (
    "Once, at the start: the version of fedsage, a checksum of your schema with the names of "
    "classes, and how many nodes you have{weight}.",
)
SCALED = (
    "Once, at the start: for every column of numbers, how many values it has, their sum, and "
    "the sum of their squared distances from the common mean (over all your nodes together).",
)
TRAINED = (
    "In each of {rounds} rounds: the weights of the classifier after training on your nodes"
    "{moments}, the mean training loss, and how many of your validation nodes it gets right.",
    "At the end: how many of your test nodes it gets right.",
)
MENDED = {
    "none": (),
    "copy": (),
    "subspace": (
        "Before training, a few times: a product of your feature table with itself and a basis "
        "that all owners share (a sum over all your nodes).",
    ),
    "classes": (
        "Before training, once: how many links there are from class to class between your "
        "training nodes.",
    ),
    "neighgen": (
        "In each of {gen} rounds before that: embeddings of a batch of your nodes and the "
        "weights of your generator, which the server hands to all other owners; gradients that "
        "tell the others how far their generated features are from your nearest nodes; and "
        "the losses of your generator.",
    ),
    "shared": (
        "In each of {gen} rounds before that: the weights of the generator after training on "
        "your nodes, and its losses.",
    ),
}
NEVER = "Never: nodes, links, rows of features, single labels, predictions, your mended graph."
SEES = (
    "The server sees all of this from each owner by itself: sums are not hidden from it, and "
    "no noise is added. docs/security.md says what could be learned from it."
)


def what_leaves(config: Config, numbers: int) -> str:
    """The list, for one run."""
    way = way_of_mending(config.run.method, config.mend.how)
    weighted = config.classifier.weighting == "nodes"
    words = [ALWAYS[0].format(weight=" and how many of them are for training" * weighted)]
    words += SCALED if numbers else ()
    words += [line.format(gen=config.neighgen.rounds_gen) for line in MENDED[way]]
    averaged = config.classifier.moments == "averaged"
    moments = " and the optimizer's averages of gradients" if averaged else ""
    rounds = config.classifier.rounds_c
    words += [line.format(rounds=rounds, moments=moments) for line in TRAINED]
    lines = "\n".join(f"- {line}" for line in words)
    return (
        f"What leaves this house in this run ({config.run.method}, preset "
        f"{config.run.preset}):\n{lines}\n{NEVER}\n{SEES}\n"
    )
