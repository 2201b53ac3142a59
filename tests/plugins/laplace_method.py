"""A method whose server state is not particles: a tempered federated Laplace approximation.

The server keeps a mean and the summed natural parameters of the clients' Gaussian factors; a client expands its own
log-likelihood at the mean. For a linear-Gaussian model one pass over the clients is exact.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from pydantic import Field

from fedstein.data.shard import whole
from fedstein.inference.methods import Method, MethodKind, MethodSettings, Training
from fedstein.inference.sites import Site
from fedstein.inference.sites.gaussian import SiteGaussian, site_gaussian
from fedstein.inference.target import TargetSpec
from fedstein.models.base import Model, join
from fedstein.models.fisher import full_fisher
from fedstein.stein import KERNELS


class LaplaceSettings(MethodSettings):
    kind: str = "laplace"
    inflation: float = Field(1.0, gt=0, description="Factor on the covariance that predictions use.")


def laplace(model: Model, site: Site, settings: LaplaceSettings) -> Method:
    d = model.dim

    def init(key: Any) -> dict[str, Any]:
        prior = model.init(key, settings.particles)
        mean = np.zeros(d, np.asarray(prior).dtype)
        return {"prior": prior, "mean": mean, "eta": np.zeros(d), "precision": np.zeros((d, d))}

    def train(given: Training) -> tuple[dict[str, Any], dict[str, Any]]:
        theta, rows = model.split(given.received["mean"][None, :]), whole(given.shard)
        weights = rows.weights / settings.temperature
        slope = join(model.likelihood_score(theta, rows.x, rows.y, weights))[0]
        curvature = full_fisher(model, theta, rows.x, weights, given.key, 0, rows.y)
        return {"eta": slope + curvature @ given.received["mean"], "precision": curvature}, {}

    def apply(server: dict[str, Any], accepted: Mapping[int, Any], updates: Mapping[int, Any], scale: Any) -> Any:
        sums = {name: server[name].copy() for name in ("eta", "precision")}
        for client, update in updates.items():
            for name in sums:
                sums[name] += np.asarray(update[name]) - np.asarray(accepted.get(client, {}).get(name, 0.0))
        found = site_gaussian(model, sums, server["mean"])
        return {**server, "mean": found.mean.astype(server["mean"].dtype), **sums}

    def posterior(server: dict[str, Any]) -> Any:
        if not server["precision"].any():
            return server["prior"]  # no client has trained yet
        found = site_gaussian(model, server, server["mean"])
        wide = SiteGaussian(found.mean, found.precision / settings.inflation)
        return jnp.asarray(wide.draws(settings.particles), server["mean"].dtype)

    return Method(
        name="laplace",
        spec=TargetSpec(model, site, settings.temperature, KERNELS["rbf"]),
        init=init,
        client_state=lambda server: {name: jnp.zeros(server[name].shape, server["mean"].dtype) for name in SHARED},
        broadcast=lambda server, uses: {"particles": posterior(server)},
        assign=lambda server, accepted: {"mean": server["mean"]},
        train=train,
        apply=apply,
        posterior=posterior,
        shared=SHARED,
        sequential=True,
        row_gradients=lambda rows: {"train": rows, "site": rows},
    )


SHARED = ("eta", "precision")
LAPLACE = MethodKind("laplace", "tempered federated Laplace", LaplaceSettings, laplace, sites="none", uses_sites=False)
