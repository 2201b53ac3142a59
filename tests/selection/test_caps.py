"""What one client can claim: a report that is capped at the median, a probability that is capped at most."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstein.selection.draws import DRAWS, at_most, capped_at_median

weights = st.lists(st.floats(0.0, 1e6), min_size=1, max_size=8).filter(lambda found: sum(found) > 1e-3)


@given(weights, st.floats(0.01, 1.0))
def test_a_capped_law_is_a_law_in_the_same_order(found: list[float], most: float) -> None:
    before = np.array(found) / sum(found)
    after = at_most(before, most)
    assert after.sum() == pytest.approx(1.0)
    assert (after >= 0).all()
    assert after.max() <= max(most, 1 / len(found)) * (1 + 1e-9)
    order = np.argsort(before, kind="stable")
    assert (np.diff(after[order]) >= -1e-12).all(), "who had more does not have less"
    if before.max() <= most:
        assert np.allclose(after, before)
    free = (after < most * (1 - 1e-9)) & (before > 1e-9)
    if free.sum() > 1 and most * len(found) > 1:
        ratios = after[free] / before[free]
        assert ratios == pytest.approx(ratios[0]), "the others keep their proportions"


def test_known_laws() -> None:
    assert at_most(np.array([0.9, 0.06, 0.04]), 0.5) == pytest.approx([0.5, 0.3, 0.2])
    assert at_most(np.array([0.8, 0.19, 0.01]), 0.45) == pytest.approx([0.45, 0.45, 0.1])  # the cut makes a second one
    assert at_most(np.array([1.0, 0.0, 0.0]), 0.5) == pytest.approx([0.5, 0.25, 0.25])
    assert at_most(np.array([0.7, 0.3]), 0.3) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("rule", DRAWS)
def test_no_rule_lets_one_client_win_for_ever(rule: str) -> None:
    """A client that claims 1e30 every round is drawn at most half the time; without the cap it would nearly always."""
    draws = np.random.default_rng(0)
    won, rounds, memory = 0, 2000, DRAWS[rule].first(0, 4)
    for _ in range(rounds):
        uniforms = draws.uniform(1e-7, 1, 4)
        drawn = DRAWS[rule].draw(memory, [0, 1, 2, 3], [1.0, 2.0, 1e30, 3.0], uniforms, 0.5)
        memory = DRAWS[rule].after(memory, drawn.order[:1], 0, 4)
        won += drawn.order[0] == 2
        assert max(drawn.probabilities or [1.0]) <= 0.5 + 1e-9 or rule == "pass"  # the last of a pass is alone in it
    assert won / rounds < 0.55


def test_reports_are_cut_at_the_median() -> None:
    assert capped_at_median([1.0, 2.0, 1e30, 3.0, None], 100.0) == ([1.0, 2.0, 200.0, 3.0, None], [2])
    assert capped_at_median([1.0, 1e30], 100.0) == ([1.0, 100.0], [1])  # the lower median of two
    assert capped_at_median([1.0, 99.0, 5.0], 100.0) == ([1.0, 99.0, 5.0], [])
    assert capped_at_median([1.0, 1e30], 0.0) == ([1.0, 1e30], [])
    assert capped_at_median([-5.0, -1.0, 0.0, 1.0, 1e9], 10.0) == ([-5.0, -1.0, 0.0, 1.0, 10.0], [4])
    assert capped_at_median([None, None], 10.0) == ([None, None], [])
    assert capped_at_median([-1.0, 0.0], 10.0) == ([-1.0, 0.0], [])


@given(st.lists(st.one_of(st.none(), st.floats(-1e30, 1e30)), max_size=9), st.floats(1.0, 1e3))
def test_a_cut_changes_nothing_but_the_size_of_what_is_cut(found: list[float | None], ratio: float) -> None:
    after, cut = capped_at_median(found, ratio)
    assert [value for i, value in enumerate(after) if i not in cut] == [v for i, v in enumerate(found) if i not in cut]
    assert all(after[i] < found[i] for i in cut)  # type: ignore[operator]
    twice, again = capped_at_median(after, ratio)
    assert (twice, again) == (after, [])
