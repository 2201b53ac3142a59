"""DSVGD for a federation with lying clients: a client acts through its site alone, and sites are bounded.

Other methods trust the particles and sites of clients. With ``robust.kind = "bounded"`` the server does not use the
particles of clients: it draws its own from prior and sites. It also weights the sites. With the sites exp(eta_k . theta
- theta' Lambda_k theta / 2), Lambda_k symmetric and positive semi-definite, site k has the weight w_k v_k:

    w_k = min(1, B median_j tr(Lambda_j) / tr(Lambda_k)):  no site has more curvature than B times the median,
    v_k = min(1, P median_j |s_j| / |s_k|),  s_k = w_k (eta_k - Lambda_k m):  none pulls more than P times the median.

m is the mode of the weighted sum with a unit Gaussian prior, and |s|^2 = s' (Lambda + I)^-1 s: how far the client's
score alone would move the mode, in posterior sds. That is Huber's estimator with each client as an observation, found
by reweighting. Weights of whole clients keep eta in the range of Lambda, which trimming coordinate by coordinate does
not. A matrix that is not positive semi-definite is replaced by the nearest one that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.errors import InputError
from fedstein.inference.grid_moments import grid_gaussian, has_grid
from fedstein.inference.methods.base import Accepted, Method
from fedstein.inference.natural import GaussianSite
from fedstein.inference.sites.base import Arrays, Own
from fedstein.settings import Count, PositiveFloat, Settings

STEPS = 20  # the most steps of the search for weights
SETTLED = 1e-3  # the search ends when no weight changes by more


class RobustSettings(Settings):
    """The keys of ``[robust]``."""

    kind: Literal["none", "bounded"] = Field(
        "none",
        description="How sites are combined: added without change, or with bounds on the pull and the curvature of "
        "each, so that single lying clients have little influence.",
    )
    pull: PositiveFloat = Field(
        1.0,
        description="A site that pulls the posterior by more than this many times the median pull is scaled down.",
    )
    curvature: Annotated[float, Field(ge=1)] = Field(
        3.0,
        description="A site with more curvature than this many times the median curvature is scaled down to it.",
    )
    rest: Count = Field(
        0, description="Rounds for which a client that has trained is not drawn again; 0 sets no limit."
    )


def positive(matrix: np.ndarray) -> np.ndarray:
    """The symmetric positive semi-definite matrix nearest to a matrix; the matrix itself if it is one already."""
    symmetric = 0.5 * (matrix + matrix.T)
    ridge = 1e-6 * max(float(np.abs(np.diag(symmetric)).max(initial=0.0)), 1e-300)
    try:
        np.linalg.cholesky(symmetric + ridge * np.eye(len(symmetric)))
    except np.linalg.LinAlgError:
        values, axes = np.linalg.eigh(symmetric)
        return (axes * np.maximum(values, 0.0)) @ axes.T
    return symmetric


def at_most(sizes: np.ndarray, times: float) -> np.ndarray:
    """Weights that bring sizes down to ``times`` their median; sizes of zero do not count for the median."""
    usual = float(np.median(sizes[sizes > 0])) if (sizes > 0).any() else 0.0
    return np.minimum(1.0, times * usual / np.maximum(sizes, 1e-300)) if usual else np.ones(len(sizes))


def site_weights(sites: Sequence[GaussianSite], pull: float, curvature: float) -> np.ndarray:
    """Compute the weight of each site, between 0 and 1; see the module.

    Args:
        sites: The sites, at least one, with positive semi-definite precisions.
        pull: P, the largest pull of a site over the median.
        curvature: B, the largest curvature of a site over the median.

    Returns:
        One weight for each site.
    """
    precisions, etas = np.stack([site.precision for site in sites]), np.stack([site.eta for site in sites])
    bounded = at_most(np.trace(precisions, axis1=1, axis2=2), curvature)
    unit, weights = np.eye(etas.shape[1]), bounded
    inverse = np.linalg.inv(np.tensordot(weights, precisions, 1) + unit)
    # Start at the median of the clients' own modes: one liar can put the mode of the sum anywhere, far from all.
    mode = np.median(np.linalg.solve(precisions + unit, etas[:, :, None])[:, :, 0], axis=0)
    for _ in range(STEPS):
        scores = bounded[:, None] * (etas - precisions @ mode)
        pulls = np.sqrt(np.maximum(np.einsum("ki,ki->k", scores @ inverse, scores), 0.0))
        found = bounded * at_most(pulls, pull)
        moved, weights = float(np.abs(found - weights).max()), found
        if moved < SETTLED:
            break
        inverse = np.linalg.inv(np.tensordot(weights, precisions, 1) + unit)
        mode = inverse @ (weights @ etas)
    return weights


def bounded_sum(sites: Sequence[GaussianSite], pull: float, curvature: float) -> GaussianSite:
    """Add up the sites, each multiplied by its weight.

    Args:
        sites: The sites, at least one.
        pull: P, the largest pull of a site over the median.
        curvature: B, the largest curvature of a site over the median.

    Returns:
        eta and precision in place of their sums.
    """
    sound = [
        GaussianSite(np.asarray(site.eta, np.float64), positive(np.asarray(site.precision, np.float64)))
        for site in sites
    ]
    weights = site_weights(sound, pull, curvature)
    return GaussianSite(
        weights @ np.stack([site.eta for site in sound]),
        np.tensordot(weights, np.stack([site.precision for site in sound]), 1),
    )


def robust_sites(method: Method, settings: RobustSettings) -> Method:
    """Make DSVGD robust.

    Args:
        method: DSVGD with full curvature sites.
        settings: The settings of ``[robust]``.

    Returns:
        The method. All clients of a round start alike, and its particles come from prior and sites.

    Raises:
        InputError: The sites are not full, or the model's prior has no closed form given one number.
    """
    model, site = method.spec.model, method.spec.site
    if not site.full or not has_grid(model):
        raise InputError(
            f"robust.kind = {settings.kind!r} needs full curvature sites (sites.structure = 'full') and a regression "
            f"whose prior has one scale, such as 'blr'; got model {model.name!r}; set robust.kind = 'none'"
        )

    def total(accepted: Mapping[int, Own]) -> Arrays:
        if not accepted:
            return site.sums.total(accepted)
        sites = [GaussianSite(*(accepted[k][name] for name in GaussianSite._fields)) for k in sorted(accepted)]
        return dict(bounded_sum(sites, settings.pull, settings.curvature)._asdict())

    def renew(
        server: Arrays, accepted: Mapping[int, Own], scores: Mapping[int, Any]
    ) -> tuple[Arrays, dict[int, Arrays]]:
        assert site.sums.renew is not None
        _, fresh = site.sums.renew(server, accepted, scores)
        return total({k: {**own, **fresh.get(k, {})} for k, own in accepted.items()}), fresh

    def placed(server: Arrays) -> Arrays:
        """Particles from prior and sites: pairs of opposite draws, the same in the posterior's coordinates always."""
        before = np.asarray(server["particles"])
        found = grid_gaussian(model, np.asarray(server["eta"]), np.asarray(server["precision"]))
        half = np.random.default_rng(0).standard_normal((-(-len(before) // 2), model.dim))
        standard = np.concatenate([half, -half])[: len(before)]
        particles = found.mean + np.linalg.solve(np.linalg.cholesky(found.precision).T, standard.T).T
        return {**server, "particles": jnp.asarray(particles, before.dtype)}

    def apply(server: Arrays, accepted: Accepted, updates: Mapping[int, Arrays], scale: Any) -> Arrays:
        shared = {k: {name: update[name] for name in site.shared} for k, update in updates.items()}
        return placed({**server, **total({**accepted, **shared})})

    sums = site.sums._replace(total=total, renew=renew if site.sums.renew is not None else None)
    spec = method.spec._replace(site=site._replace(sums=sums))
    return method._replace(spec=spec, apply=apply, sequential=False)
