"""Whether clients should send expected expansions in the rounds, and not only in the passes after them.

    python experiments/posterior/in_rounds.py out --task breast_cancer --task covertype4 --task covertype30 --seeds 3

In each round the client that was drawn would get the q of that round, N(m, V), and its expansion over q would become
its site. This makes those sites from the list of drawn clients of a finished run (``rounds.jsonl``), and counts the
passes that are still needed after the rounds: from the sites of the run, from these, and from no sites at all. The
rounds would send V in addition, d (d + 1) / 2 numbers each, and m.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data.shard import make_shard
from fedstein.errors import InputError
from fedstein.inference.expansion import expand
from fedstein.inference.natural import GaussianSite, add_sites, no_site
from fedstein.inference.scale_sites import moments, one_site, tabulate
from fedstein.inference.variational import PassRecord, message_bytes, refine_sites
from fedstein.runs import refining, runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import client_rows, facts_of, load_dataset, prepare_run
from fedstein.studies.goal_tasks import raw_config


def measure(task: str, seed: int, out: Path) -> list[dict[str, Any]]:
    """The passes and bytes after the rounds from three kinds of sites."""
    raw = raw_config(task, seed, out)
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    accepted: dict[int, GaussianSite] = {}
    original = refining.run_passes

    def keep(config: Any, clients: Any, sites: dict[int, GaussianSite], *rest: Any) -> Any:
        accepted.update(sites)
        return original(config, clients, sites, *rest)

    refining.run_passes = keep
    folder = out / f"run-{task}-{seed}"
    run = prepare_run(config, dataset)
    model = run.engine.program.method.spec.model
    try:
        runner.start(run, folder, lambda record: None)
    finally:
        refining.run_passes = original
    shards = {n: make_shard(model.prepare(x), y) for n, (x, y) in enumerate(client_rows(config, dataset))}
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]

    def ask(numbers: list[int], mean: np.ndarray, covariance: np.ndarray) -> dict[int, GaussianSite]:
        return {number: expand(model, shards[number], mean, covariance) for number in numbers}

    expanded = {number: no_site(model.dim) for number in shards}
    failed = 0
    for line in lines:
        for number in line["selected"]:
            site = one_site(add_sites(expanded, model.dim))
            try:
                expanded[number] = ask([number], *moments(model, site, tabulate(model, site)))[number]
            except InputError:
                failed += 1
    each = message_bytes(model.dim)
    found = []
    starts = {
        "sites of the rounds": (accepted, 0),
        "expansions in the rounds": (expanded, len(lines) * each),
        "no sites": ({number: no_site(model.dim) for number in shards}, 0),
    }
    for name, (sites, extra) in starts.items():
        records: list[PassRecord] = []
        passed = refine_sites(model, ask, sites, on_pass=records.append)
        after = sum(record.bytes_down + record.bytes_up for record in records)
        found.append(
            {
                "task": task,
                "seed": seed,
                "from": name,
                "rounds": len(lines),
                "to_go": f"{records[0].to_go:.3g}",
                "passes": len(records),
                "settled": passed.settled,
                "extra_bytes_in_rounds": extra,
                "bytes_of_passes": after,
                "bytes": extra + after,
                "failed": failed,
            }
        )
        print(found[-1], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--task", action="append", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found = [
        line for task in options.task for seed in range(options.seeds) for line in measure(task, seed, options.out)
    ]
    with (options.out / "in_rounds.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main()
