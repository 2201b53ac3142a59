"""The rules of ``selection.draw``: their laws against exact probabilities, what they remember, whom they leave out."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
import pytest
from building import scheme_of
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedstein.federation.local import LocalEngine
from fedstein.federation.protocol import first, run_round
from fedstein.federation.round_context import RunState
from fedstein.selection import DRAWS, ReportingSettings, proportional
from fedstein.selection.base import Draw

FINE = np.random.default_rng(1).uniform(1e-7, 1, size=(20_000, 4))
NAN, INF = float("nan"), float("inf")
Values = Sequence[float | None]


def fits(observed: Sequence[int], probabilities: Sequence[float]) -> bool:
    """A chi-square test that a correct law fails once in a thousand seeds; these seeds are fixed."""
    assert all(count == 0 for count, p in zip(observed, probabilities, strict=True) if p == 0)
    possible = [i for i, p in enumerate(probabilities) if p > 0]
    if len(possible) == 1:
        return True
    expected = np.array([probabilities[i] for i in possible]) * sum(observed)
    return bool(stats.chisquare([observed[i] for i in possible], expected).pvalue > 1e-3)


def drawn(rule: str, memory: dict[str, Any], candidates: Sequence[int], values: Values, row: int = 0) -> Draw:
    return DRAWS[rule].draw(memory, candidates, values, FINE[row, : len(candidates)])


def history(rule: str, clients: int, rounds: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The memory after rounds with these clients selected, by way of a checkpoint."""
    memory = DRAWS[rule].first(0, clients)
    for selected in rounds:
        memory = json.loads(json.dumps(DRAWS[rule].after(memory, selected, 0, clients), allow_nan=False))
    return memory


def follow(
    rule: str, clients: int, rounds: int, values: Callable[[int], Values], per_round: int = 1, pool: int = 0
) -> list[list[int]]:
    """Who trains in each round, when everybody answers; ``values`` gives everybody's indicators in a round."""
    draw, memory, selected = np.random.default_rng(3), DRAWS[rule].first(0, clients), []
    for number in range(rounds):
        candidates = sorted(draw.permutation(clients)[: pool or clients].tolist())
        everybody = values(number)
        uniforms = draw.uniform(1e-7, 1, len(candidates))
        order = DRAWS[rule].draw(memory, candidates, [everybody[k] for k in candidates], uniforms).order
        assert sorted(order) == candidates
        selected.append(order[:per_round])
        memory = json.loads(json.dumps(DRAWS[rule].after(memory, selected[-1], 0, clients)))
    return selected


def test_the_config_names_the_rules() -> None:
    assert set(get_args(ReportingSettings.model_fields["draw"].annotation)) == set(DRAWS)
    for rule in DRAWS.values():
        assert len(rule.about) > 10


@pytest.mark.parametrize("scheme_name", ["ksd", "hip", "innovation"])
def test_every_scheme_with_indicators_takes_every_rule(scheme_name: str) -> None:
    for rule in DRAWS:
        scheme = scheme_of(scheme_name, draw=rule)
        assert scheme.first(0, 3) == DRAWS[rule].first(0, 3)
        assert scheme.draw(scheme.first(0, 2), [0, 1], [1.0, None], FINE[0, :2]).order == [0, 1]


@pytest.mark.parametrize("scheme_name", ["ksd", "hip"])
def test_the_papers_schemes_draw_in_proportion_and_remember_nothing(scheme_name: str) -> None:
    scheme, values = scheme_of(scheme_name), [1.0, 2.0, None, 4.0]
    assert scheme.first(5, 4) == scheme.after({}, [1], 5, 4) == {}
    for row in FINE[:50]:
        assert scheme.draw({}, range(4), values, row) == proportional(range(4), values, row)


