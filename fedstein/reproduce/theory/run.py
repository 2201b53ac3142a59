"""The runs of ``reproduce theory`` and what one of them does: play, and look at all clients every fifth round."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedstein.engines.local import LocalEngine
from fedstein.protocol import RunState, first, play
from fedstein.reproduce.plan import SETTINGS, Job
from fedstein.reproduce.theory.measure import Look, Steps, Target, look
from fedstein.runs.config import Config
from fedstein.runs.files import disk_errors, plain, write_bytes, write_json
from fedstein.runs.wiring import Wired

SETTING, SCHEMES = "blr30", ("ksd", "hip")
EVERY = 5  # rounds from one look to the next
EPSILON = 1e-6  # -change / eps is the rate to three digits and more there
LENGTHS = ("limit", "step", "round")  # eps = EPSILON; the length of one AdaGrad step; that of a round's L steps


@dataclass(frozen=True)
class TheoryJob(Job):
    """One run with its looks. Float64 throughout, one thread: its bits depend on nothing but the seed."""

    @property
    def name(self) -> str:
        return f"theory-{super().name}"

    @property
    def weight(self) -> float:
        return self.rounds * (0.05 + 1.2 / EVERY) + 6

    def config(self, threads: int) -> dict[str, Any]:
        raw = super().config(1)
        changes: dict[str, dict[str, Any]] = {
            "sites": {"kind": "particles"},
            "engine": {"precision": "float64"},
            "evaluate": {"every": self.rounds},
        }
        return raw | {section: {**raw.get(section, {}), **values} for section, values in changes.items()}


def theory_jobs(seeds: int | None, rounds: int | None, density: str, full: bool, quick: bool) -> list[TheoryJob]:
    """A KSD run and a HIP run for every seed."""
    setting = SETTINGS[SETTING]
    count = seeds or (2 if quick else setting.seeds)
    length = rounds or (setting.quick_rounds if quick else setting.rounds)
    return [TheoryJob(SETTING, scheme, density, s, length, full) for s in range(count) for scheme in SCHEMES]


def measuring(job: Job, folder: Path, threads: int) -> list[str]:
    """The command of one job. A run that was stopped has left nothing to go on from and starts anew."""
    if folder.exists():
        shutil.rmtree(folder)
    config = folder.with_name(f"{folder.name}.toml")
    write_bytes(config, tomli_w.dumps(job.config(threads)).encode())
    return [sys.executable, "-m", "fedstein.reproduce.theory", str(config), str(folder)]


def play_and_look(wired: Wired, folder: Path) -> None:
    """``rounds.jsonl``: a line a round, with the look before it or null. ``summary.json`` says that it is whole."""
    config = wired.config
    target, steps = target_of(wired), steps_of(config)
    state = first(wired.parts)
    with disk_errors(folder.parent):
        folder.mkdir(parents=True)
        with (folder / "rounds.jsonl").open("w") as file:
            before: Look | None = look_at(wired, target, steps, state)
            for state, record in play(wired.parts, state):  # noqa: B020 - the loop moves the state on
                line = {key: record[key] for key in ("round", "selected", "probabilities", "reports")}
                line["look"] = None if before is None else {key: v.tolist() for key, v in before._asdict().items()}
                file.write(json.dumps(plain(line), allow_nan=False) + "\n")
                file.flush()
                due = state.round < config.rounds and state.round % EVERY == 0
                before = look_at(wired, target, steps, state) if due else None
        write_json(folder / "summary.json", {"status": "finished", "rounds": config.rounds})


def look_at(wired: Wired, target: Target, steps: Steps, state: RunState) -> Look:
    """The round's particles and every client's site, as they are before the round."""
    assert isinstance(wired.engine, LocalEngine), "it looks into every client"
    fresh = wired.parts.program.first_state
    sites = [(wired.engine.states.get(client.id) or fresh)["local"] for client in wired.engine.clients]
    return look(target, steps, state.server["particles"], sites, wired.engine.shards)


def target_of(wired: Wired) -> Target:
    config = wired.config
    density, bandwidth = config.sites.density, config.sites.bandwidth
    assert density is not None, "the sites are particles"
    assert bandwidth is not None, "the sites are particles"
    return Target(wired.parts.program.model, density, bandwidth, config.algorithm.temperature)


def steps_of(config: Config) -> Steps:
    step = config.algorithm.step_size
    return Steps(EPSILON, (step, step * config.algorithm.local_steps))
