"""The type of a model: a prior and a likelihood, batched over particles. A model has no notion of clients.

Particles are N x d. A model computes with *blocks*: the tuple of arrays, each with N rows, into which ``split`` divides
theta, for instance one block for each weight matrix. Each matrix product then reads contiguous memory. If a model gives
a log-prior and a log-likelihood, one reverse pass over all particles gives the scores. Particles do not interact in
these functions, so the gradient of the sum over particles holds the gradient of each particle.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.settings import Settings

Blocks = tuple[Array, ...]


class Glm(NamedTuple):
    """A likelihood whose rows see theta through linear predictors f_p = w_p . x, one or several a row, and little else.

    Expectations over a Gaussian q of theta are then integrals over the few numbers (f, extra) of a row
    (``fedstein.inference.variational``), because a linear map of a Gaussian is Gaussian.

    Attributes:
        log_density: ``log_density(f, y, extra)`` for one row: f has an entry for each predictor, y is the row's target,
            and ``extra`` the block of the parameters that the row sees directly (empty without one). Returns a scalar
            that JAX can differentiate twice. It is asked at observed y alone.
        block: The index of the block of coefficients, predictors x inputs in row-major order.
        predictors: The number of predictors of a row.
        extra: The index of the block of further parameters (a log noise precision, say), or None.
        concave: Whether ``log_density`` is concave in (f, extra), so that minus its Hessian is never indefinite.
    """

    log_density: Callable[[Array, Array, Array], Array]
    block: int = 0
    predictors: int = 1
    extra: int | None = None
    concave: bool = True


class GaussianGiven(NamedTuple):
    """A prior under which one block is Gaussian with mean zero when the other blocks are known.

    Attributes:
        block: The index of that block.
        precision: All blocks -> N x 1 (the same for every entry) or N x width precisions. The values of the block
            itself must not matter.
    """

    block: int
    precision: Callable[[Blocks], Array]


def unchanged(x: np.ndarray) -> np.ndarray:
    """Return rows as they are."""
    return x


class Units(NamedTuple):
    """How parameters depend on the units of the rows (``fedstein.models.units``).

    Block 0 holds the coefficients of linear predictors, predictors x (features + 1), the intercept last.

    Attributes:
        predictors: The number of predictors of a row.
        powers: For each parameter after block 0, which is a logarithm: the power of the target's unit in its argument.
            A log noise precision has -2. Empty: all zero.
    """

    predictors: int = 1
    powers: tuple[int, ...] = ()


class Model(NamedTuple):
    """A prior p0 and a likelihood, as pure functions that close over their settings."""

    name: str
    task: str  # "classification" | "regression"
    widths: tuple[int, ...]  # the widths of the blocks; d is their sum
    init: Callable[[Array, int], Array]  # key, N -> N x d initial particles
    log_prior: Callable[[Blocks], Array]  # -> N
    log_likelihood: Callable[[Blocks, Array, Array, Array], Array]  # blocks, x, y, row weights -> N, summed over rows
    predict: Callable[
        [Blocks, Array], Array
    ]  # -> rows x classes log-probabilities, or rows x 2N (means, log-precisions)
    # offset, origin, x, y, row weights -> the log-likelihood at offset + origin, without materialising the sum
    log_likelihood_around: Callable[[Blocks, Blocks, Array, Array, Array], Array] | None = None
    prepare: Callable[[np.ndarray], np.ndarray] = unchanged  # rows of a dataset -> rows that the model takes
    kde_dim: int = 0  # the d in the normaliser of the reference density; 0: the length of theta
    prior_curvature: float | None = None  # the largest curvature of -log p0; None: unbounded
    linear_prior_score: float | None = None  # c, if the score of p0 is c * theta
    # Closed forms of the Gauss-Newton matrix, if there are any (see ``models.fisher``):
    # blocks, x, row weights, key, label samples (0: the expectation) -> its diagonal at every particle, as blocks
    diagonal_curvature: Callable[[Blocks, Array, Array, Array, int], Blocks] | None = None
    full_curvature: Callable[[Blocks, Array, Array], Array] | None = None  # ... -> its mean over particles, d x d
    glm: Glm | None = None  # the form of the likelihood, if it is that of a generalised linear model
    gaussian_given: GaussianGiven | None = None  # the form of the prior, if a block is Gaussian given the others
    input_block: int | None = None  # the block that multiplies the inputs, outputs x inputs, with an isotropic prior
    features: int = 0
    classes: int = 0
    # The family of p(y | x, theta), which decides how ``models.fisher`` takes expectations over y: "categorical" (over
    # all classes), "gaussian" (Gauss-Hermite nodes), "other" (``sample``, else the observed rows). Empty: "categorical"
    # for classification, "other" for regression.
    likelihood: str = ""
    sample: Callable[[Array, Blocks, Array], Array] | None = None  # key, blocks, x -> rows x N draws of y
    # blocks, x, y -> rows x N normalised log-densities, if the moments that ``predict`` gives do not determine them
    log_density: Callable[[Blocks, Array, Array], Array] | None = None
    target: str = "real"  # of a regression: "real" numbers, which may be standardised, or "count"s, which must not be
    # Whether the log-likelihood is that of a whole client and not a sum over rows. It must then be asked for all rows
    # of one client at once: never for pieces, a pool of clients or, without a bias, a minibatch.
    whole_shard: bool = False
    # blocks, x, y, row weights -> N means and N standard deviations of the client's own effect; they stay on the client
    client_effect: Callable[[Blocks, Array, Array, Array], tuple[Array, Array]] | None = None
    parameter_names: Callable[[tuple[str, ...]], tuple[str, ...]] | None = None  # names of features -> d names
    input_shape: tuple[int, ...] = ()  # of one row, if it is an image or a sequence; rows are stored flat
    # N x d -> the variables of the user's own model by name, each with N on the first axis, if theta is a transform
    constrain: Callable[[np.ndarray], dict[str, np.ndarray]] | None = None
    units: Units | None = None  # how to give parameters in the units of rows that were standardised
    # The widths of all layers of a dense ReLU network, inputs and outputs included, whose blocks are [W1, b1, W2, ...]
    # with each W as outputs x inputs, and then blocks that are no layer's. Empty for other models.
    layers: tuple[int, ...] = ()

    @property
    def dim(self) -> int:
        """The number d of parameters."""
        return sum(self.widths)

    @property
    def family(self) -> str:
        """``likelihood`` with its default filled in."""
        return self.likelihood or ("categorical" if self.task == "classification" else "other")

    def split(self, particles: Array) -> Blocks:
        """Divide N x d particles into blocks.

        Args:
            particles: N x d.

        Returns:
            The blocks, with the widths of the model.
        """
        return split(particles, self.widths)

    def prior_score(self, blocks: Blocks) -> Blocks:
        """Compute the prior score, grad log p0(theta), at every particle.

        Args:
            blocks: The particles.

        Returns:
            The scores, as blocks.
        """
        return jax.grad(lambda b: jnp.sum(self.log_prior(b)))(blocks)

    def likelihood_score(self, blocks: Blocks, x: Array, y: Array, weights: Array) -> Blocks:
        """Compute the likelihood score, grad sum_i weights_i log p(y_i | x_i, theta), at every particle.

        Args:
            blocks: The particles.
            x: Rows as ``prepare`` returns them.
            y: Labels or targets.
            weights: The weights of the rows.

        Returns:
            The scores, as blocks.
        """
        return jax.grad(lambda b: jnp.sum(self.log_likelihood(b, x, y, weights)))(blocks)

    def likelihood_score_around(self, offset: Blocks, origin: Blocks, x: Array, y: Array, weights: Array) -> Blocks:
        """Compute ``likelihood_score`` at offset + origin.

        Args:
            offset: The differences of the particles from the origin.
            origin: One point, the same for every particle.
            x: Rows as ``prepare`` returns them.
            y: Labels or targets.
            weights: The weights of the rows.

        Returns:
            The scores, as blocks.
        """
        around = self.log_likelihood_around
        if around is None:
            return self.likelihood_score(jax.tree.map(jnp.add, offset, origin), x, y, weights)
        return jax.grad(lambda b: jnp.sum(around(b, origin, x, y, weights)))(offset)


class ModelSettings(Settings):
    """The keys of ``[model]`` that every model has."""

    kind: str


class ModelTraits(NamedTuple):
    """The facts about a model that the table of defaults uses."""

    step_size: float = 0.01  # with the paper's sites, as in the authors' code
    epsilon: float = 1e-6  # the guard against division by zero in the optimiser
    settled_step: float = 0.01  # with curvature sites and in pooled SVGD, under the cosine schedule
    structure: str = "full"  # of curvature sites
    density: str = "log"  # the KDE density that serves the model better
    parallel_prior: str = "as_written"  # how Parallel DSVGD's server counts the prior; "divided" if that is proper
    target: str = "real"  # as ``Model.target``: "count"s are never standardised, and refused unless they are counts
    whole_shard: bool = False  # as ``Model.whole_shard``: every step uses all rows of a client
    # features, classes -> about how many parameters, for models whose full curvature may be too large; None: never
    parameters: Callable[[int, int], int] | None = None
    # the parameters given which the prior of all others is Gaussian, or all parameters if it never is; a grid or NUTS
    # moves them (``inference.collapse.parts_of``). None: not known
    moved: int | None = None


class ModelKind(NamedTuple):
    """A model that a config can name.

    Attributes:
        name: The value of ``model.kind``.
        about: One line that says what the model is.
        task: ``"classification"`` or ``"regression"``.
        settings: The settings class, a subclass of ``ModelSettings``.
        build: Makes the model from the number of features, the number of classes (0 for regression) and the settings.
        traits: The facts that the table of defaults uses.
        classes: The number of classes that the model needs; None if any number will do.
    """

    name: str
    about: str
    task: str
    settings: type[ModelSettings]
    build: Callable[[int, int, Any], Model]
    traits: ModelTraits = ModelTraits()
    classes: int | None = None


def split(particles: Array, widths: tuple[int, ...]) -> Blocks:
    """Divide N x d particles into contiguous blocks.

    Args:
        particles: N x d.
        widths: The widths of the blocks.

    Returns:
        The blocks, N x width each.
    """
    # Without the barrier, XLA would slice the particles again inside every product.
    return jax.lax.optimization_barrier(cut(particles, widths))


def cut(particles: Array, widths: tuple[int, ...]) -> Blocks:
    """Divide particles into blocks that are read only once: like ``split``, but without copies."""
    edges = np.cumsum((0, *widths))
    return tuple(particles[:, a:b] for a, b in itertools.pairwise(edges))


def join(blocks: Blocks) -> Array:
    """Concatenate blocks to N x d.

    Args:
        blocks: N x width each.

    Returns:
        N x d.
    """
    return jnp.concatenate(blocks, axis=1)


def gamma_log_density(log_value: Array, shape: float, rate: float) -> Array:
    """Compute the log-density of log(g), up to a constant, where g ~ Gamma(shape, rate).

    The Jacobian is included: shape * log g - rate * g.
    """
    return shape * log_value - rate * jnp.exp(log_value)


def check_start(start: str, starts: tuple[str, ...]) -> None:
    """Check the name of a distribution of initial particles.

    Raises:
        ValueError: If the name is not one of ``starts``.
    """
    if start not in starts:
        raise ValueError(f"start must be one of {', '.join(starts)}, got {start!r}")


def gamma_draws(key: Array, shape: float, n: int) -> Array:
    """Draw N x 1 values from Gamma(shape, 1). Shape 1 uses the exponential distribution, which compiles much faster."""
    return jax.random.exponential(key, (n, 1)) if shape == 1 else jax.random.gamma(key, shape, (n, 1))


def log_mean_exp(log_values: Array, axis: int = 0) -> Array:
    """Compute log(mean(exp(log_values))) over an axis: the mean of probabilities, in log space."""
    return jax.nn.logsumexp(log_values, axis=axis) - jnp.log(log_values.shape[axis])
