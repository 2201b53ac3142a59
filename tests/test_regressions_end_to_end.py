"""The regressions through ``fedstein.fit`` and ``fedstein run``: what they find, what judges them, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import poisson as jax_poisson
from scipy import optimize, stats

import fedstein
from fedstein import data, models
from fedstein.cli.app import app
from fedstein.errors import InputError
from fedstein.models import MODELS, custom
from fedstein.runs.config import resolve
from fedstein.runs.defaults import EVERY_ROW, Facts
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

Clients = list[tuple[np.ndarray, np.ndarray]]
TRUE = np.array([0.5, -0.4, 0.8])  # the last one is the intercept


def counted(clients: int = 3, rows: int = 60) -> Clients:
    """Counts with a log-linear rate."""
    draw = np.random.default_rng(3)
    found = []
    for _ in range(clients):
        x = draw.normal(size=(rows, 2)).astype(np.float32)
        found.append((x, draw.poisson(np.exp(x @ TRUE[:2] + TRUE[2])).astype(np.float32)))
    return found


def together(clients: Clients) -> tuple[np.ndarray, np.ndarray]:
    x, y = (np.concatenate(arrays) for arrays in zip(*clients, strict=True))
    return np.c_[x, np.ones(len(x))].astype(np.float64), y.astype(np.float64)


def fisher_root(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Standard deviations of a Poisson regression's posterior under a flat prior."""
    return np.sqrt(np.diag(np.linalg.inv(x.T @ (np.exp(x @ w)[:, None] * x))))


