"""Private partitioned variational inference: the bound of one row, the fixed point, and what a run spends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from test_private_runs import config_of, prepared, silent

from fedstein.errors import InputError
from fedstein.inference import diagonal
from fedstein.inference.methods.private_pvi import natural_gradient, private_pvi
from fedstein.inference.methods.pvi import PviSettings
from fedstein.inference.sites import SITES
from fedstein.models import blr
from fedstein.privacy.mechanism import GRADIENT
from fedstein.privacy.settings import PrivacySettings
from fedstein.runs import runner
from fedstein.runs.audit import audit

PVI: dict[str, Any] = {"algorithm": {"kind": "pvi", "particles": 4}, "sites": {"kind": "none"}}


def method_of(features: int, **privacy: Any) -> Any:
    model, settings = blr(features), PviSettings(damping=0.5, particles=2)
    site = SITES["none"].build(model, SITES["none"].settings(kind="none"), settings)
    return private_pvi(model, site, settings, PrivacySettings(kind="record", visits=1000, **privacy))


def test_one_row_changes_a_release_by_no_more_than_the_sensitivity_says() -> None:
    draw, method = np.random.default_rng(0), method_of(3)
    bound, norms = method.protection.sensitivities[GRADIENT], []
    for size in (0.1, 1.0, 30.0):
        for _ in range(60):
            x = np.append(draw.normal(0, size, 3), 1.0)[None]
            received = {"mean": draw.normal(0, 3, 5), "precision": draw.gamma(1, 1, 5) + 1e-3}
            for y in (0, 1):
                exact = method.protection.sums(received, {}, x, np.array([y]))[GRADIENT]
                norms.append(np.linalg.norm(exact))
    assert max(norms) <= bound * (1 + 1e-12)
    assert max(norms) > 0.75 * bound, "the bound is not far from what rows reach"


def test_without_noise_the_fixed_point_is_that_of_mean_field_inference() -> None:
    """At it, the derivatives of the evidence bound by means and variances, by differences, are zero."""
    draw, method = np.random.default_rng(1), method_of(2, clip=1e3)
    x = np.concatenate([draw.normal(0, 1, (120, 2)), np.ones((120, 1))], axis=1)
    y = (draw.random(120) < 1 / (1 + np.exp(-x @ [1.0, -0.5, 0.3]))).astype(int)
    server, states = method.init(jax.random.key(0)), {}
    for _ in range(60):
        received = {name: np.asarray(array) for name, array in method.assign(server, None).items()}
        new = {}
        for client, rows in enumerate(np.array_split(np.arange(120), 3)):
            state = states.get(client) or method.client_state(server)
            new[client] = method.protection.finish(
                method.protection.sums(received, state, x[rows], y[rows]), received, state
            )
        server, states = method.apply(server, states, new, 1.0), new
    mean, precision = (each[:3] for each in diagonal.q_of(server))
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)

    def expected(m: np.ndarray, v: np.ndarray) -> float:
        f = (x @ m)[:, None] + np.sqrt((x * x) @ v)[:, None] * nodes
        return float((y[:, None] * f - np.logaddexp(0, f)).sum(axis=0) @ weights / weights.sum())

    for i in range(3):
        step = 1e-4 * np.eye(3)[i]
        by_mean = (expected(mean + step, 1 / precision) - expected(mean - step, 1 / precision)) / 2e-4
        by_variance = (expected(mean, 1 / precision + step) - expected(mean, 1 / precision - step)) / 2e-4
        eta, prior = (float(server[f"prior_{name}"][i]) for name in ("eta", "precision"))
        assert by_mean == pytest.approx(prior * mean[i] - eta, abs=2e-3 * precision[i])
        assert -2 * by_variance == pytest.approx(precision[i] - prior, rel=1e-2)
    gradient, _ = natural_gradient(mean, 1 / precision, x[:1], y[:1], 1e3)
    assert gradient == pytest.approx((y[0] - 1 / (1 + np.exp(-x[0] @ mean))) * x[0], abs=0.05)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"privacy": {"kind": "client", "client_rows": 50}}, "works with model.kind = 'blr', privacy.kind = 'record'"),
        ({"privacy": {"sums": "secure"}}, "and privacy.sums = 'plain', got"),
        ({"selection": {"kind": "ksd"}}, "indicators are computed from noisy sites"),
        ({"evaluate": {"where": "clients"}}, "counts over held-out rows are not protected"),
    ],
)
def test_what_private_pvi_does_not_do_is_refused(sections: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        config_of(**{**PVI, **sections})


@pytest.mark.slow
def test_a_run_learns_and_spends_its_budget(tmp_path: Path) -> None:
    run = prepared(**PVI, privacy={"epsilon": 8.0, "visits": 12})
    assert (run.config.algorithm.damping, run.config.privacy.split, run.config.rounds) == (0.5, 0.99, 12)
    summary = runner.start(run, tmp_path / "run", silent)
    assert summary["final"]["accuracy"] > 0.85
    for line in audit(tmp_path / "run"):
        assert line["releases"]["gradient"] == 12
        assert 7.9 < line["spent"]["epsilon"] <= 8.0