# rule, who was selected before, indicators of clients 0 to 3 -> the exact law of the first one drawn
LAWS: list[tuple[str, list[list[int]], Values, list[float]]] = [
    ("proportional", [[3]], [1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4]),
    ("greedy", [[3]], [1.0, 2.0, 4.0, 4.0], [0, 0, 0.5, 0.5]),
    ("greedy", [], [1.0, 9.0, None, INF], [0, 1, 0, 0]),
    ("greedy", [], [0.0, -1.0, None, NAN], [0.5, 0.5, 0, 0]),
    ("greedy", [], [None, NAN, None, None], [0.25] * 4),
    ("pass", [], [1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4]),
    ("pass", [[3]], [1.0, 2.0, 3.0, 4.0], [1 / 6, 2 / 6, 3 / 6, 0]),
    ("pass", [[3], [1, 2]], [1.0, 2.0, 3.0, 4.0], [1, 0, 0, 0]),
    ("pass", [[3], [1, 2], [0]], [1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4]),  # the second pass
    ("pass", [[3], [1, 2], [0], [2]], [1.0, 2.0, 3.0, 4.0], [1 / 7, 2 / 7, 0, 4 / 7]),
    ("pass", [[3], []], [1e300, 1e-200, 1e-200, 1e308], [1, 0, 0, 0]),
    ("pass", [[0]], [1e300, 1e-200, 3e-200, 0.0], [0, 0.25, 0.75, 0]),  # scaled among those it is about
    ("pass", [[3]], [0.0, -2.0, 0.0, 4.0], [1 / 3, 1 / 3, 1 / 3, 0]),  # nothing left in this pass: uniform
    ("pass", [[3]], [None, NAN, 1.0, 4.0], [0, 0, 1, 0]),
    ("pass", [[3], [2]], [None, NAN, 1.0, 4.0], [0, 0, 0.2, 0.8]),  # who does not report holds nobody up
    ("pass", [[3]], [None, None, None, NAN], [1 / 3, 1 / 3, 1 / 3, 0]),
    ("aged", [], [1.0, 2.0, 3.0, 4.0], [0.1, 0.2, 0.3, 0.4]),
    ("aged", [[3], [2]], [1.0, 1.0, 1.0, 1.0], [3 / 9, 3 / 9, 1 / 9, 2 / 9]),
    ("aged", [[3], [2]], [1.0, 2.0, 3.0, -4.0], [3 / 12, 6 / 12, 3 / 12, 0]),
    ("aged", [[3], [], [2]], [None, NAN, 1.0, 1.0], [0, 0, 1 / 4, 3 / 4]),  # a round in which everybody failed counts
    ("aged", [[3], [2]], [0.0, 0.0, 0.0, None], [1 / 3, 1 / 3, 1 / 3, 0]),
    ("aged", [[3], [2]], [None, None, None, None], [0.25] * 4),
    ("aged", [[3]] * 5, [1.5e308, 0.0, 0.0, 1.5e308], [6 / 7, 0, 0, 1 / 7]),  # indicator x age overflows
]


@pytest.mark.parametrize(("rule", "before", "values", "law"), LAWS, ids=str)
def test_the_first_one_drawn_follows_the_law(
    rule: str, before: list[list[int]], values: Values, law: list[float]
) -> None:
    memory = history(rule, 4, before)
    counts: Counter[int] = Counter()
    for row in range(3000):
        got = drawn(rule, memory, range(4), values, row)
        assert got.probabilities == pytest.approx(law, rel=1e-9, abs=1e-300)
        assert sorted(got.order) == [0, 1, 2, 3]
        counts[got.order[0]] += 1
    assert fits([counts[k] for k in range(4)], law)


def test_two_a_round_in_passes_are_sequential_draws_within_the_pass() -> None:
    memory, weights = history("pass", 4, [[1]]), np.array([4.0, 9.0, 3.0, 1.0])
    p = np.array([4.0, 0.0, 3.0, 1.0]) / 8
    pairs = list(itertools.permutations([0, 2, 3], 2))
    counts = Counter(tuple(drawn("pass", memory, range(4), weights.tolist(), row).order[:2]) for row in range(20_000))
    assert fits([counts[pair] for pair in pairs], [p[i] * p[j] / (1 - p[i]) for i, j in pairs])
    # One left in the pass: it comes first, and the second one is drawn from the next pass.
    memory = history("pass", 4, [[1], [2, 3]])
    counts = Counter(tuple(drawn("pass", memory, range(4), weights.tolist(), row).order[:2]) for row in range(20_000))
    assert fits([counts[0, k] for k in (1, 2, 3)], [9 / 13, 3 / 13, 1 / 13])


@given(
    st.sampled_from(list(DRAWS)),
    st.lists(st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True)), min_size=4, max_size=4),
    st.lists(st.lists(st.integers(0, 9), max_size=3, unique=True), max_size=12),
    st.integers(0, len(FINE) - 1),
)
def test_any_reports_and_any_past_give_an_order_of_all_candidates(
    rule: str, values: list[float | None], past: list[list[int]], row: int
) -> None:
    candidates = [9, 2, 4, 7]
    got = drawn(rule, history(rule, 10, past), candidates, values, row)
    assert sorted(got.order) == sorted(candidates)
    assert got.probabilities is not None
    json.dumps(got.probabilities, allow_nan=False)
    assert sum(got.probabilities) == pytest.approx(1)
    assert got.probabilities[candidates.index(got.order[0])] > 0
    sound = {k for k, v in zip(candidates, values, strict=True) if v is not None and np.isfinite(v)}
    assert set(got.order[: len(sound)]) == sound  # no report, no win


