"""PVI, FedEP, FedLap, FedGVI, FedIvon, IVON-ADMM and FedPA on Gaussian targets, whose answers can be written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.federation.local import LocalEngine
from fedstein.inference import diagonal
from fedstein.inference.local_vi import Anchor, adam_vi, kl_to, natural_vi
from fedstein.inference.methods import METHODS, Training
from fedstein.inference.methods.fedgvi import renyi_to, robust_score
from fedstein.inference.methods.fedpa import shrunk_solve
from fedstein.inference.target import TILTED, SharedTarget, Target
from fedstein.models import MODELS
from fedstein.runs.config import resolve
from fedstein.runs.defaults import Facts

SIZES = (8, 19, 12, 9)


class Case(NamedTuple):
    """A linear-Gaussian federation with its exact posterior."""

    federation: Any
    mean: np.ndarray
    precision: np.ndarray
    least_squares: np.ndarray

    def q(self) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variances of what the method ends with."""
        state, records = self.federation.play()
        assert all(len(record["selected"]) == len(records[0]["selected"]) for record in records)
        server = state.server
        if "q_eta" in server:
            return server["q_eta"] / server["q_precision"], 1 / server["q_precision"]
        mean, precision = (server["mean"], server["precision"]) if "mean" in server else diagonal.q_of(server)
        return mean, 1 / precision


@pytest.fixture
def case(miniature: Callable[..., Any], linear_gaussian: Any) -> Callable[..., Case]:
    """``orthogonal`` rows, each with one input, make the posterior precision diagonal."""

    def build(algorithm: str, rounds: int, *, orthogonal: bool = False, per_round: int = 4, **settings: Any) -> Case:
        problem = linear_gaussian._replace(prior_mean=np.array([1.0, -1.0, 0.5]))
        chosen = {"batch_size": 100, "particles": 4, **settings}
        made = miniature(
            model=problem.model(),
            algorithm=algorithm,
            rounds=rounds,
            sizes=SIZES,
            scheme="round_robin",
            settings={"algorithm": chosen, "selection": {"per_round": per_round}},
        )
        draw = np.random.default_rng(3)
        rows = []
        for n in SIZES:
            x = draw.normal(size=(n, 3)).astype(np.float32)
            if orthogonal:
                x = (np.eye(3)[np.arange(n) % 3] * x).astype(np.float32)
            rows.append((x, (x @ [0.3, 1.0, -0.5] + draw.normal(size=n)).astype(np.float32)))
        program = made.context.program
        engine = LocalEngine(program, [program.shard(x, y) for x, y in rows])
        x, y = (np.concatenate(parts).astype(float) for parts in zip(*rows, strict=True))
        mean, covariance = problem.posterior(x, y)
        made = made._replace(context=made.context._replace(engine=engine), engine=engine)
        return Case(made, mean, np.linalg.inv(covariance), np.linalg.lstsq(x, y, rcond=None)[0])

    return build


VI = {"step_size": 0.05, "samples": 8, "damping": 0.5}
NEWTON = {"step_size": 0.2, "samples": 8, "curvature_rate": 0.1, "local_steps": 40}
SETTINGS: dict[str, dict[str, Any]] = {
    "pvi": {**VI, "local_steps": 60},
    "fedep": {**NEWTON, "damping": 0.5},
    "fedlap": {"step_size": 0.05, "local_steps": 80, "damping": 0.5},
    "ivon_admm": NEWTON,
    "fedivon": NEWTON,
}
ROUNDS = {"ivon_admm": 32}  # the server moves by 1 / (1 + K) of the way


@pytest.mark.parametrize("name", SETTINGS)
def test_the_exact_posterior_where_its_precision_is_diagonal(name: str, case: Callable[..., Case]) -> None:
    made = case(name, ROUNDS.get(name, 16), orthogonal=True, **SETTINGS[name])
    mean, variance = made.q()
    sd = 1 / np.sqrt(np.diag(made.precision))
    # FedIvon averages precisions and means that are far apart, each estimated from draws and moved all the way.
    rough = name == "fedivon"
    np.testing.assert_allclose((mean - made.mean) / sd, 0, atol=0.25 if rough else 0.08)
    np.testing.assert_allclose(variance, sd**2, rtol=0.2 if rough else 0.08)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pvi", "fedep", "fedlap", "ivon_admm"])
def test_the_exact_mean_and_the_mean_field_variance_where_it_is_not(name: str, case: Callable[..., Case]) -> None:
    """Factors match slopes at the common mean, so the mean is exact; the variances are those of the best mean field."""
    made = case(name, ROUNDS.get(name, 16), **SETTINGS[name])
    mean, variance = made.q()
    np.testing.assert_allclose((mean - made.mean) * np.sqrt(np.diag(made.precision)), 0, atol=0.12)
    np.testing.assert_allclose(variance, 1 / np.diag(made.precision), rtol=0.1)


