"""A reference that the particles of a BLR run are measured against: NUTS on the pooled data."""

from fedstein.reference.distance import distance, distance_of_draws, ksd_to, mean_offsets, sd_ratios
from fedstein.reference.nuts import Diagnostics, Sampler, require_numpyro, sample
from fedstein.reference.target import Laplace, Pooled, laplace, score
from fedstein.reference.work import (
    Finished,
    Group,
    Posterior,
    group_runs,
    known,
    open_finished,
    sample_posterior,
    write_reference,
)

__all__ = [
    "Diagnostics",
    "Finished",
    "Group",
    "Laplace",
    "Pooled",
    "Posterior",
    "Sampler",
    "distance",
    "distance_of_draws",
    "group_runs",
    "known",
    "ksd_to",
    "laplace",
    "mean_offsets",
    "open_finished",
    "require_numpyro",
    "sample",
    "sample_posterior",
    "score",
    "sd_ratios",
    "write_reference",
]
