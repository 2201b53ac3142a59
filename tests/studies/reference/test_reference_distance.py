"""Distances of arrays whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest

from fedstein.studies.reference import distance, distance_of_draws, ksd_to, mean_offsets, score, sd_ratios


@pytest.fixture
def exact() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Particles with exactly the mean and sd that are given."""
    draw = np.random.default_rng(3)
    mean, sd = draw.normal(size=5), np.array([0.1, 1.0, 3.0, 0.02, 0.5])
    z = draw.normal(size=(40, 5))
    z = (z - z.mean(axis=0)) / z.std(axis=0, ddof=1)
    return mean + sd * z, mean, sd


def test_particles_of_the_right_moments_are_at_no_distance(exact) -> None:
    particles, mean, sd = exact
    np.testing.assert_allclose(mean_offsets(particles, mean, sd), 0, atol=1e-12)
    np.testing.assert_allclose(sd_ratios(particles, sd), 1)


def test_a_shift_of_three_tenths_of_a_sd_is_seen_as_that(exact) -> None:
    particles, mean, sd = exact
    shift = np.array([0.3, -0.3, 0.3, 0.3, -1.5])
    np.testing.assert_allclose(mean_offsets(particles + shift * sd, mean, sd), shift)
    half = mean + 0.5 * (particles - mean)
    np.testing.assert_allclose(sd_ratios(half, sd), 0.5)
    np.testing.assert_allclose(mean_offsets(half.astype(np.float32), mean, sd), 0, atol=1e-4)


def test_the_summary_keeps_log_xi_apart(exact, make_target) -> None:
    particles, mean, sd = exact
    target = make_target(30, 3)
    shift, stretch = np.array([0.3, -0.1, 0.2, 0.1, -7.0]), np.array([0.5, 0.25, 1.0, 2.0, 9.0])
    got = distance(target, mean + sd * (shift + stretch * (particles - mean) / sd), mean, sd)
    assert got["count"] == 40
    offset, ratio = got["mean_offset"], got["sd_ratio"]
    assert [offset[k] for k in ("median", "max", "log_xi")] == pytest.approx([0.15, 0.3, 7.0])
    assert [ratio[k] for k in ("min", "median", "max", "log_xi")] == pytest.approx([0.25, 0.75, 2.0, 9.0])
    assert offset["each"] == pytest.approx(list(shift))
    assert ratio["each"] == pytest.approx(list(stretch))


def test_ksd_is_its_definition_with_the_score_of_every_row(make_target) -> None:
    """(1/N^2) sum_ij [s_i k s_j + s_i grad_j k + grad_i k s_j + trace grad_i grad_j k], entry by entry."""
    target = make_target(30, 3, temperature=2.0)
    theta = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
    s, t = score(target, theta), theta.astype(np.float64)
    apart = np.sqrt([np.sum((t[i] - t[j]) ** 2) for i in range(6) for j in range(i)])
    h, total = np.median(apart) ** 2 / np.log(6), 0.0
    for i in range(6):
        for j in range(6):
            gap = t[i] - t[j]
            k = np.exp(-gap @ gap / h)
            total += k * s[i] @ s[j] + (2 / h) * k * gap @ (s[i] - s[j]) + k * (2 * 5 / h - 4 * gap @ gap / h**2)
    assert ksd_to(target, theta) == pytest.approx(total / 36, rel=1e-9)


def test_the_scale_is_the_mean_over_disjoint_sets_of_as_many_draws(make_target) -> None:
    target = make_target(30, 3)
    draws = np.random.default_rng(2).normal(size=(25, 5))
    mean, sd = np.zeros(5), np.ones(5)
    scale = distance_of_draws(target, draws, 10, mean, sd)
    pair = [distance(target, draws[i::2][:10], mean, sd) for i in range(2)]
    assert (scale["count"], scale["sets"]) == (10, 2)
    assert scale["ksd"] == pytest.approx((pair[0]["ksd"] + pair[1]["ksd"]) / 2)
    assert scale["sd_ratio"]["median"] == pytest.approx(sum(p["sd_ratio"]["median"] for p in pair) / 2)
    assert distance_of_draws(target, draws, 26, mean, sd) is None
