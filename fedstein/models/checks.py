"""A check of a user's model: shapes, scores and curvature at a few rows and one initial particle, in float64.

The scores are compared with finite differences of the log-likelihood and of the log-prior. The curvature is compared
with finite differences of the score. If it is a Fisher information, both sides of Bartlett's identities are taken over
the very labels that the curvature uses (``models.fisher.expected_labels``),

    E_y[score] = 0,    E_y[score score'] = -E_y[d score / d theta],

so the check finds a likelihood that is not the declared one, and a ``predict`` or ``sample`` of another likelihood.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.models.base import Blocks, Model, cut, join
from fedstein.models.fisher import diagonal_fisher, expected_labels, full_fisher, uses_observed_rows

ROWS = 8  # looked at
DRAWS = 64  # the draws of a model's own sampler for each row
STEPS = (
    1e-5,
    1e-3,
    1e-7,
)  # of finite differences: one must agree (kinks speak for small steps, float32 for large ones)
RANDOM, COORDINATES = 2, 4  # directions in which the curvature is compared
DENSE = 256  # parameters up to which the full matrix is checked, and the curvature of every model on arrival
SLOW = 2000  # parameters from which a diagonal of Hessian-vector products is not checked
TOLERANCE = 1e-2
QUICK: dict[str, str | bool] = {
    "xla_backend_optimization_level": "0"
}  # the program runs once, so that compilation takes nearly all the time
DRAWN = 3.0  # the factor by which averages over draws may differ


def check_model(model: Model, x: np.ndarray, y: np.ndarray, *, thorough: bool = True) -> None:
    """Refuse a model whose functions do not fit together.

    Args:
        model: The model.
        x: Rows in the form of a dataset, before ``model.prepare``; a few of them are used.
        y: Their targets.
        thorough: Whether the curvature is compared with finite differences of the score, which takes most of the time.

    Raises:
        InputError: A function fails or returns a wrong shape or a number that is not finite; a target is not in the
            model's support; a score is not the gradient of its log-density; or the curvature does not belong to the
            log-likelihood. The message names the function, says what was expected and got, and what to do.
    """
    _check_targets(model, y)
    chosen = np.unique(np.linspace(0, len(x) - 1, min(ROWS, len(x))).astype(int))
    with jax.enable_x64(True):
        rows = jnp.asarray(model.prepare(np.asarray(x)[chosen]), jnp.float64)
        labels = jnp.asarray(np.asarray(y)[chosen], jnp.int32 if model.task == "classification" else jnp.float64)
        _Check(model, rows, labels, thorough).run()


def _check_targets(model: Model, y: np.ndarray) -> None:
    """Refuse targets that the model cannot have produced."""
    if model.task == "regression" and model.target == "count":
        wrong = np.flatnonzero(~((y >= 0) & (np.floor(y) == y)))
        if len(wrong):
            raise InputError(
                f"model {model.name!r} expects counts, whole numbers from 0, got y = {y[wrong[0]]:g} in row "
                f"{wrong[0]}; standardised targets cannot be used with it"
            )
    if model.task == "classification" and model.classes and len(y) and not 0 <= np.min(y) <= np.max(y) < model.classes:
        raise InputError(
            f"model {model.name!r} expects labels from 0 to {model.classes - 1}, got {np.min(y):g} to {np.max(y):g}"
        )


class _Numbers(NamedTuple):
    """The results of one compiled program, at the start and at displaced particles (leading axis: particles)."""

    start: Any
    log_prior: Any
    prior_score: Any
    log_likelihood: Any
    likelihood_score: Any
    at_labels: Any  # the log-likelihood of each label that the curvature asks for, at the start
    labels: Any
    expected_score: Any  # the likelihood score, averaged over those labels
    diagonal: Any  # None if it is too expensive
    full: Any


class _Check:
    """One model at one start and a few rows."""

    def __init__(self, model: Model, x: Array, y: Array, thorough: bool):
        self.model, self.x, self.y, self.thorough = model, x, y, thorough
        self.ones = jnp.ones(x.shape[0], x.dtype)
        self.key = jax.random.key(0)
        self.observed = uses_observed_rows(model)
        self.exact = not self.observed and model.family != "other"

    def refuse(self, sentence: str) -> NoReturn:
        raise InputError(f"model {self.model.name!r}: {sentence}")

    def run(self) -> None:
        self.shapes()
        directions = self.directions()
        each = [sign * step * direction for direction in directions for step in STEPS for sign in (1, -1)]
        moves = np.stack([np.zeros(self.model.dim), *each])
        program = self.called("a score or the curvature", lambda: jax.jit(self.numbers).lower(moves).compile(QUICK))
        found = _Numbers(*(None if array is None else np.asarray(array) for array in program(moves)))
        self.finite("init(key, n)", found.start)
        self.check_score("log_prior", found.log_prior, found.prior_score, directions)
        self.check_score("log_likelihood", found.log_likelihood, found.likelihood_score, directions)
        self.check_dependence(found)
        self.check_labels(found)
        if self.thorough:
            self.check_curvature(found, directions)

    def directions(self) -> np.ndarray:
        """Random directions first, then one coordinate of each of up to ``COORDINATES`` blocks."""
        draw, dim = np.random.default_rng(0), self.model.dim
        spread = draw.normal(size=(RANDOM, dim)) / dim**0.5
        if not self.thorough:
            return spread[:1]
        edges = np.cumsum((0, *self.model.widths))
        blocks = np.unique(np.linspace(0, len(edges) - 2, COORDINATES).astype(int))
        places = [int(draw.integers(edges[b], edges[b + 1])) for b in blocks]
        if len(blocks) < COORDINATES:
            places += draw.integers(0, dim, COORDINATES - len(blocks)).tolist()
        return np.concatenate([spread, _unit(places, dim)])

    def numbers(self, moves: Array) -> _Numbers:
        model, dim = self.model, self.model.dim
        theta = model.init(self.key, 1).astype(moves.dtype) + moves
        blocks, one = cut(theta, model.widths), cut(theta[:1], model.widths)
        likelihood_score = join(model.likelihood_score(blocks, self.x, self.y, self.ones))
        if self.observed or not (self.thorough or self.exact):
            at_labels, labels = jnp.zeros(1), self.y
            expected_score: Array | None = likelihood_score
        else:
            x, labels, shares = self.labels(one)
            single = jax.vmap(lambda row, label: model.log_likelihood(one, row[None], label[None], self.ones[:1])[0])
            at_labels = single(x, labels)
            expected_score = join(model.likelihood_score(blocks, x, labels, shares)) if self.thorough else None
        given = (self.x, self.ones, self.key, 0, self.y)
        if not self.thorough:
            prior = (theta[:1], model.log_prior(blocks), join(model.prior_score(blocks)))
            likelihood = model.log_likelihood(blocks, self.x, self.y, self.ones)
            return _Numbers(*prior, likelihood, likelihood_score, at_labels, labels, None, None, None)
        cheap = model.diagonal_curvature is not None or not self.observed or dim <= SLOW
        return _Numbers(
            theta[:1],
            model.log_prior(blocks),
            join(model.prior_score(blocks)),
            model.log_likelihood(blocks, self.x, self.y, self.ones),
            likelihood_score,
            at_labels,
            labels,
            expected_score,
            join(diagonal_fisher(model, one, *given)) if cheap else None,
            full_fisher(model, one, *given) if dim <= DENSE else None,
        )

    def labels(self, one: Blocks) -> tuple[Array, Array, Array]:
        """Rows, labels and shares over which the expectation of the curvature is taken."""
        if self.observed:
            return self.x, self.y, self.ones
        samples = 0 if self.exact else DRAWS
        found = zip(*expected_labels(self.model, one, self.x, self.ones, self.key, samples), strict=True)
        x, labels, shares = (jnp.concatenate(parts) for parts in found)
        return x, labels, shares

    def called(self, what: str, function: Callable[[], Any]) -> Any:
        """The function's value; whatever it raises becomes a sentence with the shapes that it was given."""
        try:
            return function()
        except InputError:
            raise
        except Exception as error:
            lines = str(error).strip().splitlines()
            self.refuse(
                f"{what} failed for theta of length {self.model.dim}, x of shape {self.x.shape} and y of shape "
                f"{self.y.shape}: {type(error).__name__}: {lines[0] if lines else ''}"
            )

    def shapes(self) -> None:
        """Every function by its shapes alone, for two particles."""
        model, x, y, key = self.model, self.x, self.y, self.key
        two = jax.ShapeDtypeStruct((2, model.dim), x.dtype)
        rows = x.shape[0]

        def of(function: Callable[..., Any]) -> Callable[[Array], Any]:
            return lambda theta: function(cut(theta, model.widths))

        def shape(what: str, function: Callable[..., Any], *arguments: Any) -> tuple[int, ...]:
            return tuple(self.called(what, lambda: jax.eval_shape(function, *arguments)).shape)

        def expect(what: str, got: tuple[int, ...], expected: tuple[int, ...]) -> None:
            if got != expected:
                self.refuse(f"{what} must return shape {expected} for 2 particles and {rows} rows, got {got}")

        what = "init(key, n)"
        expect(what, shape(what, lambda: model.init(key, 2)), (2, model.dim))
        what = "log_prior(blocks)"
        expect(what, shape(what, of(model.log_prior), two), (2,))
        what = "log_likelihood(blocks, x, y, weights)"
        expect(what, shape(what, of(lambda b: model.log_likelihood(b, x, y, self.ones)), two), (2,))
        what = "predict(blocks, x)"
        outputs = shape(what, of(lambda b: model.predict(b, x)), two)
        columns = (model.classes or outputs[-1]) if model.task == "classification" else 4
        expect(what, outputs, (rows, columns))
        if (density := model.log_density) is not None:
            what = "log_density(blocks, x, y)"
            expect(what, shape(what, of(lambda b: density(b, x, y)), two), (rows, 2))
        if (sample := model.sample) is not None:
            what = "sample(key, blocks, x)"
            expect(what, shape(what, of(lambda b: sample(key, b, x)), two), (rows, 2))
        given = (x, self.ones, key, 0, y)
        if model.diagonal_curvature is not None:
            what = "diagonal_curvature(blocks, x, weights, key, samples)"
            expect(what, shape(what, of(lambda b: join(diagonal_fisher(model, b, *given))), two), (2, model.dim))
        if model.full_curvature is not None:
            what = "full_curvature(blocks, x, weights)"
            expect(what, shape(what, of(lambda b: full_fisher(model, b, *given)), two), (model.dim, model.dim))

    def finite(self, what: str, found: np.ndarray) -> None:
        if not np.isfinite(found).all():
            self.refuse(f"{what} is not finite at the start (got {found.ravel()[~np.isfinite(found.ravel())][0]})")

    def check_score(self, what: str, values: np.ndarray, scores: np.ndarray, directions: np.ndarray) -> None:
        """The gradient by autodiff against central differences, in a random direction."""
        self.finite(what, values[:1])
        self.finite(f"the gradient of {what}", scores[:1])
        slope, norm = float(scores[0] @ directions[0]), float(np.linalg.norm(scores[0]))
        found = differences(values, 0)
        if not any(abs(f - slope) <= TOLERANCE * (abs(slope) + 0.1 * norm) + 1e-6 for f in found):
            self.refuse(
                f"the gradient of {what} by automatic differentiation does not match its finite differences "
                f"({slope:.4g} against {found[0]:.4g} in a random direction); does it stop gradients or round theta?"
            )

    def check_dependence(self, found: _Numbers) -> None:
        """A likelihood without a gradient anywhere near the start would leave the prior as the posterior."""
        if np.any(self.x) and not np.any(found.likelihood_score):
            self.refuse(
                f"the gradient of log_likelihood is zero at the start and at {len(found.likelihood_score) - 1} points "
                "around it, so the rows would say nothing about theta; does it use theta, or round it?"
            )

    def check_labels(self, found: _Numbers) -> None:
        """The likelihood must be defined at every label that the curvature asks for."""
        wrong = ~np.isfinite(found.at_labels)
        if wrong.any():
            self.refuse(
                f"its curvature asks for the log-likelihood at y = {found.labels[wrong][0]:.4g}, where that is not "
                f"finite; the likelihood is taken for {self.model.family!r}. One with another support needs "
                "likelihood='other', and possibly a sampler of its own (sample=...)"
            )

    def check_curvature(self, found: _Numbers, directions: np.ndarray) -> None:
        for what, curvature in (("diagonal curvature", found.diagonal), ("full curvature", found.full)):
            if curvature is not None:
                self.finite(f"the {what}", curvature)
        for index, direction in enumerate(directions):
            changes = differences(found.expected_score, index) @ direction
            if index >= RANDOM and found.diagonal is not None:
                self.compare(float(found.diagonal[0] @ direction), found, direction, -changes)
            if found.full is not None:
                self.compare(float(direction @ found.full @ direction), found, direction, -changes)

    def compare(self, got: float, found: _Numbers, direction: np.ndarray, expected: np.ndarray) -> None:
        """The curvature in one direction against the labels' mean score and its finite differences."""
        mean, spread = float(found.expected_score[0] @ direction), abs(got) ** 0.5
        allowed = TOLERANCE * spread + 1e-6 if self.exact else 6 * spread / DRAWS**0.5 + 1e-3
        agreed = any(self.agree(got, change) for change in expected)
        if not agreed and abs(got) <= 1e-9:
            self.refuse(
                f"its curvature is zero where the score varies (finite differences give {expected[0]:.4g}); the "
                "likelihood was probably asked at y that it cannot produce"
            )
        if not self.observed and abs(mean) > allowed:
            source = "predict" if self.exact else "sample"
            self.refuse(
                f"the score does not average to zero over the labels that {source} gives ({mean:.3g} in one direction, "
                f"its standard deviation is {spread:.3g}): {source} and log_likelihood are of different distributions"
            )
        if not agreed:
            self.refuse(
                f"its curvature does not match finite differences of the score ({got:.4g} against {expected[0]:.4g} in "
                "one direction); check the declared likelihood, the variance that predict gives, and closed forms"
            )

    def agree(self, got: float, expected: float) -> bool:
        """Equal for exact expectations; no less for a clipped Hessian; of one order for draws."""
        if self.observed:
            return got >= 0 and got >= expected - TOLERANCE * abs(expected) - 1e-6
        if self.exact:
            return abs(got - expected) <= TOLERANCE * max(got, abs(expected)) + 1e-6
        return max(got, expected) <= DRAWN * max(min(got, expected), 0) + 1e-2


def _unit(places: list[int], dim: int) -> np.ndarray:
    """Unit vectors, one a row."""
    found = np.zeros((len(places), dim))
    found[np.arange(len(places)), places] = 1
    return found


def differences(values: np.ndarray, index: int) -> np.ndarray:
    """Central differences along direction ``index``, one for each step size."""
    first = 1 + 2 * len(STEPS) * index
    pairs = values[first : first + 2 * len(STEPS)].reshape(len(STEPS), 2, *values.shape[1:])
    return (pairs[:, 0] - pairs[:, 1]) / (2 * np.asarray(STEPS).reshape(-1, *(1,) * (values.ndim - 1)))