def most_likely(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return optimize.minimize(
        lambda w: np.sum(np.exp(x @ w) - y * (x @ w)), np.zeros(x.shape[1]), jac=lambda w: x.T @ (np.exp(x @ w) - y)
    ).x


def test_linear_finds_the_coefficients() -> None:
    draw = np.random.default_rng(0)
    true, clients = np.array([0.6, -0.3, 0.0, 0.2, 0.1]), []
    for _ in range(4):
        x = draw.normal(size=(80, 4)).astype(np.float32)
        clients.append((x, (x @ true[:4] + true[4] + 0.5 * draw.normal(size=80)).astype(np.float32)))
    posterior = fedstein.fit(
        "linear", clients, standardise=False, rounds=16, algorithm__particles=10, sites__expand="mean"
    )
    x, y = together(clients)
    expected, sd = np.linalg.lstsq(x, y, rcond=None)[0], 0.5 * np.sqrt(np.diag(np.linalg.inv(x.T @ x)))
    assert posterior.gaussian is not None
    assert np.all(np.abs(posterior.gaussian.mean[:5] - expected) < sd)
    assert np.all(np.abs(posterior.particles.mean(axis=0)[:5] - expected) < sd)
    assert np.exp(-0.5 * posterior.particles[:, 6].mean()) == pytest.approx(0.5, rel=0.1)  # the noise


def test_poisson_finds_the_rates_and_is_judged_by_its_own_probabilities() -> None:
    clients, test = counted(), counted(4)[3]
    settings = {"rounds": 15, "algorithm__particles": 8, "sites__settle": False, "sites__expand": "mean"}
    posterior = fedstein.fit("poisson", clients, test=test, standardise=False, **settings)
    x, y = together(clients)
    best = most_likely(x, y)
    sd = fisher_root(x, best)
    assert np.all(np.abs(posterior.particles.mean(axis=0)[:3] - best) < 3 * sd)
    assert posterior.gaussian is not None
    assert np.all(np.abs(posterior.gaussian.mean[:3] - best) < sd)
    rates = np.exp(np.c_[test[0], np.ones(len(test[1]))] @ posterior.particles[:, :3].T.astype(np.float64))
    each = stats.poisson.pmf(test[1][:, None], rates).mean(axis=1)
    assert posterior.rounds[-1]["nll"] == pytest.approx(-np.log(each).mean(), rel=1e-4)
    mean, sd = posterior.predict(test[0]).T
    np.testing.assert_allclose(mean, rates.mean(axis=1), rtol=1e-3)
    np.testing.assert_allclose(sd, np.sqrt(rates.mean(axis=1) + rates.var(axis=1)), rtol=1e-3)


def test_a_likelihood_of_counts_from_jax_has_the_right_width() -> None:
    """With a Gaussian's y in place of counts its curvature was zero."""
    clients = counted()
    model = custom(
        3,
        log_prior=lambda theta: -0.5 * jnp.sum(theta**2) / 25,
        log_likelihood=lambda theta, x, y: jax_poisson.logpmf(y, jnp.exp(x @ theta[:2] + theta[2])),
        init=lambda key: 0.1 * jax.random.normal(key, (3,)),
        predict=lambda theta, x: (
            (x @ theta[:2] + theta[2])[:, None] * jnp.array([0.0, -1.0])
            + jnp.exp(x @ theta[:2] + theta[2])[:, None] * jnp.array([1.0, 0.0])
        ),
        task="regression",
        target="count",
        normalised=True,
    )
    posterior = fedstein.fit(
        model,
        clients,
        rounds=12,
        algorithm__particles=8,
        sites__structure="full",
        algorithm__step_size=0.05,
        sites__expand="mean",
    )
    x, y = together(clients)
    best = most_likely(x, y)
    assert posterior.gaussian is not None
    np.testing.assert_allclose(posterior.gaussian.sd, fisher_root(x, best), rtol=0.2)
    assert np.all(np.abs(posterior.gaussian.mean - best) < fisher_root(x, best))


@pytest.mark.slow
def test_softmax_is_as_good_as_scikit_learn() -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    raw, y = load_digits(return_X_y=True)
    x = (raw[:, ::4] / 16).astype(np.float32)
    train, test = slice(0, 1200), slice(1200, 1797)
    clients = [(x[k:1200:3], y[k:1200:3]) for k in range(3)]
    posterior = fedstein.fit(
        "softmax", clients, standardise=False, rounds=12, algorithm__particles=10, sites__expand="mean"
    )
    other = LogisticRegression(max_iter=1000).fit(x[train], y[train]).predict_proba(x[test])
    ours, theirs = (
        ((p.argmax(axis=1) == y[test]).mean(), -np.log(p[np.arange(len(p)), y[test]]).mean())
        for p in (posterior.predict(x[test]), other)  # the settled particles: those of round 12 are not there yet
    )
    assert ours[0] >= theirs[0] - 0.02
    assert ours[1] <= theirs[1] + 0.02


def spread_clients(tau: float) -> Clients:
    draw, found = np.random.default_rng(5), []
    for effect in tau * np.array([-1.5, -0.8, -0.2, 0.2, 0.8, 1.5]):
        x = draw.normal(size=(150, 1)).astype(np.float32)
        chance = 1 / (1 + np.exp(-(x[:, 0] + effect)))
        found.append((x, (draw.uniform(size=150) < chance).astype(np.int32)))
    return found


@pytest.mark.slow
def test_random_intercepts_tell_large_from_small_differences_between_clients() -> None:
    scales = []
    for tau in (2.0, 0.05):
        clients = spread_clients(tau)
        test = (clients[0][0][:20], clients[0][1][:20])
        posterior = fedstein.fit(
            "random_intercept_logistic",
            clients,
            test=test,
            standardise=False,
            rounds=24,
            algorithm__particles=8,
            sites__expand="mean",
        )
        assert np.isfinite(posterior.particles).all()
        assert all(np.isfinite(record["nll"]) for record in posterior.rounds)
        assert posterior.config.algorithm.batch_size == EVERY_ROW
        scales.append(float(np.exp(posterior.particles[:, 3]).mean()))
    start = 0.5  # half the scale of the prior
    assert scales[0] > 1.5 * start
    assert scales[1] < 0.8 * start


# What is refused


def test_targets_of_a_count_model_must_be_counts() -> None:
    (x, y), *others = counted()
    with pytest.raises(InputError, match=r"client 1: expected counts, whole.* got y = 2.5 in row 0; give"):
        fedstein.fit("poisson", [(x, y), (x, np.r_[np.float32(2.5), y[1:]])], rounds=1)
    with pytest.raises(InputError, match="test: expected counts"):
        fedstein.fit("negative_binomial", [(x, y), *others], test=(x, y - 10), rounds=1)


def write_counts(path: Path, worst: str = "3") -> Path:
    x, y = together(counted())
    lines = [f"{a:.5f},{b:.5f},{c:.0f}" for (a, b, _), c in zip(x, y, strict=True)]
    path.write_text("\n".join(["a,b,visits", *lines, f"0,0,{worst}"]) + "\n")
    return path


def counts_config(path: Path, **sections: dict[str, Any]) -> dict[str, Any]:
    return {
        "rounds": 2,
        "data": {"name": "file", "path": str(path), "task": "regression"},
        "partition": {"clients": 3},
        "model": {"kind": "poisson"},
        "algorithm": {"particles": 4, "local_steps": 2},
        "engine": {"threads": 1},
        **sections,
    }


def test_a_file_of_counts_is_not_standardised(tmp_path: Path) -> None:
    raw = counts_config(write_counts(tmp_path / "counts.csv"))
    dataset = load_dataset(raw)
    y = np.r_[together(counted())[1], 3.0]
    assert (dataset.target_mean, dataset.target_scale) == (0.0, 1.0)
    np.testing.assert_array_equal(np.sort(np.r_[dataset.train_y, dataset.test_y]), np.sort(y))
    assert abs(float(dataset.train_x.mean())) < 0.1  # features are
    standardised = load_dataset({**raw, "model": {"kind": "linear"}})
    assert standardised.target_scale != 1
    config, _ = resolve(raw, facts_of(dataset))
    prepared = prepare_run(config, standardised)  # whoever passes it
    np.testing.assert_array_equal(prepared.dataset.test_y, dataset.test_y)
    np.testing.assert_array_equal(
        np.sort(np.concatenate([shard.y[: shard.rows] for shard in prepared.engine.shards])), np.sort(dataset.train_y)
    )
    with pytest.raises(InputError, match=r"counts.csv.*expected counts.*got y = 2.5 in row \d+; give the counts"):
        load_dataset(counts_config(write_counts(tmp_path / "counts.csv", "2.5")))
    with pytest.raises(InputError, match="got y = -1 in row"):
        load_dataset(counts_config(write_counts(tmp_path / "counts.csv", "-1")))


@pytest.mark.parametrize("largest", [10.0, 1e4, 1e6])
def test_counts_come_back_as_they_were(largest: float) -> None:
    y = np.floor(np.random.default_rng(0).uniform(0, largest, 500))
    y[0] = largest
    mean, scale = y.mean(), y.std()
    z = ((y - mean) / scale).astype(np.float32)
    x = np.zeros((500, 1), np.float32)
    dataset = data.Dataset("some", "regression", x, z, x, z, 0, ("a",), np.zeros(1), np.ones(1), mean, scale)
    np.testing.assert_array_equal(data.with_counts(dataset).train_y, y)


def test_a_node_reads_counts_as_they_are(tmp_path: Path) -> None:
    from fedstein.flower.node.rows import Node, load_rows

    raw = {"data": {"name": "diabetes"}, "partition": {"clients": 3}, "model": {"kind": "poisson"}}  # whole numbers
    config, _ = resolve(raw, facts_of(load_dataset(raw)))
    node = Node("client-0", tmp_path / "state", partition=0)
    linear, _ = resolve({**raw, "model": {"kind": "linear"}}, Facts("regression", 0, features=10))
    assert np.any(load_rows(linear, node, {}).share.y % 1)
    y = load_rows(config, node, {}).share.y  # not what the other model's run has kept
    np.testing.assert_array_equal(y, np.round(y))
    assert y.min() >= 0
    nodes = {"name": "nodes", "features": ["a", "b"], "target": "visits", "task": "regression"}
    there = {"data": nodes, "partition": {"clients": 2}, "model": {"kind": "poisson"}}
    config, _ = resolve({**there, "engine": {"kind": "flower"}}, Facts("regression", 0, features=2))
    own = Node("own", tmp_path / "own", data=str(write_counts(tmp_path / "counts.csv", "0.5")))
    with pytest.raises(InputError, match=r"counts.csv: expected counts.*got y = 0.5 in row 180"):
        load_rows(config, own, {})


def test_random_intercepts_need_whole_clients() -> None:
    clients, name = spread_clients(1.0), "random_intercept_logistic"
    with pytest.raises(InputError, match=r"algorithm.batch_size = 50: .*client 0 has 150; leave batch_size out"):
        fedstein.fit(name, clients, rounds=1, algorithm__batch_size=50)
    with pytest.raises(InputError, match=r"selection.report_rows = 50: .*client 0 has 150; set it to 0"):
        fedstein.fit(name, clients, rounds=1, selection__kind="ksd", selection__report_rows=50)
    with pytest.raises(InputError, match=r"algorithm.kind = 'pooled_svgd' pools the clients' rows.* use .*'dsvgd'"):
        fedstein.fit(name, clients, rounds=1, algorithm__kind="pooled_svgd")
    own = models.random_intercept_logistic(1)
    with pytest.raises(InputError, match="pools the clients' rows"):
        fedstein.fit(own, clients, rounds=1, algorithm__kind="pooled_svgd")


def test_the_reference_keeps_clients_with_effects_of_their_own_apart() -> None:
    from fedstein.runs.federate import split_rows
    from fedstein.studies.reference.pipeline import pooled
    from fedstein.studies.reference.target import log_density

    raw = {
        "data": {"name": "breast_cancer"},
        "model": {"kind": "random_intercept_logistic"},
        "partition": {"kind": "dirichlet", "clients": 3, "concentration": 1.0},
    }
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    target = pooled(config, dataset)
    shares = [(dataset.train_x[rows], dataset.train_y[rows]) for rows in split_rows(config, dataset)]
    assert target.x.shape[0] == 3
    assert target.rows == sum(len(y) for _, y in shares)
    assert len({len(y) for _, y in shares}) > 1  # some are filled up
    model = target.model
    with jax.enable_x64(True):
        blocks = model.split(0.1 * jax.random.normal(jax.random.key(0), (2, model.dim)))
        each = [
            model.log_likelihood(blocks, jnp.asarray(model.prepare(x), jnp.float64), jnp.asarray(y), jnp.ones(len(y)))
            for x, y in shares
        ]
        together_ = log_density(model, jnp.concatenate(blocks, axis=1), *target.arrays())
        np.testing.assert_allclose(together_, sum(each) + model.log_prior(blocks), rtol=1e-10)


def test_large_regressions_have_diagonal_curvature() -> None:
    def structure(kind: str, features: int, classes: int) -> str:
        task = MODELS[kind].task
        facts = Facts(task, classes, features=features)
        raw = {"model": {"kind": kind}, "data": {"name": "file", "path": "rows.csv"}}
        return resolve(raw, facts)[0].sites.structure

    assert structure("softmax", 784, 10) == "diagonal"
    assert structure("softmax", 20, 10) == "full"
    assert structure("linear", 600, 0) == "diagonal"
    assert structure("linear", 30, 0) == "full"
    assert structure("blr", 600, 2) == "full"  # as ever


def test_functions_of_a_model_that_do_not_fit_are_refused_before_the_first_round() -> None:
    model = custom(
        2,
        log_prior=lambda theta: jnp.sum(jnp.log(theta - 100)),
        log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
        init=lambda key: jax.random.normal(key, (2,)),
        predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(x.shape[0])], axis=1),
        task="regression",
        name="mine",
    )
    with pytest.raises(InputError, match="model 'mine': log_prior is not finite at the start"):
        fedstein.fit(model, counted(), rounds=1)


@pytest.mark.slow
def test_diabetes_from_the_command_line_is_as_good_as_ridge(tmp_path: Path) -> None:
    import json

    from typer.testing import CliRunner

    arguments = ["run", "--set", "data.name=diabetes", "--set", "model.kind=linear", "--set", "engine.threads=1"]
    done = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run"), "--quiet"])
    assert done.exit_code == 0, done.output
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["final"]["rmse"] <= 55.5


@pytest.mark.slow
def test_a_run_on_counts_resumes_and_predicts_in_counts(tmp_path: Path) -> None:
    from fedstein.runs import runner
    from fedstein.runs.folder import RunFolder

    raw = counts_config(write_counts(tmp_path / "counts.csv"), rounds=12)
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    summary = runner.start(prepare_run(config, dataset), tmp_path / "run", lambda record: None)
    assert RunFolder(tmp_path / "run").dataset(config).target_scale == 1.0
    posterior = fedstein.load(tmp_path / "run")
    x, y = together(counted())
    predicted = posterior.predict(x[:, :2].astype(np.float32))[:, 0]
    assert predicted.min() > 0
    assert predicted.mean() == pytest.approx(y.mean(), rel=0.2)
    assert 1 < summary["final"]["nll"] < 3
