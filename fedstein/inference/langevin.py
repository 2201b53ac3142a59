"""Markov chains at the server: their states, the latest states for predictions, and the noise of a Langevin step."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from pydantic import Field

from fedstein.inference.methods.base import ClientCountSettings, MethodSettings
from fedstein.inference.sites.base import Arrays
from fedstein.models.base import Model
from fedstein.settings import Positive, PositiveFloat


class SamplerSettings(MethodSettings):
    """The keys of methods that move Markov chains."""

    particles: int = Field(20, ge=1, le=10**6, description="The latest states of the chains that predictions use.")
    chains: Positive = Field(1, description="Chains that are moved side by side.")
    local_steps: Positive = Field(10, description="L, the steps of a chain on a client in a round.")
    step_size: PositiveFloat = Field(1e-4, description="The step size of the Langevin equation, in squared parameters.")


class ChainSettings(SamplerSettings, ClientCountSettings):
    """The keys of methods whose chains are moved by clients."""


def first_chains(model: Model, settings: SamplerSettings, key: Array) -> Arrays:
    """The server's state before round 1: ``chain`` (C x d), ``kept`` (N x d, the start's own draws) and a ``key``."""
    drawn = model.init(key, settings.chains + settings.particles)
    return {
        "chain": drawn[: settings.chains],
        "kept": drawn[settings.chains :],
        "key": np.asarray(jax.random.key_data(jax.random.fold_in(key, 1))),
    }


def with_chain(server: Arrays, chain: Array) -> Arrays:
    """The server's state with the chains moved on and their new states kept, in place of the oldest ones."""
    count = server["kept"].shape[0]
    kept = np.concatenate([np.asarray(server["kept"]), np.asarray(chain)])[-count:]
    return {**server, "chain": jnp.asarray(chain), "kept": jnp.asarray(kept)}


def next_noise(server: Arrays) -> tuple[Arrays, Array]:
    """The server's state with the next key, and standard normal noise for every chain."""
    key, now = jax.random.split(jax.random.wrap_key_data(jnp.asarray(server["key"])))
    chain = server["chain"]
    noise = jax.random.normal(now, chain.shape, chain.dtype)
    return {**server, "key": np.asarray(jax.random.key_data(key))}, noise
