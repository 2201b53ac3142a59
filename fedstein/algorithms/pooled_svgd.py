"""Pooled SVGD: what could be had if all rows were in one place. The upper reference, not a federated method.

One client holds everybody's rows; each round is L steps on p0 * prod_k p_k, in batches, with the optimiser's history
kept from round to round, as one long run of SVGD has it.
"""

from __future__ import annotations

from typing import Any

from fedstein.algorithms.base import Algorithm
from fedstein.algorithms.dsvgd import dsvgd
from fedstein.models.base import Model
from fedstein.sites.base import Site


def pooled_svgd(model: Model, site: Site, **settings: Any) -> Algorithm:
    """``settings`` are those of ``dsvgd``."""
    return dsvgd(model, site, **settings, keep_history=True)._replace(name="pooled_svgd")
