"""A Gaussian prior's score is folded into the coefficients of SVGD: the same move as with the score written out."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from building import dsvgd, particle_site

from fedstein.data.shard import make_shard
from fedstein.inference.methods import Training
from fedstein.models import bnn_classifier, join
from fedstein.stein import svgd_direction, tilted_direction
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kernels import centred


def test_the_direction_is_that_of_the_explicit_score():
    keys = jax.random.split(jax.random.key(0), 3)
    theta = (jax.random.normal(keys[0], (7, 4)) + 5.0, jax.random.normal(keys[1], (7, 3)) - 2.0)
    scores = (jax.random.normal(keys[2], (7, 4)), jnp.ones((7, 3)))
    offset, origin = centred(theta)
    got = tilted_direction(offset, scores, (), linear=(-2.7, origin))
    expected = svgd_direction(join(theta), join(scores) - 2.7 * join(theta))
    assert np.allclose(join(got), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("density", ["log", "reference"])
def test_training_is_the_same_with_and_without_the_fold(density):
    folded = bnn_classifier(5, 3, hidden=(4,))
    assert np.allclose(join(folded.prior_score(folded.split(jnp.ones((2, folded.dim))))), folded.linear_prior_score), (
        "the factor is the prior's"
    )
    rng = np.random.default_rng(0)
    shard = make_shard(rng.normal(size=(30, 5)).astype(np.float32), rng.integers(0, 3, 30))
    start = {"particles": folded.init(jax.random.key(1), 6)}
    ends = []
    for model in (folded, folded._replace(linear_prior_score=None)):
        optimiser = AdaGrad(0.01, 1e-3)
        site = particle_site(model, density=density, bandwidth=0.55, steps=2, optimiser=optimiser)
        algorithm = dsvgd(model, site, particles=6, steps=3, batch_size=10, temperature=1.0, optimiser=optimiser)
        update, _ = algorithm.train(
            Training(jax.random.key(2), start, algorithm.client_state(start), shard, False, 1.0)
        )
        ends.append(np.asarray(update["particles"]))
    assert np.allclose(ends[0], ends[1], atol=1e-5)
    assert not np.allclose(ends[0], start["particles"], atol=1e-3)
