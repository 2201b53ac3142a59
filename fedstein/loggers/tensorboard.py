"""TensorBoard: event files for ``tensorboard --logdir FOLDER``. Needs the extra ``tensorboard`` (tensorboardX)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedstein.loggers.values import import_extra, round_numbers, summary_numbers
from fedstein.runs.callbacks import Callback


class TensorBoard(Callback):
    """Writes one scalar for each number of a round, and the config as text.

    A run that is resumed writes a further event file to the same folder; TensorBoard shows both as one curve.
    """

    def __init__(self, folder: str | Path):
        """
        Args:
            folder: The folder for the event files. It is made when the run starts.

        Raises:
            InputError: tensorboardX is not installed.
        """
        self.folder = Path(folder)
        self._package = import_extra("tensorboardX", "tensorboard", "TensorBoard")
        self._writer: Any = None
        self._last = 0

    def on_start(self, config: Mapping[str, Any]) -> None:
        """Open an event file and write the config to it."""
        self._writer = self._package.SummaryWriter(str(self.folder))
        self._writer.add_text("config", f"```json\n{json.dumps(config, indent=2, default=str)}\n```", 0)

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of a round."""
        self._last = int(record["round"])
        for name, value in round_numbers(record).items():
            self._writer.add_scalar(name, value, self._last)

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        """Write the summary, if the run is finished, and close the file."""
        if self._writer is None:
            return
        for name, value in summary_numbers(summary or {}).items():
            self._writer.add_scalar(name, value, self._last)
        self._writer.close()
        self._writer = None
