"""Parallel DSVGD (Kassab and Simeone): every scheduled client works from the same global particles and uploads its
local ones; the server then runs SVGD on p0 * prod_k t_k.

The uploads stand for p0 * t_k (see ``sites.particles``), so the score of the server's target is

    score(p0) + sum over the clients that have uploaded of [ score(kde_k) - score(p0) ]     (prior = "divided").

``prior = "as_written"`` leaves the subtraction out, as the formula reads when a KDE is taken for t_k, and so counts the
prior once more for every client. Clients that never uploaded contribute nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import Array
from pydantic import Field

from fedstein.errors import InputError
from fedstein.inference.methods.base import Accepted, Method, MethodKind, SvgdSettings, Training
from fedstein.inference.methods.dsvgd import dsvgd
from fedstein.inference.methods.parallel_sites import parallel_sites
from fedstein.inference.sites.base import Arrays, Site, State
from fedstein.models.base import Blocks, Model, join
from fedstein.stein import KERNELS
from fedstein.stein.adagrad import AdaGrad
from fedstein.stein.kde import Mixture, offset_kde_score
from fedstein.stein.kernels import centred
from fedstein.stein.svgd import tilted_direction
from fedstein.stein.svgd_loop import svgd_loop


class ParallelSettings(SvgdSettings):
    """Settings of Parallel DSVGD."""

    kind: str = "parallel_dsvgd"
    prior: Literal["divided", "as_written"] | None = Field(
        None,
        description="How the server counts the prior that is in every upload (sites.kind = 'particles'): divided "
        "out, or as the paper's formula reads.",
    )


def parallel_dsvgd(model: Model, site: Site, settings: ParallelSettings) -> Method:
    """Build Parallel DSVGD as the sites allow it: by uploaded density estimates, or by sites that add up.

    Args:
        model: The model.
        site: The sites that clients keep.
        settings: The settings of ``[algorithm]``; L is the number of steps of the clients and of the server.

    Returns:
        The method.

    Raises:
        InputError: The target on the server would not be a density.
    """
    if site.kde is None:
        return parallel_sites(model, site, settings, name="parallel_dsvgd")
    density, bandwidth = site.kde
    steps, prior = settings.local_steps, settings.prior or "divided"
    refuse_improper_targets(model, prior, density, bandwidth)
    optimiser = AdaGrad(settings.step_size, settings.epsilon)
    direction = partial(tilted_direction, kernel=KERNELS[settings.kernel])
    serial = dsvgd(model, site, settings, name="parallel_dsvgd")

    def train(given: Training) -> tuple[Arrays, State]:
        _, state = serial.train(given)
        return {"local": state["local"]}, {}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        latest = {**accepted, **updates}
        uploads = [latest[client]["local"] for client in sorted(latest)]  # sums have one order
        # Padded to a power of two with copies at sign zero, so that a growing number of uploads compiles rarely.
        size = 1 << (len(uploads) - 1).bit_length()
        signs = jnp.array([1.0] * len(uploads) + [0.0] * (size - len(uploads)), uploads[0].dtype)
        stacked = jnp.stack(uploads + uploads[:1] * (size - len(uploads)))
        return {**server, "particles": server_svgd(server["particles"], stacked, signs, scale)}

    @jax.jit
    def server_svgd(start: Array, uploads: Array, signs: Array, scale: Array) -> Array:
        blocks = model.split(start)
        _, origin = centred(blocks)
        prior_weight = 1 - jnp.sum(signs) if prior == "divided" else 1.0
        pulled = partial(offset_kde_score, bandwidth=bandwidth, density=density, dim=model.kde_dim or model.dim)

        def score(_: Array, theta: Blocks) -> Blocks:
            offset = jax.tree.map(jnp.subtract, theta, origin)

            def add(total: Blocks, entry: tuple[Array, Array]) -> tuple[Blocks, None]:
                mixture = Mixture(model.split(entry[0]), entry[1]).relative_to(origin)
                return jax.tree.map(jnp.add, total, pulled(offset, mixture)), None

            of_prior = jax.tree.map(lambda s: prior_weight * s, model.prior_score(theta))
            return jax.lax.scan(add, of_prior, (uploads, signs))[0]

        return join(svgd_loop(steps, blocks, score, (), direction, optimiser, scale=scale)[0])

    return serial._replace(train=train, shared=("local",), apply=apply, sequential=False)


def refuse_improper_targets(model: Model, prior: str, density: str, bandwidth: float) -> None:
    """Refuse combinations whose target on the server is not a density.

    Raises:
        InputError: The reference density is asked for, or dividing by the prior leaves no density.
    """
    if density == "reference":
        raise InputError(
            "algorithm.kind = 'parallel_dsvgd' cannot use sites.density = 'reference': its KDE scores vanish, and the "
            "server's target would be the prior alone; set sites.density = 'log'"
        )
    if prior == "divided" and (model.prior_curvature is None or model.prior_curvature * bandwidth**2 > 1):
        raise InputError(
            f"algorithm.prior = 'divided' is improper for model {model.name!r} with sites.bandwidth = {bandwidth}: "
            "dividing the KDE by the prior does not leave a density; set algorithm.prior = 'as_written'"
        )


PARALLEL_DSVGD = MethodKind(
    name="parallel_dsvgd",
    about="several clients train from the same particles; the server combines their updates",
    settings=ParallelSettings,
    build=parallel_dsvgd,
    full_participation=True,
)