@pytest.mark.slow
def test_pvi_one_client_after_another(case: Callable[..., Case]) -> None:
    settings = {**SETTINGS["pvi"], "damping": 1.0, "updates": "sequential"}
    made = case("pvi", 16, orthogonal=True, per_round=1, **settings)
    mean, variance = made.q()
    sd = 1 / np.sqrt(np.diag(made.precision))
    np.testing.assert_allclose((mean - made.mean) / sd, 0, atol=0.1)
    np.testing.assert_allclose(variance, sd**2, rtol=0.1)


@pytest.mark.slow
def test_fedlap_without_curvature_is_admm(case: Callable[..., Case]) -> None:
    """The mean is exact, the precision stays the prior's."""
    made = case("fedlap", 60, step_size=0.05, local_steps=80, damping=0.3, covariance=False)
    mean, variance = made.q()
    np.testing.assert_allclose(mean, made.mean, atol=0.03)
    np.testing.assert_allclose(variance, 0.7**2, rtol=1e-5)


def test_fedpa_without_shrinkage_is_fedavg_and_equal_curvatures_give_the_pooled_optimum(
    case: Callable[..., Case],
) -> None:
    settings = {"particles": 1, "local_steps": 40, "step_size": 0.3, "schedule": "constant"}
    made = case("fedpa", 40, shrinkage=0.05, server_step=1.0, **settings)
    program = made.federation.context.program
    x = np.vstack([np.eye(3), -np.eye(3)]).astype(np.float32)
    rows = [(x, (x @ centre).astype(np.float32)) for centre in ([1.0, 0, 0], [0, 2.0, 0], [0, 0, 3.0], [4.0, 0, 0])]
    engine = LocalEngine(program, [program.shard(a, b) for a, b in rows])
    context = made.federation.context._replace(engine=engine)
    state, _ = made.federation._replace(context=context, engine=engine).play()
    np.testing.assert_allclose(np.asarray(state.server["particles"])[0], [5 / 4, 2 / 4, 3 / 4], atol=2e-3)


@pytest.mark.parametrize("shrinkage", [0.0, 0.01, 1.0])
def test_fedpa_solves_with_the_shrunk_covariance(shrinkage: float, double: Any) -> None:
    draw = np.random.default_rng(1)
    samples, right = draw.normal(size=(5, 7)), draw.normal(size=7)
    r = 1 / (1 + 4 * shrinkage)
    sigma = r * np.eye(7) + (1 - r) * np.cov(samples.T)
    np.testing.assert_allclose(
        shrunk_solve(jnp.asarray(samples), jnp.asarray(right), shrinkage), np.linalg.solve(sigma, right)
    )


