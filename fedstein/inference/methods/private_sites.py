"""DSVGD in a private run: clients release noisy sums, and the server moves the particles.

A particle that comes back from a client after L steps is a function of its rows. In a private run clients therefore
train nothing. The server sends a point, the posterior mean; a client releases the gradient of its log-likelihood there,
clipped and with noise, and at its first visit its second moments. From prior and noisy releases the server computes
everything else, which costs no privacy: the posterior with the noise in it (``fedstein.inference.noisy_sites``), and
SVGD on the Gaussian with its mean and covariance. (The posterior itself has a funnel where the noise leaves weights to
a hierarchical prior, and few particles do not find their way in it; draws are from the posterior itself.) This is
``algorithm.kind = "dsvgd"`` with ``privacy.kind = "record"`` or ``"client"``. With ``privacy.sums = "secure"`` the
server has sums over clients alone, one for each round, and clients have no state (``noisy_sums``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.inference.methods.base import Accepted, Conclusion, Method, OnBlock, Protection, SvgdSettings, Training
from fedstein.inference.methods.dsvgd import particles_of
from fedstein.inference.natural import GaussianSite, packed
from fedstein.inference.noisy_linear import add_releases, linear_posterior
from fedstein.inference.noisy_sites import RELEASED, SETTLED, Scales, noisy_posterior, posterior_of
from fedstein.inference.noisy_sums import add_linear, add_round, no_rounds, observe_sums
from fedstein.inference.noisy_target import NoisyTarget
from fedstein.inference.sites.base import NO_SUMS, Arrays, Cavity, Own, Site, State
from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.inference.sites.settle import STEPS, Settled, settle
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Blocks, Model, cut, join
from fedstein.privacy.accounting import plan_of
from fedstein.privacy.mechanism import GRADIENT, MOMENTS, clipped_client, clipped_sums, family_of, sensitivities
from fedstein.privacy.settings import PrivacySettings
from fedstein.stein import KERNELS


def ignore_progress(steps: int, to_go: float) -> None:
    """Ignore the progress of settling."""


def gaussian_cavity(model: Model, received: Arrays, before: Blocks, state: State) -> Cavity:
    """The Gaussian of eta and precision and nothing else: what particles settle on holds the prior already."""
    eta, precision = received["eta"], received["precision"]
    return Cavity(lambda theta: cut(eta[None, :] - join(theta) @ precision, model.widths))


def private_sites(model: Model, site: Site, settings: SvgdSettings, privacy: PrivacySettings) -> Method:
    """Build the method.

    Args:
        model: A model that ``privacy.mechanism.family_of`` knows.
        site: Full curvature sites.
        settings: The settings of ``[algorithm]``.
        privacy: The settings of ``[privacy]``.

    Returns:
        The method. Its server state is the particles, eta and precision with the noise in them, and the point.

    Raises:
        InputError: The model or the sites cannot be private.
    """
    family = family_of(model, privacy)
    if not site.full:
        raise InputError("a private run needs sites.kind = 'curvature' and sites.structure = 'full'; set them")
    if settings.temperature != 1:
        raise InputError(
            f"privacy.kind = {privacy.kind!r} needs algorithm.temperature = 1, got {settings.temperature}; leave it out"
        )
    width = model.widths[0]
    inputs, visits = width // family.predictors, privacy.visits
    bound, plan = privacy.bound(inputs), plan_of(privacy)
    whole_client = privacy.kind == "client"
    changes = sensitivities(family, bound, privacy.client_rows if whole_client else None)
    scales = Scales(plan.gradient * changes[GRADIENT], plan.moments * changes[MOMENTS])
    alone = site._replace(cavity=partial(gaussian_cavity, model))
    packed_length, secure = inputs * (inputs + 1) // 2, privacy.sums == "secure"

    def total(accepted: Mapping[int, Own], start: np.ndarray | None = None) -> Arrays:
        if family.extra:
            added = add_releases(accepted, inputs, family.squares * bound, *scales) if accepted else None
            return as_state(*linear_posterior(model, added))
        first = np.zeros(model.dim) if start is None else start
        return as_state(*noisy_posterior(model, family, accepted, scales, first))

    def total_of_rounds(server: Arrays) -> Arrays:
        if family.extra:
            return as_state(*linear_posterior(model, add_linear(server, inputs, family.squares * bound, scales)))
        first = np.asarray(server["point"], np.float64)
        return as_state(*posterior_of(model, family, observe_sums(server, inputs, scales), first))

    def as_state(sums: GaussianSite, found: SiteGaussian, to_go: float = 0.0) -> Arrays:
        return {
            "eta": sums.eta,
            "precision": sums.precision,
            "point": found.mean,
            "covariance": found.covariance,
            "to_go": np.float64(to_go),
        }

    def gaussian_of(server: Arrays) -> SiteGaussian:
        covariance = np.asarray(server["covariance"], np.float64)
        return SiteGaussian(np.asarray(server["point"], np.float64), np.linalg.inv(covariance))

    noisy = site._replace(
        init=lambda start: client_state({"particles": start}),
        shared=() if secure else RELEASED,
        sums=NO_SUMS._replace(first=lambda particles: total({}), total=(lambda accepted: {}) if secure else total),
        row_gradients=lambda rows: 0,
    )
    spec = TargetSpec(model, noisy, 1.0, KERNELS[settings.kernel])

    def init(key: Array) -> Arrays:
        half = jax.random.normal(key, (-(-settings.particles // 2), model.dim))
        draws = jnp.concatenate([half, -half])[: settings.particles]  # pairs, so that their mean is the posterior's
        unit = SiteGaussian(np.zeros(model.dim), np.eye(model.dim))
        standard = np.asarray(on_gaussian(draws, unit, STEPS, ignore_progress).particles)
        rounds = no_rounds(visits, width + family.extra, width, packed_length) if secure else {}
        return placed({"standard": standard, **total({}), **rounds})

    def placed(server: Arrays) -> Arrays:
        """The particles of SVGD on the posterior's Gaussian; in its coordinates they are always the same."""
        found = gaussian_of(server)
        root = np.linalg.cholesky(found.precision)
        particles = found.mean + np.linalg.solve(root.T, server["standard"].T.astype(np.float64)).T
        return {**server, "particles": jnp.asarray(particles, server["standard"].dtype)}

    def client_state(server: Arrays) -> State:
        if secure:
            return {}
        dtype = server["particles"].dtype
        empty = {"gradients": (visits, width + family.extra), "points": (visits, width), "moments": (packed_length,)}
        return {**{name: jnp.zeros(shape, dtype) for name, shape in empty.items()}, "visits": jnp.int32(0)}

    def assign(server: Arrays, accepted: Own | None) -> Arrays:
        return {"point": jnp.asarray(server["point"][:width], server["particles"].dtype)}

    def sums(received: Arrays, state: Own, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        exact = clipped_sums(family, np.asarray(received["point"], np.float64), x, y, bound)
        if whole_client:
            exact = clipped_client(exact, changes)
        return exact if secure or int(state["visits"]) == 0 else {GRADIENT: exact[GRADIENT]}

    def finish(released: Mapping[str, np.ndarray], received: Arrays, state: Own) -> Arrays:
        number = int(state["visits"])
        after: dict[str, Any] = {name: np.array(state[name]) for name in RELEASED}
        after["gradients"][number] = released[GRADIENT]
        after["points"][number] = received["point"]
        if number == 0:
            after["moments"][:] = packed(released[MOMENTS])
        after["visits"] = np.int32(number + 1)
        return {name: jnp.asarray(array) for name, array in after.items()}

    def train(given: Training) -> tuple[Arrays, State]:
        raise AssertionError("in a private run clients train nothing: they release protected sums")

    def on_gaussian(particles: Any, found: SiteGaussian, steps: int, on_block: OnBlock) -> Settled:
        sums = {"eta": found.precision @ found.mean, "precision": found.precision}
        received = {"particles": particles, **sums}
        return settle(model, alone, received, found, kernel=spec.kernel, steps=steps, on_block=on_block)

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        return placed({**server, **total({**accepted, **updates}, np.asarray(server["point"], np.float64))})

    def apply_sum(
        server: Arrays, number: int, received: Arrays, sums: Mapping[str, Any], clients: Sequence[int], factor: float
    ) -> Arrays:
        kept = {**server, **add_round(server, number, np.asarray(received["point"]), sums, clients, factor)}
        return placed({**kept, **total_of_rounds(kept)})

    def conclude(server: Arrays, on_block: OnBlock | None = None) -> Conclusion:
        server = placed(server)
        settled = on_gaussian(server["particles"], gaussian_of(server), STEPS, on_block or ignore_progress)
        after = {**server, "particles": jnp.asarray(settled.particles)}
        found = GaussianSite(*(np.asarray(server[name], np.float64) for name in GaussianSite._fields))
        return Conclusion(after, gaussian_of(server), None, settled, found, doubt_of(float(server["to_go"])))

    return Method(
        name="dsvgd",
        spec=spec,
        init=init,
        client_state=client_state,
        broadcast=lambda server, uses: {"particles": server["particles"]},
        assign=assign,
        train=train,
        apply=apply,
        posterior=particles_of,
        shared=() if secure else RELEASED,
        sequential=False,
        row_gradients=lambda rows: {"train": max(rows, 0), "site": 0},
        conclude=conclude,
        protection=Protection(
            sums,
            finish,
            changes,
            None if family.extra or secure else partial(NoisyTarget, spec, family, scales),
            apply_sum if secure else None,
        ),
    )


def doubt_of(to_go: float) -> str | None:
    """Say that the search for the posterior's mean did not settle.

    Args:
        to_go: How far the search was from settling, in posterior sds.

    Returns:
        A sentence; None if it settled.
    """
    if to_go < SETTLED:
        return None
    return (
        f"the search for the mean of the private posterior did not settle ({to_go:.2g} posterior standard deviations "
        "remained), so the mean under which the releases are most likely was taken; a larger privacy.epsilon, more "
        "rows or fewer features help"
    )
