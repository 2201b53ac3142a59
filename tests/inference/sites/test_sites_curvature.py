"""Curvature sites: what a site is, that sites add up, that they are exact where they can be, and the server's sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import curvature_site, dsvgd, innovation_of, program_of, train_client
from scipy.special import expit

from fedstein import models, stein
from fedstein.data.basis import find_basis, moments, rotate
from fedstein.data.shard import Shard, make_shard
from fedstein.federation import protocol
from fedstein.inference.methods import Method
from fedstein.inference.sites import Site
from fedstein.inference.sites.curvature import natural_sums
from fedstein.inference.target import TILTED
from fedstein.models.base import join
from fedstein.stein.adagrad import AdaGrad

N = 5


def site_of(model: models.Model, structure: str, **changes: Any) -> Site:
    settings = {"damping": 1.0, "label_samples": 0, "particles": N, "temperature": 1.0, **changes}
    return curvature_site(model, structure=structure, **settings)


def algorithm_of(model: models.Model, structure: str, steps: int = 1, batch_size: int = 100) -> Method:
    common: dict[str, Any] = {"particles": N, "temperature": 1.0}
    return dsvgd(
        model,
        site_of(model, structure),
        **common,
        steps=steps,
        batch_size=batch_size,
        optimiser=AdaGrad(0.1, 1e-6),
    )


def fitter(model: models.Model, site: Site) -> Callable[[Any, Any, Shard], dict[str, np.ndarray]]:
    """Particles, the old site, a shard -> the new site, compiled."""

    @jax.jit
    def fit(theta: Any, state: Any, shard: Shard) -> Any:
        blocks = model.split(theta)
        return site.refit(jax.random.key(0), blocks, blocks, state, shard)

    return lambda theta, state, shard: {k: np.asarray(v) for k, v in fit(theta, state, shard).items()}


def sample(model: models.Model, seed: int, dtype: Any) -> np.ndarray:
    return (0.7 * np.random.default_rng(seed).normal(size=(N, model.dim))).astype(dtype)


def labelled(seed: int, rows: int, dtype: Any, classes: int = 2) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(seed)
    return draw.normal(size=(rows, 3)).astype(dtype), draw.integers(0, classes, rows).astype(np.int32)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_a_site_starts_as_one_and_its_cavity_is_the_prior(structure: str, linear_gaussian: Any) -> None:
    model = linear_gaussian.model()
    site, theta = site_of(model, structure), jnp.asarray(sample(model, 0, np.float32))
    state = site.init(theta)
    blocks = model.split(theta)
    assert all(np.all(np.asarray(array) == 0) for array in state.values())
    assert site.site_score is not None
    np.testing.assert_array_equal(join(site.site_score(blocks, state)), 0)
    server = {"particles": theta, **site.sums.first(theta)}
    received = {"particles": theta, **site.sums.cavity(server, None)}
    cavity = site.cavity(received, blocks, state)
    prior = -(theta - linear_gaussian.prior_mean) / linear_gaussian.prior_sd**2
    assert cavity.score is not None
    assert cavity.mixtures == ()
    assert cavity.linear is None
    np.testing.assert_allclose(join(cavity.score(blocks)), prior, rtol=1e-5)
    common = site.common_score({"particles": theta, **site.sums.tilted(server)}, blocks, blocks)
    np.testing.assert_allclose(join(common), prior, rtol=1e-5)
    # A prior that is folded into SVGD's coefficients is not in the score as well.
    network = models.bnn_classifier(2, 2, hidden=(2,))
    folded, theta = site_of(network, structure), jnp.asarray(sample(network, 0, np.float32))
    blocks = network.split(theta)
    server = {"particles": theta, **folded.sums.first(theta)}
    cavity = folded.cavity(folded.sums.cavity(server, None), blocks, folded.init(theta))
    assert cavity.linear == network.linear_prior_score
    assert cavity.score is not None
    np.testing.assert_array_equal(join(cavity.score(blocks)), 0)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_the_score_is_the_gradient_of_the_log_density(structure: str, precision: Any) -> None:
    model = models.blr(2)
    draw, d = np.random.default_rng(0), model.dim
    root = draw.normal(size=(d, d))
    shape = (d,) if structure == "full" else (N, d)
    eta = draw.normal(size=shape).astype(precision.dtype)
    curved = (root @ root.T if structure == "full" else draw.uniform(size=(N, d))).astype(precision.dtype)
    theta = sample(model, 1, precision.dtype)

    def log_density(theta: Any, eta: Any, curved: Any) -> Any:
        pulled = theta @ curved @ theta if structure == "full" else jnp.sum(curved * theta**2)
        return eta @ theta - pulled / 2

    axes = (0, None, None) if structure == "full" else (0, 0, 0)
    expected = jax.vmap(jax.grad(log_density), axes)(theta, eta, curved)
    site = site_of(model, structure)
    assert site.site_score is not None
    state = {"eta": jnp.asarray(eta), "precision": jnp.asarray(curved)}
    precision.close(join(site.site_score(model.split(jnp.asarray(theta)), state)), expected, factor=3)


def test_a_blr_site_is_the_formula(precision: Any) -> None:
    """H = mean_n X' diag(p(1-p)) X, eta = mean_n g_n + H mean_n theta_n; diagonal: particle by particle."""
    model = models.blr(2)
    x, y = labelled(0, 9, precision.dtype)
    theta = sample(model, 0, precision.dtype)
    exact = theta.astype(np.float64)
    p = expit(exact[:, :-1] @ x.T)
    gradient = np.pad((y - p) @ x, ((0, 0), (0, 1)))
    matrices = np.pad(np.einsum("nb,bi,bj->nij", p * (1 - p), x, x), ((0, 0), (0, 1), (0, 1)))
    full, diagonal = (
        fitter(model, site_of(model, s))(theta, site_of(model, s).init(jnp.asarray(theta)), make_shard(x, y))
        for s in ("full", "diagonal")
    )
    mean = matrices.mean(axis=0)
    precision.close(full["precision"], mean, factor=2)
    precision.close(full["eta"], gradient.mean(axis=0) + mean @ exact.mean(axis=0), factor=2)
    each = np.einsum("nii->ni", matrices)
    precision.close(diagonal["precision"], each, factor=2)
    precision.close(diagonal["eta"], gradient + each * exact, factor=2)


