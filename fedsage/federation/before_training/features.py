"""What owners add up about their words before training, so that all give them one form."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import torch

from fedsage.config import Config
from fedsage.data.owned import Owned
from fedsage.errors import ConfigError, PrivacyError
from fedsage.graph.feature_forms import NOTHING, SUMMED, FeatureForm, Looks, form_from, looks_of
from fedsage.graph.feature_forms import word_counts as counts_in
from fedsage.protocol.agreement import FeatureLooks, FeatureSums, WordCounts
from fedsage.protocol.exchange import Exchange
from fedsage.protocol.messages import Ask, Ints
from fedsage.protocol.plan import Plan
from fedsage.protocol.procedures import Summed, in_sums, procedure, procedures_in

NO_WORDS = torch.zeros(0, dtype=torch.int32)


def formed(config: Config) -> bool:
    """For runs in which features do not stay as they are."""
    return config.data.features != "raw"


def by_sums(config: Config) -> bool:
    """For runs whose form of features depends on all owners."""
    return config.data.features in SUMMED


def by_counts(config: Config) -> bool:
    """For runs that count in how many nodes each word occurs."""
    return config.data.features == "tfidf"


def impossible(plan: Plan, looks: FeatureLooks, owners: int) -> str | None:
    """Refuse counts that no features have."""
    most, seen = plan.num_nodes, Looks(*astuple(looks))
    if min(seen) < 0 or seen.rows > most or max(seen[3:]) > seen.values:
        return f"counts of features that {most} nodes cannot have"
    return None


@procedure(
    phase="evaluation",
    uses=Summed,
    check_sum=impossible,
    leaves="Once, at the start: of your words (sparse features), how many nodes have any, the "
    "summed length of their rows, and how many values there are, are not one, are not whole, "
    "and are below zero.",
    when=by_sums,
)
def describe_features(owned: Owned, ask: Ask) -> FeatureLooks:
    """What its words look like, in six numbers over all its nodes."""
    return FeatureLooks(*looks_of(owned.words))


@procedure(
    phase="evaluation",
    uses=Summed,
    shapes=lambda plan: {"count": Ints((plan.d_x,))},
    leaves="Once, at the start: in how many of your nodes each word occurs, hidden in the sum "
    "over owners.",
    when=by_counts,
)
def count_words(owned: Owned, ask: Ask) -> WordCounts:
    """In how many of its nodes each feature is not zero."""
    counts = np.zeros(owned.names[0], np.int32)
    counts[owned.words_from :] = counts_in(owned.words)
    return WordCounts(torch.from_numpy(counts))


def check_counted(config: Config) -> None:
    """Refuse to count words where the server would see the counts of each owner."""
    if by_counts(config) and not in_sums(config):
        raise ConfigError(
            "data.features is 'tfidf': it counts in how many nodes each word occurs, and the "
            "server would see this of every owner. Use --privacy sums, or another form."
        )


def agree_on_features(exchange: Exchange) -> FeatureSums:
    """What the features of all owners look like, from sums alone."""
    config, everyone = exchange.plan.config, len(exchange.owners)
    looks, counts = FeatureLooks(*NOTHING), NO_WORDS
    if by_sums(config):
        looks = exchange.sum(describe_features, Ask(0), least=everyone)
    if by_counts(config):
        counts = exchange.sum(count_words, Ask(0), least=everyone).count
    return FeatureSums(looks, counts)


def form_of_sums(config: Config, sums: FeatureSums, first: int) -> FeatureForm:
    """The form that every party derives from the same sums."""
    counts = sums.counts.numpy().astype(np.int64)[first:]
    return form_from(config.data.features, Looks(*astuple(sums.looks)), counts, first)


def own_form(config: Config, sums: FeatureSums, owned: Owned) -> FeatureForm:
    """The same at an owner, which refuses sums that its own part does not fit into."""
    own = looks_of(owned.words) if by_sums(config) else NOTHING
    counts = NO_WORDS
    if by_counts(config):
        counts = count_words.function(owned, Ask(0)).count
    fits = sums.counts.shape == counts.shape and bool((sums.counts >= counts).all())
    if not fits or any(a < b for a, b in zip(astuple(sums.looks), own, strict=True)):
        raise PrivacyError(
            "The run's sums over all owners' features are smaller than this owner's part, so "
            "they are no sums. The server may be choosing features by itself."
        )
    return form_of_sums(config, sums, owned.words_from)


FEATURES = procedures_in(describe_features.module)
