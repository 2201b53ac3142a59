"""Units: rows are standardised alike everywhere, and coefficients come back in the units of the rows."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import fedstein
from fedstein.data.scaling import pooled
from fedstein.errors import InputError
from fedstein.models import MODELS, custom
from fedstein.models.units import in_own_units

Clients = list[tuple[np.ndarray, np.ndarray]]
QUICK = {"rounds": 6, "algorithm__particles": 8, "sites__expand": "mean"}


def linear_clients(seed: int = 0) -> Clients:
    """Two numeric columns, one of them far from zero, and a column of zeros and ones; y in thousands."""
    draw, found = np.random.default_rng(seed), []
    for k in range(3):
        x = np.c_[draw.normal(k, 1, 50), draw.normal(2000, 30, 50), draw.integers(0, 2, 50)].astype(np.float32)
        y = 5000 + 300 * x[:, 0] - 4 * x[:, 1] + 700 * x[:, 2] + 100 * draw.normal(size=50)
        found.append((x, y.astype(np.float32)))
    return found


@pytest.mark.parametrize("kind", [name for name, kind in MODELS.items() if "bnn" not in name])
def test_own_units_give_the_same_predictions(kind: str) -> None:
    """predict(scaled rows; theta) = predict(rows; theta in their units), for real targets after scaling them back."""
    entry, draw = MODELS[kind], np.random.default_rng(1)
    model = entry.build(3, entry.classes or (3 if entry.task == "classification" else 0), entry.settings())
    assert model.units is not None
    x = draw.normal((5.0, -100.0, 0.5), (2.0, 40.0, 0.3), size=(7, 3))
    mean, scale = x.mean(axis=0), x.std(axis=0)
    middle, unit = (0.0, 1.0) if entry.task == "classification" or model.target == "count" else (900.0, 30.0)
    theta = 0.3 * draw.normal(size=(4, model.dim))
    own = in_own_units(model, theta, mean, scale, middle, unit)
    assert own is not None
    with jax.enable_x64(True):
        split = [model.split(jnp.asarray(points)) for points in (theta, own)]
        ours = np.asarray(model.predict(split[0], jnp.asarray(model.prepare((x - mean) / scale))))
        theirs = np.asarray(model.predict(split[1], jnp.asarray(model.prepare(x))))
    if entry.task == "regression" and model.target != "count":  # rows x 2N: means, log-precisions
        ours = np.c_[ours[:, :4] * unit + middle, ours[:, 4:] - 2 * np.log(unit)]
    np.testing.assert_allclose(theirs, ours, rtol=1e-9, atol=1e-9)
    assert list(own[:, model.widths[0]]) == list(theta[:, model.widths[0]])  # log xi stays


def test_fit_standardises_like_files_and_gives_coefficients_in_own_units() -> None:
    clients = linear_clients()
    posterior = fedstein.fit("linear", clients, **QUICK)
    x, y = (np.concatenate(arrays).astype(np.float64) for arrays in zip(*clients, strict=True))
    expected = pooled(x, y)  # what files use; fit has it from sums
    assert posterior.scaling is not None
    np.testing.assert_allclose(posterior.scaling.mean, expected.mean, rtol=1e-6)
    np.testing.assert_allclose(posterior.scaling.scale, expected.scale, rtol=1e-6)
    assert (posterior.scaling.mean[2], posterior.scaling.scale[2]) == (0.0, 1.0)  # zeros and ones stay
    assert posterior.scaling.target_scale == pytest.approx(expected.target_scale, rel=1e-6)
    assert posterior.config.data.standardize
    assert posterior.names == ("x0", "x1", "x2", "intercept", "log xi", "log gamma")
    table = posterior.table(units="own")
    rows = np.c_[x, np.ones(len(x))]
    best = np.linalg.lstsq(rows, y, rcond=None)[0]
    sd = 100 * np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)))
    got = np.array([row["mean"] for row in table])
    np.testing.assert_allclose((got[:4] - best) / sd, 0, atol=1.0)  # the noise needs more rounds
    np.testing.assert_allclose(got, posterior.draws(units="own").mean(axis=0))
    assert "In the units of the data" in str(table)
    assert "a weight is for one standard deviation" in str(posterior.table())
    low, high = posterior.interval(0.9, units="own").T
    assert np.all(low[:4] < best)
    assert np.all(best < high[:4])
    mean, spread = posterior.predict(x.astype(np.float32)).T
    np.testing.assert_allclose(mean, rows @ best, atol=60)
    assert 50 < np.median(spread) < 500
    with pytest.raises(InputError, match="units"):
        posterior.draws(units="metric")


def test_without_standardising_rows_are_used_as_they_come(tmp_path: Path) -> None:
    clients = [((x - 2) / 3, y) for x, y in linear_clients()]
    kept = fedstein.fit("blr", [(x, (y > np.median(y)).astype(int)) for x, y in clients], standardise=False, **QUICK)
    assert kept.scaling is None
    assert not kept.config.data.standardize
    np.testing.assert_array_equal(kept.draws(units="own"), kept.draws())  # they are the same units
    posterior = fedstein.fit("linear", linear_clients(), out=tmp_path / "run", **QUICK)
    loaded = fedstein.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.draws(units="own"), posterior.draws(units="own"))
    assert loaded.scaling.target_scale > 100
    with pytest.raises(InputError, match="standardise=False leaves them as they are"):
        fedstein.fit("linear", linear_clients(), data__standardize=False)


def test_models_of_ones_own_and_counts_are_not_scaled() -> None:
    model = custom(
        3,
        log_prior=lambda theta: -0.5 * theta @ theta,
        log_likelihood=lambda theta, x, y: -0.5 * (y - x @ theta) ** 2,
        init=lambda key: jax.random.normal(key, (3,)),
        predict=lambda theta, x: jnp.stack([x @ theta, jnp.zeros(x.shape[0])], axis=1),
        task="regression",
    )
    small = [(x[:, :3] / 1000, y / 1000) for x, y in linear_clients()]
    assert fedstein.fit(model, small, rounds=1, sites__expand="mean").scaling is None
    scaled = fedstein.fit(model, small, rounds=1, standardise=True, sites__expand="mean")
    with pytest.raises(InputError, match="cannot be given in the units of the rows"):
        scaled.draws(using="particles", units="own")
    counts = [(x, np.round(np.abs(x[:, 0]))) for x, _ in linear_clients()]
    posterior = fedstein.fit("poisson", counts, rounds=1, algorithm__particles=4, sites__expand="mean")
    assert posterior.scaling is not None
    assert (posterior.scaling.target_mean, posterior.scaling.target_scale) == (0.0, 1.0)
    assert posterior.scaling.scale[1] > 10


@pytest.mark.slow
def test_a_column_times_a_million_changes_nothing() -> None:
    """Breast cancer, four clients: accuracy fell to .705 and NLL rose to 6 where one column was multiplied by 1e6."""
    raw, y = load_breast_cancer(return_X_y=True)
    found = []
    for factor in (1.0, 1e6):
        x = raw.copy()
        x[:, 3] *= factor
        x = x.astype(np.float32)
        clients = [(x[k:455:4], y[k:455:4]) for k in range(4)]
        posterior = fedstein.fit("blr", clients, test=(x[455:], y[455:]), rounds=12, sites__expand="mean")
        found.append(posterior.rounds[-1])
    assert found[0]["accuracy"] > 0.93
    assert found[0]["nll"] < 0.2
    assert found[1]["accuracy"] == pytest.approx(found[0]["accuracy"], abs=0.01)
    assert found[1]["nll"] == pytest.approx(found[0]["nll"], abs=0.005)