def test_the_score_of_a_diagonal_site_at_its_particle_is_the_likelihoods() -> None:
    model = models.bnn_classifier(3, 3, hidden=(3,))
    site, theta = site_of(model, "diagonal"), jnp.asarray(sample(model, 0, np.float32))
    x, y = labelled(0, 9, np.float32, 3)
    state = fitter(model, site)(theta, site.init(theta), make_shard(x, y))
    assert site.site_score is not None
    got = join(site.site_score(model.split(theta), {k: jnp.asarray(v) for k, v in state.items()}))
    gradient = jax.jit(lambda t: join(model.likelihood_score(model.split(t), x, y, jnp.ones(9))))(theta)
    np.testing.assert_allclose(got, gradient, rtol=1e-3, atol=1e-4)
    # One site a particle: another first particle changes the first site alone.
    moved = fitter(model, site)(theta.at[0].add(0.3), site.init(theta), make_shard(x, y))
    for name in ("eta", "precision"):
        assert state[name].shape == (N, model.dim)
        np.testing.assert_array_equal(moved[name][1:], state[name][1:])
        assert np.any(moved[name][0] != state[name][0])


def test_label_samples_are_drawn_with_the_key_of_the_refit() -> None:
    model = models.bnn_classifier(3, 3, hidden=(3,))
    site, theta = site_of(model, "diagonal", label_samples=1), jnp.asarray(sample(model, 0, np.float32))
    shard, blocks = make_shard(*labelled(0, 9, np.float32, 3)), model.split(theta)
    refit = jax.jit(lambda seed: site.refit(jax.random.key(seed), blocks, blocks, site.init(theta), shard))
    first, again, other = (np.asarray(refit(seed)["precision"]) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)


