"""Networks in private runs: norms and bounds of clipped gradients, the server's step, runs that repeat and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import beta

import fedstein
from fedstein.errors import InputError
from fedstein.inference.methods.private_networks import DAMPING, newton_step
from fedstein.models.base import Model, cut, join
from fedstein.models.bnn import bnn_classifier, bnn_regressor
from fedstein.models.from_pytree import from_pytree
from fedstein.privacy import mechanism, row_gradients
from fedstein.privacy.accounting import mu_of
from fedstein.runs import runner
from fedstein.runs.audit import audit
from fedstein.runs.config import resolve
from fedstein.runs.federate import PreparedRun, facts_of, load_dataset, prepare_run
from fedstein.runs.forgetting import forget

CLIP = 0.7


def adapter() -> Model:
    params = {"a": jnp.ones((3, 4)) * 0.3, "b": jnp.ones((4, 3)) * jnp.arange(3.0)}
    return from_pytree(
        lambda p, x: jnp.tanh(x @ p["a"]) @ p["b"], params, likelihood="categorical", input_shape=3, name="own"
    )


MODELS = {
    "classifier": bnn_classifier(3, 3, hidden=(5, 4), label_noise=0.1),
    "regressor": bnn_regressor(3, hidden=(5,)),
    "adapter": adapter(),
}


def rows(model: Model, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, 3)) * random.choice([0.0, 0.1, 1.0, 1e3], (count, 1))
    y = random.standard_normal(count) * 5 if model.task == "regression" else random.integers(0, 3, count)
    return x, y


def point(model: Model, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(model.dim) * 0.6


def row_by_row(model: Model, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of every row, rows x d: what the product never holds."""
    with jax.enable_x64(True):

        def one(x_i: Any, y_i: Any) -> Any:
            blocks = cut(jnp.asarray(theta)[None], model.widths)
            return join(model.likelihood_score(blocks, x_i[None], y_i[None], jnp.ones(1)))[0]

        return np.asarray(jax.jit(jax.vmap(one))(jnp.asarray(x), jnp.asarray(y)))


