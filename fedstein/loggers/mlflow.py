"""MLflow: one MLflow run for each Fedstein run. Needs the extra ``mlflow`` (mlflow-skinny)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedstein.loggers.values import flat_config, import_extra, round_numbers, summary_numbers
from fedstein.runs.callbacks import Callback

BATCH = 100  # parameters that MLflow takes in one call
LENGTH = 6000  # characters that MLflow takes for the value of a parameter


class MLflow(Callback):
    """Writes the config as parameters and the numbers of every round as metrics, with the round as the step.

    MLflow's own telemetry is switched off before it is imported. Nothing leaves the machine unless ``tracking_uri`` is
    the address of a server.
    """

    def __init__(
        self, experiment: str = "fedstein", run_name: str | None = None, tracking_uri: str | Path | None = None
    ):
        """
        Args:
            experiment: The name of the experiment; it is made if there is none.
            run_name: The name of the run; by default one that MLflow chooses.
            tracking_uri: A server, or a folder for a local file store; by default the environment variable
                ``MLFLOW_TRACKING_URI``, else the folder ``mlruns``.

        Raises:
            InputError: mlflow-skinny is not installed.
        """
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        os.environ.setdefault("DO_NOT_TRACK", "true")
        self._package = import_extra("mlflow", "mlflow", "MLflow")
        self.experiment, self.run_name = experiment, run_name
        wanted = tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or Path("mlruns")
        self.tracking_uri = wanted.absolute().as_uri() if isinstance(wanted, Path) else str(wanted)
        if self.tracking_uri.startswith("file:"):
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")  # MLflow 3 asks for it
        self._client: Any = None
        self._run: str = ""

    def on_start(self, config: Mapping[str, Any]) -> None:
        """Make a run and log the config."""
        client = self._package.MlflowClient(tracking_uri=self.tracking_uri)
        found = client.get_experiment_by_name(self.experiment)
        number = found.experiment_id if found is not None else client.create_experiment(self.experiment)
        self._run = client.create_run(number, run_name=self.run_name).info.run_id
        self._client = client
        entities = self._package.entities
        values = [entities.Param(key, str(value)[:LENGTH]) for key, value in flat_config(config).items()]
        for start in range(0, len(values), BATCH):
            client.log_batch(self._run, params=values[start : start + BATCH])

    def on_round(self, record: Mapping[str, Any]) -> None:
        """Log the numbers of a round."""
        self._log(round_numbers(record), int(record["round"]))

    def on_end(self, summary: Mapping[str, Any] | None) -> None:
        """Log the summary and end the run: ``FINISHED``, or ``KILLED`` if the run was stopped or failed."""
        if self._client is None:
            return
        if summary is not None:
            self._log(summary_numbers(summary), int(summary["rounds"]))
        self._client.set_terminated(self._run, status="KILLED" if summary is None else "FINISHED")
        self._client = None

    def _log(self, numbers: Mapping[str, float], step: int) -> None:
        now, metric = int(time.time() * 1000), self._package.entities.Metric
        self._client.log_batch(self._run, metrics=[metric(key, value, now, step) for key, value in numbers.items()])
