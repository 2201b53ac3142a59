"""Running and resuming: the round loop with its files, its checkpoints and its interruptions."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from fedstein.errors import FedsteinError, InputError
from fedstein.evaluation import metrics
from fedstein.federation.evaluation import Evaluate, EvaluationResult, unmeasured
from fedstein.federation.protocol import first, run_rounds
from fedstein.federation.records import RoundRecord, metric_names
from fedstein.federation.round_context import RunState
from fedstein.files import disk_errors, read_json, write_json
from fedstein.inference.methods import Conclusion, Method
from fedstein.inference.sites.gaussian import DRAWS
from fedstein.inference.sites.settle import STEPS, TOLERANCE, Settled
from fedstein.models import Model
from fedstein.runs import checkpoint
from fedstein.runs.build import conclude, selected_counts
from fedstein.runs.callbacks import check_callbacks, notified
from fedstein.runs.config import Config
from fedstein.runs.early_stopping import stop_reason
from fedstein.runs.federate import PreparedRun, prepare_run
from fedstein.runs.folder import RunFolder
from fedstein.runs.kept_draws import write_sums, write_weights
from fedstein.runs.particle_track import cut_track, note_particles
from fedstein.runs.pruning import is_pruned, prune, restore
from fedstein.runs.refining import refine_conclusion

OnRound = Callable[[Mapping[str, Any]], None]
OnPass = Callable[[str], None]  # called with a line of text for each pass after the last round


def silent(line: str) -> None:
    """Ignore progress messages."""


class Interrupted(FedsteinError):
    """The user stopped the run, which can be resumed later."""


def start(
    run: PreparedRun,
    out: Path,
    on_round: OnRound,
    begun: Callable[[RunFolder], None] | None = None,
    callbacks: Sequence[Any] = (),
    on_pass: OnPass = silent,
) -> dict[str, Any]:
    """Start a run in a new folder and return its summary. ``begun`` is called with the folder."""
    check_callbacks(callbacks)
    state = first(run.context)  # if the run cannot be computed, this fails before the folder is made
    folder = RunFolder.create(out, run.config, run.engine.clients, run.dataset, run.federation.basis)
    with folder.locked():
        keep_ledgers(run, folder)
        if begun is not None:
            begun(folder)
        return observed(folder, run, state, on_round, callbacks, on_pass)


def keep_ledgers(run: PreparedRun, folder: RunFolder) -> None:
    """Keep the ledgers of a private run in process in its run folder, unless the config names another folder."""
    guard = run.federation.program.guard
    if guard is not None and not run.engine.remote:
        guard.keep_in(folder.path / "ledger")


def open_run(path: Path) -> tuple[RunFolder, Config]:
    """Open an unfinished run, after all checks that need no computation."""
    folder, config = RunFolder.open(path)
    if folder.forgotten_file.exists() and not folder.summary_file.exists():
        raise InputError(f"{path} was not finished by fedstein forget; remove the folder and forget the client again")
    if folder.summary_file.exists():
        stopped = read_json(folder.summary_file, "a summary").get("stopped")
        if stopped:
            raise InputError(f"{path} is finished: it ended early: {stopped}; see summary.json")
        raise InputError(
            f"{path} is finished: all {config.rounds} rounds are done; see summary.json, or go on with more rounds: "
            f"fedstein resume {path} --rounds {2 * config.rounds}"
        )
    return folder, config


def in_process(folder: RunFolder, config: Config, model: Model | None = None) -> PreparedRun:
    """Prepare a run that continues in this process; ``model`` is the model of the user, if the run has one."""
    if config.engine.kind != "local":
        raise InputError(
            f"{folder.path} is a run with engine.kind = {config.engine.kind!r}: its clients' sites are with its nodes; "
            f"start those and continue it with flwr run and out = {str(folder.path)!r} (docs/deploy.md)"
        )
    return prepare_run(config, folder.dataset(config), folder.read_basis(config), model=model)


def resume(
    folder: RunFolder,
    config: Config,
    on_start: Callable[[int, list[str]], None],
    on_round: OnRound,
    prepare: Callable[[RunFolder, Config], PreparedRun] = in_process,
    callbacks: Sequence[Any] = (),
    on_pass: OnPass = silent,
) -> dict[str, Any]:
    """Continue from the last checkpoint, or from the beginning if there is none yet.

    ``on_start`` is called with the number of finished rounds and the changes of the machine since then. ``prepare``
    prepares the run again. ``callbacks`` observe the further rounds.
    """
    check_callbacks(callbacks)
    with folder.locked():
        return _resume(folder, config, on_start, on_round, prepare, callbacks, on_pass)


def _resume(
    folder: RunFolder,
    config: Config,
    on_start: Callable[[int, list[str]], None],
    on_round: OnRound,
    prepare: Callable[[RunFolder, Config], PreparedRun],
    callbacks: Sequence[Any],
    on_pass: OnPass,
) -> dict[str, Any]:
    run = prepare(folder, config)
    keep_ledgers(run, folder)
    if is_pruned(folder.path):
        state = restore(folder, run)
        checkpoint.save(folder.checkpoint, config, state, run.engine, None)  # complete again before the run continues
    elif (folder.checkpoint / "manifest.json").exists():
        state = checkpoint.load(folder.checkpoint, config, run.engine, run.context.empty_sites())
    else:
        state = first(run.context)
    folder.cut_back(state.round)
    cut_track(folder.path, state.round)
    on_start(state.round, folder.environment_changes(config))
    return observed(folder, run, state, on_round, callbacks, on_pass)


def observed(
    folder: RunFolder,
    run: PreparedRun,
    state: RunState,
    on_round: OnRound,
    callbacks: Sequence[Any],
    on_pass: OnPass = silent,
) -> dict[str, Any]:
    """Call ``continue_rounds``, and tell callbacks about the start, every round and the end."""
    with notified(callbacks, run.config.to_dict()) as notifier:

        def tell(record: Mapping[str, Any]) -> None:
            on_round(record)
            notifier.on_round(record)

        summary = continue_rounds(folder, run, state, tell, on_pass)
        if run.config.checkpoint.keep is None:
            prune(folder, run.config)
        notifier.finish(summary)
        return summary


def continue_rounds(
    folder: RunFolder, run: PreparedRun, state: RunState, on_round: OnRound, on_pass: OnPass = silent
) -> dict[str, Any]:
    """Run the rounds that remain. If a round fails or the user asks for a stop, a checkpoint is written.

    With ``evaluate.patience`` the rounds end when the NLL of held-out rows has stopped falling. The last record then
    has the reason.
    """
    patience = run.config.evaluate.patience
    records = folder.records() if patience is not None else []  # only early stopping needs them
    saved = state if state.round else None
    every = 1 if run.engine.remote else run.config.checkpoint.every

    def save() -> None:
        nonlocal saved
        if saved is None or state.round > saved.round:
            folder.sync_rounds()
            checkpoint.save(folder.checkpoint, run.config, state, run.engine, saved.sites if saved else None)
            saved = state

    rounds = run_rounds(run.context, state)
    with stop_requests() as stopping:
        while state.round < run.config.rounds and not (records and records[-1].stopped):
            try:
                done, record = next(rounds)
            except FedsteinError:  # the round failed, and the clients are as they were after the previous round
                save()
                raise
            if patience is not None:
                records.append(record)
                if done.round < run.config.rounds and (reason := stop_reason(patience, records)):
                    records[-1] = record = replace(record, stopped=reason)
            line = record.to_dict()
            folder.append(line)
            state = done
            note_particles(folder.path, state.round, run.config.rounds, partial(run.federation.particles, state.server))
            on_round(line)
            if state.round % every == 0:
                save()
            if stopping() and state.round < run.config.rounds and record.stopped is None:
                save()
                raise Interrupted(f"stopped after round {state.round}; continue with: fedstein resume {folder.path}")
        save()
    try:
        return finish(folder, run, state, on_pass)
    except KeyboardInterrupt:  # the last checkpoint holds all rounds
        raise Interrupted(
            f"stopped after the last round, before the posterior was complete; continue with: fedstein resume "
            f"{folder.path}"
        ) from None


@contextmanager
def stop_requests() -> Iterator[Callable[[], bool]]:
    """Make the first Ctrl-C (or SIGTERM) stop the run after the round, and the second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def finish(folder: RunFolder, run: PreparedRun, state: RunState, on_pass: OnPass = silent) -> dict[str, Any]:
    """Write the posterior and the summary. The summary is written last and marks the run as finished."""
    method = run.federation.program.method
    found = conclude(method, state.server)
    folder.write_posterior(run.federation.particles(found.server))
    if found.gaussian is not None:
        folder.write_gaussian(found.gaussian)
    end_of_run = refine_conclusion(run.config, run.engine, state, found, on_pass)
    found, refined = end_of_run.found, end_of_run.refined
    if found.sums is not None:
        write_sums(folder.path, found.sums)
    if end_of_run.weights is not None:
        write_weights(folder.path, end_of_run.weights, end_of_run.weighted)
    end = evaluate_conclusion(found, method, run.evaluation, state, run.config.seed)
    if end.posterior is not None and end.posterior.asked:
        folder.write_evaluation(end.posterior.document(state.round, run.engine.clients))
    summary = summarise(folder.records(), len(run.engine.clients), end) | describe_conclusion(found, end)
    if refined is not None:
        summary["refined"] = refined
    with disk_errors(folder.path):
        write_json(folder.summary_file, summary)
    return summary


