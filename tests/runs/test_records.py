"""The record of a round: what is written, what is read back, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest

from fedstein.errors import InputError
from fedstein.evaluation.metrics import NAMES, RESERVED, Metric, choose_metrics, tail, zeros
from fedstein.federation.evaluation import Evaluation
from fedstein.federation.records import CHECKS, RoundRecord, metric_names
from fedstein.files import plain
from fedstein.report import write_report
from fedstein.runs import runner
from fedstein.runs.folder import RunFolder

KEYS = ["round", "selected", "failed", "candidates", "candidate_ids", "probabilities", "reports", "faults"]
COSTS = ["bytes_down", "bytes_up", "row_gradients", "seconds"]
LINE = {
    "round": 3,
    "selected": [1],
    "failed": [0],
    "candidates": 2,
    "candidate_ids": [0, 1],
    "probabilities": [0.25, 0.75],
    "reports": [None, 1.5],
    "faults": {"missing": [0]},
    **dict.fromkeys(NAMES),
    "accuracy": 0.5,
    "mine": 7.0,
    "evaluation": {"rows": 4, "missing": [], "bytes_down": 8, "bytes_up": 9},
    "bytes_down": 10,
    "bytes_up": 20,
    "row_gradients": {"train": 1, "site": 2, "report": 3},
    "seconds": 0.25,
}


@pytest.mark.parametrize("without", [(), ("evaluation",), ("mine",)])
def test_a_line_comes_back_as_it_was(without):
    line = {key: value for key, value in LINE.items() if key not in without}
    record = RoundRecord.from_dict(line)
    assert list(record.to_dict().items()) == list(line.items())
    assert json.dumps(plain(record)) == json.dumps(line)
    assert record == line
    assert isinstance(record, Mapping)
    assert record["seconds"] == record.seconds == 0.25
    assert tuple(record.metrics) == (*NAMES, *(["mine"] if "mine" in line else []))


def test_a_line_of_forgetting_has_no_faults_and_says_who():
    line = {key: value for key, value in LINE.items() if key != "faults"} | {"forgotten": 2}
    assert list(RoundRecord.from_dict(line).to_dict().items()) == list(line.items())


def test_an_older_line_lacks_what_was_not_there_yet():
    record = RoundRecord.from_dict({"round": 1, "selected": [4], "bytes_down": 1, "bytes_up": 2, "seconds": 0.1})
    assert list(record) == [*KEYS, *NAMES, *COSTS]
    assert (record.faults, record.evaluation, record.candidate_ids, record.row_gradients) == (None, None, None, {})
    assert RoundRecord.from_dict({**LINE, "row_gradients": None}).row_gradients == {}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"round": 0}, "expected 'round' to be a number from 1 on, got 0"),
        ({"round": True}, "expected 'round'"),
        ({"selected": 3}, "expected 'selected' to be a list of client ids, got 3"),
        ({"selected": [-1]}, "expected 'selected'"),
        ({"reports": [1.0, "x"]}, "expected 'reports' to be null or a list of numbers"),
        ({"bytes_up": None}, "expected 'bytes_up' to be a count, got None"),
        ({"row_gradients": {"train": "many"}}, "expected 'row_gradients' to be an object of counts"),
        ({"seconds": "1"}, "expected 'seconds' to be a number"),
        ({"accuracy": "high"}, "expected the metric 'accuracy' to be a number or null, got 'high'"),
        ({"mine": [1]}, "expected the metric 'mine'"),
    ],
)
def test_a_damaged_line_is_refused_with_what_is_wrong(change, says):
    with pytest.raises(InputError, match=says):
        RoundRecord.from_dict({**LINE, **change})


def test_what_is_no_record_at_all_is_refused():
    with pytest.raises(InputError, match="expected the record of a round, got list"):
        RoundRecord.from_dict([])
    with pytest.raises(InputError, match="expected the key 'selected'"):
        RoundRecord.from_dict({"round": 1})


def test_no_metric_can_be_called_as_a_key_of_a_record():
    assert CHECKS.keys() <= RESERVED


def test_a_damaged_line_of_a_folder_is_named(tmp_path):
    folder = RunFolder(tmp_path)
    for number in (1, 2):
        folder.append({**LINE, "round": number})
    assert [record.round for record in folder.records()] == [1, 2]
    folder.append({**LINE, "round": 3, "selected": None})
    with pytest.raises(InputError, match=r"line 3 is damaged: expected the record of round 3: expected 'selected'"):
        folder.records()


half = Metric(
    name="half",
    about="share of rows whose true class has at least half of the probability",
    tasks=("classification",),
    zero=zeros("sure"),
    update=lambda prediction, y: {"sure": (prediction.probs[np.arange(len(y)), y] >= 0.5).sum()},
    result=lambda sums, scale: float(sums["sure"] / sums["rows"]),
    larger_is_better=True,
)


def test_an_extra_metric_is_in_the_records_the_summary_and_the_report(make, tmp_path):
    prepared = make("evaluate.every=2", "rounds=3")
    metrics = (*choose_metrics(), half)
    prepared.context.program.metrics = metrics
    evaluation = Evaluation(prepared.federation.model, prepared.dataset, metrics)
    prepared = prepared._replace(evaluation=evaluation, context=prepared.context._replace(evaluate=evaluation))
    summary = runner.start(prepared, tmp_path / "r", lambda record: None)
    records = RunFolder(tmp_path / "r").records()
    assert metric_names(records) == (*NAMES, "half")
    assert all(list(record) == [*KEYS, *NAMES, "half", *COSTS] for record in records)
    assert [record["half"] is not None for record in records] == [False, True, True]
    assert summary["final"]["half"] == records[-1]["half"] == pytest.approx(records[-1]["accuracy"], abs=0.02)
    assert tuple(summary["final"]) == tuple(summary["tail"]) == (*NAMES, "half")
    assert summary["tail"]["half"] == tail(records, ["half"])["half"]
    report = write_report([tmp_path / "r"], tmp_path / "report")
    assert "tail_half" in report.csv.read_text().splitlines()[0]
    assert ">half<" in report.html.read_text()
