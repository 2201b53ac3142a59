"""Sites t_k: one file each; the registry is a plain dict."""

from collections.abc import Callable
from typing import Any, NamedTuple

from fedstein.sites.base import Cavity, Site, State
from fedstein.sites.particles import particle_site


class SiteInfo(NamedTuple):
    """How ``sites.kind`` is built, and its settings with their defaults."""

    build: Callable[..., Site]
    settings: dict[str, Any]
    about: str


SITES: dict[str, SiteInfo] = {
    "particles": SiteInfo(
        particle_site,
        {"density": "log", "bandwidth": 0.55},
        "the paper's: N local particles and their kernel density estimate",
    ),
}

__all__ = ["SITES", "Cavity", "Site", "SiteInfo", "State", "particle_site"]
