"""Draws from the posterior that the server holds: NUTS on p0(theta) exp(eta . theta - theta' Lambda theta / 2).

Full sites add up to eta (d) and Lambda (d x d), so the server can sample prior and sites without asking anybody. NUTS
is NumPyro's. What it moves, theta or the part of theta that is not Gaussian given the rest, is
decided in ``fedstein.inference.collapse``. It moves z with x = centre + root z, where centre and root are those of the
Laplace approximation, and learns a dense mass matrix on top. Everything is float64, and the seed fixes every draw.

Draws come with their diagnostics, and are *trusted* only if these are within the limits (``trust.check``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.inference.collapse import Prepared, complete, log_density, parts_of, prepared
from fedstein.inference.draw_diagnostics import DrawDiagnostics, Trace, diagnose
from fedstein.inference.laplace import Frame, laplace_frame
from fedstein.models.base import Model
from fedstein.seeds import DRAWS, stream

THIN = 3  # iterations for each draw of the few parameters that a collapsed posterior has: cheap, and one is dependent
BLOCK = 50  # iterations in one compiled call, between two looks at the progress and at Ctrl-C

OnProgress = Callable[[float], None]


class Sampler(NamedTuple):
    """How long to sample.

    Attributes:
        chains: How many chains run side by side.
        warmup: Iterations that adapt step size and mass matrix and are thrown away.
        draws: Draws of each chain that are kept.
        accept: The acceptance probability that the step size aims at.
        depth: The largest depth of a trajectory's tree: 2^depth leapfrog steps at most.
    """

    chains: int = 4
    warmup: int = 500
    draws: int = 1000
    accept: float = 0.8
    depth: int = 10

    def check(self) -> Sampler:
        """Refuse lengths under which nothing can be said about the draws.

        Returns:
            The sampler itself.

        Raises:
            InputError: A number is out of bounds.
        """
        for name, low, high in (("chains", 2, 64), ("warmup", 50, 100_000), ("draws", 4, 1_000_000), ("depth", 1, 15)):
            if not low <= getattr(self, name) <= high:
                raise InputError(f"expected {name} of the sampler from {low} to {high}, got {getattr(self, name)}")
        if not 0.5 <= self.accept < 1:
            raise InputError(f"expected an acceptance probability from 0.5 to 1, got {self.accept}")
        return self


@dataclass(frozen=True)
class PosteriorDraws:
    """Draws, their moments and their diagnostics.

    Attributes:
        draws: Chains x draws x d, float64.
        mean: The posterior mean, d. If a block was drawn exactly, it is the mean of conditional means, which is less
            noisy than that of the draws.
        covariance: The posterior covariance, d x d, likewise.
        diagnostics: The diagnostics of the chains.
    """

    draws: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    diagnostics: DrawDiagnostics

    @property
    def trusted(self) -> bool:
        return self.diagnostics.trusted

    @property
    def problems(self) -> list[str]:
        return self.diagnostics.problems

    @property
    def sd(self) -> np.ndarray:
        """The posterior standard deviation of each parameter."""
        return np.sqrt(np.diag(self.covariance))

    @property
    def flat(self) -> np.ndarray:
        """All chains' draws one after the other, n x d."""
        return self.draws.reshape(-1, self.draws.shape[-1])


def require_numpyro() -> None:
    """Refuse before any work is done.

    Raises:
        InputError: NumPyro is not installed.
    """
    try:
        import numpyro  # noqa: F401 - whether it is there, as the sampler will import it
    except ImportError:
        raise InputError("draws need NumPyro, which is not installed: pip install numpyro") from None


def sample_posterior(
    model: Model,
    eta: Any,
    precision: Any,
    *,
    sampler: Sampler | None = None,
    seed: int = 0,
    start: np.ndarray | None = None,
    on_progress: OnProgress = lambda share: None,
) -> PosteriorDraws:
    """Sample p0(theta) exp(eta . theta - theta' Lambda theta / 2).

    Args:
        model: The model, whose prior is p0.
        eta: The sum of the sites' eta, d.
        precision: The sum of the sites' Lambda, d x d.
        sampler: How long to sample; four chains with 500 + 1000 iterations unless said otherwise.
        seed: Fixes the starts and every draw.
        start: Where the search for the mode begins, d; the particles' mean, say. Zero unless said otherwise.
        on_progress: Gets the share that is done.

    Returns:
        The draws with their moments and diagnostics. They are there even if they are not to be trusted.

    Raises:
        InputError: The sums have the wrong shape or are not finite, or NumPyro is needed and not installed.
    """
    began = time.monotonic()
    sampler = (sampler or Sampler()).check()
    eta, precision = np.asarray(eta, np.float64), np.asarray(precision, np.float64)
    check_sums(model, eta, precision)
    with jax.enable_x64(True):
        ready = prepared(model, eta, precision)
        trace = _walk(model, ready, sampler, seed, start, on_progress)
        moved = jnp.asarray(trace.values.reshape(sampler.chains * sampler.draws, -1))
        width = len(parts_of(model).given)
        noise = jax.random.normal(stream(seed, DRAWS, 1), (len(moved), width), jnp.float64)
        draws, means, spread = (np.asarray(part) for part in _complete(model, ready, moved, noise))
    with np.errstate(invalid="ignore", over="ignore"):
        covariance = spread + np.atleast_2d(np.cov(means, rowvar=False))
        mean = means.mean(axis=0)
    draws = draws.reshape(sampler.chains, sampler.draws, -1)
    return PosteriorDraws(draws, mean, covariance, diagnose(draws, trace, time.monotonic() - began))


