"""The settings of a small run on embedded Covertype rows, which takes seconds."""

from __future__ import annotations

SMALL_RUN = (
    "partition.clients=4",
    "partition.rows_per_client=60",
    "algorithm.particles=5",
    "algorithm.local_steps=3",
    "sites.kind=particles",
    "algorithm.distill_steps=2",
    "algorithm.batch_size=25",
    "engine.threads=1",
)
