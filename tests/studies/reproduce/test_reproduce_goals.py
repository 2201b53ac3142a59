"""The goals table, from runs with known numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedstein.federation.records import RoundRecord
from fedstein.report.load import Run
from fedstein.studies.reproduce.goals import check_goals, covered, gaps, shortfall, spread


def made(seed: int, accuracies: list[float], selected: list[int], clients: int = 2, ece: float = 0.01) -> Run:
    costs = {"bytes_down": 0, "bytes_up": 0, "seconds": 0.1}
    rounds = [
        RoundRecord.from_dict({"round": n, "accuracy": a, "selected": [k], **costs})
        for n, (a, k) in enumerate(zip(accuracies, selected, strict=True), start=1)
    ]
    tail = {"accuracy": {"mean": accuracies[-1], "sd": 0.0005}, "ece": {"mean": ece, "sd": 0.0}}
    return Run(Path("run"), {"seed": seed}, rounds, {"tail": tail, "selected_counts": [0] * clients}, None)


POOLED = made(0, [0.8], [0], 1)


def test_the_shortfall_counts_from_the_round_that_completes_the_clients():
    run = made(0, [0.1, 0.2, 0.79, 0.81], [0, 0, 1, 0])
    assert covered(run) == 3
    assert shortfall(run, POOLED) == pytest.approx(0.01)
    never = made(0, [0.1, 0.9], [0, 0])
    assert covered(never) is None
    assert shortfall(never, POOLED) is None


def test_logistic_goals_are_for_every_scheme_and_can_fail():
    good, late = made(0, [0.7, 0.799], [0, 1]), made(0, [0.9, 0.9], [1, 1])
    checks = check_goals("blr30", {"curvature": [good], "curvature_ksd": [late], "pooled": [POOLED]})
    assert [check.met for check in checks] == [True, True, True, False, True, True]
    assert checks[3].measured == "no run had every client"


def test_network_goals_are_for_the_best_scheme():
    near, far = made(0, [0.795], [0], ece=0.03), made(0, [0.7], [0])
    references = {"pooled": [POOLED], "fedavg": [made(0, [0.796], [0])]}
    checks = check_goals("bnn27", {"curvature": [far], "curvature_hip": [near], **references})
    assert {check.variant for check in checks} == {"curvature_hip"}
    assert [check.met for check in checks] == [True, False, True, False]
    assert [check.word for check in checks] == ["undecided", "no", "yes", "no"], "one seed decides no difference"
    assert checks[0].text == "behind pooled SVGD at equal steps at most .008"


def test_nothing_is_checked_without_a_goal_or_a_reference():
    assert check_goals("digits10", {"curvature": [POOLED], "pooled": [POOLED]}) == []
    assert check_goals("blr30", {"curvature": [POOLED]}) == []


def test_a_gap_is_over_the_seeds_that_both_have():
    found = gaps([made(0, [0.9], [0]), made(1, [0.1], [0])], [POOLED])
    assert found == pytest.approx([0.1])
    assert spread(found) == "+0.1000, one seed"
    assert spread([0.1, 0.1]) == "+0.1000 (+0.1000 to +0.1000)"


def test_a_difference_is_sure_when_its_interval_is():
    ours = [made(s, [0.8 - 0.001 * s], [0]) for s in range(3)]
    theirs = {"pooled": [made(s, [0.8], [0]) for s in range(3)], "fedavg": [made(s, [0.7], [0]) for s in range(3)]}
    assert [check.word for check in check_goals("bnn27", {"curvature": ours, **theirs})] == ["yes"] * 4