def check_sums(model: Model, eta: np.ndarray, precision: np.ndarray) -> None:
    """Refuse sums that do not define a density.

    Raises:
        InputError: A shape is not the model's, or a number is not finite.
    """
    if eta.shape != (model.dim,) or precision.shape != (model.dim, model.dim):
        raise InputError(
            f"expected sums of full sites, {model.dim} and {model.dim} x {model.dim} numbers, got arrays of shapes "
            f"{eta.shape} and {precision.shape}; draws need sites.structure = 'full'"
        )
    if not (np.isfinite(eta).all() and np.isfinite(precision).all()):
        raise InputError("expected finite sums of sites, got infinite or undefined numbers in them")


def _walk(
    model: Model, ready: Prepared, sampler: Sampler, seed: int, start: np.ndarray | None, on_progress: OnProgress
) -> Trace:
    """Run the chains on the parameters that NUTS moves; there are none if the whole posterior is Gaussian."""
    shape = (sampler.chains, sampler.draws)
    index = parts_of(model).moved
    if not len(index):
        return Trace(np.zeros((*shape, 0)), np.zeros(shape, bool), np.zeros(shape), np.ones(shape), np.zeros(shape))
    require_numpyro()
    first = np.zeros(model.dim) if start is None else np.asarray(start, np.float64)
    frame = laplace_frame(model, ready, first[index])
    fixed = (model, sampler.warmup, sampler.accept, sampler.depth)
    keys = jax.random.split(stream(seed, DRAWS, 0), sampler.chains)
    state = _begin(*fixed, ready, frame, keys)
    parts = []
    thin = THIN if len(index) < model.dim else 1
    kept = sampler.warmup + thin * sampler.draws
    blocks = -(-kept // BLOCK)
    for block in range(blocks):
        state, part = _advance(*fixed, ready, frame, state)
        parts.append([np.asarray(array) for array in part])
        on_progress((block + 1) / blocks)
    z, *rest = (np.concatenate(pieces, axis=1)[:, sampler.warmup : kept] for pieces in zip(*parts, strict=True))
    return Trace(np.asarray(frame.centre) + z[:, thin - 1 :: thin] @ np.asarray(frame.root).T, *rest)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _begin(model: Model, warmup: int, accept: float, depth: int, ready: Prepared, frame: Frame, keys: Array) -> Any:
    return jax.lax.map(lambda key: _kernel(model, warmup, accept, depth, ready, frame, key)[1], keys)


@partial(jax.jit, static_argnums=(0, 1, 2, 3))
def _advance(
    model: Model, warmup: int, accept: float, depth: int, ready: Prepared, frame: Frame, state: Any
) -> tuple[Any, tuple[Array, ...]]:
    # NumPyro's kernel learns its schedule in ``init``; the state that this makes is not used and never computed.
    kernel, _ = _kernel(model, warmup, accept, depth, ready, frame, jax.random.key(0))

    def one(state: Any, _: None) -> tuple[Any, tuple[Array, ...]]:
        state = kernel.sample(state, (), {})
        return state, (state.z, state.diverging, state.energy, state.accept_prob, state.num_steps)

    return jax.lax.map(lambda chain: jax.lax.scan(one, chain, None, length=BLOCK), state)


def _kernel(
    model: Model, warmup: int, accept: float, depth: int, ready: Prepared, frame: Frame, key: Array
) -> tuple[Any, Any]:
    """The kernel on z, and its first state: a draw from the Laplace approximation."""
    from numpyro.infer import NUTS

    def potential(z: Array) -> Array:
        return -log_density(model, ready, frame.centre + frame.root @ z)

    kernel = NUTS(
        potential_fn=potential, step_size=0.5, dense_mass=True, target_accept_prob=accept, max_tree_depth=depth
    )
    first, later = jax.random.split(key)
    start = jax.random.normal(first, frame.centre.shape, frame.centre.dtype)
    return kernel, kernel.init(later, warmup, start, (), {})


_complete = jax.jit(complete, static_argnums=0)