@pytest.mark.parametrize("structure", ["full", "diagonal", "eigen"])
def test_sites_of_two_shards_add_up_to_the_site_of_their_rows(structure: str, precision: Any) -> None:
    model = models.blr(2) if structure == "full" else models.bnn_classifier(3, 3, hidden=(3,))
    x, y = labelled(0, 20, precision.dtype, model.classes)
    if structure == "eigen":
        x = rotate(find_basis(lambda probe: moments(x, probe), 3, 0, 0), x)
    site, theta = site_of(model, structure), sample(model, 0, precision.dtype)
    fit, none = fitter(model, site), site.init(jnp.asarray(theta))
    parts = [fit(theta, none, make_shard(x[rows], y[rows])) for rows in (slice(0, 9), slice(9, 20))]
    joined = fit(theta, none, make_shard(x, y))
    for name in ("eta", "precision"):
        precision.close(parts[0][name] + parts[1][name], joined[name], factor=3)
        assert np.abs(parts[1][name]).max() > 0.05 * np.abs(joined[name]).max()


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_damping_mixes_old_and_new_but_never_a_first_site_with_nothing(structure: str) -> None:
    model = models.blr(2)
    shard, theta = make_shard(*labelled(0, 9, np.float32)), sample(model, 0, np.float32)
    plain, damped = (site_of(model, structure, damping=rho) for rho in (1.0, 0.3))
    none = plain.init(jnp.asarray(theta))
    new = fitter(model, plain)(theta, none, shard)
    old = {name: 0.5 + np.abs(array) for name, array in new.items()}
    np.testing.assert_array_equal(fitter(model, plain)(theta, old, shard)["eta"], new["eta"])
    fit = fitter(model, damped)
    for name in ("eta", "precision"):
        np.testing.assert_allclose(fit(theta, none, shard)[name], new[name], rtol=1e-6)
        np.testing.assert_allclose(
            fit(theta, old, shard)[name], 0.7 * old[name] + 0.3 * new[name], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_the_temperature_divides_gradient_and_curvature(structure: str) -> None:
    model = models.blr(2)
    shard, theta = make_shard(*labelled(0, 9, np.float32)), sample(model, 0, np.float32)
    cold, hot = (
        fitter(model, site)(theta, site.init(jnp.asarray(theta)), shard)
        for site in (site_of(model, structure, temperature=t) for t in (1.0, 4.0))
    )
    for name in ("eta", "precision"):
        np.testing.assert_allclose(hot[name], cold[name] / 4, rtol=1e-5, atol=1e-6)


ORDERS = [[0, 1, 2, 3], [3, 1, 0, 2], [2, 2, 0, 3, 0, 1, 2]]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_linear_regression_is_exact_after_every_client_has_trained_once(
    order: list[int], linear_gaussian: Any, precision: Any
) -> None:
    """Known noise, full structure, no damping: the sums are X'y / s^2 and X'X / s^2 wherever the particles went."""
    tolerance = 1e-10 if precision.dtype == np.float64 else 1e-4
    model = linear_gaussian.model()
    built = algorithm_of(model, "full", steps=3, batch_size=4)
    program = program_of(model, built, "ksd", seed=0, batch_size=4)  # training in batches is no obstacle
    draw = np.random.default_rng(0)
    rows = []
    for n in (9, 10, 9, 10):
        x = draw.normal(size=(n, 2)).astype(precision.dtype)
        rows.append((x, (x @ np.array([-1.0, 2.0]) + draw.normal(size=n)).astype(precision.dtype)))
    shards = [program.shard(x, y) for x, y in rows]
    server, states, accepted = program.first_server, {}, {}
    for number, client in enumerate(order, start=1):
        received = built.assign(server, accepted.get(client))
        update, states[client] = train_client(program, number, client, received, states.get(client), shards[client])
        server = built.apply(server, accepted, {client: update}, 1.0)
        accepted[client] = {name: update[name] for name in built.shared}
    x, y = (np.concatenate(arrays).astype(np.float64) for arrays in zip(*rows, strict=True))
    noise = linear_gaussian.noise_sd**2
    exact = {"precision": x.T @ x / noise, "eta": x.T @ y / noise}
    for name, value in exact.items():
        assert server[name].dtype == np.float64
        np.testing.assert_allclose(server[name], value, rtol=0, atol=tolerance * np.abs(value).max())
    # So prior score + site scores is the posterior score, at particles nobody has ever been to.
    anywhere = (5 * draw.normal(size=(N, 2))).astype(precision.dtype)
    sent = built.broadcast({**server, "particles": jnp.asarray(anywhere)}, (TILTED,))
    prior = join(model.prior_score(model.split(jnp.asarray(anywhere))))
    mean, covariance = linear_gaussian.posterior(x, y)
    score = -(anywhere.astype(np.float64) - mean) @ np.linalg.inv(covariance)
    got = np.asarray(prior, np.float64) + np.asarray(sent["site_score"], np.float64)
    np.testing.assert_allclose(got, score, rtol=0, atol=tolerance * np.abs(score).max())
    # A client that agrees with its site has no news for the server.
    news = [
        float(innovation_of(built, jax.random.key(0), server["particles"], state, shards[0]))
        for state in (states[0], program.first_state)
    ]
    assert abs(news[0]) < 100 * tolerance**2 * news[1] + 1e-6 * news[1]


def test_linear_regression_settles_at_the_analytic_mean(miniature: Callable[..., Any], linear_gaussian: Any) -> None:
    problem = linear_gaussian._replace(prior_mean=np.array([1.0, -1.0, 0.5]))
    federation = miniature(
        model=problem.model(),
        site="curvature",
        scheme="round_robin",
        rounds=24,
        settings={
            "sites": {"structure": "full"},
            "algorithm": {"particles": 15, "local_steps": 25, "step_size": 0.05, "epsilon": 1e-6, "batch_size": 100},
        },
    )
    state, _ = federation.play()
    x, y = (np.concatenate([np.asarray(getattr(s, kind))[: s.rows] for s in federation.engine.shards]) for kind in "xy")
    mean, covariance = problem.posterior(x.astype(float), y.astype(float))
    got = np.asarray(state.server["particles"])
    assert np.abs(problem.posterior(x[:12], y[:12])[0] - mean).max() > 0.1  # one client alone would end elsewhere
    np.testing.assert_allclose(got.mean(axis=0), mean, atol=0.02)
    np.testing.assert_allclose(got.std(axis=0), np.sqrt(np.diag(covariance)), rtol=0.35)


@pytest.mark.parametrize("structure", ["full", "diagonal"])
def test_the_ksd_report_is_of_prior_likelihood_and_everybody_elses_sites(
    structure: str, miniature: Callable[..., Any]
) -> None:
    federation = miniature(
        model="blr",
        site="curvature",
        scheme="ksd",
        settings={"sites": {"structure": structure}, "selection": {"per_round": 2}},
    )
    state, _ = federation.play()
    context, model = federation.context, federation.context.program.model
    theta = state.server["particles"]
    assert len(state.sites.accepted) >= 2
    got = federation.engine.ask(9, context.method.broadcast(state.server, (TILTED,)), range(4), state.sites)
    exact = np.asarray(theta, np.float64)

    def site(client: int) -> np.ndarray:
        own = {name: np.asarray(array, np.float64) for name, array in state.sites.accepted[client].items()}
        return own["eta"] - (exact @ own["precision"] if structure == "full" else exact * own["precision"])

    blocks = model.split(theta)
    prior = np.asarray(join(model.prior_score(blocks)))
    for client, shard in enumerate(federation.engine.shards):
        x, y = shard.x[: shard.rows], shard.y[: shard.rows]
        data = np.asarray(join(model.likelihood_score(blocks, x, y, jnp.ones(len(x)))))
        others = [site(k) for k in state.sites.accepted if k != client]
        tilted = prior + data + sum(others, np.zeros_like(data))
        np.testing.assert_allclose(got[client]["ksd"], stein.ksd(theta, tilted.astype(np.float32)), rtol=1e-3)
        if client in state.sites.accepted:
            wrong = float(stein.ksd(theta, (tilted + site(client)).astype(np.float32)))
            assert abs(wrong / float(got[client]["ksd"]) - 1) > 0.01


@pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])
def test_sums_in_double_precision_do_not_drift(full: bool) -> None:
    """Hundreds of replacements, with directions that die (curvature exactly zero): nothing may be left of them."""
    d, draw = 4, np.random.default_rng(0)
    shapes = {"eta": (d,) if full else (N, d), "precision": (d, d) if full else (N, d)}
    sums = natural_sums(lambda dtype: {name: np.zeros(shape, dtype) for name, shape in shapes.items()}, full)
    server: dict[str, Any] = {"particles": np.zeros((N, d), np.float32), **sums.first(np.zeros((N, d)))}
    naive = server["precision"].astype(np.float32)
    accepted: dict[int, Any] = {}
    for turn in range(600):
        client = int(draw.integers(6))
        alive = turn < 560 and draw.uniform(size=shapes["precision"]) < 0.7
        new = {
            "eta": draw.normal(size=shapes["eta"]).astype(np.float32),
            "precision": np.where(alive, draw.lognormal(5, 3, shapes["precision"]), 0).astype(np.float32),
        }
        naive = naive - (accepted[client]["precision"] if client in accepted else 0) + new["precision"]
        server = {**server, **sums.absorb(server, accepted.get(client), new)}
        accepted[client] = new
    assert len(accepted) == 6
    exact = sums.total(accepted)
    for name in ("eta", "precision"):
        assert server[name].dtype == np.float64
        np.testing.assert_allclose(server[name], exact[name], rtol=0, atol=1e-8)
    assert exact["precision"].max() == 0, "every direction has died"
    assert naive.dtype == np.float32
    assert np.abs(naive).max() > 1e-3, "a float32 sum remembers what is gone"
    assert naive.min() < 0
    for client in accepted:
        sent = sums.cavity(server, accepted[client])
        assert sent["precision"].dtype == np.float32
        assert sent["precision"].min() > -1e-8