@pytest.mark.parametrize("alpha", [0.5, 2.5])
def test_the_renyi_divergence_against_an_integral(alpha: float, double: Any) -> None:
    """D_alpha(q || p) = log integral q^alpha p^(1 - alpha) / (alpha - 1), in one dimension on a grid."""
    m, s, centre, spread = 0.4, 0.6, -0.2, 0.9
    grid = np.linspace(-30, 30, 400_001)

    def density(mean: float, sd: float) -> np.ndarray:
        return np.exp(-0.5 * ((grid - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))

    with np.errstate(divide="ignore", invalid="ignore"):
        integrand = np.exp(
            alpha * (-0.5 * ((grid - m) / s) ** 2 - np.log(s * np.sqrt(2 * np.pi)))
            + (1 - alpha) * (-0.5 * ((grid - centre) / spread) ** 2 - np.log(spread * np.sqrt(2 * np.pi)))
        )
    expected = np.log(np.trapezoid(integrand, grid)) / (alpha - 1)
    assert density(m, s).sum() * (grid[1] - grid[0]) == pytest.approx(1)
    anchor = Anchor(jnp.array([centre / spread**2]), jnp.array([1 / spread**2]))
    got = renyi_to(anchor, alpha)(jnp.array([m]), jnp.log(jnp.array([s])))
    assert float(got) == pytest.approx(float(expected), rel=1e-6)
    near = renyi_to(anchor, 1.000001)(jnp.array([m]), jnp.log(jnp.array([s])))
    kl = np.log(spread / s) + (s**2 + (m - centre) ** 2) / (2 * spread**2) - 0.5
    assert float(near) == pytest.approx(kl, rel=1e-4)


def test_a_robust_loss_minds_wrong_labels_less(miniature: Callable[..., Any]) -> None:
    """Its gradient is the likelihood's with every row weighted by p^delta."""
    made = miniature(model="blr", algorithm="fedgvi", scheme="round_robin")
    model, shard = made.context.program.model, made.engine.shards[0]
    settings = METHODS["fedgvi"].settings(delta=0.5, batch_size=100)
    given = Training(jax.random.key(0), {}, {}, shard, True, jnp.float32(1))
    theta = model.init(jax.random.key(3), 3)
    got = np.asarray(robust_score(model, settings, given)(jnp.int32(0), theta))
    n = int(shard.rows)
    for i in range(3):
        one = model.split(theta[i : i + 1])
        weights = np.array(
            [
                np.exp(0.5 * float(model.log_likelihood(one, shard.x[j : j + 1], shard.y[j : j + 1], jnp.ones(1))[0]))
                for j in range(n)
            ],
            np.float32,
        )
        expected = model.likelihood_score(one, shard.x[:n], shard.y[:n], jnp.asarray(weights))
        np.testing.assert_allclose(got[i], np.concatenate([np.asarray(b)[0] for b in expected]), rtol=1e-3, atol=1e-4)


def test_fedgvi_refuses_regression_and_client_effects() -> None:
    for kind, classes in (("linear", 0), ("random_intercept_logistic", 2)):
        model = MODELS[kind].build(3, classes, MODELS[kind].settings())
        with pytest.raises(InputError, match="'fedgvi' needs the probability of each row's label"):
            METHODS["fedgvi"].build(model, None, METHODS["fedgvi"].settings())


def test_fedep_refuses_keys_that_laplace_fits_do_not_use() -> None:
    kind = METHODS["fedep"]
    with pytest.raises(InputError, match=r"algorithm\.samples is not used"):
        kind.build(None, None, kind.settings(inference="laplace", samples=9, clients=3))


@pytest.mark.parametrize("trainer", ["adam", "natural"])
def test_local_inference_finds_the_best_mean_field(trainer: str, double: Any) -> None:
    """A correlated Gaussian likelihood and an anchor: the mean is exact, variances are 1 / diagonal precision."""
    A = jnp.array([[4.0, 1.0], [1.0, 2.0]])
    b = jnp.array([1.0, -2.0])
    anchor = Anchor(jnp.array([0.5, 0.0]), jnp.array([1.0, 0.5]))

    def score(step: Any, theta: Any) -> Any:
        return b - theta @ A

    start = (jnp.zeros(2), jnp.full(2, 10.0))
    common = {"key": jax.random.key(1), "steps": 400, "samples": 8}
    if trainer == "adam":
        mean, precision = adam_vi(score, kl_to(anchor), start, rate=0.05, **common)
    else:
        mean, precision = natural_vi(score, anchor, start, rate=0.1, curvature_rate=0.05, **common)
    full = A + jnp.diag(anchor.precision)
    np.testing.assert_allclose(mean, jnp.linalg.solve(full, b + anchor.eta), atol=0.02)
    np.testing.assert_allclose(precision, jnp.diag(full), rtol=0.12)


def test_a_prior_that_is_not_gaussian_has_a_factor_and_a_gaussian_one_has_its_own(linear_gaussian: Any) -> None:
    factor = diagonal.prior_factor(linear_gaussian.model(), np.array([0.3, 2.0]), np.array([0.1, 0.4]))
    np.testing.assert_allclose(factor.precision, 1 / 0.7**2, rtol=1e-4)
    np.testing.assert_allclose(factor.eta, np.array([1.0, -1.0]) / 0.7**2, rtol=1e-3)
    blr = MODELS["blr"].build(3, 2, MODELS["blr"].settings())
    found = diagonal.prior_factor(blr, np.zeros(blr.dim), np.full(blr.dim, 0.1))
    assert np.isfinite(found.eta).all()
    assert (found.precision > 0).all()


def test_ksd_sees_the_true_cavity(case: Callable[..., Case]) -> None:
    """The tilted score of a report is that of q / t_k times p_k."""
    made = case("pvi", 2, **SETTINGS["pvi"])
    context = made.federation.context
    state, _ = made.federation.play()
    method, server = context.method, state.server
    received = method.broadcast(server, (TILTED,))
    mean, precision = diagonal.q_of(server)
    terms = SharedTarget(method.spec, received).terms((TILTED,))
    own = state.sites[1]
    target = Target(method.spec, terms, jax.random.key(0), own, made.federation.engine.shards[1], 0)
    theta = np.asarray(received["particles"], float)
    cavity = precision * (mean - theta) - (np.asarray(own["eta"]) - np.asarray(own["precision"]) * theta)
    expected = cavity + np.asarray(jnp.concatenate(target.likelihood_score, axis=1))
    np.testing.assert_allclose(jnp.concatenate(target.tilted_score, axis=1), expected, rtol=1e-3, atol=1e-2)


def test_methods_with_factors_are_resolved_with_the_number_of_clients() -> None:
    config, notes = resolve(
        {"algorithm": {"kind": "fedep"}, "partition": {"clients": 6}, "selection": {"barred": [1]}},
        Facts("classification", 2),
    )
    assert notes == []
    assert (config.algorithm.clients, config.selection.kind, config.selection.per_round) == (5, "round_robin", 5)
