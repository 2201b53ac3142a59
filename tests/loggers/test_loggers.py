"""The loggers: what each writes of a run is read back from its files. Nothing here uses a network."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedstein.errors import InputError
from fedstein.loggers import LOGGERS, MLflow, TensorBoard, WandB, make_loggers
from fedstein.loggers.values import round_numbers
from fedstein.runs.callbacks import Callback, notified

CONFIG = {"seed": 3, "rounds": 2, "selection": {"kind": "hip", "barred": [1, 2]}}
SUMMARY = {
    "rounds": 2,
    "final": {"accuracy": 0.75, "rmse": None},
    "tail": {"accuracy": {"mean": 0.7, "sd": 0.01}},
    "bytes_down": 20,
    "bytes_up": 10,
    "seconds": 1.0,
}


def record(number: int) -> dict[str, object]:
    """A line of rounds.jsonl; the first round is not evaluated."""
    return {
        "round": number,
        "selected": [0],
        "failed": [],
        "candidates": 4,
        "reports": [0.1, None],
        "accuracy": 0.75 if number == 2 else None,
        "bytes_down": 10 * number,
        "bytes_up": 5,
        "row_gradients": {"train": 100, "site": 0, "report": 7},
        "seconds": 0.5,
    }


def play(logger: Callback, summary: dict[str, object] | None = SUMMARY) -> None:
    with notified([logger], CONFIG) as notifier:
        for number in (1, 2):
            notifier.on_round(record(number))
        if summary is not None:
            notifier.finish(summary)


def test_the_numbers_of_a_round_are_its_metrics_and_costs():
    assert round_numbers(record(2)) == {
        "accuracy": 0.75,
        "cost/bytes_down": 20.0,
        "cost/bytes_up": 5.0,
        "cost/seconds": 0.5,
        "cost/row_gradients_train": 100.0,
        "cost/row_gradients_site": 0.0,
        "cost/row_gradients_report": 7.0,
    }
    assert "accuracy" not in round_numbers(record(1))
    assert "accuracy" not in round_numbers({**record(2), "accuracy": float("nan")})


def events(folder: Path) -> Iterator[object]:
    """The events of a TensorBoard file: length, its checksum, the event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    (file,) = folder.glob("events.out.tfevents.*")
    content = file.read_bytes()
    while content:
        (length,) = struct.unpack("<Q", content[:8])
        yield Event.FromString(content[12 : 12 + length])
        content = content[16 + length :]


def test_tensorboard_has_a_scalar_for_each_number_and_round(tmp_path: Path):
    play(TensorBoard(tmp_path / "logs"))
    values = {
        (value.tag, event.step): value.simple_value
        for event in events(tmp_path / "logs")
        for value in event.summary.value
    }
    assert values["cost/bytes_down", 1] == 10
    assert values["cost/bytes_down", 2] == 20
    assert values["accuracy", 2] == 0.75
    assert ("accuracy", 1) not in values
    assert values["tail/accuracy", 2] == pytest.approx(0.7)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning", "ignore::UserWarning")
def test_mlflow_has_parameters_metrics_and_the_end_in_a_local_file_store(tmp_path: Path):
    from mlflow import MlflowClient

    logger = MLflow(run_name="first", tracking_uri=tmp_path / "store")
    play(logger)
    client = MlflowClient(tracking_uri=logger.tracking_uri)
    (run,) = client.search_runs([client.get_experiment_by_name("fedstein").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.info.run_name == "first"
    assert run.data.params["selection.kind"] == "hip"
    assert run.data.params["selection.barred"] == "[1, 2]"
    history = client.get_metric_history(run.info.run_id, "cost/bytes_down")
    assert [(point.step, point.value) for point in history] == [(1, 10.0), (2, 20.0)]
    assert run.data.metrics["final/accuracy"] == 0.75
    play(MLflow(run_name="second", tracking_uri=tmp_path / "store"), None)
    statuses = {found.info.run_name: found.info.status for found in client.search_runs([run.info.experiment_id])}
    assert statuses == {"first": "FINISHED", "second": "KILLED"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_wandb_offline_writes_its_file_and_sends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    for variable in ("HTTPS_PROXY", "HTTP_PROXY"):  # whoever tries to send fails at once
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    play(WandB(name="first", folder=tmp_path))
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    content, patience = b"", 100
    while b"tail/accuracy" not in content and (patience := patience - 1):  # W&B's own process writes when it is ready
        time.sleep(0.2)
        content = file.read_bytes()
    for word in (b"accuracy", b"cost/bytes_down", b"tail/accuracy", b"hip"):
        assert word in content
    files = {path.name for path in file.parent.rglob("*") if path.is_file()}
    assert not any("upstream" in name for name in files)


def test_a_package_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name, module in (("tensorboard", "tensorboardX"), ("mlflow", "mlflow"), ("wandb", "wandb")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(InputError, match=rf"pip install 'fedstein\[{name}\]'"):
            make_loggers([name], tmp_path)
    assert set(LOGGERS) == {"tensorboard", "mlflow", "wandb"}


def test_an_unknown_logger_or_one_given_twice_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="--log"):
        make_loggers(["tensorbored"], tmp_path)
    with pytest.raises(InputError, match="every logger once"):
        make_loggers(["mlflow", "mlflow"], tmp_path)