def test_sums_are_worked_out_afresh_every_so_many_rounds(miniature: Callable[..., Any]) -> None:
    federation = miniature(model="blr", site="curvature", scheme="round_robin", rounds=9)
    context = federation.context._replace(total_every=3)
    state, _ = protocol.run_round(context, protocol.first(context))
    spoilt = state._replace(server={**state.server, "eta": state.server["eta"] + 1.0})
    wrong = []
    for _ in range(2):
        spoilt, _ = protocol.run_round(context, spoilt)
        fresh = context.method.spec.site.sums.total(spoilt.sites.accepted)
        wrong.append(float(np.abs(spoilt.server["eta"] - fresh["eta"]).max()))
    assert wrong[0] == pytest.approx(1)
    assert wrong[1] == 0
    assert federation.context.total_every == 10, "with the checkpoints, unless told otherwise"


@pytest.mark.parametrize(("model", "structure"), [("blr", "full"), ("bnn_classifier", "eigen")])
def test_a_client_is_sent_everybody_elses_sites_and_never_its_own(
    model: str, structure: str, miniature: Callable[..., Any]
) -> None:
    federation = miniature(
        model=model,
        site="curvature",
        scheme="round_robin",
        rounds=5,
        sizes=(12, 11),
        settings={"sites": {"structure": structure}},
    )
    train, sent = federation.engine.train, []

    def spy(round_index: int, client: int, assignment: Any, cached: Any, sites: Any) -> Any:
        sent.append({name: np.asarray(array) for name, array in {**cached, **assignment}.items()})
        return train(round_index, client, assignment, cached, sites)

    federation.engine.train = spy
    others: list[Any] = []
    state = protocol.first(federation.context)
    for state, record in protocol.run_rounds(federation.context, state):  # noqa: B020 - the loop moves the state on
        others.append(state.sites.accepted[record["selected"][0]])
    for name in ("eta", "precision"):
        assert np.all(sent[0][name] == 0)
        for number in range(1, 5):  # two clients in turn: what is sent is what the other one left, bit for bit
            assert sent[number][name].dtype == np.float32
            np.testing.assert_array_equal(sent[number][name], others[number - 1][name])
