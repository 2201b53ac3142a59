"""NUTS on the pooled data (NumPyro): the posterior that the particles are compared with.

The chains run on z with theta = mode + root z. This exact affine change of variables makes the Laplace approximation a
standard normal. It does not change the target, and a trajectory takes about eight leapfrog steps. All computations are
in float64, regardless of the precision of the run.

If these chains are not to be trusted and the model has a non-centred parametrisation (``target.to_theta``), that one is
tried too, and the better one is kept. Chains of a model that may have several modes (its form is not known to Fedstein)
begin at the modes above different initial particles of the model, so that R-hat tells if there are several.
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
from fedstein.studies.reference.target import Laplace, Pooled, laplace, log_density_at, to_theta

BLOCK = 25  # iterations in one compiled call; between calls, progress is shown and Ctrl-C takes effect
ACCEPT = 0.8
RHAT, ESS = 1.01, 400.0  # with a larger R-hat or a smaller ESS, a reference is not trusted
LONG = 1000  # draws of all chains; fewer say nothing about a parametrisation

OnProgress = Callable[[float], None]


class Sampler(NamedTuple):
    """The settings of NUTS. ``seed`` determines the initial points and every draw."""

    chains: int = 4
    warmup: int = 300
    draws: int = 1000
    seed: int = 0

    def check(self) -> Sampler:
        """Check the settings. R-hat compares chains and the ESS needs a series, so there are lower bounds.

        Returns:
            The same settings.

        Raises:
            InputError: If a setting is out of bounds.
        """
        for name, low, high in (("chains", 2, 64), ("warmup", 50, 100_000), ("draws", 50, 100_000)):
            got = getattr(self, name)
            if not low <= got <= high:
                raise InputError(f"expected --{name} from {low} to {high}, got {got}")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"expected --seed from 0 to {2**31 - 1}, got {self.seed}")
        return self


class Diagnostics(NamedTuple):
    """Whether the chains agree: the largest split R-hat and the smallest effective sample size over all of theta."""

    divergences: int
    max_rhat: float
    min_ess: float  # the minimum over means and variances
    steps: float  # the mean number of leapfrog steps of a draw
    seconds: float
    centred: bool = True  # whether theta itself was sampled, and not its non-centred form

    @property
    def trusted(self) -> bool:
        """Whether there are no divergences, and R-hat and ESS are within their bounds."""
        return self.divergences == 0 and self.max_rhat <= RHAT and self.min_ess >= ESS


def require_numpyro() -> None:
    """Check that NumPyro is installed, before any work is done.

    Raises:
        InputError: If it is not installed.
    """
    try:
        import numpyro  # noqa: F401 - only to see whether it can be imported
    except ImportError:
        raise InputError("the reference needs NumPyro, which is not installed: pip install numpyro") from None


def sample(target: Pooled, sampler: Sampler, on_progress: OnProgress) -> tuple[np.ndarray, Diagnostics]:
    """Run the chains.

    Args:
        target: The posterior.
        sampler: The settings of NUTS.
        on_progress: Called with the share of the work that is done.

    Returns:
        The draws, chains x draws x d, and their diagnostics.

    Raises:
        InputError: If NumPyro is not installed.
        FedsteinError: If a draw is not finite.
    """
    require_numpyro()
    theta, checks = _sample(target, sampler, True, on_progress)
    if checks.trusted or target.model.gaussian_given is None or theta.shape[0] * theta.shape[1] < LONG:
        return theta, checks
    other, others = _sample(target, sampler, False, on_progress)
    better = (others.trusted, -others.divergences, others.min_ess) > (False, -checks.divergences, checks.min_ess)
    return (other, others) if better else (theta, checks)


def _sample(target: Pooled, sampler: Sampler, centred: bool, on_progress: OnProgress) -> tuple[np.ndarray, Diagnostics]:
    began = time.monotonic()
    gauss = laplace(target, centred)
    with jax.enable_x64(True):
        chains = _run_chains(target, gauss, sampler, centred, on_progress)
        z, diverging, steps = (np.stack([chain[part] for chain in chains]) for part in range(3))
        points = gauss.mode + z @ gauss.root.T
        if not centred:
            flat = jnp.asarray(points.reshape(-1, points.shape[-1]))
            flat = jax.vmap(lambda point: to_theta(target.model, False, point)[0])(flat)
            points = np.asarray(flat).reshape(points.shape)
    if not np.isfinite(points).all():
        raise FedsteinError("a draw of NUTS is not finite; the posterior of these rows may not be proper")
    checks = diagnose(points, diverging, float(steps.mean()), time.monotonic() - began)
    return points, checks._replace(centred=centred)


def _run_chains(
    target: Pooled, gauss: Laplace, sampler: Sampler, centred: bool, on_progress: OnProgress
) -> list[tuple[np.ndarray, ...]]:
    """Run one chain after another.

    On a CPU this is faster than vectorised chains, where each waits for the longest tree.
    """
    rows = Rows(*target.arrays(), jnp.asarray(gauss.mode), jnp.asarray(gauss.root))
    fixed = (target.model, centred, sampler.warmup)
    blocks = -(-(sampler.warmup + sampler.draws) // BLOCK)
    chains = []
    for number in range(sampler.chains):
        key = jax.random.fold_in(jax.random.key(sampler.seed), number)
        state = _begin(*fixed, rows, key, jnp.asarray(_away(target, gauss, centred, key)))
        parts = []
        for block in range(blocks):
            state, part = _advance(*fixed, rows, state)
            parts.append([np.asarray(array) for array in part])
            on_progress((number + (block + 1) / blocks) / sampler.chains)
        whole = [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        chains.append(tuple(array[sampler.warmup :][: sampler.draws] for array in whole))
    return chains


def _away(target: Pooled, gauss: Laplace, centred: bool, key: Array) -> np.ndarray:
    """Return where a chain begins, as a shift of z: none, or the mode above an initial particle of the model."""
    model = target.model
    if model.glm is not None or model.gaussian_given is not None or model.linear_prior_score is not None:
        return np.zeros(model.dim)
    start = np.asarray(model.init(jax.random.fold_in(key, 1), 1), np.float64)[0]
    try:
        mode = laplace(target, centred, start).mode
    except InputError:
        mode = start
    return np.linalg.solve(gauss.root, mode - gauss.mode)


class Rows(NamedTuple):
    """The arguments of the compiled functions, so that targets of one shape share the programs."""

    x: Array
    y: Array
    weights: Array
    mode: Array
    root: Array


@partial(jax.jit, static_argnums=(0, 1, 2))
def _begin(model: Model, centred: bool, warmup: int, rows: Rows, key: Array, away: Array) -> Any:
    return _kernel(model, centred, warmup, rows, key, away)[1]


@partial(jax.jit, static_argnums=(0, 1, 2))
def _advance(model: Model, centred: bool, warmup: int, rows: Rows, state: Any) -> tuple[Any, tuple[Array, ...]]:
    # NumPyro's kernel sets up its schedule in ``init``. The state that ``init`` returns is not used or computed here.
    kernel, _ = _kernel(model, centred, warmup, rows, jax.random.key(0), jnp.zeros_like(rows.mode))

    def one(state: Any, _: None) -> tuple[Any, tuple[Array, ...]]:
        state = kernel.sample(state, (), {})
        return state, (state.z, state.diverging, state.num_steps)

    return jax.lax.scan(one, state, None, length=BLOCK)


def _kernel(model: Model, centred: bool, warmup: int, rows: Rows, key: Array, away: Array) -> tuple[Any, Any]:
    """Return the kernel on z and its first state, a draw from the Laplace approximation, shifted by ``away``."""
    from numpyro.infer import NUTS

    def potential(z: Array) -> Array:
        return -log_density_at(model, centred, rows.mode + rows.root @ z, rows.x, rows.y, rows.weights)

    kernel = NUTS(potential_fn=potential, step_size=0.5, target_accept_prob=ACCEPT)
    first, later = jax.random.split(key)
    return kernel, kernel.init(later, warmup, away + jax.random.normal(first, rows.mode.shape), (), {})


def diagnose(theta: np.ndarray, diverging: np.ndarray, steps: float, seconds: float) -> Diagnostics:
    """Compute R-hat and ESS of every parameter and of its squared deviation, because sds are compared too.

    Args:
        theta: Chains x draws x d.
        diverging: Which transitions diverged.
        steps: The mean number of leapfrog steps of a draw.
        seconds: The time that sampling took.
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    squares = (theta - theta.mean(axis=(0, 1))) ** 2
    ess = min(float(np.min(effective_sample_size(values))) for values in (theta, squares))
    rhat = max(float(np.max(split_gelman_rubin(values))) for values in (theta, squares))
    return Diagnostics(int(diverging.sum()), rhat, ess, steps, seconds)
