"""Fedstein inside a ServerApp of the user's own: Flower's loop, the same rounds."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_runs import BLR, BNN, QUICK, Fleet, in_process, lines, settings
from flwr.app import Array, ArrayRecord, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import Strategy

from fedstein.errors import InputError
from fedstein.files import unpack
from fedstein.flower import FedStein

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "flower" / "clinics"
SITES = {"particles": {"kind": "particles", "density": "log"}, "curvature": {"kind": "curvature", "structure": "eigen"}}


def started(raw: dict[str, Any], fleet: Fleet, rounds: int = 4, **engine: Any) -> tuple[FedStein, Any]:
    strategy = FedStein({**raw, "engine": {**QUICK, **engine}})
    result = strategy.start(grid=fleet.grid, initial_arrays=strategy.initial_arrays(), num_rounds=rounds)
    return strategy, result


def recorded(strategy: FedStein) -> list[dict[str, Any]]:
    return [{key: value for key, value in record.items() if key != "seconds"} for record in strategy.records]


@pytest.mark.parametrize(
    ("scheme", "sites"),
    [(scheme, "curvature") for scheme in ("ksd", "hip", "round_robin", "random")] + [("ksd", "particles")],
)
def test_flowers_loop_plays_the_same_rounds(scheme: str, sites: str, fleet: Fleet, tmp_path: Path) -> None:
    raw = settings(BNN, selection={"kind": scheme}, sites=SITES[sites])
    whole = in_process(raw, tmp_path / "whole")
    strategy, result = started(raw, fleet)
    assert isinstance(strategy, Strategy)
    assert recorded(strategy) == lines(whole)
    kept = unpack((whole / "posterior.safetensors").read_bytes(), whole)["particles"]
    assert np.array_equal(strategy.posterior(), kept)
    last = result.evaluate_metrics_clientapp[4]
    assert last["accuracy"] == strategy.records[-1]["accuracy"]
    assert result.train_metrics_clientapp[4]["client"] == strategy.records[-1]["selected"][0]


def test_the_message_of_a_round_goes_through_flower_and_only_one(fleet: Fleet) -> None:
    strategy = FedStein(settings(BLR, selection={"kind": "ksd"}, engine=QUICK))
    arrays = strategy.initial_arrays()
    messages = list(strategy.configure_train(1, arrays, None, fleet.grid))  # type: ignore[arg-type]
    trainings = [message for message in fleet.grid.sent if message.metadata.message_type == "train"]
    assert len(messages) == 1
    assert not trainings, "the grid was asked for reports only"
    replies = fleet.grid.send_and_receive(messages)
    after, metrics = strategy.aggregate_train(1, replies)
    assert after is not None
    assert metrics is not None
    assert not np.array_equal(after["particles"].numpy(), arrays["particles"].numpy())


def test_a_reply_that_does_not_come_is_asked_for_again(fleet: Fleet, tmp_path: Path) -> None:
    """Flower's loop got nothing in time; the round is asked again through the grid, and counts once."""
    raw = settings(BNN, selection={"kind": "round_robin"})
    lost: list[str] = []

    def lose(request: Message, reply: Message) -> Message | None:
        if request.metadata.message_type == "train" and len(lost) < 2:
            lost.append(request.metadata.message_id)
            return None
        return reply

    fleet.grid.meddle = lose
    strategy, _ = started(raw, fleet)
    assert len(lost) == 2
    assert recorded(strategy) == lines(in_process(raw, tmp_path / "whole"))


def test_particles_of_ones_own_are_taken_up(fleet: Fleet) -> None:
    strategy = FedStein(settings(BLR, engine=QUICK))
    first = strategy.initial_arrays()["particles"].numpy()
    moved = ArrayRecord({"particles": Array(first + 1.0)})
    strategy.start(grid=fleet.grid, initial_arrays=moved, num_rounds=1)
    other = FedStein(settings(BLR, engine=QUICK))
    other.start(grid=fleet.grid, initial_arrays=other.initial_arrays(), num_rounds=1)
    assert not np.array_equal(strategy.posterior(), other.posterior())
    with pytest.raises(InputError, match="initial_arrays"):
        FedStein(settings(BLR, engine=QUICK)).start(
            grid=fleet.grid, initial_arrays=ArrayRecord({"particles": Array(first[:2])}), num_rounds=1
        )


def test_what_a_strategy_cannot_do_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="one client a round"):
        FedStein(settings(BLR, selection={"per_round": 2}))
    with pytest.raises(InputError, match=r"unknown value of selection\.kind: 'best'"):
        FedStein(settings(BLR), selection="best")
    with pytest.raises(InputError, match="before the first round"):
        FedStein(settings(BLR)).posterior()
    monkeypatch.delitem(sys.modules, "fedstein.flower.server.strategy")
    monkeypatch.setitem(sys.modules, "flwr", None)
    monkeypatch.setitem(sys.modules, "flwr.app", None)
    import fedstein.flower

    with pytest.raises(InputError, match=r"pip install 'fedstein\[flower\]'"):
        fedstein.flower.__getattr__("FedStein")


def test_predictions_of_raw_rows(fleet: Fleet) -> None:
    strategy, _ = started(settings(BLR, rounds=3), fleet, rounds=3)
    dataset = strategy.dataset
    raw = dataset.test_x * dataset.scale + dataset.mean
    found = strategy.predict(raw)
    assert found.shape == (len(raw), 2)
    assert np.allclose(found.sum(axis=1), 1.0)
    right = (found.argmax(axis=1) == dataset.test_y).mean()
    assert right == pytest.approx(strategy.records[-1]["accuracy"], abs=0.02)


def test_predictions_of_a_regression_are_in_its_own_units(fleet: Fleet) -> None:
    base = {"data": {"name": "diabetes"}, "partition": {"clients": 3}, "model": {"hidden": [4]}}
    strategy, _ = started(settings(base, rounds=12, selection={"kind": "round_robin"}), fleet, rounds=12)
    dataset = strategy.dataset
    found = strategy.predict(dataset.test_x * dataset.scale + dataset.mean)
    assert found.shape == (len(dataset.test_x), 2)
    y = dataset.test_y * dataset.target_scale + dataset.target_mean
    assert np.sqrt(np.mean((found[:, 0] - y) ** 2)) == pytest.approx(strategy.records[-1]["rmse"], rel=1e-3)
    assert (found[:, 1] > 0).all()


def test_the_example_names_flowers_own_kinds_of_apps() -> None:
    """What Flower takes; the whole example runs in ``test_flower_real``."""
    assert isinstance(runpy.run_path(str(EXAMPLE / "client_app.py"))["app"], ClientApp)
    assert isinstance(runpy.run_path(str(EXAMPLE / "server_app.py"))["app"], ServerApp)
