"""The steps of a method after the last round: particles settle on prior and sites, and full sites give a Gaussian."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from fedstein.errors import InputError
from fedstein.inference.methods.base import Conclusion, OnBlock
from fedstein.inference.natural import GaussianSite
from fedstein.inference.sites.base import Arrays
from fedstein.inference.sites.gaussian import site_gaussian
from fedstein.inference.sites.settle import settle
from fedstein.inference.target import TargetSpec


def conclude(spec: TargetSpec, server: Arrays, on_block: OnBlock | None = None) -> Conclusion:
    """Conclude a run whose server state is particles and the sums of sites.

    Args:
        spec: Model, site and kernel of the run.
        server: The server's state after the last round.
        on_block: Is called with the progress of settling. If it is given, particles settle whatever the settings say.

    Returns:
        The state to predict with, and if the sites are full the Gaussian of prior and sites and the server's sums.

    Raises:
        InputError: Settling was asked for, but prior and sites have no mode.
    """
    model, site = spec.model, spec.site
    gaussian, refused, settled, sums = None, None, None, None
    if site.full:
        sums = GaussianSite(*(np.asarray(server[name], np.float64) for name in GaussianSite._fields))
        try:
            gaussian = site_gaussian(model, server, np.asarray(server["particles"], np.float64).mean(axis=0))
        except InputError as error:
            refused = str(error)
    if on_block is not None or (site.settles and gaussian is not None):
        if refused is not None:
            raise InputError(refused)
        silent = on_block or (lambda steps, to_go: None)
        settled = settle(model, site, dict(server), gaussian, kernel=spec.kernel, on_block=silent)
        server = {**server, "particles": jnp.asarray(settled.particles)}
    return Conclusion(dict(server), gaussian, refused, settled, sums)
