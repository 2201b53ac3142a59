"""The runs of ``reproduce theory``. Each plays its rounds and measures all clients before every fifth round."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedstein.federation.local import LocalEngine
from fedstein.federation.protocol import first, run_rounds
from fedstein.federation.round_context import RunState
from fedstein.files import disk_errors, plain, write_bytes, write_json
from fedstein.inference.sites import ParticleSettings
from fedstein.runs.config import Config
from fedstein.runs.federate import PreparedRun
from fedstein.studies.reproduce.plan import SETTINGS, Job
from fedstein.studies.reproduce.theory.measure import Measurement, Steps, Target, measure_candidates

SETTING, SCHEMES = "blr30", ("ksd", "hip")
EVERY = 5  # rounds between two measurements
EPSILON = 1e-6  # small enough that -change / eps equals the rate to at least three digits
LENGTHS = ("limit", "step", "round")  # eps = EPSILON; the length of one AdaGrad step; that of a round's L steps


@dataclass(frozen=True)
class TheoryJob(Job):
    """One run with its measurements. It uses float64 and one thread, so that its bits depend on the seed only."""

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return f"theory-{super().name}"

    @property
    def weight(self) -> float:
        """The relative amount of work, to estimate the remaining time."""
        return self.rounds * (0.05 + 1.2 / EVERY) + 6

    def config(self, threads: int) -> dict[str, Any]:
        """Return the config, with float64 and one thread."""
        raw = super().config(1)
        changes: dict[str, dict[str, Any]] = {
            "sites": {"kind": "particles"},
            "engine": {"precision": "float64"},
            "evaluate": {"every": self.rounds},
        }
        return raw | {section: {**raw.get(section, {}), **values} for section, values in changes.items()}


def theory_jobs(seeds: int | None, rounds: int | None, density: str, full: bool, quick: bool) -> list[TheoryJob]:
    """Plan a KSD run and a HIP run for every seed.

    Args:
        seeds: The number of seeds, or None for the default.
        rounds: The number of rounds, or None for the default.
        density: The KDE density.
        full: Whether to use the full dataset.
        quick: Whether to use few rounds and seeds.
    """
    setting = SETTINGS[SETTING]
    count = seeds or (2 if quick else setting.seeds)
    length = rounds or (setting.quick_rounds if quick else setting.rounds)
    return [TheoryJob(SETTING, scheme, density, s, length, full) for s in range(count) for scheme in SCHEMES]


def theory_command(job: Job, folder: Path, threads: int) -> list[str]:
    """Return the command of one job. An interrupted run cannot be continued, so its folder is removed.

    Args:
        job: The job.
        folder: Its run folder.
        threads: The number of threads, which is not used.
    """
    if folder.exists():
        shutil.rmtree(folder)
    config = folder.with_name(f"{folder.name}.toml")
    write_bytes(config, tomli_w.dumps(job.config(threads)).encode())
    return [sys.executable, "-m", "fedstein.studies.reproduce.theory", str(config), str(folder)]


def run_and_measure(run: PreparedRun, folder: Path) -> None:
    """Play a run, and write ``rounds.jsonl`` and ``summary.json``.

    A line of ``rounds.jsonl`` has the measurement before the round under the key ``look``, or null. ``summary.json`` is
    written last and marks the run as complete.

    Args:
        run: The prepared run.
        folder: The run folder, which must not exist.
    """
    config = run.config
    target, steps = target_of(run), steps_of(config)
    state = first(run.context)
    with disk_errors(folder.parent):
        folder.mkdir(parents=True)
        with (folder / "rounds.jsonl").open("w") as file:
            before: Measurement | None = measure_state(run, target, steps, state)
            for state, record in run_rounds(run.context, state):  # noqa: B020 - the loop moves the state on
                line = {key: record[key] for key in ("round", "selected", "probabilities", "reports")}
                line["look"] = None if before is None else {key: v.tolist() for key, v in before._asdict().items()}
                file.write(json.dumps(plain(line), allow_nan=False) + "\n")
                file.flush()
                due = state.round < config.rounds and state.round % EVERY == 0
                before = measure_state(run, target, steps, state) if due else None
        write_json(folder / "summary.json", {"status": "finished", "rounds": config.rounds})


def measure_state(run: PreparedRun, target: Target, steps: Steps, state: RunState) -> Measurement:
    """Measure the particles and the sites of every client as they are before a round."""
    assert isinstance(run.engine, LocalEngine), "the sites of every client must be in this process"
    fresh = run.context.program.first_state
    sites = [(state.sites.get(client.id) or fresh)["local"] for client in run.engine.clients]
    return measure_candidates(target, steps, run.posterior(state.server), sites, run.engine.shards)


def target_of(run: PreparedRun) -> Target:
    """Return the densities of a run."""
    config = run.config
    assert isinstance(config.sites, ParticleSettings)
    density, bandwidth = config.sites.density, config.sites.bandwidth
    return Target(run.context.program.model, density, bandwidth, config.algorithm.temperature)


def steps_of(config: Config) -> Steps:
    """Return the step lengths of a run."""
    step = config.algorithm.step_size
    return Steps(EPSILON, (step, step * config.algorithm.local_steps))
