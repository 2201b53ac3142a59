"""Likelihoods around an origin, against the same at the sum of origin and offset."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedstein import models


@pytest.mark.parametrize("kind", ["classifier", "regressor", "blr"])
def test_around_an_origin_it_is_the_likelihood_at_the_sum(kind: str, double: Any) -> None:
    """The networks evaluate their first layer for offset and origin apart; the BLR adds them up."""
    model = {
        "classifier": models.bnn_classifier(4, 3, hidden=(5, 3)),
        "regressor": models.bnn_regressor(4, hidden=(5,)),
        "blr": models.blr(3),
    }[kind]
    draws = np.random.default_rng(3)
    offset = model.split(jnp.asarray(draws.normal(size=(6, model.dim))))
    origin = jax.tree.map(lambda block: block[0], model.split(jnp.asarray(draws.normal(size=(1, model.dim)))))
    x, weights = jnp.asarray(draws.normal(size=(9, 4))), jnp.asarray(draws.uniform(size=9))
    y = jnp.asarray(draws.normal(size=9)) if kind == "regressor" else jnp.asarray(draws.integers(0, 2, 9))
    at = jax.tree.map(jnp.add, offset, origin)
    if model.log_likelihood_around is not None:
        np.testing.assert_allclose(
            model.log_likelihood_around(offset, origin, x, y, weights),
            model.log_likelihood(at, x, y, weights),
            rtol=1e-12,
        )
    assert (model.log_likelihood_around is None) == (kind == "blr")
    for got, expected in zip(
        model.likelihood_score_around(offset, origin, x, y, weights),
        model.likelihood_score(at, x, y, weights),
        strict=True,
    ):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
