"""The settings of a small run on embedded Covertype rows, which takes seconds."""

from __future__ import annotations

from typing import Any

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
SMALL_FIT: dict[str, Any] = {
    "rounds": 4,
    "algorithm__particles": 5,
    "algorithm__local_steps": 3,
    "selection__kind": "round_robin",
    "sites__expand": "mean",  # passes after the rounds take long
}


def without_passes(raw: dict[str, Any]) -> dict[str, Any]:
    """A config whose sites stay those of the rounds, unless it says otherwise: passes after the rounds take long.

    Sites of other kinds, and methods without sites, refuse the key.
    """
    sites, method = raw.get("sites", {}), raw.get("algorithm", {}).get("kind", "dsvgd")
    if sites.get("kind", "curvature") != "curvature" or method != "dsvgd":
        return raw
    return {**raw, "sites": {"expand": "mean", **sites}}
