"""Who is drawn: the laws of the schemes against exact probabilities."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from building import scheme_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedstein.seeds import CHOOSE, uniforms
from fedstein.selection import proportional
from fedstein.selection.base import Scheme

ORDERS = ("given", "seeded", "reshuffled")
FINE = np.random.default_rng(0).uniform(size=(30_000, 5))


def fits(observed: Sequence[int], probabilities: Sequence[float]) -> bool:
    """A chi-square test that a correct law fails once in a thousand seeds; these seeds are fixed."""
    expected = np.array(probabilities) * sum(observed)
    return bool(stats.chisquare(observed, expected).pvalue > 1e-3)


def test_the_first_one_drawn_follows_the_indicators() -> None:
    indicators = [1.0, 2.0, 3.0, 4.0]
    counts = Counter(proportional(range(4), indicators, draws[:4]).order[0] for draws in FINE)
    assert fits([counts[k] for k in range(4)], [0.1, 0.2, 0.3, 0.4])
    assert not fits([counts[k] for k in range(4)], [0.11, 0.19, 0.3, 0.4])  # the test has the power to tell
    assert proportional(range(4), indicators, FINE[0, :4]).probabilities == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_the_first_one_drawn_follows_the_indicators_over_run_seeds() -> None:
    counts = Counter(
        proportional([7, 3, 5], [5.0, 1.0, 4.0], uniforms(seed, CHOOSE, 1, count=3)).order[0] for seed in range(1500)
    )
    assert fits([counts[7], counts[3], counts[5]], [0.5, 0.1, 0.4])


def test_two_draws_are_sequential_draws_without_replacement() -> None:
    """Plackett-Luce: P(i then j) = p_i * p_j / (1 - p_i)."""
    p = np.array([0.4, 0.3, 0.2, 0.1])
    pairs = list(itertools.permutations(range(4), 2))
    exact = [p[i] * p[j] / (1 - p[i]) for i, j in pairs]
    counts = Counter(tuple(proportional(range(4), list(p), draws[:4]).order[:2]) for draws in FINE)
    assert math.isclose(sum(exact), 1)
    assert fits([counts[pair] for pair in pairs], exact)


@given(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), min_size=5, max_size=5),
    st.integers(0, len(FINE) - 1),
)
def test_any_reports_give_an_order_of_all_candidates(indicators: list[float | None], row: int) -> None:
    drawn = proportional([9, 2, 4, 7, 1], indicators, FINE[row])
    assert sorted(drawn.order) == [1, 2, 4, 7, 9]
    assert drawn.probabilities is not None
    assert sum(drawn.probabilities) == pytest.approx(1)
    assert all(0 <= p <= 1 for p in drawn.probabilities)
    json.dumps(drawn.probabilities, allow_nan=False)


@pytest.mark.parametrize(
    ("indicators", "probabilities"),
    [
        ([-1.0, 1.0, 3.0], [0, 0.25, 0.75]),  # a negative HIP counts as zero
        ([float("nan"), 1.0, 1.0], [0, 0.5, 0.5]),
        ([float("inf"), 1.0, 3.0], [0, 0.25, 0.75]),
        ([float("-inf"), 1.0, 3.0], [0, 0.25, 0.75]),
        ([None, 1.0, 3.0], [0, 0.25, 0.75]),
        ([0.0, 0.0, 0.0], [1 / 3] * 3),  # nothing left: uniform
        ([-1.0, -2.0, 0.0], [1 / 3] * 3),
        ([None, -2.0, 0.0], [0, 0.5, 0.5]),  # over those that reported
        ([None, float("nan"), -1.0], [0, 0, 1]),
        ([None, None, None], [1 / 3] * 3),
        ([1e300, 1e300, 2e300], [0.25, 0.25, 0.5]),
        ([1e308, 1e308, 1.5e308], [2 / 7, 2 / 7, 3 / 7]),  # their sum overflows
        ([1e300, 1e-10, 0.0], [1, 0, 0]),  # their ratio underflows
        ([5e-324, 0.0, 0.0], [1, 0, 0]),
    ],
    ids=str,
)
def test_probabilities_of_odd_reports(indicators: list[float | None], probabilities: list[float]) -> None:
    counts: Counter[int] = Counter()
    for draws in FINE[:2000, :3]:
        drawn = proportional(range(3), indicators, draws)
        assert drawn.probabilities == pytest.approx(probabilities, rel=1e-9, abs=1e-300)
        counts[drawn.order[0]] += 1
    possible = [k for k in range(3) if probabilities[k] > 1e-200]
    assert set(counts) == set(possible)
    if len(possible) > 1:
        assert fits([counts[k] for k in possible], [probabilities[k] for k in possible])


def test_those_without_a_chance_come_next_in_random_order_and_those_without_a_report_last() -> None:
    seconds: Counter[int] = Counter()
    for draws in FINE[:2000]:
        order = proportional(range(5), [0.0, None, 1.0, float("nan"), -3.0], draws).order
        assert order[0] == 2
        assert set(order[1:3]) == {0, 4}
        assert set(order[3:]) == {1, 3}
        seconds[order[1]] += 1
    assert fits([seconds[0], seconds[4]], [0.5, 0.5])


def test_random_is_uniform_over_orders_and_without_replacement() -> None:
    scheme = scheme_of("random")
    counts = Counter(tuple(scheme.draw({}, [4, 6, 8], None, draws[:3]).order) for draws in FINE)
    assert fits([counts[o] for o in itertools.permutations([4, 6, 8])], [1 / 6] * 6)
    assert scheme.draw({}, [4, 6, 8], None, FINE[0, :3]).probabilities is None
    assert scheme.report is None


def turns(scheme: Scheme, clients: int, per_round: int, rounds: int, seed: int = 0) -> list[list[int]]:
    """Who trains in each round, when everybody answers."""
    memory, selected = scheme.first(seed, clients), []
    for _ in range(rounds):
        memory = json.loads(json.dumps(memory))  # it lives in a checkpoint
        order = scheme.draw(memory, range(clients), None, np.zeros(clients)).order
        assert sorted(order) == list(range(clients))  # somebody stands in for every client that fails
        selected.append(order[:per_round])
        memory = scheme.after(memory, order[:per_round], seed, clients)
    return selected


def test_the_given_order_is_the_order_of_the_clients() -> None:
    assert turns(scheme_of("round_robin"), 4, 1, 9) == [[k % 4] for k in range(9)]
    assert turns(scheme_of("round_robin"), 3, 2, 4) == [[0, 1], [2, 0], [1, 2], [0, 1]]


@pytest.mark.parametrize("order", ["given", "seeded", "reshuffled"])
@pytest.mark.parametrize("per_round", [1, 2])
def test_a_client_that_never_answers_does_not_stop_the_others(order: str, per_round: int) -> None:
    scheme, away = scheme_of("round_robin", order=order), 2
    memory, trained = scheme.first(0, 4), []
    for _ in range(60):
        found = scheme.draw(memory, range(4), None, np.zeros(4)).order
        assert sorted(found) == [0, 1, 2, 3]
        selected = [client for client in found if client != away][:per_round]
        trained += selected
        memory = scheme.after(memory, selected, 0, 4)
        assert len(memory["turns"]) <= 2 * 4
    counts = Counter(trained)
    assert max(counts.values()) - min(counts.values()) <= 2
    # When it comes back it makes up for one turn, not for every pass that it missed.
    after = []
    for _ in range(12):
        selected = scheme.draw(memory, range(4), None, np.zeros(4)).order[:1]
        after += selected
        memory = scheme.after(memory, selected, 0, 4)
    assert after.count(away) <= 5


def test_the_seeded_order_is_drawn_once() -> None:
    passes = np.array(turns(scheme_of("round_robin", order="seeded"), 6, 1, 18))[:, 0].reshape(3, 6)
    assert sorted(passes[0]) == list(range(6))
    assert np.all(passes == passes[0])
    assert (
        len({tuple(np.ravel(turns(scheme_of("round_robin", order="seeded"), 6, 1, 6, seed))) for seed in range(6)}) > 4
    )


def test_the_reshuffled_order_is_drawn_for_every_pass() -> None:
    passes = np.array(turns(scheme_of("round_robin", order="reshuffled"), 6, 1, 36))[:, 0].reshape(6, 6)
    assert all(sorted(one) == list(range(6)) for one in passes)
    assert len({tuple(one) for one in passes}) > 4


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("clients", "per_round"), [(5, 2), (4, 3), (3, 3), (7, 5), (1, 1)])
def test_nobody_is_asked_twice_in_a_round_and_everybody_gets_as_many_turns(
    order: str, clients: int, per_round: int
) -> None:
    for seed in range(4):
        rounds = turns(scheme_of("round_robin", order=order), clients, per_round, 6 * clients, seed)
        assert all(len(set(one)) == per_round for one in rounds)
        counts = np.zeros(clients, int)
        for one in rounds:
            counts[one] += 1
            assert counts.max() - counts.min() <= (1 if order != "reshuffled" else 2)
        assert counts.sum() == 6 * clients * per_round


@pytest.mark.parametrize("order", ORDERS)
def test_a_client_that_fails_keeps_its_turn(order: str) -> None:
    scheme = scheme_of("round_robin", order=order)
    memory = scheme.first(0, 4)
    wanted, stand_in, *_ = scheme.draw(memory, range(4), None, np.zeros(4)).order
    memory = scheme.after(memory, [stand_in], 0, 4)
    assert scheme.draw(memory, range(4), None, np.zeros(4)).order[0] == wanted


def test_round_robin_passes_over_those_that_are_no_candidates() -> None:
    scheme = scheme_of("round_robin")
    assert scheme.draw(scheme.first(0, 5), [1, 3, 4], None, np.zeros(3)).order == [1, 3, 4]
