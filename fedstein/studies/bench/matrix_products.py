"""The matrix products that a step or a round needs, each timed alone with the same library.

Their total time is a lower bound for the time of the step or round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.studies.bench.timing import Case, Timing

STEPS = 10  # repetitions in one call, so that the overhead of a call is negligible


class Product(NamedTuple):
    """One matrix product: ``function`` applied to ``arguments``."""

    name: str
    function: Callable[..., Array]
    arguments: tuple[Array, ...]


class Products(NamedTuple):
    """Matrix products, and how often each one is needed."""

    products: tuple[tuple[Product, float], ...]

    def __add__(self, other: object) -> Products:
        assert isinstance(other, Products)
        return Products(self.products + other.products)

    def times(self, count: float) -> Products:
        """Return the same products, each needed ``count`` times as often."""
        return Products(tuple((product, count * each) for product, each in self.products))

    def cases(self, prefix: str) -> list[Case]:
        """Return a case for each product, with a prefix for its name."""
        return [looped(f"{prefix}{product.name}", product) for product, _ in self.products]

    def counts(self) -> list[float]:
        """Return how often each product is needed."""
        return [count for _, count in self.products]

    def of(self, found: dict[str, Timing], prefix: str) -> list[Timing]:
        """Return the timings of the products."""
        return [found[f"{prefix}{product.name}"] for product, _ in self.products]


def looped(name: str, product: Product, steps: int = STEPS) -> Case:
    """Make a case that repeats a product in one call.

    Each repetition takes one number from the previous result, so that the compiler cannot leave any of them out.
    """

    @jax.jit
    def run(*arguments: Array) -> Array:
        shape = jax.eval_shape(product.function, *arguments)

        first, *others = arguments

        def once(_: int, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            held, found = carry
            held = held.at[(0,) * held.ndim].set(jnp.tanh(found[(0,) * found.ndim]))  # in place: no copy
            return held, product.function(held, *others)

        return jax.lax.fori_loop(0, steps, once, (first, jnp.zeros(shape.shape, shape.dtype)))[1]

    return Case(name, lambda: run(*product.arguments), steps)


def random(*shape: int) -> Array:
    """Return an array of ordinary random numbers. Zeros and denormal numbers would take a different time."""
    return jnp.asarray(np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape, np.float32))


def stein_products(particles: int, dim: int, centres: int = 0, scores: bool = True) -> Products:
    """Return the Gram matrix and the coefficient product of one SVGD step.

    Args:
        particles: The number N of particles.
        dim: The number d of parameters.
        centres: The number of KDE factors, each with N centres, which make both products wider.
        scores: Whether the coefficients also multiply the scores.
    """
    wide = particles * (1 + centres)
    terms = wide + particles if scores else wide
    gram = Product(
        f"Gram, {particles} x {wide}, d = {dim}", lambda a, b: a @ b.T, (random(particles, dim), random(wide, dim))
    )
    coefficients = Product(
        f"coefficients, {particles} x {terms}, d = {dim}",
        lambda c, a: c @ a,
        (random(particles, terms), random(terms, dim)),
    )
    return Products(((gram, 1), (coefficients, 1)))


def pairs_products(particles: int, dim: int) -> Products:
    """Return the products for the distances of all pairs of particles and for one sum over them."""
    return stein_products(particles, dim, scores=False)


def blr_products(particles: int, features: int, rows: int) -> Products:
    """Return the products for the logits and the gradient of a logistic regression at all particles."""
    x, w, residuals = random(rows, features), random(particles, features), random(particles, rows)
    return Products(
        (
            (Product(f"logits, {rows} rows", lambda a, b: a @ b.T, (x, w)), 1),
            (Product(f"gradient, {rows} rows", lambda a, b: a @ b, (residuals, x)), 1),
        )
    )


def network_products(particles: int, sizes: Sequence[int], rows: int) -> Products:
    """Return the products of a forward and a backward pass of a network with one hidden layer, for all particles."""
    inputs, hidden, outputs = sizes
    x, first, signals = random(rows, inputs), random(particles * hidden, inputs), random(rows, particles * hidden)
    active, second = random(particles, rows, hidden), random(particles, outputs, hidden)
    errors = random(particles, rows, outputs)
    label = f"{rows} rows"
    return Products(
        (
            (Product(f"layer 1 forward, {label}", lambda a, b: a @ b.T, (x, first)), 1),
            (Product(f"layer 1 backward, {label}", lambda a, b: a.T @ b, (signals, x)), 1),
            (
                Product(f"layer 2 forward, {label}", lambda a, b: jnp.einsum("nbh,nch->nbc", a, b), (active, second)),
                1,
            ),
            (
                Product(
                    f"layer 2 to layer 1, {label}", lambda e, b: jnp.einsum("nbc,nch->nbh", e, b), (errors, second)
                ),
                1,
            ),
            (
                Product(f"layer 2 backward, {label}", lambda e, a: jnp.einsum("nbc,nbh->nch", e, a), (errors, active)),
                1,
            ),
        )
    )


def chained_products(particles: int, sizes: Sequence[int], rows: int, steps: int) -> Callable[[], Array]:
    """Make a program of ``network_products`` and ``stein_products``, each product applied to the previous result.

    A product that is timed alone finds its arrays in the cache. In a step, the arrays of the other products replace
    them.
    """
    inputs, hidden, outputs = sizes

    @jax.jit
    def run(first: Array, second: Array, x: Array, coefficients: Array) -> Array:
        def once(_: int, first: Array) -> Array:
            signals = (x @ first.T).reshape(rows, particles, hidden)
            errors = jnp.einsum("bnh,nch->nbc", signals, second)
            of_second = jnp.einsum("nbc,bnh->nch", errors, signals)
            back = jnp.einsum("nbc,nch->bnh", errors, second).reshape(rows, particles * hidden)
            score, theta = (back.T @ x).reshape(particles, -1), first.reshape(particles, -1)
            gram = theta @ theta.T
            used = coefficients * (1 + 1e-6 * jnp.tanh(jnp.tile(gram, (1, 2)) + of_second[0, 0, 0]))
            used, score, theta = jax.lax.optimization_barrier((used, score, theta))
            return (used[:, :particles] @ score + used[:, particles:] @ theta).reshape(first.shape)

        return jax.lax.fori_loop(0, steps, once, first)

    # Every step leaves theta nearly unchanged, so that its entries stay ordinary numbers.
    coefficients = jnp.concatenate([1e-6 * random(particles, particles), jnp.eye(particles)], axis=1)
    first, second, x = random(particles * hidden, inputs), random(particles, outputs, hidden), random(rows, inputs)
    return lambda: run(first, second / hidden, x, coefficients)


def curvature_products(particles: int, sizes: Sequence[int], rows: int) -> Products:
    """Return the products of the Gauss-Newton diagonal: a backward pass for each class, a product for each layer."""
    inputs, hidden, outputs = sizes
    roots, second = random(particles, rows * outputs, outputs), random(particles, outputs, hidden)
    squares, x = random(particles * hidden, rows), random(rows, inputs)
    tops, active = random(particles, rows, outputs), random(particles, rows, hidden)
    label = f"{rows} rows"
    return Products(
        (
            (
                Product(f"curvature, back, {label}", lambda r, w: jnp.einsum("nbo,noi->nbi", r, w), (roots, second)),
                1,
            ),
            (Product(f"curvature, layer 1, {label}", lambda s, a: s @ a, (squares, x)), 1),
            (
                Product(f"curvature, layer 2, {label}", lambda s, a: jnp.einsum("nbo,nbi->noi", s, a), (tops, active)),
                1,
            ),
        )
    )


def inner_products(particles: int, dim: int) -> Products:
    """Return the products of a Stein discrepancy of one client's score: the Gram matrix of the score."""
    score = random(particles, dim)
    return Products(((Product(f"score Gram, d = {dim}", lambda a, b: a @ b.T, (score, random(particles, dim))), 1),))


def dots_products(count: int, size: int) -> Products:
    """Return the inner products of ``count`` scores with one array."""
    return Products(
        ((Product(f"{count} inner products of {size}", lambda a, b: a @ b, (random(count, size), random(size))), 1),)
    )
