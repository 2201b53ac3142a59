"""The numbers and settings of a run that loggers write, under flat names."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

from fedstein.errors import InputError

COSTS = ("bytes_down", "bytes_up", "seconds")
NOT_METRICS = ("round", "candidates", "forgotten", *COSTS)


def round_numbers(record: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a round.

    Args:
        record: The record of the round.

    Returns:
        Every metric that was evaluated, under its name; ``cost/bytes_down``, ``cost/bytes_up``, ``cost/seconds`` and
        ``cost/row_gradients_train|site|report``. What is not a finite number is left out.
    """
    metrics = {key: value for key, value in record.items() if key not in NOT_METRICS}
    costs = {f"cost/{key}": record.get(key) for key in COSTS}
    work = {f"cost/row_gradients_{key}": value for key, value in (record.get("row_gradients") or {}).items()}
    return {key: float(value) for key, value in {**metrics, **costs, **work}.items() if is_number(value)}


def summary_numbers(summary: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a summary: ``final/<metric>``, ``tail/<metric>`` (mean of the last quarter) and total costs."""
    found = {f"final/{metric}": value for metric, value in (summary.get("final") or {}).items()}
    found |= {f"tail/{metric}": (value or {}).get("mean") for metric, value in (summary.get("tail") or {}).items()}
    found |= {f"total/{key}": summary.get(key) for key in COSTS}
    return {key: float(value) for key, value in found.items() if is_number(value)}


def flat_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The config with flat keys: ``{"selection": {"kind": "hip"}}`` -> ``{"selection.kind": "hip"}``."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{name}": inner for name, inner in flat_config(value).items()}
        else:
            flat[key] = value
    return flat


def is_number(value: Any) -> bool:
    """Whether a value is a finite number; truth values are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def import_extra(module: str, extra: str, logger: str) -> Any:
    """Import the package behind a logger.

    Raises:
        InputError: It is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{logger} needs the package {module}: pip install 'fedstein[{extra}]'") from None
