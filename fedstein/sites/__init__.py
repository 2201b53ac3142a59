"""Sites t_k: one file each; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.sites.base import Arrays, Cavity, Site, State
from fedstein.sites.curvature import STRUCTURES, curvature_site
from fedstein.sites.none import no_site
from fedstein.sites.particles import particle_site


class SiteInfo(NamedTuple):
    """How ``sites.kind`` is built, its settings with their defaults, and which settings of the algorithm it needs."""

    build: Callable[..., Site]
    settings: dict[str, Any]
    needs: tuple[str, ...]
    about: str


SITES: dict[str, SiteInfo] = {
    "particles": SiteInfo(
        particle_site,
        {"density": "log", "bandwidth": 0.55},
        ("steps", "optimiser"),
        "the paper's: N local particles and their kernel density estimate",
    ),
    "curvature": SiteInfo(
        curvature_site,
        {
            "structure": "full",
            "stiffness": 1.0,
            "damping": 1.0,
            "label_samples": 0,
            "rank": 0,
            "renew": False,
            "settle": True,
        },
        ("particles", "temperature"),
        "Gaussian factors that add up: full, diagonal, or diagonal in a shared eigenbasis of the inputs",
    ),
    "none": SiteInfo(no_site, {}, (), "no sites: for the references, pooled_svgd and fedavg"),
}

__all__ = [
    "SITES",
    "STRUCTURES",
    "Arrays",
    "Cavity",
    "Site",
    "SiteInfo",
    "State",
    "curvature_site",
    "no_site",
    "particle_site",
]
