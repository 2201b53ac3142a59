"""The same SVGD step as users of other libraries write it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedstein.studies.bench.timing import Case


class Problem(NamedTuple):
    """A posterior: the named weights of N particles, one batch, and the log-density of one particle."""

    particles: dict[str, Array]
    x: Array
    y: Array
    log_density: Callable[..., Array]  # weights, x, y -> scalar
    numpyro_model: Callable[..., None]  # x, y
    step_size: float


def blackjax_cases(label: str, problem: Problem, steps: int) -> list[Case]:
    """Return the cases of BlackJAX.

    Args:
        label: The name of the model.
        problem: The posterior.
        steps: If above 1, there is a second case with that many steps in one loop.
    """
    import blackjax
    import optax

    kernel = blackjax.svgd(jax.grad(problem.log_density), optax.rmsprop(problem.step_size), blackjax.vi.svgd.rbf_kernel)
    state = kernel.init(problem.particles)

    def step(state: Any, x: Array, y: Array) -> Any:
        return kernel.step(state, x=x, y=y)

    return both_ways(f"BlackJAX, {label}", step, state, problem, steps)


def numpyro_cases(label: str, problem: Problem, steps: int) -> list[Case]:
    """Return the cases of NumPyro.

    Args:
        label: The name of the model.
        problem: The posterior.
        steps: If above 1, there is a second case with that many steps in one loop.
    """
    from numpyro.contrib.einstein import SVGD, RBFKernel
    from numpyro.infer import init_to_sample
    from numpyro.optim import RMSProp

    count = next(iter(problem.particles.values())).shape[0]
    start = {"init_loc_fn": init_to_sample}  # the default initialisation draws many times
    svgd = SVGD(
        problem.numpyro_model, RMSProp(problem.step_size), RBFKernel(), num_stein_particles=count, guide_kwargs=start
    )
    state = jax.jit(svgd.init)(jax.random.key(0), problem.x, problem.y)  # without jit, a network takes a minute
    return both_ways(f"NumPyro, {label}", lambda s, x, y: svgd.update(s, x, y)[0], state, problem, steps)


def both_ways(name: str, step: Callable[..., Any], state: Any, problem: Problem, steps: int) -> list[Case]:
    """Return a case with one step in a call and, for ``steps`` above 1, a case with that many steps in a loop."""
    single = jax.jit(step)
    cases = [Case(name, lambda: single(state, problem.x, problem.y))]
    if steps > 1:

        @jax.jit
        def many(state: Any, x: Array, y: Array) -> Any:
            return jax.lax.fori_loop(0, steps, lambda _, s: step(s, x, y), state)

        cases.append(Case(f"{name}, {steps} in a loop", lambda: many(state, problem.x, problem.y), steps))
    return cases


def blr_problem(particles: dict[str, Array], x: Array, y: Array, scale: float, rate: float) -> Problem:
    """Define the Bayesian logistic regression. ``scale`` is the number of rows of the client over that of the batch."""

    def log_density(theta: dict[str, Array], x: Array, y: Array) -> Array:
        signs = 2.0 * y - 1.0
        w, log_xi = theta["w"], theta["log_xi"]
        likelihood = scale * jnp.sum(jax.nn.log_sigmoid(signs * (x @ w)))
        prior = 0.5 * w.shape[0] * log_xi - 0.5 * jnp.exp(log_xi) * jnp.sum(w * w) + log_xi - rate * jnp.exp(log_xi)
        return likelihood + prior

    def numpyro_model(x: Array, y: Array) -> None:
        import numpyro
        from numpyro import distributions

        xi = numpyro.sample("xi", distributions.Gamma(1.0, rate))
        w = numpyro.sample("w", distributions.Normal(0, 1 / jnp.sqrt(xi)).expand([x.shape[1]]).to_event(1))
        with numpyro.handlers.scale(scale=scale):
            numpyro.sample("y", distributions.Bernoulli(logits=x @ w).to_event(1), obs=y)

    return Problem(particles, x, y, log_density, numpyro_model, 0.05)


def bnn_problem(particles: dict[str, Array], x: Array, y: Array, scale: float, precision: float) -> Problem:
    """Define the network 784-100-9 with the prior N(0, 1/precision)."""

    def logits(theta: dict[str, Array], x: Array) -> Array:
        return jax.nn.relu(x @ theta["w1"] + theta["b1"]) @ theta["w2"] + theta["b2"]

    def log_density(theta: dict[str, Array], x: Array, y: Array) -> Array:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits(theta, x)), y[:, None], axis=1)
        return scale * jnp.sum(chosen) - 0.5 * precision * sum(jnp.sum(leaf**2) for leaf in theta.values())

    def numpyro_model(x: Array, y: Array) -> None:
        import numpyro
        from numpyro import distributions

        shapes = {name: leaf.shape[1:] for name, leaf in particles.items()}
        theta = {
            name: numpyro.sample(name, distributions.Normal(0, precision**-0.5).expand(shape).to_event(len(shape)))
            for name, shape in shapes.items()
        }
        with numpyro.handlers.scale(scale=scale):
            numpyro.sample("y", distributions.Categorical(logits=logits(theta, x)).to_event(1), obs=y)

    return Problem(particles, x, y, log_density, numpyro_model, 1e-3)
