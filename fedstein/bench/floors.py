"""What a step or a round cannot avoid: its matrix products, each timed alone with the same library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.bench.clock import Case, Timing

STEPS = 10  # products a call, so that starting a call does not count


class Product(NamedTuple):
    """``function`` of ``arguments`` is one matrix product."""

    name: str
    function: Callable[..., Array]
    arguments: tuple[Array, ...]


class Floor(NamedTuple):
    """Products, and how often each is needed."""

    products: tuple[tuple[Product, float], ...]

    def __add__(self, other: object) -> Floor:
        assert isinstance(other, Floor)
        return Floor(self.products + other.products)

    def times(self, count: float) -> Floor:
        return Floor(tuple((product, count * each) for product, each in self.products))

    def cases(self, prefix: str) -> list[Case]:
        return [looped(f"{prefix}{product.name}", product) for product, _ in self.products]

    def counts(self) -> list[float]:
        return [count for _, count in self.products]

    def of(self, found: dict[str, Timing], prefix: str) -> list[Timing]:
        return [found[f"{prefix}{product.name}"] for product, _ in self.products]


def looped(name: str, product: Product, steps: int = STEPS) -> Case:
    """The product over and over in one call; each has a number of the one before in it, so that none is left out."""

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
    """Ordinary numbers: zeros and denormals take other times."""
    return jnp.asarray(np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape, np.float32))


def stein_floor(particles: int, dim: int, centres: int = 0, scores: bool = True) -> Floor:
    """The Gram matrix and the coefficient product of one SVGD step; with KDE factors both are wider."""
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
    return Floor(((gram, 1), (coefficients, 1)))


def pairs_floor(particles: int, dim: int) -> Floor:
    """Distances of all pairs, and one sum over them."""
    return stein_floor(particles, dim, scores=False)


def blr_floor(particles: int, features: int, rows: int) -> Floor:
    """Logits and gradient of a logistic regression at all particles."""
    x, w, residuals = random(rows, features), random(particles, features), random(particles, rows)
    return Floor(
        (
            (Product(f"logits, {rows} rows", lambda a, b: a @ b.T, (x, w)), 1),
            (Product(f"gradient, {rows} rows", lambda a, b: a @ b, (residuals, x)), 1),
        )
    )


def network_floor(particles: int, sizes: Sequence[int], rows: int) -> Floor:
    """Forward and backward through a network with one hidden layer, all particles together."""
    inputs, hidden, outputs = sizes
    x, first, signals = random(rows, inputs), random(particles * hidden, inputs), random(rows, particles * hidden)
    active, second = random(particles, rows, hidden), random(particles, outputs, hidden)
    errors = random(particles, rows, outputs)
    label = f"{rows} rows"
    return Floor(
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


def products_in_turn(particles: int, sizes: Sequence[int], rows: int, steps: int) -> Callable[[], Array]:
    """The products of ``network_floor`` and ``stein_floor`` in one program, each on what the last made.

    Timed alone, a product finds its arrays where it left them; in a step the others' have taken their place.
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

    # Every step leaves theta nearly as it was, so that it stays ordinary numbers.
    coefficients = jnp.concatenate([1e-6 * random(particles, particles), jnp.eye(particles)], axis=1)
    first, second, x = random(particles * hidden, inputs), random(particles, outputs, hidden), random(rows, inputs)
    return lambda: run(first, second / hidden, x, coefficients)


def curvature_floor(particles: int, sizes: Sequence[int], rows: int) -> Floor:
    """The Gauss-Newton diagonal: every class of every row carried back, then one product a layer with the squares."""
    inputs, hidden, outputs = sizes
    roots, second = random(particles, rows * outputs, outputs), random(particles, outputs, hidden)
    squares, x = random(particles * hidden, rows), random(rows, inputs)
    tops, active = random(particles, rows, outputs), random(particles, rows, hidden)
    label = f"{rows} rows"
    return Floor(
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


def inner_floor(particles: int, dim: int) -> Floor:
    """A Stein discrepancy of one client's score: the Gram matrix of the score."""
    score = random(particles, dim)
    return Floor(((Product(f"score Gram, d = {dim}", lambda a, b: a @ b.T, (score, random(particles, dim))), 1),))


def dots_floor(count: int, size: int) -> Floor:
    """Inner products of ``count`` scores with one array."""
    return Floor(
        ((Product(f"{count} inner products of {size}", lambda a, b: a @ b, (random(count, size), random(size))), 1),)
    )