class FinalScores(NamedTuple):
    """The evaluations of a run's final posteriors; None if there is no posterior, or no rows to evaluate on."""

    posterior: EvaluationResult | None = None
    gaussian: EvaluationResult | None = None


def evaluate_conclusion(
    found: Conclusion, method: Method, evaluate: Evaluate | None, state: RunState, seed: int
) -> FinalScores:
    """Evaluate the final posterior of the run, and draws from the Gaussian of prior and sites."""
    if evaluate is None or evaluate is unmeasured:
        return FinalScores()
    posterior = evaluate(state.round, method.posterior(found.server), state.sites)
    if found.gaussian is None:
        return FinalScores(posterior)
    draws = jnp.asarray(found.gaussian.draws(DRAWS, seed), jnp.result_type(float))
    return FinalScores(posterior, evaluate(state.round, draws, state.sites))


def describe_conclusion(found: Conclusion, end: FinalScores) -> dict[str, Any]:
    """Return the summary's entries about the posterior: how it settled, and the scores of the site Gaussian."""
    summary: dict[str, Any] = {}
    if found.settled is not None:
        summary["settled"] = {**describe_settling(found.settled), **(end.posterior.metrics if end.posterior else {})}
    if found.refused is not None:
        summary["gaussian"] = {"refused": found.refused}
    if found.gaussian is not None:
        summary["gaussian"] = {"draws": DRAWS, **(end.gaussian.metrics if end.gaussian else {})}
    summary["reliability"] = end.posterior.reliability if end.posterior else None
    return summary


