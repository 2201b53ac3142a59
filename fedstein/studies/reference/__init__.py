"""The reference for a federated posterior: NUTS on the rows of all clients in one place."""

from fedstein.studies.reference.agreement import central_interval, coverage, energy_test
from fedstein.studies.reference.compare import Comparison, compare_with_nuts, pool
from fedstein.studies.reference.distance import distance, distance_of_draws, ksd_to, mean_offsets, sd_ratios
from fedstein.studies.reference.nuts import Diagnostics, Sampler, require_numpyro, sample
from fedstein.studies.reference.pipeline import (
    Finished,
    Group,
    group_runs,
    known,
    open_finished,
    sample_posterior,
    write_reference,
)
from fedstein.studies.reference.scores import Reference, score_posterior, verdict
from fedstein.studies.reference.target import Laplace, Pooled, laplace, score

__all__ = [
    "Comparison",
    "Diagnostics",
    "Finished",
    "Group",
    "Laplace",
    "Pooled",
    "Reference",
    "Sampler",
    "central_interval",
    "compare_with_nuts",
    "coverage",
    "distance",
    "distance_of_draws",
    "energy_test",
    "group_runs",
    "known",
    "ksd_to",
    "laplace",
    "mean_offsets",
    "open_finished",
    "pool",
    "require_numpyro",
    "sample",
    "sample_posterior",
    "score",
    "score_posterior",
    "sd_ratios",
    "verdict",
    "write_reference",
]
