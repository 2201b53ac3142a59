"""Callbacks: what they are told, in which order, and what happens when one of them fails."""

from __future__ import annotations

import pytest
from reading import read_rounds

from fedstein import Callback, InputError
from fedstein.runs import runner
from fedstein.runs.callbacks import notified


class Recorder(Callback):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, object]] = []

    def on_start(self, config):
        self.told.append(("start", config))

    def on_round(self, record):
        self.told.append(("round", record["round"]))

    def on_end(self, summary):
        self.told.append(("end", summary))


class Failing(Callback):
    """Fails at its end."""

    def on_end(self, summary):
        raise RuntimeError("no connection")


def test_callbacks_are_told_start_rounds_and_end_in_order():
    first, second = Recorder(), Recorder()
    with notified([first, second], {"seed": 1}) as notifier:
        notifier.on_round({"round": 1})
        notifier.on_round({"round": 2})
        notifier.finish({"rounds": 2})
    assert first.told == second.told
    assert first.told == [("start", {"seed": 1}), ("round", 1), ("round", 2), ("end", {"rounds": 2})]


def test_a_run_that_stops_ends_with_none():
    recorder = Recorder()
    with pytest.raises(KeyboardInterrupt), notified([recorder], {}):
        raise KeyboardInterrupt
    assert recorder.told[-1] == ("end", None)


def test_every_callback_is_told_the_end_also_if_another_one_fails():
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="no connection"), notified([Failing(), recorder], {}) as notifier:
        notifier.finish({"rounds": 0})
    assert recorder.told[-1] == ("end", {"rounds": 0})


def test_an_object_without_the_methods_is_refused_by_name():
    with pytest.raises(InputError, match="got function without on_start, on_round, on_end"), notified([len_of], {}):
        pass


def len_of(record):
    return len(record)


def test_a_run_tells_its_callbacks_and_keeps_its_bits(run, make, tmp_path):
    recorder = Recorder()
    summary = runner.start(make("rounds=2"), tmp_path / "told", lambda record: None, callbacks=[recorder])
    run(tmp_path / "alone", "rounds=2")
    assert read_rounds(tmp_path / "told") == read_rounds(tmp_path / "alone")
    assert recorder.told[0][1]["rounds"] == 2
    assert recorder.told[1:] == [("round", 1), ("round", 2), ("end", summary)]
