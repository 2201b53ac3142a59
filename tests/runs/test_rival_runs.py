"""Runs with the methods and selection rules of other authors: stopped and resumed, with any scheme, on any model."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reading import read_rounds

from fedstein.inference.methods import METHODS
from fedstein.models import MODELS
from fedstein.runs import runner
from fedstein.selection import SCHEMES

REFERENCES = ("dsvgd", "parallel_dsvgd", "pooled_svgd", "pooled_sghmc", "fedavg")
RIVALS = [name for name in METHODS if name not in REFERENCES]
EVERYDAY = ("scaffold", "ivon_admm", "qlsd_pp")
RULES = [name for name in SCHEMES if name not in ("round_robin", "random", "ksd", "hip", "innovation")]


def slow_but(names: tuple[str, ...], everything: list[str]) -> list[Any]:
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in everything]


@pytest.mark.parametrize("name", slow_but(EVERYDAY, [*RIVALS, "pooled_sghmc"]))
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(
    name: str, make: Callable[..., Any], run: Callable[..., Any], tmp_path: Path
) -> None:
    pooled = METHODS[name].pooled
    rule = "round_robin" if pooled else RULES[RIVALS.index(name) % len(RULES)]  # every rule with some method
    settings = (
        f"algorithm.kind={name}",
        "sites.kind=none",
        f"selection.kind={rule}",
        f"selection.per_round={1 if pooled else 2}",
        "rounds=5",
        "checkpoint.every=4",
    )
    run(tmp_path / "whole", *settings)

    def press(record: Any) -> None:
        if record["round"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(runner.Interrupted, match="after round 3"):
        runner.start(make(*settings), tmp_path / "cut", press)
    opened, config = runner.open_run(tmp_path / "cut")
    runner.resume(opened, config, lambda done, changes: None, lambda record: None)
    assert read_rounds(tmp_path / "cut") == read_rounds(tmp_path / "whole")
    found = [(tmp_path / kind / "posterior.safetensors").read_bytes() for kind in ("cut", "whole")]
    assert found[0] == found[1]


MODEL_PAIRS = [(name, list(MODELS)[i % len(MODELS)]) for i, name in enumerate(RIVALS)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "model"), MODEL_PAIRS)
def test_methods_on_other_models(name: str, model: str, miniature: Callable[..., Any]) -> None:
    if name == "fedgvi" and MODELS[model].task == "regression":
        model = "softmax"
    made = miniature(model=model, algorithm=name, scheme="round_robin", rounds=2)
    state, records = made.play()
    points = made.context.method.posterior(state.server)
    assert points.shape[1] == made.context.program.model.dim
    assert len(records) == 2
