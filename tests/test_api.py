"""``fedstein.fit``: a model and a list of clients in, a posterior that predicts out."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedstein
from fedstein.models import custom


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(0)
    made = []
    for shift in (-1.0, 0.0, 1.0):
        x = rng.normal(shift, 1.0, size=(120, 2)).astype(np.float32)
        made.append((x, (x.sum(axis=1) > 0).astype(int)))
    return made


def test_a_posterior_predicts_and_keeps_its_history(clients):
    seen = []
    posterior = fedstein.fit(
        "blr", clients, test=clients[1], rounds=60, selection__kind="hip", sites__expand="mean", on_round=seen.append
    )
    assert posterior.particles.shape == (20, 4)
    assert [record["round"] for record in posterior.rounds] == list(range(1, 61))
    assert seen == posterior.rounds
    assert posterior.rounds[-1]["accuracy"] > 0.9
    probabilities = posterior.predict(np.array([[2.0, 2.0], [-2.0, -2.0]], np.float32))
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-5)
    assert probabilities[0, 1] > 0.9
    assert probabilities[1, 0] > 0.9


def test_without_test_rows_there_are_no_metrics(clients):
    posterior = fedstein.fit("blr", clients, rounds=1, sites__expand="mean")
    assert posterior.rounds[0]["accuracy"] is None


def test_settings_nested_and_flat_are_the_same(clients):
    flat = fedstein.fit(
        "blr", clients, rounds=2, algorithm__particles=5, selection__kind="random", sites__expand="mean"
    )
    sections = {"algorithm": {"particles": 5}, "selection": {"kind": "random"}, "sites": {"expand": "mean"}}
    nested = {"rounds": 2, **sections}
    assert np.array_equal(fedstein.fit("blr", clients, settings=nested).particles, flat.particles)


def test_regression_gives_mean_and_spread():
    rng = np.random.default_rng(1)
    clients = []
    for _ in range(2):
        x = rng.normal(size=(200, 1)).astype(np.float32)
        clients.append((x, (0.5 * x[:, 0] + 0.1 * rng.normal(size=200)).astype(np.float32)))
    posterior = fedstein.fit("bnn_regressor", clients, rounds=40, model__hidden=[10], algorithm__step_size=0.02)
    mean, sd = posterior.predict(np.array([[1.0], [-1.0]], np.float32)).T
    assert mean == pytest.approx([0.5, -0.5], abs=0.2)
    assert (sd > 0).all()


@pytest.mark.parametrize(("sites", "expected"), [("particles", ("log", None)), ("curvature", (None, "full"))])
def test_a_gaussian_model_of_ones_own_finds_the_analytic_posterior_mean(sites, expected):
    """y ~ N(theta, 1), theta ~ N(0, 1), one client: the posterior is N(sum y / (n + 1), 1 / (n + 1))."""
    y = np.random.default_rng(2).normal(1.5, 1.0, size=50).astype(np.float32)
    model = custom(
        1,
        log_prior=lambda theta: -0.5 * theta[0] ** 2,
        log_likelihood=lambda theta, x, y: -0.5 * (y - theta[0]) ** 2,
        init=lambda key: jax.random.normal(key, (1,)),
        predict=lambda theta, x: jnp.stack([jnp.full(len(x), theta[0]), jnp.zeros(len(x))], axis=1),
        task="regression",
    )
    posterior = fedstein.fit(
        model,
        [(np.zeros((50, 1), np.float32), y)],
        rounds=60,
        algorithm__step_size=0.02,
        algorithm__epsilon=1e-6,
        algorithm__particles=40,
        selection__kind="round_robin",
        sites__kind=sites,
    )
    assert posterior.particles.mean() == pytest.approx(y.sum() / 51, abs=0.05)
    assert posterior.config.model.kind == "custom"
    sites_of = posterior.config.sites
    assert (getattr(sites_of, "density", None), getattr(sites_of, "structure", None)) == expected
    with pytest.raises(fedstein.InputError, match="built-in models"):
        fedstein.fit(model, [(np.zeros((50, 1), np.float32), y)], model__prior_rate=5.0)


def test_padding_reaches_no_gradient():
    """log(x) is infinite at zero: rows that only pad must not be zeros."""
    model = custom(
        1,
        log_prior=lambda theta: -0.5 * theta[0] ** 2,
        log_likelihood=lambda theta, x, y: -0.5 * (y - theta[0] * jnp.log(x[:, 0])) ** 2,
        init=lambda key: jax.random.normal(key, (1,)),
        predict=lambda theta, x: jnp.stack([theta[0] * jnp.log(x[:, 0]), jnp.zeros(len(x))], axis=1),
        task="regression",
    )
    x = np.linspace(1.5, 3.0, 29, dtype=np.float32)[:, None]  # 29 rows are padded to 32
    posterior = fedstein.fit(
        model, [(x, 2 * np.log(x[:, 0]))], rounds=30, algorithm__step_size=0.05, sites__expand="mean"
    )
    assert np.isfinite(posterior.particles).all()
    assert posterior.particles.mean() == pytest.approx(2.0, abs=0.3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: [], "at least one client"),
        (lambda c: [*c, (np.zeros((0, 2), np.float32), np.zeros(0, int))], "client 3 has no rows"),
        (lambda c: [*c, (np.zeros((4, 3), np.float32), np.zeros(4, int))], "same features"),
        (lambda c: [*c, (np.zeros((4, 2), np.float32), np.zeros(3, int))], "client 3: expected 4 targets"),
        (lambda c: [*c, (np.full((4, 2), np.nan, np.float32), np.zeros(4, int))], "client 3: x: expected finite"),
        (lambda c: [*c, (np.zeros((4, 2), np.float32), np.full(4, -1))], "two classes, the data has 3"),
        (lambda c: [*c, (np.zeros((4, 2), np.float32), np.full(4, 0.5))], "integer labels"),
        (lambda c: [*c, (np.zeros(4, np.float32), np.zeros(4, int))], "client 3: x"),
        (lambda c: [*c, (np.zeros((4, 2), np.float32), np.full(4, 2))], "two classes"),
        (lambda c: [*c, (np.zeros((4, 2)), np.zeros(4, int))], "float64"),
        (lambda c: [*c, (np.zeros((4, 2), np.float32), np.array(list("abcd")))], "labels of one type"),
        (lambda c: [*c, np.zeros((4, 2), np.float32)], "client 3: expected a pair"),
    ],
)
def test_wrong_clients_are_named(clients, change, words):
    with pytest.raises(fedstein.InputError, match=words):
        fedstein.fit("blr", change(clients), rounds=1)


def test_wrong_settings_are_the_configs_errors(clients):
    with pytest.raises(fedstein.InputError, match="did you mean 'particles'"):
        fedstein.fit("blr", clients, algorithm__partciles=3)
    with pytest.raises(fedstein.InputError, match="blr, bnn_classifier"):
        fedstein.fit("brl", clients)
    for wrong in ({"partition__clients": 7}, {"data__name": "mnist"}, {"engine__precision": "float64"}):
        with pytest.raises(fedstein.InputError, match="no meaning in"):
            fedstein.fit("blr", clients, **wrong)
    with pytest.raises(fedstein.InputError, match="contradicts"):
        fedstein.fit("blr", clients, model__kind="bnn_classifier")
    with pytest.raises(fedstein.InputError, match="a value, not a section"):
        fedstein.fit("blr", clients, rounds=2, rounds__x=3)
    with pytest.raises(fedstein.InputError, match=r"selection\.pool is not used"):
        fedstein.fit("blr", clients, rounds=1, selection__kind="random", selection__pool=2)
    with pytest.warns(UserWarning, match="selection.pool is not used"):
        fedstein.fit(
            "blr",
            clients,
            settings={"rounds": 1, "selection": {"pool": 2}, "sites": {"expand": "mean"}},
            selection__kind="random",
        )
    with pytest.raises(fedstein.InputError, match="rows x 2"):
        fedstein.fit("blr", clients, rounds=1, sites__expand="mean").predict(np.zeros((3, 5), np.float32))


def test_importing_touches_neither_jax_nor_its_flags():
    script = (
        "import sys, fedstein\n"
        "assert 'jax' not in sys.modules\n"
        "fedstein.stein, fedstein.models, fedstein.fit\n"
        "assert not {'scipy', 'rich', 'matplotlib', 'sklearn', 'numpyro'} & set(sys.modules), 'slow to import'\n"
        "import jax\n"
        "assert not jax.config.jax_enable_x64\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


CURVED = {
    "sites__kind": "curvature",
    "sites__expand": "mean",
    "algorithm__particles": 6,
    "algorithm__local_steps": 5,
    "rounds": 12,
}


@pytest.mark.parametrize(
    ("model", "structure", "more"),
    [
        ("blr", "full", {"sites__settle": False}),
        ("blr", "eigen", {"sites__structure": "eigen"}),
        ("bnn_classifier", "eigen", {}),
    ],
)
def test_curvature_sites_classify(clients, model, structure, more):
    hidden = {"model__hidden": [8], "algorithm__step_size": 0.05} if model == "bnn_classifier" else {}
    posterior = fedstein.fit(model, clients, test=clients[1], **{**CURVED, **hidden, **more})
    assert posterior.config.sites.structure == structure
    assert posterior.config.algorithm.schedule == "cosine"
    assert posterior.rounds[-1]["accuracy"] > 0.9
    # In the coordinates of the rows as they came: the last round's accuracy, from the posterior alone.
    x, y = clients[1]
    assert np.mean(posterior.predict(x).argmax(axis=1) == y) == pytest.approx(
        posterior.rounds[-1]["accuracy"], abs=0.01
    )


def test_curvature_sites_regress():
    rng = np.random.default_rng(1)
    clients = []
    for shift in (-1, 1):
        x = rng.normal(shift, 1, size=(60, 2)).astype(np.float32)
        clients.append((x, (0.5 * x[:, 0] + 0.1 * rng.normal(size=60)).astype(np.float32)))
    settings = {**CURVED, "rounds": 16, "algorithm__local_steps": 15, "algorithm__step_size": 0.03}
    posterior = fedstein.fit("bnn_regressor", clients, standardise=False, model__hidden=[8], **settings)
    assert posterior.config.sites.structure == "eigen"
    mean, sd = posterior.predict(np.array([[1.0, 0.0], [-1.0, 0.0]], np.float32)).T
    assert mean == pytest.approx([0.5, -0.5], abs=0.25)
    assert (sd > 0).all()


def own_model(dim=3):
    """Gaussian regression on the first columns of theta; further parameters are known by their prior alone."""
    return custom(
        dim,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: -2 * (y - x @ theta[:3]) ** 2,
        init=lambda key: jax.random.normal(key, (dim,)),
        predict=lambda theta, x: jnp.stack([x @ theta[:3], jnp.full(len(x), jnp.log(4.0))], axis=1),
        task="regression",
    )


@pytest.mark.parametrize(("dim", "structure"), [(3, "full"), (400, "diagonal")])
def test_a_model_of_ones_own_gets_curvature_that_suits_its_size(dim, structure):
    rng = np.random.default_rng(3)
    truth, clients = np.array([1.0, -0.5, 0.25]), []
    for _ in range(3):
        x = rng.normal(size=(30, 3)).astype(np.float32)
        clients.append((x, (x @ truth + 0.5 * rng.normal(size=30)).astype(np.float32)))
    posterior = fedstein.fit(own_model(dim), clients, **{**CURVED, "algorithm__step_size": 0.1})
    assert posterior.config.sites.structure == structure
    if structure == "full":
        x, y = (np.concatenate(arrays).astype(float) for arrays in zip(*clients, strict=True))
        mean = np.linalg.solve(np.eye(3) + 4 * x.T @ x, 4 * x.T @ y)
        assert posterior.particles.mean(axis=0) == pytest.approx(mean, abs=0.05)
    else:
        assert np.isfinite(posterior.particles).all()
    with pytest.raises(fedstein.InputError, match=r"'eigen' needs a layer.*'custom'.*'diagonal' or 'full'"):
        fedstein.fit(own_model(dim), clients, sites__kind="curvature", sites__structure="eigen")


@pytest.mark.parametrize("kind", ["pooled_svgd", "fedavg", "dsvgd"])
def test_a_model_of_ones_own_works_with_the_references_without_a_warning(clients, kind):
    y = [(x, x[:, 0] - x[:, 1]) for x, _ in clients]
    wide = [(np.pad(x, ((0, 0), (0, 1))), targets) for x, targets in y]
    more = {"sites__expand": "mean"} if kind == "dsvgd" else {}
    posterior = fedstein.fit(own_model(), wide, rounds=2, algorithm__kind=kind, algorithm__local_steps=2, **more)
    assert np.isfinite(posterior.particles).all()
    with pytest.raises(fedstein.InputError, match="did you mean 'fedavg'"):
        fedstein.fit(own_model(), wide, algorithm__kind="fedvag")
