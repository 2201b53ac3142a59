"""Stein's method on particles: arrays in, arrays out.

Particles are an ``N x d`` array, or any pytree of ``N x .`` arrays whose leaves stand side by side (a network keeps
its layers apart so that each matrix product sees contiguous memory). Scores have the same form as the particles.
The kernel is a part that can be exchanged: ``kernel.py`` has the contract, ``KERNELS`` the kernels by name.
"""

from fedstein.stein.bandwidth import median_bandwidth
from fedstein.stein.discrepancy import Frame, frame_of, hip, hip_terms, ksd, ksd_in, mean_hips
from fedstein.stein.kde import Mixture, kde_log_density, kde_score
from fedstein.stein.kernel import Kernel, radial_kernel
from fedstein.stein.kernel_registry import KERNELS
from fedstein.stein.kernels import squared_distances
from fedstein.stein.projection import project, projected_hips, projection_key
from fedstein.stein.rbf import RBF, rbf_kernel
from fedstein.stein.svgd import svgd_direction, tilted_direction

__all__ = [
    "KERNELS",
    "RBF",
    "Frame",
    "Kernel",
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
    "project",
    "projected_hips",
    "projection_key",
    "radial_kernel",
    "rbf_kernel",
    "squared_distances",
    "svgd_direction",
    "tilted_direction",
]
