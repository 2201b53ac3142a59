"""Groups, their names, their spread, and differences against SciPy's own paired test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fedstein.errors import InputError
from fedstein.report import load_run, summarise
from fedstein.report.groups import labels_of


def loaded(*folders: Path):
    return [load_run(folder) for folder in folders]


def tails(runs, metric: str = "accuracy") -> np.ndarray:
    """By hand: the mean of rounds 91 to 120."""
    return np.array([np.mean([line[metric] for line in run.rounds[90:]]) for run in runs])


@pytest.fixture
def three_by_three(make_run):
    kinds = ("round_robin", "ksd", "hip")
    return loaded(*(make_run(f"{k}{s}", {"selection.kind": k, "seed": s}) for s in range(3) for k in kinds))


def test_runs_that_differ_only_in_seed_belong_together(three_by_three) -> None:
    got = summarise(three_by_three)
    assert [s.group.label for s in got.groups] == ["round_robin", "ksd", "hip"]
    assert [s.group.seeds for s in got.groups] == [(0, 1, 2)] * 3
    assert got.differing == ("selection.kind",)
    assert got.notes == ()
    assert got.metric == "accuracy"


def test_spread_between_seeds_and_within_runs(three_by_three) -> None:
    got = summarise(three_by_three).groups[1]
    values = tails(got.group.runs)
    assert got.tail["accuracy"].mean == pytest.approx(values.mean())
    assert got.tail["accuracy"].between == pytest.approx(values.std(ddof=1))
    within = [np.std([line["accuracy"] for line in run.rounds[90:]], ddof=1) for run in got.group.runs]
    assert got.tail["accuracy"].within == pytest.approx(np.mean(within))
    assert got.final["nll"].mean == pytest.approx(np.mean([run.rounds[-1]["nll"] for run in got.group.runs]))
    assert got.cost["bytes_down"] == 138_880
    assert got.cost["row_gradients_train"] == 20_000
    assert got.cost["seconds"] == pytest.approx(
        np.mean([[line["seconds"] for line in run.rounds] for run in got.group.runs])
    )


def test_the_paired_interval_is_the_one_of_the_paired_t_test(three_by_three) -> None:
    got = summarise(three_by_three)
    first, _, third = (s.group.runs for s in got.groups)
    test = stats.ttest_rel(tails(third), tails(first)).confidence_interval(0.95)
    difference = got.differences[1]
    assert (difference.label, difference.against, difference.seeds) == ("hip", "round_robin", (0, 1, 2))
    assert difference.mean == pytest.approx((tails(third) - tails(first)).mean())
    assert (difference.low, difference.high) == pytest.approx((test.low, test.high))


def test_only_seeds_in_common_are_paired(make_run) -> None:
    values = {("ksd", 0): 0.5, ("ksd", 1): 0.6, ("ksd", 2): 0.9, ("hip", 1): 0.7, ("hip", 2): 0.8, ("hip", 3): 0.1}
    folders = [make_run(f"{k}{s}", {"selection.kind": k, "seed": s}, accuracy=a) for (k, s), a in values.items()]
    (difference,) = summarise(loaded(*folders)).differences
    assert difference.seeds == (1, 2)
    assert difference.mean == pytest.approx(0.0)  # +0.1 and -0.1
    half = stats.t.ppf(0.975, 1) * 0.1  # sd sqrt(0.02), over sqrt(2)
    assert (difference.low, difference.high) == pytest.approx((-half, half))


def test_one_seed_has_no_interval_and_says_so(make_run) -> None:
    got = summarise(loaded(make_run("a"), make_run("b", {"selection.kind": "hip"})))
    assert got.groups[0].tail["accuracy"].between is None
    assert got.differences[0].mean is not None
    assert got.differences[0].low is None
    assert got.notes == ("One seed each: no standard deviation between seeds and no interval.",)


def test_seeds_apart_have_no_difference(make_run) -> None:
    got = summarise(
        loaded(make_run("a"), make_run("a1", {"seed": 1}), make_run("b", {"selection.kind": "hip", "seed": 2}))
    )
    assert got.differences[0].mean is None
    assert any("fewer than two seeds in common" in note for note in got.notes)


@pytest.mark.parametrize(
    ("changes", "labels"),
    [
        ([{"algorithm.step_size": 0.05}, {"algorithm.step_size": 0.1}], ["step_size=0.05", "step_size=0.1"]),
        (
            [{"algorithm.step_size": 0.1}, {"selection.kind": "hip"}],
            ["ksd, step_size=0.1", "hip, step_size=0.05"],
        ),
        ([{}, {"selection.extra": 3}], ["base", "extra=3"]),
        ([{"rounds": 8}, {"rounds": 12}], ["rounds=8", "rounds=12"]),
        (
            # Four keys differ: the kind tells the groups apart, the page lists the rest.
            [
                {"sites.kind": "curvature", "sites.density": "none", "sites.bandwidth": 0.0, "sites.rank": 2},
                {},
            ],
            ["curvature", "particles"],
        ),
        (
            # "none" says nothing to a reader: the references are known by their algorithm.
            [{"sites.kind": "none", "algorithm.kind": "pooled_svgd", "sites.density": "-", "sites.bandwidth": 0.0}, {}],
            ["pooled_svgd", "particles"],
        ),
        ([{}], ["dsvgd, ksd"]),
    ],
)
def test_labels_say_what_differs(make_run, changes: list[dict], labels: list[str]) -> None:
    runs = loaded(*(make_run(str(i), change) for i, change in enumerate(changes)))
    assert [s.group.label for s in summarise(runs).groups] == labels


def test_labels_are_unique(make_run) -> None:
    runs = loaded(make_run("a", {"model.hidden": "1"}), make_run("b", {"model.hidden": 1}))
    assert len({s.group.label for s in summarise(runs).groups}) == 2


def test_the_same_run_twice_is_refused(make_run) -> None:
    with pytest.raises(InputError, match="once per seed"):
        summarise(loaded(make_run("a"), make_run("b")))


def test_a_seed_that_diverged_leaves_no_mean(make_run) -> None:
    folders = [make_run(f"a{s}", {"seed": s}) for s in range(2)]
    summary = json.loads((folders[1] / "summary.json").read_text("utf-8"))
    summary["tail"]["nll"] = {"mean": None, "sd": None}
    summary["tail"]["accuracy"] = {"mean": None, "sd": None}
    (folders[1] / "summary.json").write_text(json.dumps(summary), "utf-8")
    got = summarise(loaded(*folders))
    assert got.groups[0].tail["nll"].mean is None
    assert any("not finite" in note for note in got.notes)


def test_regression_leads_with_rmse(make_run) -> None:
    changes = {"model.kind": "bnn_regressor", "evaluate.every": 7}
    folders = [make_run(f"a{s}", {**changes, "seed": s}) for s in range(2)]
    got = summarise(loaded(*folders))
    assert got.metric == "rmse"
    assert got.metrics == ("nll", "rmse")
    rounds = [91, 98, 105, 112, 119, 120]
    by_hand = [np.mean([run.rounds[r - 1]["rmse"] for r in rounds]) for run in got.groups[0].group.runs]
    assert got.groups[0].tail["rmse"].mean == pytest.approx(np.mean(by_hand))
    assert got.groups[0].tail["accuracy"].mean is None


def test_an_unfinished_run_is_named(make_run) -> None:
    got = summarise(loaded(make_run("a", stop=30)))
    assert any("a (round 30 of 120)" in note for note in got.notes)


def test_a_setting_that_only_one_of_the_kinds_has_is_no_part_of_a_label() -> None:
    hip = {"selection.kind": "hip", "selection.projection": 0, "sites.renew": True}
    ksd = {"selection.kind": "ksd", "sites.renew": False}
    assert labels_of([hip, ksd]) == ["hip, renew=true", "ksd, renew=false"]
    projected = hip | {"selection.projection": 100}
    assert labels_of([hip, projected, ksd]) == [
        "hip, projection=0, renew=true",
        "hip, projection=100, renew=true",
        "ksd, renew=false",
    ]
