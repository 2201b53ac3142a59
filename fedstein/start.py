"""What must be settled before JAX makes its first array: threads and precision."""

from __future__ import annotations

import os

from fedstein.runs.config import Config


def start_jax(config: Config) -> None:
    """Fix the thread count and the precision; same bits need the same of both."""
    os.environ["NPROC"] = str(config.engine.threads)  # what XLA sizes its pool by

    import jax

    jax.config.update("jax_enable_x64", config.engine.precision == "float64")
