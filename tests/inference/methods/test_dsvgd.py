"""Distributed SVGD: a posterior that is known, the tilted target term by term, reports, and what is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import dsvgd, likelihood_score, particle_site, program_of, scheme_of

from fedstein import models, stein
from fedstein.data.shard import Shard, make_shard, minibatch, shuffled, whole
from fedstein.federation import protocol
from fedstein.federation.client import ClientProgram, compilations
from fedstein.inference.methods import Method, Training
from fedstein.models.base import join
from fedstein.seeds import REPORT, TRAIN, stream
from fedstein.stein.adagrad import AdaGrad

N, ROWS = 7, 11
RULE = AdaGrad(0.1, 0.5)


def algorithm_of(
    model: models.Model,
    *,
    particles: int = N,
    steps: int = 1,
    distill: int = 1,
    batch_size: int = 100,
    temperature: float = 1.0,
    optimiser: AdaGrad = RULE,
    density: str = "log",
) -> Method:
    site = particle_site(model, density=density, bandwidth=0.55, steps=distill, optimiser=optimiser)
    return dsvgd(
        model,
        site,
        particles=particles,
        steps=steps,
        batch_size=batch_size,
        temperature=temperature,
        optimiser=optimiser,
    )


def rows(seed: int = 0, n: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(n, 2))
    return x, x @ np.array([-1.0, 2.0]) + draw.normal(size=n)


def sample(seed: int, dtype: Any = np.float32) -> np.ndarray:
    return (0.5 * np.random.default_rng(seed).normal(size=(N, 2))).astype(dtype)


kde_score = jax.jit(stein.kde_score)


def data_score(problem: Any, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """sum_i x_i (y_i - x_i theta) / noise^2, written out."""
    return (y[None] - theta @ x.T) @ x / problem.noise_sd**2


def prior_score(problem: Any, theta: np.ndarray) -> np.ndarray:
    return -(theta - problem.prior_mean) / problem.prior_sd**2


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_one_client_reaches_the_known_posterior(linear_gaussian: Any, temperature: float) -> None:
    """K = 1, log density, several rounds: the mean is the analytic one, for p0 counted once and L_k / alpha."""
    model = linear_gaussian.model()
    x, y = rows()
    built = algorithm_of(
        model, particles=40, steps=150, distill=150, temperature=temperature, optimiser=AdaGrad(0.02, 1e-6)
    )
    server = built.init(jax.random.key(0))
    state, shard = built.client_state(server), make_shard(x, y)
    train = jax.jit(lambda received, state: built.train(Training(jax.random.key(1), received, state, shard, True, 1.0)))
    for _ in range(4):
        update, state = train(built.broadcast(server, ()), state)
        server = built.apply(server, {}, {0: update}, 1.0)
    got = np.asarray(server["particles"])
    mean, covariance = linear_gaussian.posterior(x, y, temperature)
    wrong = [
        linear_gaussian.posterior(x, y, temperature, priors=2)[0],
        linear_gaussian.posterior(x, y, temperature, priors=1e-9)[0],
        linear_gaussian.posterior(x, y, 5 - temperature)[0],
    ]
    tolerance = 0.04
    assert all(np.abs(other - mean).max() > 3 * tolerance for other in wrong)  # the test can tell
    np.testing.assert_allclose(got.mean(axis=0), mean, atol=tolerance)
    np.testing.assert_allclose(got.std(axis=0), np.sqrt(np.diag(covariance)), rtol=0.35)


def trained(built: Method, theta: np.ndarray, local: np.ndarray, shard: Shard, use_all: bool = True) -> Any:
    run = jax.jit(
        lambda t, s: built.train(Training(jax.random.key(3), {"particles": t}, {"local": s}, shard, use_all, 1.0))
    )
    return run(theta, local)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
def test_one_step_follows_the_tilted_score(linear_gaussian: Any, temperature: float, precision: Any) -> None:
    """eqn:glocal_svgd with p~_k written out; then eqn:local_svgd with the particles before and after."""
    x, y = rows()
    theta, local = sample(0, precision.dtype), sample(1, precision.dtype)
    built = algorithm_of(linear_gaussian.model(), temperature=temperature)
    update, state = trained(built, theta, local, make_shard(x, y))
    tilted = (
        prior_score(linear_gaussian, theta)
        + data_score(linear_gaussian, theta, x, y) / temperature
        + np.asarray(kde_score(theta, theta))
        - np.asarray(kde_score(theta, local))
    )
    phi = np.asarray(stein.svgd_direction(theta, tilted.astype(precision.dtype)))
    after = (theta + 0.1 * phi / (0.5 + np.abs(phi))).astype(precision.dtype)
    precision.close(update["particles"], after, factor=5)
    target = kde_score(local, after) - kde_score(local, theta) + kde_score(local, local)
    phi = np.asarray(stein.svgd_direction(local, target))
    precision.close(state["local"], local + 0.1 * phi / (0.5 + np.abs(phi)), factor=10)


def test_a_client_never_selected_sees_prior_and_likelihood_alone(linear_gaussian: Any, precision: Any) -> None:
    x, y = rows()
    theta = sample(0, precision.dtype)
    update, _ = trained(algorithm_of(linear_gaussian.model()), theta, theta, make_shard(x, y))
    score = prior_score(linear_gaussian, theta) + data_score(linear_gaussian, theta, x, y)
    phi = np.asarray(stein.svgd_direction(theta, score.astype(precision.dtype)))
    precision.close(update["particles"], theta + 0.1 * phi / (0.5 + np.abs(phi)), factor=5)


def test_minibatches_scale_the_likelihood_and_change_from_step_to_step(linear_gaussian: Any) -> None:
    x, y = rows()
    theta, shard = sample(0), make_shard(x, y)
    got, _ = trained(algorithm_of(linear_gaussian.model(), batch_size=4, steps=2), theta, theta, shard, use_all=False)
    order = np.asarray(shuffled(jax.random.key(3), shard))
    at, history = theta, None
    for index in (order[:4], order[4:8]):
        score = prior_score(linear_gaussian, at) + data_score(linear_gaussian, at, x[index], y[index]) * ROWS / 4
        # The KDE terms cancel at every step: q and the local particles have the same centres.
        phi = np.asarray(stein.svgd_direction(at.astype(np.float32), score.astype(np.float32)))
        history = phi**2 if history is None else 0.9 * history + 0.1 * phi**2
        at = at + 0.1 * phi / (0.5 + np.sqrt(history))
    np.testing.assert_allclose(got["particles"], at, rtol=1e-4, atol=1e-4)


def test_a_batch_as_large_as_the_shard_is_the_shard_unscaled(linear_gaussian: Any) -> None:
    model, shard = linear_gaussian.model(), make_shard(*rows())
    ends = {}
    for batch_size in (ROWS, ROWS - 1):
        program = program_of(model, algorithm_of(model, batch_size=batch_size), "ksd", seed=0, batch_size=batch_size)
        ends[batch_size] = np.asarray(program.train(1, 0, program.first_server, {}, None, shard)[0]["particles"])
    start = np.asarray(program.first_server["particles"])
    score = prior_score(linear_gaussian, start) + data_score(linear_gaussian, start, *rows())
    phi = np.asarray(stein.svgd_direction(start, score.astype(np.float32)))
    np.testing.assert_allclose(ends[ROWS], start + 0.1 * phi / (0.5 + np.abs(phi)), rtol=1e-4, atol=1e-5)
    assert np.abs(ends[ROWS - 1] - ends[ROWS]).max() > 1e-3


def client(problem: Any, scheme: Any, *, report_rows: int = 0, temperature: float = 1.0) -> ClientProgram:
    model = problem.model()
    built = algorithm_of(model, temperature=temperature)
    return program_of(model, built, scheme, seed=5, batch_size=100, report_rows=report_rows)


@pytest.mark.parametrize("report_rows", [0, 4])
def test_the_ksd_report_is_the_ksd_of_the_tilted_score(linear_gaussian: Any, report_rows: int, precision: Any) -> None:
    x, y = rows()
    theta, local = 2 + sample(0, precision.dtype), 2 + sample(1, precision.dtype)
    program = client(linear_gaussian, scheme_of("ksd"), report_rows=report_rows, temperature=2.0)
    shard = program.shard(x, y)
    seen = program.prepare(1, {"particles": jnp.asarray(theta)})
    got = program.report(3, 1, seen, {"local": jnp.asarray(local)}, shard)["ksd"]
    scale = 1.0
    if report_rows:
        index = np.asarray(shuffled(stream(5, REPORT, 3, 1), shard))[:report_rows]
        x, y, scale = x[index], y[index], ROWS / report_rows
    tilted = (
        prior_score(linear_gaussian, theta)
        + scale * data_score(linear_gaussian, theta, x, y) / 2.0
        + np.asarray(kde_score(theta, theta))
        - np.asarray(kde_score(theta, local))
    )
    precision.close(got, stein.ksd(theta, tilted.astype(precision.dtype)), factor=10)


@pytest.mark.parametrize("report_rows", [0, 4])
def test_the_hip_report_is_the_likelihood_score_alone(linear_gaussian: Any, report_rows: int, double: Any) -> None:
    x, y = rows()
    theta, local = sample(0, double.dtype), sample(1, double.dtype)
    program = client(linear_gaussian, scheme_of("hip"), report_rows=report_rows, temperature=2.0)
    shard = program.shard(x, y)
    seen = program.prepare(1, {"particles": jnp.asarray(theta)})
    got = program.report(3, 1, seen, {"local": jnp.asarray(local)}, shard)["score"]
    scale = 0.5
    if report_rows:
        index = np.asarray(shuffled(stream(5, REPORT, 3, 1), shard))[:report_rows]
        x, y, scale = x[index], y[index], 0.5 * ROWS / report_rows
    double.close(got, scale * data_score(linear_gaussian, theta, x, y), factor=3)


def test_hip_indicators_are_those_of_the_mean_score(linear_gaussian: Any) -> None:
    theta, reports = sample(0), [sample(k) for k in (1, 2, 3)]
    scheme = scheme_of("hip")
    assert scheme.indicators is not None
    got = scheme.indicators({"particles": theta}, [{"score": jnp.asarray(s)} for s in reports])
    mean = np.mean(reports, axis=0)
    np.testing.assert_allclose(got, [float(stein.hip(theta, s, mean)) for s in reports], rtol=1e-4, atol=1e-5)
    assert all(isinstance(value, float) for value in got)


def test_the_temperature_divides_the_likelihood() -> None:
    model = models.blr(2)
    x, y = rows()
    shard = make_shard(model.prepare(x), (y > 0).astype(np.int32))

    @jax.jit
    def at_both(theta: Any) -> tuple[Any, ...]:
        blocks, batch = model.split(theta), whole(shard)
        tempered = [
            likelihood_score(algorithm_of(model, temperature=t), jax.random.key(0), theta, shard) for t in (1.0, 4.0)
        ]
        return *tempered, join(model.likelihood_score(blocks, batch.x, batch.y, batch.weights))

    cold, hot, plain = at_both(np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32))
    np.testing.assert_allclose(cold, plain, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(hot, plain / 4, rtol=1e-5, atol=1e-6)


def test_training_draws_its_batches_from_the_round_and_the_client(linear_gaussian: Any) -> None:
    model = linear_gaussian.model()
    built = algorithm_of(model, batch_size=3)
    program = program_of(model, built, "ksd", seed=5, batch_size=3)
    shard = program.shard(*rows())
    ends = [
        np.asarray(program.train(r, k, program.first_server, {}, None, shard)[0]["particles"])
        for r, k in ((1, 0), (2, 0), (1, 1))
    ]
    again = np.asarray(program.train(1, 0, program.first_server, {}, None, shard)[0]["particles"])
    np.testing.assert_array_equal(again, ends[0])
    assert np.any(ends[0] != ends[1])
    assert np.any(ends[0] != ends[2])
    # and they are the batches of the stream that the documentation names
    order = shuffled(stream(5, TRAIN, 1, 0), shard)
    batch = minibatch(shard, order, 0, 3)
    start = np.asarray(program.first_server["particles"])
    score = prior_score(linear_gaussian, start) + data_score(
        linear_gaussian, start, np.asarray(batch.x), np.asarray(batch.y)
    ) * (ROWS / 3)
    phi = np.asarray(stein.svgd_direction(start, score.astype(np.float32)))
    np.testing.assert_allclose(ends[0], start + 0.1 * phi / (0.5 + np.abs(phi)), rtol=1e-4, atol=1e-4)


def test_row_gradients_are_rows_times_particles_times_steps(linear_gaussian: Any) -> None:
    built = algorithm_of(linear_gaussian.model(), steps=3, batch_size=8)
    assert built.row_gradients(20) == {"train": 3 * 8 * N, "site": 0}
    assert built.row_gradients(5) == {"train": 3 * 5 * N, "site": 0}


@pytest.mark.parametrize("scheme", ["ksd", "hip", "round_robin"])
def test_nothing_is_compiled_after_the_first_pass(miniature: Callable[..., Any], scheme: str) -> None:
    """Clients of 11 and 12 rows share a padded shape; states, batches and round numbers change nothing."""
    federation = miniature(
        model="blr", scheme=scheme, sizes=(12, 11, 11), rounds=9, settings={"selection": {"per_round": 2}}
    )
    counts = []
    state = protocol.first(federation.context)
    for state, _ in protocol.run_rounds(federation.context, state):  # noqa: B007, B020 - the loop moves the state on
        counts.append(compilations())
    assert counts == [counts[0]] * 9
