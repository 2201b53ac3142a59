"""Sites t_k: one file a kind."""

from fedstein.inference.sites.base import Arrays, Cavity, Own, Site, SiteKind, SiteSettings, SiteSums, State
from fedstein.inference.sites.curvature import CURVATURE, CurvatureSettings
from fedstein.inference.sites.none import NONE
from fedstein.inference.sites.particles import PARTICLES, ParticleSettings
from fedstein.registry import Registry

SITES: Registry[SiteKind] = Registry("sites.kind", "fedstein.sites", SiteKind)
for _kind in (PARTICLES, CURVATURE, NONE):
    SITES.register(_kind)

__all__ = [
    "SITES",
    "Arrays",
    "Cavity",
    "CurvatureSettings",
    "Own",
    "ParticleSettings",
    "Site",
    "SiteKind",
    "SiteSettings",
    "SiteSums",
    "State",
]