def describe_settling(settled: Settled) -> dict[str, Any]:
    """Describe the stopping rule, and whether it was met."""
    return {
        "rule": f"at most {TOLERANCE} posterior sds to go, or {STEPS} steps",
        "steps": settled.steps,
        "to_go": settled.to_go,
        "settled": settled.settled,
    }


def summarise(records: Sequence[RoundRecord], clients: int, end: FinalScores | None = None) -> dict[str, Any]:
    """Make ``summary.json`` from the lines of ``rounds.jsonl`` and, if clients evaluated, the final evaluations."""
    costs = [record.evaluation for record in records]
    costs += [reading.evaluation for reading in end or () if reading is not None]
    asked = [cost for cost in costs if cost is not None]
    evaluation = {key: sum(cost[key] for cost in asked) for key in ("bytes_down", "bytes_up")}
    names = metric_names(records)
    return {
        "status": "finished",
        "rounds": len(records),
        "final": {name: records[-1].metrics.get(name) for name in names},
        "tail": metrics.tail(records, names),
        "bytes_down": sum(record.bytes_down for record in records),
        "bytes_up": sum(record.bytes_up for record in records),
        "row_gradients": {
            kind: sum(record.row_gradients.get(kind, 0) for record in records) for kind in ("train", "site", "report")
        },
        "selected_counts": selected_counts(records, clients),
        "seconds": sum(record.seconds for record in records),
        **({"stopped": records[-1].stopped} if records[-1].stopped else {}),
        **({"evaluation": evaluation} if asked else {}),
    }
