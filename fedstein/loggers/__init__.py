"""Loggers: callbacks that write a run to TensorBoard, MLflow or Weights & Biases. Each needs the extra of its name.

    fedstein.fit(model, clients, callbacks=[TensorBoard("logs/first")])
    fedstein run --log tensorboard

A logger gets the resolved config, the numbers of every round (metrics, bytes, seconds, row-gradients) and the summary.
Particles, sites and rows are not logged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fedstein.errors import InputError
from fedstein.loggers.mlflow import MLflow
from fedstein.loggers.tensorboard import TensorBoard
from fedstein.loggers.wandb import WandB
from fedstein.registry import unknown_name
from fedstein.runs.callbacks import Callback

__all__ = ["LOGGERS", "MLflow", "TensorBoard", "WandB", "make_loggers"]

# The name in ``--log`` -> a function that makes the logger of a run folder.
LOGGERS: dict[str, Callable[[Path], Callback]] = {
    "tensorboard": lambda folder: TensorBoard(folder / "tensorboard"),
    "mlflow": lambda folder: MLflow(run_name=folder.name),
    "wandb": lambda folder: WandB(name=folder.name, folder=folder),
}


def make_loggers(names: Sequence[str], folder: Path) -> list[Callback]:
    """Make the loggers that the command line names.

    Args:
        names: Keys of ``LOGGERS``.
        folder: The run folder; it need not exist yet.

    Returns:
        The loggers.

    Raises:
        InputError: A name is unknown or given twice, or the package behind it is not installed.
    """
    for name in names:
        if name not in LOGGERS:
            raise InputError(unknown_name("value of --log", name, list(LOGGERS)))
    if len(set(names)) < len(names):
        raise InputError(f"--log: expected every logger once, got {', '.join(names)}")
    return [LOGGERS[name](folder) for name in names]
