"""Lying clients in process: the false messages that they send in place of honest ones.

- ``labels``: all labels of a liar are wrong (``partition.flip``); it follows the protocol.
- ``scaled``: a liar sends its site ten times as large with eta turned round, and particles that moved ten times as far.
- ``largest``: wrong labels, and a report a million times as large as its own, so that it is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedstein.errors import FedsteinError
from fedstein.federation.engine import Trained
from fedstein.federation.local import LocalEngine
from fedstein.federation.site_table import SiteTable
from fedstein.inference.sites.base import Arrays
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

LIES = ("labels", "scaled", "largest")
CLIENTS = 30
TIMES, LOUD = 10.0, 1e6
PROTECTED = {"kind": "bounded", "rest": 24}


class LyingEngine(LocalEngine):
    """Plays every client in this process, some of which lie."""

    def __init__(self, honest: LocalEngine, liars: Sequence[int], lie: str):
        """
        Args:
            honest: The engine whose clients are played.
            liars: The clients that lie.
            lie: One of ``LIES``.
        """
        self.__dict__.update(vars(honest))
        self.liars, self.lie = frozenset(liars), lie

    def ask(
        self, round_index: int, broadcast: Arrays, candidates: Sequence[int], sites: SiteTable
    ) -> dict[int, Arrays]:
        found = super().ask(round_index, broadcast, candidates, sites)
        if self.lie != "largest":
            return found
        loud = {k: {name: LOUD * array for name, array in found[k].items()} for k in self.liars if k in found}
        return {**found, **loud}

    def train(
        self, round_index: int, client: int, assignment: Arrays, cached: Arrays, sites: SiteTable
    ) -> Trained | None:
        found = super().train(round_index, client, assignment, cached, sites)
        if self.lie != "scaled" or client not in self.liars or found is None:
            return found
        before = jnp.asarray({**cached, **assignment}["particles"])
        sent = found.update
        lies = {
            "eta": -TIMES * sent["eta"],
            "precision": TIMES * sent["precision"],
            "particles": before + TIMES * (sent["particles"] - before),
        }
        return found._replace(update={**sent, **lies})


def federation_with_liars(
    scheme: str, lie: str, share: float, protected: bool, seed: int, out: Path, rounds: int = 60
) -> dict[str, Any]:
    """One run of logistic regression on Covertype, 30 clients with 500 rows each.

    Args:
        scheme: ``selection.kind``.
        lie: One of ``LIES``.
        share: The share of the clients that lie; they are drawn by the seed.
        protected: Whether ``[robust]`` has bounds and rests.
        seed: The seed of the run.
        out: Where the run folder goes.
        rounds: The number of rounds.

    Returns:
        A line of the table: accuracy and NLL of the particles at the end, and how often a liar trained.
    """
    liars = sorted(np.random.default_rng([seed, 18]).permutation(CLIENTS)[: round(share * CLIENTS)].tolist())
    wrong = {"flip": 1.0, "flip_clients": liars} if liars and lie != "scaled" else {}
    raw = {
        "seed": seed, "rounds": rounds, "data": {"name": "covertype"},
        "partition": {"clients": CLIENTS, "rows_per_client": 500, **wrong},
        "selection": {"kind": scheme}, "sites": {"expand": "mean"}, "engine": {"threads": 1},
        "evaluate": {"every": rounds},
        **({"robust": PROTECTED} if protected else {}),
    }  # fmt: skip
    dataset = load_dataset(raw)
    run = prepare_run(resolve(raw, facts_of(dataset))[0], dataset)
    assert isinstance(run.federation.engine, LocalEngine)
    engine = LyingEngine(run.federation.engine, liars, lie)
    run = run._replace(federation=run.federation._replace(engine=engine), context=run.context._replace(engine=engine))
    named = {"scheme": scheme, "lie": lie, "share": share, "robust": int(protected), "seed": seed}
    try:
        summary = runner.start(run, out / "-".join(map(str, named.values())), lambda record: None)
    except runner.Interrupted:
        raise
    except FedsteinError as error:  # a run that fails because of the liars is a result
        lost = dict.fromkeys(("accuracy", "nll", "by_liars"), float("nan"))
        return {**named, **lost, "end": str(error)[:80]}
    final, counts = summary.get("settled") or summary["final"], np.array(summary["selected_counts"])
    return {
        **named, "accuracy": final["accuracy"], "nll": final["nll"],
        "by_liars": float(counts[liars].sum() / counts.sum()) if liars else 0.0, "end": "done",
    }  # fmt: skip
