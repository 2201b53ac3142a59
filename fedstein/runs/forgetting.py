"""Forgetting: makes a new run folder from a finished run, without one client's site. The old folder is not changed."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedstein.data.holdout import split_client
from fedstein.errors import InputError
from fedstein.evaluation.metrics import tail
from fedstein.federation.engine import ClientInfo
from fedstein.federation.evaluation import Evaluate
from fedstein.federation.records import RoundRecord, metric_names
from fedstein.federation.round_context import RunState
from fedstein.federation.site_table import SiteTable
from fedstein.federation.spill_cache import SpillCache
from fedstein.files import disk_errors, read_json, write_json
from fedstein.inference.methods.base import OnBlock
from fedstein.inference.sites import SITES
from fedstein.runs import checkpoint
from fedstein.runs.build import build_evaluation, build_model, conclude
from fedstein.runs.client_names import client_id, names_of_run
from fedstein.runs.config import Config
from fedstein.runs.federate import build_federation, client_names, client_rows
from fedstein.runs.folder import RunFolder, refuse_used
from fedstein.runs.kept_draws import write_sums
from fedstein.runs.pruning import is_pruned, prune, pruned_clients, restore
from fedstein.runs.runner import (
    FinalScores,
    describe_conclusion,
    describe_settling,
    evaluate_conclusion,
    in_process,
    summarise,
)
from fedstein.selection import ReportingSettings


def find_client(path: Path, wanted: str | int) -> int:
    """The id of a client of a run, by its name or its id.

    Args:
        path: The run folder.
        wanted: The name, or the id.

    Returns:
        The id. A number that is no client's id is returned unchanged; ``open_source`` checks whether it was forgotten.

    Raises:
        InputError: There is no such client, or no such run.
    """
    RunFolder.open(path)
    names = names_of_run(path)
    if str(wanted).isdecimal() and str(wanted) not in names.values():
        return int(wanted)
    return client_id(wanted, names, str(path))


def open_source(path: Path, client: int, out: Path) -> tuple[RunFolder, Config]:
    """Open the run to forget from, after all checks that need no computation."""
    folder, config = RunFolder.open(path)
    if not SITES.find(config.sites.kind).adds_up:
        able = " or ".join(f"--set sites.kind={name}" for name, kind in SITES.items() if kind.adds_up)
        raise InputError(
            f"{path} has sites.kind = {config.sites.kind!r}, whose sites cannot be taken out again; forgetting needs a "
            f"run with {able}"
        )
    if not 0 <= client < config.partition.clients:
        raise InputError(f"{path} has no client {client}: expected an id from 0 to {config.partition.clients - 1}")
    if client in (config.selection.barred or ()):
        raise InputError(f"client {client} takes no part in {path}: it was forgotten or barred already")
    if not folder.summary_file.exists():
        raise InputError(f"{path} is not finished; finish it first: fedstein resume {path}")
    refuse_used(out)
    if out.resolve().is_relative_to(path.resolve()):
        raise InputError(f"{out} lies inside {path}, which stays as it is; choose a folder elsewhere with --out")
    return folder, config


def forget(
    folder: RunFolder, config: Config, client: int, out: Path, note: Callable[[str], None], on_block: OnBlock
) -> dict[str, Any]:
    """Subtract the client's site, bar the client, settle the particles, and write the folder ``out``.

    ``note`` receives messages for the user, and the summary of the new run is returned. Everything is computed before
    the new folder is created.
    """
    with folder.locked():
        began, facts, records = time.perf_counter(), folder.data_facts(), folder.records()
        model = build_model(config, len(facts["features"]), facts["classes"], facts["task"])
        barred = bar(config, client)
        server = build_federation(barred, model, [], None, folder.read_basis(config))
        method = server.program.method
        empty = SiteTable(method.shared, SpillCache(config.engine.budget << 20))
        template = server.engine.state_template
        if is_pruned(folder.path):
            note("the sites of the run were pruned: they are expanded anew at its last particles")
            state = restore(folder, in_process(folder, config), without=client)
        else:
            state = checkpoint.read(
                folder.checkpoint, config, server.program, config.partition.clients, empty, template
            )
        if state.round != len(records):
            raise InputError(
                f"{folder.path}: the checkpoint is of round {state.round}, rounds.jsonl has {len(records)}; "
                "restore the folder"
            )
        if method.protection is not None and method.protection.apply_sum is not None:
            raise InputError(
                f"{folder.path} has privacy.sums = 'secure': the server has sums over clients alone, from which nobody "
                "can be taken out; start a new run without this client (selection.barred)"
            )
        if method.protection is not None and method.conclude is None:
            raise InputError(
                f"{folder.path} is a private run of a network: each of its steps depends on the releases of all "
                "clients, and nobody can be taken out; start a new run without this client (selection.barred)"
            )
        had_site = client in state.sites or client in pruned_clients(folder)
        sites = state.sites.without(client)
        if not sites:
            raise InputError(f"no client but {client} has trained in {folder.path}: without it only the prior is left")
        if not had_site:
            note(f"client {client} never trained: there is no site to take out; it is barred and the particles settle")
        sums = method.spec.site.sums.total(sites.accepted)  # computed again, without accumulated rounding errors
        found = conclude(method, {**state.server, **sums}, on_block)
        if getattr(config.sites, "expand", "mean") == "variational":
            note("the passes that refine the sites are not repeated: draws are from the sites of the rounds")
        assert found.settled is not None
        if not found.settled.settled:
            note(
                f"the particles have not settled after {found.settled.steps} steps: "
                f"{found.settled.to_go:.3g} posterior sds are still to go"
            )
        after = RunState(
            state.round + 1, found.server, sites, server.program.scheme.first(barred.seed, barred.partition.clients)
        )
        end = evaluate_conclusion(found, method, evaluate_with(folder, barred, note), after, barred.seed)
        line = RoundRecord(
            round=after.round,
            selected=[],
            candidate_ids=[],
            metrics={**dict.fromkeys(metric_names(records)), **(end.posterior.metrics if end.posterior else {})},
            evaluation=end.posterior.evaluation if end.posterior else None,
            bytes_down=0,
            bytes_up=0,
            row_gradients={"train": 0, "site": 0, "report": 0},
            seconds=time.perf_counter() - began,
            forgotten=client,
        )
        before = read_json(folder.summary_file, "a summary").get("final")
        clients = read_json(folder.path / "clients.json", "the clients")
        basis, source = folder.read_basis(config), identify(folder, config, state)
        earlier = (
            read_json(folder.forgotten_file, "forgotten clients")["steps"] if folder.forgotten_file.exists() else []
        )
    entry = {"client": client, "had_site": had_site, "source": source, **describe_settling(found.settled)}
    forgotten = {"clients": [*(step["client"] for step in earlier), client], "steps": [*earlier, entry]}
    new = RunFolder.begin(out, barred, [c for c in clients if c.get("id") != client], facts, basis, forgotten)
    with new.locked():
        for record in [*(without_reports(r, client, config.partition.clients) for r in records), line]:
            new.append(record)
        new.sync_rounds()
        checkpoint.save(new.checkpoint, barred, after, server.engine, None)
        new.write_posterior(server.particles(after.server))
        if found.gaussian is not None:
            new.write_gaussian(found.gaussian)
        if found.sums is not None:
            write_sums(new.path, found.sums)
        if end.posterior is not None and end.posterior.asked:
            infos = [ClientInfo(c["id"], c["name"], c["rows"]) for c in clients]
            new.write_evaluation(end.posterior.document(after.round, infos))
        summary = summarise(new.records(), config.partition.clients, FinalScores(gaussian=end.gaussian))
        summary["tail"] = tail([line], tuple(line.metrics))  # earlier rounds belong to other particles
        summary |= {"before": before, **describe_conclusion(found, end)}
        with disk_errors(new.path):
            write_json(new.summary_file, summary)
        if barred.checkpoint.keep is None:
            prune(new, barred)
    return summary


def bar(config: Config, client: int) -> Config:
    """The config of a federation without the client: a run with this config never asks the client."""
    barred = sorted([*(config.selection.barred or ()), client])
    left = config.partition.clients - len(barred)
    selection: dict[str, Any] = {"barred": barred, "per_round": min(config.selection.per_round, left)}
    if isinstance(config.selection, ReportingSettings) and config.selection.pool:
        selection["pool"] = min(config.selection.pool, left)
    return config.model_copy(update={"selection": config.selection.model_copy(update=selection)})


def evaluate_with(folder: RunFolder, config: Config, note: Callable[[str], None]) -> Evaluate | None:
    """Evaluate on the rows that the run was evaluated on, if they are still available; ``config`` bars the client.

    The rows of the forgotten client may have been deleted, and rows on nodes are never available here.
    """
    by_clients = config.evaluate.where == "clients"
    if by_clients and config.engine.kind != "local":
        note("not evaluated: the held-out rows are with the nodes")
        return None
    try:
        dataset = folder.dataset(config)
    except InputError as error:
        note(f"not evaluated: {error}")
        return None
    model = build_model(config, dataset.train_x.shape[1], dataset.classes, dataset.task)
    rows = client_rows(config, dataset) if by_clients else []
    shares = [split_client(x, y, config.evaluate.fraction) for x, y in rows]
    there = build_federation(config, model, shares, client_names(config, dataset), folder.read_basis(config))
    return build_evaluation(config, there.model, there.engine, dataset)


def without_reports(record: RoundRecord, client: int, clients: int) -> RoundRecord:
    """Remove a client's report from the record of a round, and the probabilities, which would reveal the report."""
    asked = record.candidate_ids if record.candidate_ids is not None else range(clients)
    if not record.reports or client not in asked:
        return record
    reports = [None if k == client else value for k, value in zip(asked, record.reports, strict=True)]
    return replace(record, reports=reports, probabilities=None)


def identify(folder: RunFolder, config: Config, state: RunState) -> dict[str, Any]:
    """Identify the run from which the client was removed."""
    manifest = (folder.checkpoint / "manifest.json").read_bytes()
    return {
        "config_sha256": checkpoint.fingerprint(config),
        "checkpoint_sha256": hashlib.sha256(manifest).hexdigest(),
        "round": state.round,
    }