@pytest.mark.parametrize("name", MODELS)
def test_norms_and_sums_are_those_of_the_rows_gradients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]
    monkeypatch.setattr(row_gradients, "NUMBERS", 3 * model.dim)  # pieces of three rows
    theta, (x, y) = point(model), rows(model, 11, 1)
    gradients = row_by_row(model, theta, x, y)
    squares = np.stack([(part**2).sum(axis=1) for part in cut(gradients, model.widths)], axis=1)
    np.testing.assert_allclose(row_gradients.row_norms(model, theta, x, y), squares, rtol=1e-9, atol=1e-12)
    norms = np.sqrt(squares.sum(axis=1))
    assert norms.min() < CLIP < 2 * CLIP < norms.max()  # all cases of the two minima
    shorter = np.minimum(1, CLIP / np.maximum(norms, 1e-300))
    found = row_gradients.clipped_gradients(model, theta, x, y, CLIP)
    np.testing.assert_allclose(found["gradient"], shorter @ gradients, rtol=1e-8, atol=1e-10)
    factors = np.minimum(shorter, 2 * CLIP**2 / np.maximum(norms, 1e-100) ** 2)
    np.testing.assert_allclose(found["curvature"], factors @ squares, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
def test_no_row_changes_the_sums_by_more_than_the_sensitivities(name: str) -> None:
    model, largest = MODELS[name], {"gradient": 0.0, "curvature": 0.0}
    bounds = row_gradients.row_sensitivities(CLIP)
    for seed in range(4):
        theta, (x, y) = point(model, seed) * 10.0 ** (seed - 1), rows(model, 9, seed)
        x[0], x[1, 0], x[2, 1] = 1e200, np.inf, np.nan  # nothing protects a client from such rows of its file
        base = row_gradients.clipped_gradients(model, theta, x[:-1], y[:-1], CLIP)
        for i in range(9):
            order = [*range(8), i]
            more = row_gradients.clipped_gradients(model, theta, x[order], y[order], CLIP)
            for key in largest:
                assert np.all(np.isfinite(more[key]))
                largest[key] = max(largest[key], float(np.linalg.norm(more[key] - base[key])))
    assert all(largest[key] <= bounds[key] * (1 + 1e-9) for key in largest)
    assert largest["gradient"] > 0.999 * bounds["gradient"]  # the bound is reached, so it is not generous
    assert largest["curvature"] > 0.5 * bounds["curvature"]


def test_nothing_is_released_at_a_point_that_is_not_finite_and_no_rows_give_zero() -> None:
    model = MODELS["classifier"]
    empty = row_gradients.clipped_gradients(model, point(model), np.zeros((0, 3)), np.zeros(0, int), CLIP)
    assert not np.any(empty["gradient"])
    assert not np.any(empty["curvature"])
    with pytest.raises(InputError, match="not finite"):
        row_gradients.clipped_gradients(model, np.full(model.dim, np.nan), *rows(model, 3, 0), CLIP)


def test_a_dense_network_never_holds_the_gradients_of_all_rows() -> None:
    model, count = bnn_classifier(300, 3, hidden=(40,)), 64
    with jax.enable_x64(True):
        given = (jnp.zeros((1, model.dim)), jnp.zeros((count, 300)), jnp.zeros(count, int), jnp.ones(count, bool), 1.0)
        compiled = row_gradients._dense_sums.lower(model, *given).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 8 * count * model.dim / 4


def test_the_default_of_the_clip_needs_no_rows_and_wrong_layers_are_refused() -> None:
    model = MODELS["classifier"]
    theta = point(model)
    norms = np.sqrt(row_gradients.row_norms(model, theta, *row_gradients._synthetic(model, 256)).sum(axis=1))
    assert row_gradients.default_clip(model, theta) == pytest.approx(np.median(norms) / 3)
    with pytest.raises(InputError, match=r"set privacy\.clip"):
        row_gradients.default_clip(model._replace(features=0), theta)
    row_gradients.check_norms(model, theta)
    doubled = model._replace(log_likelihood=lambda b, x, y, w: 2 * model.log_likelihood((2 * b[0], *b[1:]), x, y, w))
    with pytest.raises(InputError, match=r"set layers = \(\)"):
        row_gradients.check_norms(doubled, theta)


def lower_bound(with_row: np.ndarray, without: np.ndarray, delta: float) -> float:
    """An epsilon that a mechanism certainly exceeds (99% each), from its outputs on neighbours."""
    best, trials = 0.0, len(without)
    for cut_at in np.quantile(without, [0.5, 0.8, 0.9, 0.95, 0.99]):
        hits, alarms = int((with_row > cut_at).sum()), int((without > cut_at).sum())
        least = beta.ppf(0.01, hits, trials - hits + 1)
        if least > delta:
            best = max(best, float(np.log((least - delta) / beta.ppf(0.99, alarms + 1, trials - alarms))))
    return best


def test_an_attack_on_releases_stays_below_epsilon_and_catches_too_little_noise() -> None:
    model, trials = MODELS["adapter"], 4000
    theta, (x, y) = point(model), rows(model, 12, 3)
    x[-1] = 1.0
    y[-1] = np.argmin(np.asarray(model.predict(model.split(jnp.asarray(theta)[None]), jnp.ones((1, 3)))))
    sums = [row_gradients.clipped_gradients(model, theta, x[:n], y[:n], CLIP)["gradient"] for n in (12, 11)]
    direction = (sums[0] - sums[1]) / np.linalg.norm(sums[0] - sums[1])
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(CLIP)  # the row that is easiest to find
    for share, caught in ((1.0, False), (1 / 6, True)):
        scale = share / mu_of(1.0, 1e-5) * row_gradients.row_sensitivities(CLIP)["gradient"]
        noisy = [
            mechanism.release("gradient", np.tile(exact, (trials, 1)), scale, bytes(32), str(number)) @ direction
            for number, exact in enumerate(sums)
        ]
        assert (lower_bound(noisy[0], noisy[1], 1e-5) > 1.0) is caught


def test_the_step_is_newtons_without_noise_and_the_priors_where_noise_is_all() -> None:
    model = bnn_classifier(3, 2, hidden=(4,))
    theta, widths = point(model), np.asarray(model.widths)
    gradient = np.random.default_rng(1).standard_normal(model.dim)
    site = {"gradient": gradient / 2, "variance": np.float64(0.5), "curvature": 6.0 * widths}
    scales = {"gradient": 0.0, "curvature": 0.0}
    prior = np.e * np.ones(model.dim)
    found = newton_step(model, theta, [site, site], scales, widths)
    np.testing.assert_allclose(found, DAMPING * (gradient - prior * theta) / (12 + prior), rtol=1e-4, atol=1e-6)
    found = newton_step(model, theta, [site, site], {"gradient": 100.0, "curvature": 0.0}, widths)
    np.testing.assert_allclose(found, -DAMPING * prior * theta / (12 + prior), rtol=1e-4, atol=1e-6)


RAW: dict[str, Any] = {
    "seed": 1,
    "data": {"name": "breast_cancer"},
    "partition": {"clients": 3},
    "model": {"kind": "bnn_classifier", "hidden": [3]},
    "algorithm": {"particles": 4},
    "engine": {"threads": 1},
    "evaluate": {"every": 10},
    "privacy": {"kind": "record", "epsilon": 8.0, "visits": 4},
}


def prepared() -> PreparedRun:
    dataset = load_dataset(RAW)
    return prepare_run(resolve(RAW, facts_of(dataset))[0], dataset)


@pytest.mark.slow
def test_a_run_repeats_itself_when_it_was_stopped_and_spends_its_budget_once(tmp_path: Path) -> None:
    summary = runner.start(prepared(), tmp_path / "whole", lambda record: None)
    assert summary["final"]["accuracy"] > 0.7

    def stop(record: Any) -> None:
        if record["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.start(prepared(), tmp_path / "run", stop)
    assert audit(tmp_path / "run")[0]["releases"] == {"gradient": 2, "curvature": 1}
    folder, config = runner.open_run(tmp_path / "run")
    runner.resume(folder, config, lambda done, changes: None, lambda record: None)
    assert (tmp_path / "run" / "posterior.safetensors").read_bytes() == (
        tmp_path / "whole" / "posterior.safetensors"
    ).read_bytes()
    for line in audit(tmp_path / "run"):
        assert line["releases"] == {"gradient": 4, "curvature": 1}
        assert line["spent"]["epsilon"] == pytest.approx(8.0)
    assert not fedstein.load(tmp_path / "run").trusted
    with pytest.raises(InputError, match="nobody can be taken out"):
        forget(folder, config, 0, tmp_path / "less", lambda line: None, lambda steps, to_go: None)


@pytest.mark.slow
def test_a_model_of_ones_own_can_be_private(tmp_path: Path) -> None:
    model = MODELS["adapter"]
    clients = [rows(model, 20, seed) for seed in range(3)]
    clients = [(np.clip(x, -2, 2).astype(np.float32), np.arange(20) % 3) for x, _ in clients]
    found = fedstein.fit(model, clients, rounds=2, privacy={"kind": "record", "epsilon": 8.0, "visits": 2})
    assert found.predict(clients[0][0]).shape == (20, 3)
