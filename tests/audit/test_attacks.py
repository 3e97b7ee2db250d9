"""Every attack succeeds where the leak is there, and gets nowhere where it is not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, vstack

from fedsage.audit.attacks.decode_cost import decode_cost
from fedsage.audit.attacks.feature_presence import feature_presence
from fedsage.audit.attacks.hits_oracle import QUERIES, hits_oracle
from fedsage.audit.attacks.label_distribution import label_distribution
from fedsage.audit.attacks.link_sums import (
    CLOSE,
    cosines,
    link_sums,
    members_of,
    solved,
    sums_of,
    taken_to_be,
)
from fedsage.audit.attacks.link_sums_own_rows import (
    HALF,
    link_sums_own_rows,
    where,
    with_own_rows,
)
from fedsage.audit.attacks.links import links
from fedsage.audit.attacks.membership import membership
from fedsage.audit.attacks.neighgen_rows import neighgen_rows
from fedsage.audit.attacks.poisoning import poisoning
from fedsage.audit.attacks.row_span import row_span
from fedsage.audit.attacks.rows_rebuilt import rows_rebuilt, sparsest_with
from fedsage.audit.attacks.singling_out import singling_out
from fedsage.audit.attacks.sketch_membership import sketch_membership
from fedsage.audit.case import Case
from fedsage.audit.scores import auc, auc_error, found_at
from fedsage.audit.seen import basis_of
from fedsage.rng import generator
from tests.audit.conftest import MakeCase


def value(found: float | None) -> float:
    assert found is not None
    return found


def test_scores() -> None:
    low, high = np.arange(100.0), np.arange(100.0) + 50
    assert auc(high, low) == 1 - auc(low, high) > 0.8
    assert auc(low, low) == 0.5
    assert found_at(low + 1000, low) == 1.0
    assert 0.03 < auc_error(100, 100) < 0.05


def test_a_planted_sparse_row_is_found_in_a_span() -> None:
    stream = generator(0, "planted")
    rows = (stream.random((30, 200)) < 0.05).astype(np.float64)
    mixed = stream.standard_normal((60, 30)) @ rows
    basis = basis_of(mixed, 30)
    assert basis.shape == (200, 30)
    feature = int(np.flatnonzero(rows[3])[0])
    found = sparsest_with(basis, feature)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    assert (unit @ found).max() > 0.99


@pytest.mark.slow
def test_full_messages_tell_rows_features_and_labels(case_of: MakeCase) -> None:
    case = case_of()
    assert value(row_span(case).value) > 0.9
    assert value(sketch_membership(case).value) > 0.7
    assert value(feature_presence(case).value) > 0.9
    labels = label_distribution(case)
    assert value(labels.value) < value(labels.chance)
    assert value(rows_rebuilt(case).value) >= 1
    assert row_span(case).verdict == rows_rebuilt(case).verdict == "leaks"


@pytest.mark.slow
def test_changes_in_whole_numbers_are_read_too(case_of: MakeCase) -> None:
    whole, few = case_of(how="whole"), case_of(how="low-rank")
    assert value(row_span(whole).value) > 0.8
    assert value(row_span(whole).value) > value(row_span(few).value)
    assert value(sketch_membership(few).value) > 0.6


@pytest.mark.slow
def test_masked_replies_tell_nothing_of_one_owner(masked_case: Case) -> None:
    for attack in (row_span, sketch_membership):
        found = attack(masked_case)
        assert 0.45 < value(found.value) < 0.55 and found.verdict == "holds"
        assert found.sum is not None  # what the sum tells stands beside it
    assert rows_rebuilt(masked_case).value == 0
    assert singling_out(masked_case).value == 0
    assert feature_presence(masked_case).verdict in ("holds", "not run")
    assert label_distribution(masked_case).verdict == "holds"


@pytest.mark.slow
def test_a_way_without_products_has_none_to_attack(case_of: MakeCase) -> None:
    case = case_of("copy")
    assert sketch_membership(case).verdict == "not run"
    assert neighgen_rows(case).verdict == "not run"


@pytest.mark.slow
def test_neighgens_gradients_show_rows(case_of: MakeCase) -> None:
    gen = {"rounds_gen": 6, "counts": "round", "at_least": 0, "widths": [32, 32]}
    gen |= {"batch_size": 32, "hidden": [64]}
    few_rounds = {"rounds_c": 2, "batch_size": 16}
    case = case_of("neighgen", neighgen=gen, classifier=few_rounds)
    found = neighgen_rows(case)
    assert value(found.value) > 0 and found.sum is not None
    assert value(found.sum) < value(found.value)
    whole = case_of("neighgen", "whole", neighgen=gen, classifier=few_rounds)
    assert value(neighgen_rows(whole).value) > 0
    level = {"level": "sums"}
    sealed = case_of("neighgen", "whole", neighgen=gen, classifier=few_rounds, privacy=level)
    assert (neighgen_rows(sealed).value, neighgen_rows(sealed).verdict) == (0, "holds")
    assert sealed.setup.plan.config.traffic.bits == whole.setup.plan.config.traffic.bits


@pytest.mark.slow
@pytest.mark.parametrize("how", ["full", "low-rank"])
def test_every_answer_of_the_oracle_is_counted(case_of: MakeCase, how: str) -> None:
    found = hits_oracle(case_of(how=how))
    assert 0 <= value(found.value) <= QUERIES
    assert found.verdict == ("leaks" if found.value else "holds")


@pytest.mark.slow
def test_one_hostile_owner_is_felt_or_left_out(case_of: MakeCase) -> None:
    found = poisoning(case_of())
    assert value(found.chance) > 0.5
    assert found.verdict == (
        "leaks" if value(found.value) < value(found.chance) - 0.02 else "holds"
    )


@pytest.mark.slow
def test_membership_and_links_are_held_against_a_baseline(case_of: MakeCase) -> None:
    case = case_of()
    assert 0.45 < value(membership(case).value) <= 1
    found = links(case)
    assert value(found.value) >= value(found.chance) > 0.4


@pytest.mark.slow
def test_frames_have_a_cost(case_of: MakeCase) -> None:
    assert value(decode_cost(case_of()).value) > 1


@pytest.mark.slow
def test_overlapping_sums_of_neighbors_show_rows_and_those_of_a_run_do_not(
    case_of: MakeCase,
) -> None:
    case = case_of("links", "low-rank", data={"partition": "random"})
    assert case.setup.graph is not None
    got = sums_of(case, case.setup.graph, 0)
    x, sums = got.rows, members_of(got.group)
    assert sums.shape[0] > 20
    found = link_sums(case)
    assert (found.value, found.verdict) == (0, "holds")
    # A sum more in which one node is left out, and the difference is that node's row.
    again = sums[[0]].copy()
    again.data[0] = 0
    assert solved(csr_array(vstack([sums, again])), x).any()
    assert not solved(sums, x).any()


@pytest.mark.slow
def test_sums_of_neighbors_are_attacked_where_there_are_any(case_of: MakeCase) -> None:
    assert link_sums(case_of()).verdict == "not run"
    assert link_sums_own_rows(case_of()).verdict == "not run"


def test_who_has_a_copy_of_one_row_of_two_has_the_other() -> None:
    draws = np.random.default_rng(0)
    one, other, own = (csr_array(draws.random((30, 200)) < 0.1, dtype=float) for _ in range(3))
    copies = csr_array(vstack([own, other[:10]]))
    found = with_own_rows(csr_array(one + other), copies, one)
    assert found[:10].all() and not found[10:].any()


def test_words_that_neighbors_have_show_rows_and_others_do_not() -> None:
    """The receiver shares out the words of two rows by own nodes that are linked to them."""
    draws = np.random.default_rng(0)
    rows = csr_array(draws.random((40, 400)) < 0.05, dtype=np.float32)
    group, near = np.arange(40) // 2, csr_array(np.eye(40, dtype=np.float32))
    strangers = csr_array(draws.random((40, 400)) < 0.05, dtype=np.float32)

    def close(own: csr_array) -> np.ndarray:
        likely = taken_to_be(group, rows, near, own, np.ones((40, 2)), 0)
        return cosines(where(likely, HALF), rows) > CLOSE

    assert close(rows).mean() > 0.3  # each is linked to a copy of itself
    assert not close(strangers).any()
