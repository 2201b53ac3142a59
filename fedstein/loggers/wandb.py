"""Weights & Biases. Needs the extra ``wandb``. ``WANDB_MODE=offline`` keeps everything on this machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedstein.loggers.values import import_extra, round_numbers, summary_numbers
from fedstein.runs.callbacks import Callback


class WandB(Callback):
    """Writes the config, the numbers of every round and the summary to a W&B run.

    Online, which is W&B's default, these numbers go to W&B's server, and you must be logged in. Offline they stay in a
    folder, and ``wandb sync`` sends them later. W&B's error reports and machine statistics are switched off.
    """

    def __init__(
        self,
        project: str = "fedstein",
        name: str | None = None,
        folder: str | Path | None = None,
        mode: str | None = None,
    ):
        """
        Args:
            project: The name of the W&B project.
            name: The name of the run; by default one that W&B chooses.
            folder: The folder for W&B's files, which go to ``wandb`` within it; by default the current one.
            mode: ``"online"``, ``"offline"`` or ``"disabled"``; by default the environment variable ``WANDB_MODE``,
                else online.

        Raises:
            InputError: wandb is not installed.
        """
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        self._package = import_extra("wandb", "wandb", "WandB")
        self.project, self.name, self.mode = project, name, mode
        self.folder = Path(folder) if folder is not None else None
        self._run: Any = None

    def on_start(self, config: Mapping[str, Any]) -> None:
        """Start a W&B run with the config."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        settings = self._package.Settings(silent=True, console="off", x_disable_stats=True, x_disable_meta=True)
        self._run = self._package.init(
            project=self.project,
            name=self.name,
            dir=str(self.folder) if self.folder is not None else None,
            mode=self.mode,
            config=dict(config),
            settings=settings,
            reinit="create_new",
        )

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of a round, with the round as the step."""
        self._run.log(round_numbers(record), step=int(record["round"]))

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        """Write the summary and end the run; the exit code is 1 if the run was stopped or failed."""
        if self._run is None:
            return
        self._run.summary.update(summary_numbers(summary or {}))
        self._run.finish(exit_code=int(summary is None))
        self._run = None