def test_equal_ages_and_the_first_pass_are_the_papers_draw_bit_for_bit() -> None:
    for row in range(50):
        plain = proportional(range(4), [1.0, 2.0, 4.0, 8.0], FINE[row])
        for rule in ("pass", "aged"):
            assert drawn(rule, DRAWS[rule].first(0, 4), range(4), [1.0, 2.0, 4.0, 8.0], row) == plain


@pytest.mark.parametrize("per_round", [1, 3])
def test_a_pass_visits_everybody_whatever_the_indicators(per_round: int) -> None:
    spread = [10.0**k for k in range(-6, 6)]
    spread[3] = -1.0
    visits = list(itertools.chain(*follow("pass", 12, 8 * 12 // per_round, lambda number: spread, per_round)))
    for start in range(0, len(visits), 12):
        assert sorted(visits[start : start + 12]) == list(range(12))
    orders = [tuple(visits[start : start + 12]) for start in range(0, len(visits), 12)]
    assert len(set(orders)) > 1
    assert np.mean([order.index(11) for order in orders]) < 3 < 9 < np.mean([order.index(0) for order in orders])


def test_within_a_pool_those_left_behind_come_first() -> None:
    visits = [k for (k,) in follow("pass", 12, 240, lambda number: [10.0**k for k in range(12)], pool=4)]
    counts = np.bincount(visits, minlength=12)
    assert counts.min() >= 15  # 20 each on average
    plain = [k for (k,) in follow("proportional", 12, 240, lambda number: [10.0**k for k in range(12)], pool=4)]
    assert np.bincount(plain, minlength=12).min() == 0


def test_a_client_that_returns_does_not_make_up_for_the_passes_it_missed() -> None:
    memory = history("pass", 3, [[0], [1]] * 5)  # client 2 never reported
    assert drawn("pass", memory, range(3), [1.0, 1.0, 1.0]).order[0] == 2
    memory = DRAWS["pass"].after(memory, [2], 0, 3)
    assert drawn("pass", memory, range(3), [1.0, 1.0, 1.0]).probabilities == pytest.approx([1 / 3] * 3)


def test_nobody_starves_when_age_counts() -> None:
    """A thousandth of the indicator of the others: without age one visit in 9000, with it one in some 90 rounds."""
    values = [1e-3] + [1.0] * 9
    aged = [k for (k,) in follow("aged", 10, 2000, lambda number: values)]
    turns = [number for number, k in enumerate(aged) if k == 0]
    assert len(turns) >= 5
    assert max(np.diff([0, *turns, len(aged)])) < 500
    plain = [k for (k,) in follow("proportional", 10, 2000, lambda number: values)]
    assert plain.count(0) <= 2


class Flaky(LocalEngine):
    """Client 1 reports and never trains; client 2 is never there."""

    def ask(self, round_index: int, broadcast: Any, candidates: Sequence[int], sites: Any) -> Any:
        return super().ask(round_index, broadcast, [k for k in candidates if k != 2], sites)

    def train(self, round_index: int, client: int, *rest: Any) -> Any:
        return None if client == 1 else super().train(round_index, client, *rest)


@pytest.mark.parametrize("rule", DRAWS)
def test_clients_that_fail_hold_nobody_up(rule: str, miniature: Callable[..., Any]) -> None:
    made = miniature(scheme="ksd", settings={"selection": {"draw": rule}}, sizes=(12, 12, 12, 12), rounds=6)
    engine = Flaky(made.context.program, made.engine.shards)
    context = made.context._replace(engine=engine)
    state, visits = first(context), []
    for _ in range(6):
        state, record = run_round(context, state)
        state = RunState(state.round, state.server, state.sites, json.loads(json.dumps(state.memory)))
        assert record["reports"][2] is None
        assert record["probabilities"][2] == 0
        visits += record["selected"]
    assert len(visits) == 6
    assert set(visits) <= {0, 3}
    if rule == "pass":
        assert Counter(visits) == {0: 3, 3: 3}
