"""A metric of one's own: it joins the built-in ones in the sums, in the total over clients and in the checks."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.errors import FedsteinError, InputError
from fedstein.evaluation.metrics import (
    BUILT_IN,
    METRICS,
    NAMES,
    RESERVED,
    Metric,
    Prediction,
    add_sums,
    choose_metrics,
    implausible_sums,
    metrics_of,
    no_sums,
    no_values,
    sum_shapes,
    sums_over,
    zeros,
)
from fedstein.evaluation.predictive import sums_of
from fedstein.federation.evaluation import ClientEvaluation, Evaluation
from fedstein.federation.protocol import first

SIZES = (1, 3, 40, 200)


def second_best(prediction, y):
    best = np.argsort(-prediction.log_probs, axis=1, kind="stable")[:, :2]
    return {"in_top_2": (best == y[:, None]).any(axis=1).sum()}


top_2 = Metric(
    name="top_2",
    about="share of rows whose true class is among the two most probable",
    tasks=("classification",),
    zero=zeros("in_top_2"),
    update=second_best,
    result=lambda sums, scale: float(sums["in_top_2"] / sums["rows"]),
    larger_is_better=True,
    implausible=lambda sums: "" if 0 <= sums["in_top_2"] <= sums["rows"] else "expected a share of the rows",
)


def pinball_sums(prediction, y):
    gap = y - (prediction.mean + 1.2815515655446004 * prediction.sd)
    return {"pinball": np.maximum(0.9 * gap, -0.1 * gap).sum()}


pinball = Metric(
    name="pinball_90",
    about="pinball loss of the 90% quantile of a normal law with the mixture's moments",
    tasks=("regression",),
    zero=zeros("pinball"),
    update=pinball_sums,
    result=lambda sums, scale: float(scale * sums["pinball"] / sums["rows"]),
)

# The least and the greatest are merged by other means than addition.
worst = Metric(
    name="worst",
    about="the least probability of a true class",
    tasks=("classification",),
    zero=lambda task: {"least": np.array(np.inf)},
    update=lambda prediction, y: {"least": prediction.probs[np.arange(len(y)), y].min()},
    result=lambda sums, scale: float(sums["least"]),
    merge=lambda one, other: {"least": np.minimum(one["least"], other["least"])},
)


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(METRICS, "_parts", dict(METRICS._parts))
    for metric in (top_2, pinball, worst):
        METRICS.register(metric)
    return choose_metrics(["top_2", "pinball_90", "worst"])


def some_predictions(task):
    rng = np.random.default_rng(0)
    if task == "classification":
        return np.log(rng.dirichlet(np.full(5, 0.5), sum(SIZES))), rng.integers(5, size=sum(SIZES))
    return rng.normal(size=(sum(SIZES), 12)), rng.normal(size=sum(SIZES))


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_clients_together_are_all_rows_at_once(registered, task):
    out, y = some_predictions(task)
    edges = np.cumsum(SIZES)[:-1]
    parts = zip(np.split(out, edges), np.split(y, edges), strict=True)
    each = [sums_of(task, *part, registered) for part in parts]
    whole = sums_of(task, out, y, registered)
    for sums in (*each, whole, no_sums(task, registered)):
        shapes = {name: (array.shape, str(array.dtype)) for name, array in sums.items()}
        assert list(shapes.items()) == list(sum_shapes(task, registered).items())
        assert not implausible_sums(sums, registered)
    found = metrics_of(add_sums(task, each, registered), 3.0, registered)
    assert tuple(found) == (*NAMES, "top_2", "pinball_90", "worst")
    assert found == pytest.approx(metrics_of(whole, 3.0, registered), abs=1e-12)
    own = {"classification": {"top_2", "worst"}, "regression": {"pinball_90"}}[task]
    assert {name for name in ("top_2", "pinball_90", "worst") if found[name] is not None} == own


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_built_in_numbers_do_not_depend_on_what_is_beside_them(registered, task):
    out, y = some_predictions(task)
    alone, beside = sums_of(task, out, y), sums_of(task, out, y, registered)
    assert list(beside)[: len(alone)] == list(alone)
    assert all(np.array_equal(alone[name], beside[name]) for name in alone)
    found = metrics_of(beside, 2.0, registered)
    assert metrics_of(alone, 2.0) == {name: found[name] for name in NAMES}


def test_values_by_hand():
    prediction = Prediction("classification", np.log([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]]))
    found = metrics_of(sums_over(prediction, [1, 0], [top_2, worst]), metrics=[top_2, worst])
    assert found == pytest.approx({"top_2": 0.5, "worst": 0.1})
    assert metrics_of(no_sums("classification", [top_2]), metrics=[top_2]) == no_values([top_2])


def test_what_a_client_cannot_have_is_refused():
    out, y = some_predictions("classification")
    metrics = (*BUILT_IN, top_2)
    sums = sums_of("classification", out, y, metrics)
    assert implausible_sums(sums, metrics) == ""
    spoilt = {
        "rows": 2.5,
        "correct": sums["correct"] + 1,
        "nll": -1.0,
        "brier": np.nan,
        "bin_rows": sums["bin_rows"] + 1,
        "bin_confidence": -sums["bin_confidence"],
        "bin_correct": sums["bin_correct"] + 0.5,
        "in_top_2": sums["rows"] + 1,
    }
    assert set(spoilt) == set(sums)
    for name, value in spoilt.items():
        assert implausible_sums({**sums, name: np.asarray(value)}, metrics), name
    regression = sums_of("regression", *some_predictions("regression"))
    assert implausible_sums({**regression, "squared_error": np.asarray(-1.0)})
    assert not implausible_sums({**regression, "log_density": np.asarray(-np.inf)}), "an infinite loss can be real"


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        (top_2._replace(name="nll"), "two metrics are called 'nll'"),
        (top_2._replace(name="seconds"), "records use that name"),
        (top_2._replace(name="mine", zero=zeros("brier")), "its sum 'brier' is also one of 'brier'"),
        (top_2._replace(name="mine", zero=zeros("rows")), "'rows' is summed for every metric"),
        (top_2._replace(name="mine", tasks=("ranking",)), "expected tasks among classification, regression"),
    ],
)
def test_a_metric_that_does_not_fit_is_refused(metric, says, monkeypatch):
    monkeypatch.setattr(METRICS, "_parts", {**METRICS._parts, "mine:it": metric})
    with pytest.raises(InputError, match=says):
        choose_metrics(["mine:it"])


def test_an_unknown_name_lists_the_valid_ones():
    with pytest.raises(InputError, match=r"unknown value of evaluate.metrics: 'acuracy'.*did you mean 'accuracy'"):
        choose_metrics(["acuracy"])


def test_sums_of_another_shape_than_announced_are_an_error():
    careless = top_2._replace(update=lambda prediction, y: {"in_top_2": np.ones(3)})
    with pytest.raises(FedsteinError, match="metric 'top_2': expected sums of the shapes"):
        sums_over(Prediction("classification", np.log([[0.5, 0.5]])), [0], [careless])


def test_naming_a_built_in_metric_again_changes_nothing():
    assert choose_metrics() == choose_metrics(["nll", "ece"]) == BUILT_IN
    assert all(name not in RESERVED for name in NAMES)


def test_every_place_that_evaluates_takes_it(miniature, registered):
    made = miniature(model="blr", site="particles", scheme="ksd", rounds=1)
    program, state = made.context.program, first(made.context)
    particles = program.method.posterior(state.server)
    program.metrics = registered
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, program.model.features)).astype(np.float32), rng.integers(0, 2, 30)
    made.engine.held = [program.held_out(x[a:b], y[a:b]) for a, b in ((0, 10), (10, 30))]
    made.engine.clients = made.engine.clients[:2]
    by_clients = ClientEvaluation(made.engine, "classification", metrics=registered)(1, particles, state.sites)

    class Rows:
        test_x, test_y, task, target_scale = x, y, "classification", 1.0

    at_once = Evaluation(program.model, Rows, registered)(1, particles, state.sites)
    assert tuple(at_once.metrics) == (*NAMES, "top_2", "pinball_90", "worst")
    assert at_once.metrics["top_2"] == 1.0
    assert by_clients.metrics == pytest.approx(at_once.metrics, abs=1e-6)
    assert by_clients.by_client(made.engine.clients)[0]["top_2"] == 1.0
