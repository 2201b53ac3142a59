"""Reading a trace of a NumPyro function: latent variables, prior, and the distribution of the observed rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, NoReturn

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError


class Likelihood(NamedTuple):
    """The kind of the observed variable."""

    family: str  # as ``Model.likelihood``
    classes: int = 0  # 0: regression
    counts: bool = False
    one_parameter: bool = False  # whether the mean is all there is to know of an exponential family


class Latent(NamedTuple):
    """A latent variable: where its unconstrained values stand in theta."""

    name: str
    first: int
    shape: tuple[int, ...]  # the shape of the unconstrained value
    label: str  # how its entries are called: "beta", "log(tau)"


class NumpyroTrace:
    """One NumPyro function, traced at example rows and checked."""

    def __init__(
        self,
        name: str,
        model: Callable[..., Any],
        arguments: dict[str, Any],
        x: np.ndarray,
        y: np.ndarray,
        local: str | None = None,
    ) -> None:
        self.name, self.model, self.arguments, self.local = name, model, arguments, local
        self.x, self.y = jnp.asarray(x), jnp.asarray(y)
        sites = self._called(lambda: self._seeded(jax.random.key(0), self.x, self.y))
        fewer = self._called(lambda: self._seeded(jax.random.key(0), self.x[:-1], self.y[:-1]))
        self.observed_name = self._find_observed(sites)
        self._refuse_unsupported(sites, fewer)
        self.latents, self.dim = self._find_latents(sites)
        self.deterministics = tuple(
            site["name"]
            for site in sites.values()
            if site["type"] == "deterministic" and jnp.shape(site["value"]) == jnp.shape(fewer[site["name"]]["value"])
        )
        if local is not None:
            self._check_local(sites)
        self.likelihood = self._kind(sites[self.observed_name]["fn"])
        self.y = self._targets(sites[self.observed_name]["fn"].support, y)
        self._check_rows()

    @property
    def names(self) -> tuple[str, ...]:
        """The name of every entry of theta."""
        return tuple(
            f"{latent.label}[{','.join(map(str, place))}]" if place else latent.label
            for latent in self.latents
            for place in np.ndindex(*latent.shape)
        )

    def observed(self, theta: Array, x: Array, y: Array, local: Array | None = None) -> Any:
        """The distribution of the observed variable, given theta and, if there is one, the client's own variable."""
        return self._at(theta, x, y, local)[0][self.observed_name]["fn"]

    def joint(self, theta: Array, local: Array, x: Array, y: Array) -> tuple[Any, Array]:
        """The distribution of the observed variable, and the log-density of the client's own one, unconstrained."""
        from numpyro.distributions import biject_to

        sites, _ = self._at(theta, x, y, local)
        own = sites[str(self.local)]
        volume = biject_to(own["fn"].support).log_abs_det_jacobian(local, own["value"])
        return sites[self.observed_name]["fn"], own["fn"].log_prob(own["value"]) + volume

    def local_value(self, theta: Array, local: Array, x: Array, y: Array) -> Array:
        """The client's own variable, from its unconstrained value."""
        return self._at(theta, x, y, local)[0][str(self.local)]["value"]

    def local_prior(self, theta: Array, x: Array, y: Array) -> Any:
        """The prior of the client's own variable, given theta."""
        return self._at(theta, x, y)[0][str(self.local)]["fn"]

    @staticmethod
    def unconstrained(fn: Any, value: Callable[[Any], Any]) -> Array:
        """The unconstrained value of what ``value`` gives of a distribution."""
        from numpyro.distributions import biject_to

        return biject_to(fn.support).inv(value(fn))

    def log_prior(self, theta: Array) -> Array:
        """The log-density of theta, Jacobians of the transforms included."""
        x, y = self.x.astype(theta.dtype), self.y
        return self._prior_of(*self._at(theta, x[:2], y[:2]))

    def draw_prior(self, key: Array) -> Array:
        """Unconstrained values of one draw of the prior."""
        from numpyro.distributions import biject_to

        sites = self._seeded(key, self.x, self.y)
        parts = [
            biject_to(sites[latent.name]["fn"].support).inv(sites[latent.name]["value"]) for latent in self.latents
        ]
        return jnp.concatenate([jnp.ravel(part) for part in parts])

    def constrain(self, theta: Any) -> dict[str, np.ndarray]:
        """Values of the latent and deterministic variables.

        Args:
            theta: N x d particles or draws.

        Returns:
            An array for each variable, with N on the first axis.
        """
        names = (*(latent.name for latent in self.latents), *self.deterministics)

        def one(theta: Array) -> dict[str, Array]:
            sites = self._at(theta, self.x.astype(theta.dtype)[:2], self.y[:2])[0]
            return {name: jnp.asarray(sites[name]["value"]) for name in names}

        points = jnp.asarray(theta, jnp.result_type(float))
        if points.ndim != 2 or points.shape[1] != self.dim:
            raise InputError(
                f"model {self.name!r}: constrain expects draws x {self.dim} parameters, got shape {points.shape}"
            )
        found = jax.jit(jax.vmap(one))(points)  # with its names in another order
        return {name: np.asarray(found[name]) for name in names}

    def _seeded(self, key: Array, x: Array, y: Array) -> dict[str, Any]:
        from numpyro import handlers

        return dict(handlers.trace(handlers.seed(self.model, key)).get_trace(x, y, **self.arguments))

    def _at(self, theta: Array, x: Array, y: Array, local: Array | None = None) -> tuple[dict[str, Any], Array]:
        """The trace with the latent variables at theta, and the sum of the log-determinants of the transforms.

        A variable of the client's own has the unconstrained value ``local``; without one it is some draw.
        """
        from numpyro import handlers
        from numpyro.distributions import biject_to

        by_name = {latent.name: latent for latent in self.latents}
        volume: list[Array] = []

        def value(site: dict[str, Any]) -> Array | None:
            latent = by_name.get(site["name"])
            if site["name"] == self.local and local is not None:
                return biject_to(site["fn"].support)(local)
            if latent is None or site["type"] != "sample":
                return None
            size = math.prod(latent.shape)
            z = theta[latent.first : latent.first + size].reshape(latent.shape)
            transform = biject_to(site["fn"].support)
            found = transform(z)
            volume.append(jnp.sum(transform.log_abs_det_jacobian(z, found)))
            return found

        fixed = handlers.substitute(handlers.seed(self.model, jax.random.key(0)), substitute_fn=value)
        sites = dict(handlers.trace(fixed).get_trace(x, y, **self.arguments))
        return sites, sum(volume, jnp.zeros((), theta.dtype))

    def _prior_of(self, sites: dict[str, Any], volume: Array) -> Array:
        total = volume
        for latent in self.latents:
            site = sites[latent.name]
            scale = 1.0 if site["scale"] is None else site["scale"]
            total = total + scale * jnp.sum(site["fn"].log_prob(site["value"]))
        return total

    def _refuse(self, sentence: str) -> NoReturn:
        raise InputError(f"model {self.name!r}: {sentence}")

    def _called(self, function: Callable[[], Any]) -> Any:
        try:
            return function()
        except InputError:
            raise
        except NotImplementedError:
            self._refuse("a latent variable has a prior that cannot be sampled; give it a proper prior")
        except Exception as error:
            lines = str(error).strip().splitlines()
            self._refuse(
                f"model(x, y) failed for x of shape {self.x.shape} and y of shape {self.y.shape}: "
                f"{type(error).__name__}: {lines[0] if lines else ''}"
            )

    def _find_observed(self, sites: dict[str, Any]) -> str:
        from numpyro.distributions import Unit

        found = [site for site in sites.values() if site["type"] == "sample" and site["is_observed"]]
        for site in found:
            if isinstance(base_of(site["fn"]), Unit):
                self._refuse(
                    f"numpyro.factor({site['name']!r}, ...) says neither whether it belongs to the prior nor to which "
                    "rows; write it as a distribution, or use models.custom"
                )
        if len(found) != 1:
            listed = ", ".join(site["name"] for site in found) or "none"
            self._refuse(f"expected one observed variable, numpyro.sample(..., obs=y), got {listed}")
        site, rows = found[0], len(self.y)
        shape = jax.eval_shape(site["fn"].log_prob, site["value"]).shape
        if shape != (rows,):
            self._refuse(
                f"the observed variable {site['name']!r} must have one log-probability for each row: shape ({rows},) "
                f"here, got {shape}; put it into a plate over the rows, numpyro.plate('rows', x.shape[0])"
            )
        if site["scale"] is not None and not np.all(np.asarray(site["scale"]) == 1):
            self._refuse(
                f"the observed variable {site['name']!r} is scaled (handlers.scale or a plate with subsampling); leave "
                "that out: Fedstein draws its own minibatches, and algorithm.temperature tempers the likelihood"
            )
        return str(site["name"])

    def _refuse_unsupported(self, sites: dict[str, Any], fewer: dict[str, Any]) -> None:
        for site in sites.values():
            kind, name = site["type"], site["name"]
            if kind == "plate" and site["args"][1] not in (None, site["args"][0]):
                self._refuse(f"plate {name!r} subsamples its rows; leave that out: Fedstein draws its own minibatches")
            if kind not in ("sample", "plate", "deterministic"):
                self._refuse(f"{name!r} is a numpyro.{kind}, which has no prior; give it one with numpyro.sample")
            if kind != "sample" or site["is_observed"]:
                continue
            if site["fn"].support.is_discrete:
                self._refuse(f"the latent variable {name!r} is discrete, which has no score; sum it out of the model")
            if name not in fewer or jnp.shape(site["value"]) != jnp.shape(fewer[name]["value"]):
                self._refuse(
                    f"the latent variable {name!r} has an entry for each row (shape {jnp.shape(site['value'])} for "
                    f"{len(self.y)} rows). Parameters are the same for all clients: integrate it out, give it a "
                    "plate of fixed size (groups) and the group of a row as a column of x, or, where every client is a "
                    f"group, sample it once outside the plate of the rows and pass local={name!r}"
                )

    def _find_latents(self, sites: dict[str, Any]) -> tuple[list[Latent], int]:
        from numpyro.distributions import biject_to
        from numpyro.distributions.transforms import ExpTransform, IdentityTransform, SigmoidTransform

        found, first = [], 0
        for site in sites.values():
            if site["type"] != "sample" or site["is_observed"] or site["name"] == self.local:
                continue
            transform, name = biject_to(site["fn"].support), site["name"]
            shape = tuple(jnp.shape(transform.inv(site["value"])))
            parts = getattr(transform, "parts", [transform])
            kinds = {type(getattr(part, "base_transform", part)) for part in parts}
            labels = {IdentityTransform: name, ExpTransform: f"log({name})", SigmoidTransform: f"logit({name})"}
            label = labels.get(kinds.pop(), f"unconstrained({name})") if len(kinds) == 1 else f"unconstrained({name})"
            found.append(Latent(name, first, shape, label))
            first += math.prod(shape)
        if not found:
            self._refuse("it has no latent variables, so there is nothing to learn")
        return found, first

    def _kind(self, given: Any) -> Likelihood:
        from numpyro import distributions as dist
        from numpyro.distributions import constraints

        fn, support = base_of(given), given.support
        if isinstance(fn, dist.CategoricalProbs | dist.CategoricalLogits):
            return Likelihood("categorical", int(fn.enumerate_support(expand=False).shape[0]))
        if support is constraints.boolean:
            return Likelihood("categorical", 2)
        if type(fn) is dist.Normal:
            return Likelihood("gaussian")
        single = isinstance(fn, dist.Poisson | dist.Exponential | dist.BinomialProbs | dist.BinomialLogits)
        single = single or isinstance(fn, dist.GeometricProbs | dist.GeometricLogits)
        return Likelihood("other", counts=bool(support.is_discrete), one_parameter=single)

    def _targets(self, support: Any, y: np.ndarray) -> Array:
        """The targets of the example as the observed variable takes them."""
        wrong = np.flatnonzero(~np.broadcast_to(np.asarray(support(self.y)), np.shape(y)))
        if len(wrong):
            labels = f" (labels 0 to {self.likelihood.classes - 1})" if self.likelihood.classes else ""
            self._refuse(
                f"y = {y[wrong[0]]:g} is not in the support of the observed variable {self.observed_name!r}{labels}"
            )
        return jnp.asarray(np.asarray(y), jnp.int32 if self.likelihood.classes else jnp.result_type(float))

    def _check_local(self, sites: dict[str, Any]) -> None:
        """The client's own variable is one number, and nothing that is shared depends on it."""
        site = sites.get(str(self.local))
        if site is None or site["type"] != "sample" or site["is_observed"]:
            known = ", ".join(latent.name for latent in self.latents)
            self._refuse(f"local={self.local!r} is not a latent variable of the model; expected one of {known}")
        shape = jnp.shape(site["value"])
        if shape:
            self._refuse(
                f"local={self.local!r} must be one number for each client, sampled once outside all plates, got "
                f"shape {shape}; the function is that of one client and needs no plate of clients. Where a client has "
                "several groups, make each of them a client, or leave local out: the effects are then parameters of all"
            )
        theta = 0.1 * jax.random.normal(jax.random.key(1), (self.dim,))

        def at(z: float) -> tuple[dict[str, Any], Array]:
            return self._at(theta, self.x.astype(theta.dtype), self.y, jnp.asarray(z, theta.dtype))

        first, second = self._called(lambda: (at(-0.3), at(0.7)))
        if not np.allclose(self._prior_of(*first), self._prior_of(*second), rtol=1e-5, atol=1e-5):
            self._refuse(
                f"a shared variable has a prior that depends on local={self.local!r}; only what a client observes may"
            )
        self.deterministics = tuple(
            name
            for name in self.deterministics
            if np.array_equal(first[0][name]["value"], second[0][name]["value"], equal_nan=True)
        )

    def _check_rows(self) -> None:
        """Rows are independent given theta, and the prior does not depend on them."""
        theta = 0.1 * jax.random.normal(jax.random.key(1), (self.dim,))

        own = None if self.local is None else jnp.zeros((), theta.dtype)

        def both(x: Array, y: Array) -> tuple[Array, Array, Array]:
            sites, volume = self._at(theta, x, y, own)
            fn = sites[self.observed_name]["fn"]
            moments = jnp.zeros(2) if self.likelihood.classes else jnp.stack([jnp.mean(fn.mean), jnp.mean(fn.variance)])
            return fn.log_prob(y), self._prior_of(sites, volume), moments

        together, prior, moments = self._called(lambda: jax.jit(both)(self.x, self.y))
        others = [self._called(partial(jax.jit(both), self.x[i : i + 2], self.y[i : i + 2])) for i in (0, 2)]
        for first, (alone, its_prior, _) in zip((0, 2), others, strict=True):
            if not np.allclose(together[first : first + 2], alone, rtol=1e-3, atol=1e-3, equal_nan=True):
                self._refuse(
                    "the log-probability of a row changes with the other rows, so clients cannot compute theirs alone; "
                    "scale or centre x and y before they are passed, not inside the model"
                )
            if not np.allclose(prior, its_prior, rtol=1e-3, atol=1e-3, equal_nan=True):
                self._refuse("the prior changes with the rows; it must be the same for all clients")
        if not np.isfinite(moments).all():
            self._refuse(
                f"the observed variable {self.observed_name!r} has no finite mean and variance (got {moments[0]:g} and "
                f"{moments[1]:g}), which predictions need; use a likelihood that has them"
            )


def base_of(fn: Any) -> Any:
    """The distribution below masks, expansions and independent dimensions."""
    while hasattr(fn, "base_dist") and type(fn).__name__ in (
        "ExpandedDistribution",
        "MaskedDistribution",
        "Independent",
    ):
        fn = fn.base_dist
    return fn
