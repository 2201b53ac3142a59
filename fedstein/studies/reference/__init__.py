"""The reference for the particles of a BLR run: NUTS on the pooled data."""

from fedstein.studies.reference.distance import distance, distance_of_draws, ksd_to, mean_offsets, sd_ratios
from fedstein.studies.reference.nuts import Diagnostics, Sampler, require_numpyro, sample
from fedstein.studies.reference.pipeline import (
    Finished,
    Group,
    Posterior,
    group_runs,
    known,
    open_finished,
    sample_posterior,
    write_reference,
)
from fedstein.studies.reference.target import Laplace, Pooled, laplace, score

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
