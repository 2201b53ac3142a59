"""Regressions whose prior has several scales end with weighted draws, trusted by the rule that holds for all."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fedstein

KINDS = ("negative_binomial", "random_intercept_linear")  # grids of two and of three parameters


def clients(kind: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """Four clients of 60 rows and two features, whose intercepts differ a little."""
    rng = np.random.default_rng(4)
    found = []
    # so many clients that the scale of their intercepts is known: with four, weights have too heavy a tail
    for shift in (-0.6, -0.45, -0.3, -0.15, 0.15, 0.3, 0.45, 0.6):
        x = rng.standard_normal((60, 2)).astype(np.float32)
        f = 0.8 * x[:, 0] - 0.5 * x[:, 1] + shift
        y = {
            "negative_binomial": lambda f=f: rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, 60)),
            "random_intercept_linear": lambda f=f: f + 0.5 * rng.standard_normal(60),
        }[kind]()
        found.append((x, y.astype(np.float32)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_weighted_draws_are_there_and_trusted(kind: str) -> None:
    posterior = fedstein.fit(
        kind, clients(kind), rounds=8, seed=1, settings={"sites": {"expand": "variational"}}, algorithm__particles=8
    )
    assert posterior.trusted, posterior.problems
    weighted = posterior.weighted
    assert weighted is not None
    assert weighted.ess > 2000
    assert weighted.k < 0.7


@pytest.mark.slow
def test_few_clients_with_intercepts_of_their_own_are_not_trusted() -> None:
    """With four clients the scale of intercepts has a long tail: 4000 draws hid that an sd was a fifth too small."""
    kind = "random_intercept_linear"
    posterior = fedstein.fit(
        kind,
        clients(kind)[1::2],
        rounds=8,
        seed=1,
        settings={"sites": {"expand": "variational"}},
        algorithm__particles=8,
    )
    assert not posterior.trusted
    counted = re.search(r"(\d+) draws are worth", posterior.problems[0])
    assert counted is not None
    assert int(counted[1]) >= 16_000
