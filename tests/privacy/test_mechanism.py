"""Sensitivities against brute force over neighbouring shards, noise, and the estimate of noisy moments."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest

from fedstein.errors import InputError
from fedstein.models import MODELS
from fedstein.models.base import Model
from fedstein.privacy import mechanism, noise, synthetic
from fedstein.privacy.settings import PrivacySettings

CLIP = 2.0
SETTINGS = PrivacySettings(kind="record", largest_count=7, largest_target=3.0)


def model_of(name: str, features: int = 3) -> Model:
    kind = MODELS[name]
    return kind.build(features, 3 if name == "softmax" else 2, kind.settings(kind=name))


def rows(name: str, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((count, 3)) * random.choice([0.1, 1.0, 30.0], (count, 1))
    y = random.integers(0, {"blr": 2, "softmax": 3, "poisson": 40, "linear": 9}[name], count)
    y = y - 4.5 if name == "linear" else y
    return np.concatenate([x, np.ones((count, 1))], axis=1), y


@pytest.mark.parametrize("name", mechanism.SUPPORTED)
def test_one_row_changes_sums_by_no_more_than_the_sensitivities(name: str) -> None:
    family = mechanism.family_of(model_of(name), SETTINGS)
    bounds, largest = mechanism.sensitivities(family, CLIP), {"gradient": 0.0, "moments": 0.0}
    x, y = rows(name, 300, 1)
    random = np.random.default_rng(2)
    beta = random.standard_normal(4 * family.predictors) * 3
    whole = mechanism.clipped_sums(family, beta, x, y, CLIP)
    for i in range(len(x)):
        rest = np.delete(np.arange(len(x)), i)
        without = mechanism.clipped_sums(family, beta, x[rest], y[rest], CLIP)
        for key in largest:
            largest[key] = max(largest[key], float(np.linalg.norm(whole[key] - without[key])))
    assert all(largest[key] <= bounds[key] * (1 + 1e-9) for key in largest)
    assert largest["moments"] > 0.999 * bounds["moments"]  # and the bounds are reached, so they are not generous
    assert largest["gradient"] > 0.8 * bounds["gradient"]


def test_linear_regression_releases_the_sums_at_zero_with_targets_cut() -> None:
    family = mechanism.family_of(model_of("linear"), SETTINGS)
    x, y = rows("linear", 40, 5)
    found = mechanism.clipped_sums(family, np.full(4, 9.0), x, y, CLIP)["gradient"]
    cut, weights = np.clip(y, -3, 3), mechanism.row_weights(x, CLIP)
    assert np.abs(y).max() > 3
    np.testing.assert_allclose(found[:4], (weights * cut) @ x, rtol=1e-12)
    np.testing.assert_allclose(found[4] / (family.squares * CLIP), weights @ cut**2, rtol=1e-12)


@pytest.mark.parametrize("name", [name for name in mechanism.SUPPORTED if name != "linear"])
def test_the_gradient_is_that_of_the_weighted_log_likelihood(name: str) -> None:
    model = model_of(name)
    family = mechanism.family_of(model, SETTINGS)
    x, y = rows(name, 12, 3)
    x[:, :3] = np.clip(x[:, :3], -1, 1)
    y = np.minimum(y, 6)
    beta = np.random.default_rng(0).standard_normal(model.widths[0]) * 0.3
    with jax.enable_x64(True):
        blocks = (jnp.asarray(beta)[None], jnp.zeros((1, 1)))
        weights = jnp.asarray(mechanism.row_weights(x, CLIP))
        labels = jnp.asarray(y, jnp.float64 if name == "poisson" else jnp.int32)
        expected = model.likelihood_score(blocks, jnp.asarray(x), labels, weights)[0][0]
        curvature = model.full_curvature(blocks, jnp.asarray(x), weights)  # type: ignore[misc]
    found = mechanism.clipped_sums(family, beta, x, y, CLIP)["gradient"]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    # The curvature of synthetic rows, with these rows in their place.
    same = synthetic.SyntheticRows(x * np.sqrt(mechanism.row_weights(x, CLIP))[:, None], 1.0)
    if name == "blr":
        f = x @ beta
        w = mechanism.row_weights(x, CLIP) / (1 + np.exp(-f)) / (1 + np.exp(f))
        np.testing.assert_allclose(np.asarray(curvature)[:4, :4], (x * w[:, None]).T @ x, rtol=1e-9)
    assert np.linalg.eigvalsh(same.information(family, beta))[0] > -1e-9


def test_other_models_and_missing_bounds_are_refused() -> None:
    with pytest.raises(InputError, match="how much one row can change"):
        mechanism.family_of(model_of("negative_binomial"), SETTINGS)
    with pytest.raises(InputError, match="largest_target"):
        mechanism.family_of(model_of("linear"), PrivacySettings(kind="record"))
    with pytest.raises(InputError, match="largest_count"):
        mechanism.family_of(model_of("poisson"), PrivacySettings(kind="record"))


def test_noise_is_normal_repeatable_and_on_a_grid() -> None:
    secret, values = b"s" * 32, np.linspace(-1e5, 1e5, 20_000)
    found = noise.add_noise(values, 3.0, secret, "a")
    np.testing.assert_array_equal(found, noise.add_noise(values, 3.0, secret, "a"))
    assert kstest((found - values) / 3.0, "norm").pvalue > 0.01
    other = noise.add_noise(values, 3.0, secret, "b")
    assert abs(np.corrcoef(found - values, other - values)[0, 1]) < 0.03
    step = 2.0**-19  # the power of two below 3 * 2^-20 is 2^-19
    np.testing.assert_array_equal(found / step, np.rint(found / step))
    with pytest.raises(ValueError, match="32 bytes"):
        noise.normal(b"short", "a", 1)


def test_a_matrix_stays_symmetric_with_noise_of_the_stated_size() -> None:
    exact = np.zeros((60, 60))
    found = mechanism.release("moments", exact, 5.0, b"s" * 32, "m")
    np.testing.assert_array_equal(found, found.T)
    assert np.diag(found).std() == pytest.approx(5.0, rel=0.3)
    assert found[np.tril_indices(60, -1)].std() == pytest.approx(5.0 / 2**0.5, rel=0.06)


def test_a_node_keeps_its_secret(tmp_path: Path) -> None:
    first = noise.node_secret(tmp_path / "privacy")
    assert noise.node_secret(tmp_path / "privacy") == first != noise.node_secret(tmp_path / "other")
    assert (tmp_path / "privacy" / "secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "privacy" / "secret").write_bytes(b"x")
    with pytest.raises(InputError, match="damaged"):
        noise.node_secret(tmp_path / "privacy")


def test_cleaned_moments_are_closer_to_the_truth_and_synthetic_rows_have_them() -> None:
    random = np.random.default_rng(0)
    x = np.concatenate([random.standard_normal((500, 20)) * np.linspace(0.1, 3, 20), np.ones((500, 1))], axis=1)
    truth = x.T @ x
    flat = 500 * np.eye(40)
    flat[0, 0] = 50_000.0
    noisy = mechanism.release("moments", flat, 60.0, b"s" * 32, "m")
    cleaned = synthetic.cleaned(noisy, 60.0)
    assert np.linalg.norm((cleaned - flat)[1:, 1:]) < 0.5 * np.linalg.norm((noisy - flat)[1:, 1:])
    assert cleaned[0, 0] == pytest.approx(50_000.0, rel=0.02)  # far above the noise nothing changes
    assert np.linalg.eigvalsh(synthetic.cleaned(noisy - flat, 60.0))[0] > -1e-6
    same = synthetic.synthetic_rows(truth, 0.0)
    np.testing.assert_allclose(same.weight * same.x.T @ same.x, truth, rtol=1e-8, atol=1e-6)
