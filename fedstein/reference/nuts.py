"""NUTS on the pooled data (NumPyro, the extra ``nuts``): the posterior that the particles are measured against.

The chains run on z with theta = mode + root z, the exact affine change of variables that turns the Laplace
approximation into a standard normal: the target is the same, and a trajectory takes about eight leapfrog steps.
Everything is float64, whatever the run was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import FedsteinError, InputError
from fedstein.models import Model
from fedstein.reference.target import Pooled, laplace, log_density

BLOCK = 25  # iterations between two looks at the progress and at Ctrl-C
ACCEPT = 0.8
RHAT, ESS = 1.01, 400.0  # beyond these a reference is not to be trusted

OnProgress = Callable[[float], None]


class Sampler(NamedTuple):
    """How long to sample; ``seed`` fixes the starts and every draw."""

    chains: int = 4
    warmup: int = 300
    draws: int = 1000
    seed: int = 0

    def check(self) -> Sampler:
        """Bounds under which the diagnostics mean something: R-hat compares chains, ESS needs a series."""
        for name, low, high in (("chains", 2, 64), ("warmup", 50, 100_000), ("draws", 50, 100_000)):
            got = getattr(self, name)
            if not low <= got <= high:
                raise InputError(f"expected --{name} from {low} to {high}, got {got}")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"expected --seed from 0 to {2**31 - 1}, got {self.seed}")
        return self


class Diagnostics(NamedTuple):
    """Whether the chains agree: over all of theta, the worst split R-hat, the least effective sample size."""

    divergences: int
    max_rhat: float
    min_ess: float  # the least for the means and for the variances
    steps: float  # leapfrog steps a draw, mean
    seconds: float

    @property
    def trusted(self) -> bool:
        return self.divergences == 0 and self.max_rhat <= RHAT and self.min_ess >= ESS


def require_numpyro() -> None:
    """Refuse before any work is done."""
    try:
        import numpyro  # noqa: F401 - whether it is there, as the sampler will import it
    except ImportError:
        raise InputError('the reference needs NumPyro, which is not installed: pip install "fedstein[nuts]"') from None


def sample(target: Pooled, sampler: Sampler, on_progress: OnProgress) -> tuple[np.ndarray, Diagnostics]:
    """Chains x draws x d, and what they say about themselves. ``on_progress`` gets the share that is done."""
    require_numpyro()
    began = time.monotonic()
    gauss = laplace(target)
    with jax.enable_x64(True):
        chains = _run_chains(target, gauss.mode, gauss.root, sampler, on_progress)
    z, diverging, steps = (np.stack([chain[part] for chain in chains]) for part in range(3))
    theta = gauss.mode + z @ gauss.root.T
    if not np.isfinite(theta).all():
        raise FedsteinError("NUTS left the finite numbers; the posterior of these rows may not be proper")
    return theta, diagnose(theta, diverging, float(steps.mean()), time.monotonic() - began)


def _run_chains(
    target: Pooled, mode: np.ndarray, root: np.ndarray, sampler: Sampler, on_progress: OnProgress
) -> list[tuple[np.ndarray, ...]]:
    """One chain after the other: on a CPU that is faster than side by side, where each waits for the longest tree."""
    arrays = (target.x.astype(np.float64), target.y, target.temperature, mode, root)
    rows = Rows(*map(jnp.asarray, arrays))
    fixed = (target.model, sampler.warmup)
    blocks = -(-(sampler.warmup + sampler.draws) // BLOCK)
    chains = []
    for number in range(sampler.chains):
        state = _begin(*fixed, rows, jax.random.fold_in(jax.random.key(sampler.seed), number))
        parts = []
        for block in range(blocks):
            state, part = _advance(*fixed, rows, state)
            parts.append([np.asarray(array) for array in part])
            on_progress((number + (block + 1) / blocks) / sampler.chains)
        whole = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        chains.append(tuple(array[sampler.warmup :][: sampler.draws] for array in whole))
    return chains


class Rows(NamedTuple):
    """What the compiled functions take as arguments, so that targets of one shape share them."""

    x: Array
    y: Array
    temperature: Array
    mode: Array
    root: Array


@partial(jax.jit, static_argnums=(0, 1))
def _begin(model: Model, warmup: int, rows: Rows, key: Array) -> Any:
    return _kernel(model, warmup, rows, key)[1]


@partial(jax.jit, static_argnums=(0, 1))
def _advance(model: Model, warmup: int, rows: Rows, state: Any) -> tuple[Any, tuple[Array, ...]]:
    # NumPyro's kernel learns its schedule in ``init``; the state that this makes is not used and never computed.
    kernel, _ = _kernel(model, warmup, rows, jax.random.key(0))

    def one(state: Any, _: None) -> tuple[Any, tuple[Array, ...]]:
        state = kernel.sample(state, (), {})
        return state, (state.z, state.diverging, state.num_steps)

    return jax.lax.scan(one, state, None, length=BLOCK)


def _kernel(model: Model, warmup: int, rows: Rows, key: Array) -> tuple[Any, Any]:
    """The kernel on z, and its first state: a draw from the Laplace approximation."""
    from numpyro.infer import NUTS

    def potential(z: Array) -> Array:
        theta = rows.mode + rows.root @ z
        return -log_density(model, rows.temperature, theta[None], rows.x, rows.y)[0]

    kernel = NUTS(potential_fn=potential, step_size=0.5, target_accept_prob=ACCEPT)
    first, later = jax.random.split(key)
    return kernel, kernel.init(later, warmup, jax.random.normal(first, rows.mode.shape), (), {})


def diagnose(theta: np.ndarray, diverging: np.ndarray, steps: float, seconds: float) -> Diagnostics:
    """R-hat and ESS of every parameter, and ESS of its squared deviation, as standard deviations are compared too."""
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    squares = (theta - theta.mean(axis=(0, 1))) ** 2
    ess = min(float(np.min(effective_sample_size(values))) for values in (theta, squares))
    rhat = max(float(np.max(split_gelman_rubin(values))) for values in (theta, squares))
    return Diagnostics(int(diverging.sum()), rhat, ess, steps, seconds)
