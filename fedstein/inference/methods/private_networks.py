"""Networks in a private run: clients release clipped gradients at one point, and the server moves the point.

**One point.** A release for N particles has N d numbers. If the rows' gradients are clipped jointly over particles,
each particle gets noise of N times the variance. Clients are therefore asked at one point in every round, which gets
all of the budget. The posterior's particles are points of the path that this point takes: they differ by the noise of
the releases between them, which costs no privacy.

**Sites.** Client k's site is diagonal, with one curvature for each block of theta (a weight matrix, say). The client
releases the sum g_k of its rows' clipped gradients at every visit, with noise of standard deviation s, and once the
sums t_kb of their squared norms in block b (``fedstein.privacy.row_gradients``). At each visit its site becomes

    m_k <- beta m_k + (1 - beta) g_k,     v_k <- beta^2 v_k + (1 - beta)^2,     Lambda_kb = t_kb / (width of b),

so that s^2 v_k is the known variance of the noise in m_k. A diagonal for each weight would drown in noise; a number for
each block does not.

**The server's step.** With m, v and Lambda summed over clients, block b of the sites' gradient counts with the share

    w_b = max(0, 1 - s^2 v (width of b) / |m_b|^2)

that is not explained by the noise (James and Stein 1961). The point takes a damped Newton step on prior times sites,

    theta <- theta + rho (w m + grad log p0) / (Lambda + prior curvature).

If the gradient is all noise, w is zero and the prior pulls the network to its mode, whose predictions are
uninformative.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedstein.errors import InputError
from fedstein.inference.methods.base import Accepted, Method, Protection, SvgdSettings, Training
from fedstein.inference.methods.dsvgd import initial_particles, particles_of
from fedstein.inference.sites.base import NO_SUMS, Arrays, Own, Site, State
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model, join
from fedstein.privacy.accounting import plan_of
from fedstein.privacy.mechanism import CURVATURE, GRADIENT
from fedstein.privacy.row_gradients import check_norms, clipped_gradients, default_clip, row_sensitivities
from fedstein.privacy.settings import PrivacySettings
from fedstein.stein import KERNELS

MEMORY = 0.9  # beta
DAMPING = 0.2  # rho
RELEASED = ("gradient", "variance", "curvature", "visits")


def private_networks(model: Model, site: Site, settings: SvgdSettings, privacy: PrivacySettings) -> Method:
    """Build the method.

    Args:
        model: A model whose log-likelihood is a sum over rows.
        site: Diagonal curvature sites.
        settings: The settings of ``[algorithm]``.
        privacy: The settings of ``[privacy]``.

    Returns:
        The method. Its server state is the point, its path and the particles.

    Raises:
        InputError: The model or the settings cannot be private.
    """
    if privacy.kind != "record" or privacy.sums != "plain":
        raise InputError(
            f"privacy.kind = {privacy.kind!r} with privacy.sums = {privacy.sums!r}: networks work with kind = 'record' "
            "and sums = 'plain'; set them"
        )
    if model.whole_shard:
        raise InputError(f"model {model.name!r} cannot be private: its log-likelihood is not a sum over rows")
    if settings.temperature != 1:
        raise InputError(
            f"privacy.kind = {privacy.kind!r} needs algorithm.temperature = 1, got {settings.temperature}; leave it out"
        )
    start = np.asarray(initial_particles(model, 1, jax.random.key(0)), np.float64)[0]
    check_norms(model, start)
    clip = privacy.clip if privacy.clip is not None else default_clip(model, start)
    changes, plan, count = row_sensitivities(clip), plan_of(privacy), settings.particles
    scales = {GRADIENT: plan.gradient * changes[GRADIENT], CURVATURE: plan.moments * changes[CURVATURE]}
    widths = np.asarray(model.widths)
    noisy = site._replace(
        init=lambda start: client_state({"particles": start}),
        shared=RELEASED,
        sums=NO_SUMS,
        row_gradients=lambda rows: 0,
    )
    spec = TargetSpec(model, noisy, 1.0, KERNELS[settings.kernel])

    def init(key: Array) -> Arrays:
        point = initial_particles(model, 1, key)
        path = jnp.zeros((privacy.visits + 1, model.dim), point.dtype).at[0].set(point[0])
        return {"point": point[0], "path": path, "moves": np.int32(0), "particles": jnp.repeat(point, count, axis=0)}

    def client_state(server: Arrays) -> State:
        dtype = server["particles"].dtype
        zeros = {"gradient": (model.dim,), "variance": (), "curvature": (len(widths),)}
        return {**{name: jnp.zeros(shape, dtype) for name, shape in zeros.items()}, "visits": jnp.int32(0)}

    def sums(received: Arrays, state: Own, x: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
        exact = clipped_gradients(model, np.asarray(received["point"], np.float64), x, y, clip)
        return exact if int(state["visits"]) == 0 else {GRADIENT: exact[GRADIENT]}

    def finish(released: Mapping[str, np.ndarray], received: Arrays, state: Own) -> Arrays:
        known = {name: np.asarray(state[name], np.float64) for name in RELEASED}
        after = {
            "gradient": MEMORY * known["gradient"] + (1 - MEMORY) * released[GRADIENT],
            "variance": MEMORY**2 * known["variance"] + (1 - MEMORY) ** 2,
            "curvature": released.get(CURVATURE, known["curvature"]),
        }
        dtype = np.asarray(state["gradient"]).dtype
        found: Arrays = {name: jnp.asarray(array, dtype) for name, array in after.items()}
        return {**found, "visits": jnp.int32(int(known["visits"]) + 1)}

    def train(given: Training) -> tuple[Arrays, State]:
        raise AssertionError("in a private run clients train nothing: they release protected sums")

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        sites = [site for _, site in sorted({**accepted, **updates}.items())]
        point = np.asarray(server["point"], np.float64)
        moved = point + newton_step(model, point, sites, scales, widths)
        number = int(server["moves"]) + 1
        path = np.array(server["path"])
        path[number] = moved
        chosen = np.rint(np.linspace(-(-number // 2), number, count)).astype(int)
        particles = jnp.asarray(path[chosen], server["particles"].dtype)
        return {**server, "point": jnp.asarray(path[number]), "path": path, "moves": np.int32(number),
                "particles": particles}  # fmt: skip

    return Method(
        name="dsvgd",
        spec=spec,
        init=init,
        client_state=client_state,
        broadcast=lambda server, uses: {"particles": server["particles"]},
        assign=lambda server, accepted: {"point": server["point"]},
        train=train,
        apply=apply,
        posterior=particles_of,
        shared=RELEASED,
        sequential=False,
        row_gradients=lambda rows: {"train": max(rows, 0), "site": 0},
        protection=Protection(sums, finish, changes),
    )


def newton_step(
    model: Model, point: np.ndarray, sites: list[Own], scales: Mapping[str, float], widths: np.ndarray
) -> np.ndarray:
    """The damped Newton step on prior times noisy sites; see the module.

    Args:
        model: The model.
        point: theta.
        sites: What clients have released, in the form of ``RELEASED``.
        scales: The standard deviations of the noise of a release.
        widths: The widths of the blocks.

    Returns:
        The step, d.
    """
    total = {name: np.sum([np.asarray(site[name], np.float64) for site in sites], axis=0) for name in RELEASED[:3]}
    edges = np.cumsum(widths)[:-1]
    energy = np.array([part @ part for part in np.split(total["gradient"], edges)])
    noise = scales[GRADIENT] ** 2 * total["variance"] * widths
    share = np.maximum(0.0, 1 - noise / np.maximum(energy, 1e-300))
    floor = scales[CURVATURE] * np.sqrt(len(sites))  # a standard deviation of the noise: less is not known
    curvature = np.repeat(np.maximum(total["curvature"], floor) / widths, widths)
    prior, prior_curvature = (np.asarray(array, np.float64)[0] for array in _prior(model, jnp.asarray(point)[None]))
    pull = np.repeat(share, widths) * total["gradient"] + prior
    return DAMPING * pull / (curvature + np.maximum(prior_curvature, 0.0))


@partial(jax.jit, static_argnums=0)
def _prior(model: Model, theta: Array) -> tuple[Array, Array]:
    """The score of p0, and the row sums of minus its Hessian: the diagonal if parameters are independent."""

    def score(at: Array) -> Array:
        return join(model.prior_score(model.split(at)))

    value, change = jax.jvp(score, (theta,), (jnp.ones_like(theta),))
    return value, -change
