"""What must be settled before JAX makes its first array: threads, precision, the compilation cache."""

from __future__ import annotations

import os

from fedstein.runs.config import Config


def start_jax(config: Config) -> None:
    """Fix the thread count and the precision; same bits need the same of both."""
    threads = str(config.engine.threads)
    for name in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = threads

    import jax

    jax.config.update("jax_enable_x64", config.engine.precision == "float64")
