"""DSGLD, FSGLD, QLSD, QLSD++ and pooled SGHMC: their stationary laws on a Gaussian posterior, and QLSD's quantiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.federation import protocol
from fedstein.federation.local import LocalEngine
from fedstein.inference.methods.qlsd import quantise, restore

SIZES = (12, 11, 12, 11)


def sampled(
    miniature: Callable[..., Any],
    problem: Any,
    algorithm: str,
    rounds: int,
    warm: int,
    orthogonal: bool,
    scheme: str = "round_robin",
    sizes: tuple[int, ...] = SIZES,
    **chosen: Any,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The states of all chains after the warm-up, and the exact mean and covariance."""
    problem = problem._replace(prior_mean=np.array([1.0, -1.0, 0.5]))
    made = miniature(
        model=problem.model(),
        algorithm=algorithm,
        scheme=scheme,
        rounds=rounds,
        sizes=sizes,
        settings={"algorithm": {"batch_size": 100, "particles": 2, "chains": 200, **chosen}},
    )
    draw, rows = np.random.default_rng(3), []
    for k, n in enumerate(sizes):
        x = draw.normal(size=(n, 3)).astype(np.float32)
        x = (np.eye(3)[np.arange(n) % 3] * x).astype(np.float32) if orthogonal else x
        rows.append((x, (x @ [0.3 + k, 1.0, -0.5] + draw.normal(size=n)).astype(np.float32)))  # clients disagree
    program = made.context.program
    engine = LocalEngine(program, [program.shard(x, y) for x, y in rows])
    context = made.context._replace(engine=engine)
    state, found = protocol.first(context), []
    for state, record in protocol.run_rounds(context, state):  # noqa: B020 - the loop moves the state on
        if record.round > warm:
            found.append(np.asarray(state.server["chain"], float))
    x, y = (np.concatenate(parts).astype(float) for parts in zip(*rows, strict=True))
    return np.stack(found), *problem.posterior(x, y)


def compare(found: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the mean in sds, and ratios of variances."""
    sd = np.sqrt(np.diag(covariance))
    flat = found.reshape(-1, 3)
    return (flat.mean(axis=0) - mean) / sd, flat.var(axis=0) / sd**2


def test_fsgld_has_the_posterior_as_its_stationary_law(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    """Surrogates are exact where precisions are diagonal: every visit sees the gradient of all rows."""
    got = compare(*sampled(miniature, linear_gaussian, "fsgld", 60, 25, True, "random", step_size=2e-3, local_steps=10))
    np.testing.assert_allclose(got[0], 0, atol=0.1)
    np.testing.assert_allclose(got[1], 1, rtol=0.12)


def test_dsgld_is_pulled_to_the_visited_client_and_fsgld_is_not(
    miniature: Callable[..., Any], linear_gaussian: Any
) -> None:
    """Long visits: the chains of DSGLD move with the client, those of FSGLD hardly do."""
    spread = {}
    for name in ("dsgld", "fsgld"):
        found, mean, covariance = sampled(
            miniature, linear_gaussian, name, 40, 20, False, "random", step_size=2e-3, local_steps=10
        )
        centres = (found.mean(axis=1) - mean) / np.sqrt(np.diag(covariance))
        spread[name] = float(np.sqrt(np.mean(centres**2)))
    assert spread["dsgld"] > 1.0
    assert spread["fsgld"] < 0.5 * spread["dsgld"]


def test_short_visits_of_dsgld_come_near_the_posterior(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    found = sampled(miniature, linear_gaussian, "dsgld", 480, 240, True, step_size=2e-3, local_steps=1)
    errors, ratios = compare(*found)
    np.testing.assert_allclose(errors, 0, atol=0.15)
    np.testing.assert_allclose(ratios, 1, rtol=0.2)


def test_pooled_sghmc_has_the_posterior_as_its_stationary_law(
    miniature: Callable[..., Any], linear_gaussian: Any
) -> None:
    """One client has all rows. Without friction that is taken back by noise, variances would be far from 1."""
    chosen = {"step_size": 1e-3, "local_steps": 20, "friction": 0.2}
    found = sampled(miniature, linear_gaussian, "pooled_sghmc", 60, 25, False, sizes=(46,), **chosen)
    errors, ratios = compare(*found)
    np.testing.assert_allclose(errors, 0, atol=0.1)
    np.testing.assert_allclose(ratios, 1, rtol=0.12)


@pytest.mark.parametrize("name", ["qlsd", "qlsd_pp"])
def test_qlsd_has_the_posterior_as_its_stationary_law(
    name: str, miniature: Callable[..., Any], linear_gaussian: Any
) -> None:
    found = sampled(miniature, linear_gaussian, name, 300, 100, False, step_size=1e-3, levels=127)
    errors, ratios = compare(*found)
    np.testing.assert_allclose(errors, 0, atol=0.1)
    np.testing.assert_allclose(ratios, 1, rtol=0.12)


def test_reduced_variance_is_a_smaller_error_of_batches(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    """Near its reference point the estimate from a batch is nearly the gradient of all rows."""
    errors = {}
    for name in ("qlsd", "qlsd_pp"):
        made = miniature(
            model=linear_gaussian._replace(prior_mean=np.zeros(3)).model(),
            algorithm=name,
            scheme="round_robin",
            rounds=2,
            sizes=(40, 40),
            settings={"algorithm": {"batch_size": 4, "chains": 1, "levels": 127, "step_size": 1e-6}},
        )
        state = protocol.first(made.context)
        for _ in range(2):
            state, _ = protocol.run_round(made.context, state)
        chain = np.asarray(state.server["chain"], float)
        total = np.zeros(3)
        for shard in made.engine.shards:
            x, y = np.asarray(shard.x)[: shard.rows], np.asarray(shard.y)[: shard.rows]
            total += (x.T @ (x @ chain[0] - y)) / linear_gaussian.noise_sd**2 + chain[
                0
            ] / 2 / linear_gaussian.prior_sd**2
        errors[name] = np.linalg.norm(state.server["memory"].sum(axis=0)[0] - total)
    assert errors["qlsd_pp"] < 0.3 * errors["qlsd"]


def test_the_quantiser_is_unbiased_and_a_byte_a_number(double: Any) -> None:
    values = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5)))
    sent = [quantise(jax.random.key(i), values, 4) for i in range(400)]
    assert sent[0]["levels"].dtype == jnp.int8
    back = np.stack([np.asarray(restore(s["levels"], s["norm"], 4)) for s in sent])
    step = np.linalg.norm(values, axis=1)[:, None] / 4
    assert np.all(np.abs(back - np.asarray(values)) <= step + 1e-12)
    np.testing.assert_allclose(back.mean(axis=0), values, atol=float(4 * step.max() / 2 / np.sqrt(400)))
    zero = quantise(jax.random.key(0), jnp.zeros((1, 3)), 4)
    np.testing.assert_array_equal(restore(zero["levels"], zero["norm"], 4), np.zeros((1, 3)))
