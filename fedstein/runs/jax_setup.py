"""Settings that must be fixed before JAX makes its first array: threads, precision, device, and the program cache."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from fedstein.data.fetch import cache_folder
from fedstein.errors import InputError
from fedstein.machine import memory_maps
from fedstein.runs.config import Config

PROGRAMS = "programs"  # the folder of compiled programs in the cache folder
ROOM = 500_000_000  # the most bytes of this folder
SHARE_OF_MAPS = 0.4  # the share of the allowed memory maps above which programs are released


def start_jax(config: Config) -> None:
    """Fix the thread count, the precision and the device; equal bits need equal values of all three."""
    os.environ["NPROC"] = str(config.engine.threads)  # XLA reads the size of its thread pool from it

    import jax

    jax.config.update("jax_enable_x64", config.engine.precision == "float64")
    keep_programs()
    use_device(config.engine.device)


def use_device(device: str) -> None:
    """Choose the device of all computations; ``auto`` leaves the choice to JAX."""
    import jax

    if device == "cpu":
        jax.config.update("jax_platforms", "cpu")  # so that JAX does not initialise an accelerator
    elif device != "auto":
        try:
            jax.config.update("jax_default_device", jax.devices(device)[0])
        except RuntimeError:
            found = ", ".join(sorted({each.platform for each in jax.devices()}))
            raise InputError(
                f"engine.device = {device!r}, but JAX finds none here, only: {found}; install JAX for it, or leave "
                "engine.device at 'auto'"
            ) from None


def keep_programs() -> None:
    """Keep compiled programs on disk, so that a second run with the same shapes starts without compiling.

    If JAX_COMPILATION_CACHE_DIR is set, it names another folder. The folder may be deleted at any time.
    """
    import jax

    if jax.config.values["jax_compilation_cache_dir"] is not None:
        return
    folder = cache_folder() / PROGRAMS
    with suppress(OSError):  # if the folder cannot be written, every run compiles its programs
        folder.mkdir(parents=True, exist_ok=True)
        trim(folder, ROOM)
        if os.access(folder, os.W_OK):
            jax.config.update("jax_compilation_cache_dir", str(folder))
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def trim(folder: Path, room: int) -> None:
    """Remove the oldest programs until the others take no more than ``room`` bytes."""
    found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in folder.iterdir() if path.is_file())
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= room:
            return
        path.unlink(missing_ok=True)
        total -= size


def release_programs() -> bool:
    """Forget compiled programs of earlier runs if this process comes near the system's limit of memory maps.

    A run takes about 600 maps. Without this function, a process that makes about a hundred runs of different shapes
    crashes.

    Returns:
        Whether programs were released. Functions that are used again are compiled again, or read from the disk.
    """
    import gc

    import jax

    maps = memory_maps()
    if maps is None or maps[0] < SHARE_OF_MAPS * maps[1]:
        return False
    gc.collect()
    jax.clear_caches()
    gc.collect()
    return True
