"""The server's sums and the draws of a run folder: ``sums``, ``weighted`` and ``draws.safetensors``, with JSON beside.

Draws can always be made again from the sums. So draws that are damaged or do not belong to the sums of the folder count
as absent. If the folder cannot be written to, draws are not stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.errors import InputError
from fedstein.files import disk_errors, pack, read_json, unpack, write_bytes, write_json
from fedstein.inference.draw_diagnostics import DrawDiagnostics
from fedstein.inference.importance import Weighted
from fedstein.inference.natural import GaussianSite
from fedstein.inference.sampling import PosteriorDraws, Sampler

SUMS, DRAWS, ABOUT = "sums.safetensors", "draws.safetensors", "draws.json"
WEIGHTED, WEIGHTS = "weighted.safetensors", "weights.json"


def write_sums(folder: Path, sums: GaussianSite) -> None:
    """Write the sums over clients of the sites' natural parameters, eta (d) and precision (d x d), in float64."""
    with disk_errors(folder):
        write_bytes(folder / SUMS, pack({name: np.asarray(part, np.float64) for name, part in sums._asdict().items()}))


def read_sums(folder: Path) -> GaussianSite | None:
    """Read the sums of a run.

    Args:
        folder: The run folder.

    Returns:
        The sums, or None for a run without sums: without full sites, or from an earlier version.

    Raises:
        InputError: The file is damaged.
    """
    path = folder / SUMS
    if not path.is_file():
        return None
    arrays = unpack(path.read_bytes(), path)
    eta, precision = arrays.get("eta", np.zeros((0, 0))), arrays.get("precision", np.zeros(0))
    if eta.ndim != 1 or precision.shape != (len(eta), len(eta)):
        raise InputError(f"{path} is damaged: expected tensors 'eta' (d) and 'precision' (d x d)")
    return GaussianSite(eta, precision)


def write_weights(folder: Path, weights: Mapping[str, Any], weighted: Weighted | None) -> None:
    """Write the result of the check of the sites, and the weighted draws if intervals can be quoted from them."""
    with disk_errors(folder):
        if weighted is not None:
            arrays = {"draws": weighted.draws, "log_weights": weighted.log_weights, "k": np.array([weighted.k])}
            write_bytes(folder / WEIGHTED, pack(arrays))
        else:
            (folder / WEIGHTED).unlink(missing_ok=True)  # of fewer rounds
        write_json(folder / WEIGHTS, weights)


def read_weights(folder: Path) -> dict[str, Any] | None:
    """Read ``weights.json``; None for a run whose sites were not checked."""
    return read_json(folder / WEIGHTS, "the check of the sites") if (folder / WEIGHTS).is_file() else None


def read_weighted(folder: Path) -> Weighted | None:
    """Read the weighted draws of a run.

    Args:
        folder: The run folder.

    Returns:
        The draws, or None for a run without weighted draws.

    Raises:
        InputError: The file is damaged.
    """
    path = folder / WEIGHTED
    if not path.is_file():
        return None
    arrays = unpack(path.read_bytes(), path)
    if set(arrays) != {"draws", "log_weights", "k"} or arrays["log_weights"].shape != arrays["draws"].shape[:1]:
        raise InputError(f"{path} is damaged: expected tensors 'draws' (n x d), 'log_weights' (n) and 'k'")
    return Weighted(arrays["draws"], arrays["log_weights"], float(arrays["k"][0]))


def write_draws(folder: Path, draws: PosteriorDraws, sampler: Sampler, seed: int) -> None:
    """Write draws and their diagnostics. ``draws.json`` is written last and marks the draws as complete.

    Args:
        folder: The run folder, with sums.
        draws: The draws.
        sampler: How they were made.
        seed: Their seed.
    """
    content = pack({"draws": draws.draws, "mean": draws.mean, "covariance": draws.covariance})
    about = {
        "seed": seed,
        "sampler": sampler._asdict(),
        "trusted": draws.trusted,
        **{name: _listed(value) for name, value in asdict(draws.diagnostics).items()},
        "draws_sha256": _checksum(content),
        "sums_sha256": _checksum((folder / SUMS).read_bytes()),
    }
    with suppress(OSError):
        write_bytes(folder / DRAWS, content)
        write_json(folder / ABOUT, about)


def read_draws(folder: Path, sampler: Sampler, seed: int) -> PosteriorDraws | None:
    """Read the draws that the folder keeps.

    Args:
        folder: The run folder.
        sampler: How the draws must have been made.
        seed: The seed that they must have.

    Returns:
        The draws, or None if the folder has no draws from its current sums.
    """
    try:
        about = read_json(folder / ABOUT, "draws")
        content = (folder / DRAWS).read_bytes()
        if about["draws_sha256"] != _checksum(content) or about["sums_sha256"] != _checksum(
            (folder / SUMS).read_bytes()
        ):
            return None
        if (about["sampler"], about["seed"]) != (sampler._asdict(), seed):
            return None
        arrays = unpack(content, folder / DRAWS)
        numbers: dict[str, Any] = {name: np.array(about[name], np.float64) for name in ("rhat", "ess", "ebfmi")}
        numbers |= {name: float(about[name]) for name in ("acceptance", "steps", "seconds")}
        problems = [str(problem) for problem in about["problems"]]
        checks = DrawDiagnostics(divergences=int(about["divergences"]), problems=problems, **numbers)
        return PosteriorDraws(arrays["draws"], arrays["mean"], arrays["covariance"], checks)
    except (InputError, OSError, KeyError, TypeError, ValueError):
        return None


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _checksum(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
