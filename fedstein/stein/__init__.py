"""Stein's method on particles: arrays in, arrays out.

Particles are an ``N x d`` array, or any pytree of ``N x .`` arrays whose leaves stand side by side (a network keeps
its layers apart so that each matrix product sees contiguous memory). Scores have the same form as the particles.
"""

from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.discrepancy import Frame, frame_of, hip, hip_terms, ksd, ksd_in, mean_hips
from fedstein.stein.kde import Mixture, kde_log_density, kde_score
from fedstein.stein.kernels import rbf_kernel, squared_distances
from fedstein.stein.svgd import svgd_direction, tilted_direction

__all__ = [
    "Frame",
    "Mixture",
    "frame_of",
    "hip",
    "hip_terms",
    "kde_log_density",
    "kde_score",
    "ksd",
    "ksd_in",
    "mean_hips",
    "median_bandwidth",
    "rbf_kernel",
    "squared_distances",
    "svgd_direction",
    "tilted_direction",
]
