"""Pooled SVGD: SVGD on the rows of all clients in one place. It is an upper reference, not a federated method.

One client holds the rows of all clients. Each round is L steps on p0 * prod_k p_k, in batches, with the optimiser's
history kept from round to round, as in one long run of SVGD.
"""

from __future__ import annotations

from fedstein.inference.methods.base import Method, MethodKind, SvgdSettings
from fedstein.inference.methods.dsvgd import dsvgd
from fedstein.inference.sites.base import Site
from fedstein.models.base import Model


class PooledSettings(SvgdSettings):
    """Settings of pooled SVGD."""

    kind: str = "pooled_svgd"


def pooled_svgd(model: Model, site: Site, settings: PooledSettings) -> Method:
    """Build pooled SVGD: distributed SVGD with one client, no sites and a lasting optimiser history.

    Args:
        model: The model.
        site: The site ``none``, because the method keeps no sites.
        settings: The settings of ``[algorithm]``.

    Returns:
        The method.
    """
    return dsvgd(model, site, settings, name="pooled_svgd", keep_history=True)


POOLED_SVGD = MethodKind(
    name="pooled_svgd",
    about="reference: SVGD on the rows of all clients in one place",
    settings=PooledSettings,
    build=pooled_svgd,
    sites="none",
    uses_sites=False,
    answers_reports=False,
    pooled=True,
)
