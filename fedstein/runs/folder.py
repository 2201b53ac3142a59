"""The run folder: its files, and how it is created, opened, appended to and truncated."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from fedstein.data import Dataset, Scaling, with_scaling
from fedstein.data.encoding import Encoding
from fedstein.errors import InputError
from fedstein.federation.engine import ClientInfo
from fedstein.federation.records import RoundRecord
from fedstein.files import disk_errors, folder_lock, pack, plain, read_json, unpack, write_bytes, write_json
from fedstein.inference.sites.gaussian import SiteGaussian
from fedstein.runs.build import structure_of
from fedstein.runs.config import Config, load_config
from fedstein.runs.federate import load_dataset, was_passed
from fedstein.runs.kept_rows import read_rows

PACKAGES = ("fedstein", "jax", "jaxlib", "numpy", "safetensors", "scikit-learn")


class RunFolder:
    """``config.toml``, ``environment.json``, ``clients.json``, ``data.json``, ``rounds.jsonl``,
    ``particles.jsonl``, ``checkpoint/``, ``posterior.safetensors``, ``summary.json``; ``basis.safetensors`` if the
    inputs were rotated, ``gaussian.safetensors`` and ``sums.safetensors`` from full sites, ``draws.safetensors`` and
    ``draws.json`` once draws were asked for, ``clients-evaluation.json`` if clients evaluate, ``forgotten.json``
    if a client was forgotten; ``rows.safetensors`` and ``rows.json`` if rows were passed to ``fedstein.fit``."""

    def __init__(self, path: Path):
        self.path = path
        self.rounds_file = path / "rounds.jsonl"
        self.checkpoint = path / "checkpoint"
        self.summary_file = path / "summary.json"
        self.forgotten_file = path / "forgotten.json"

    @classmethod
    def create(
        cls,
        path: Path,
        config: Config,
        clients: Sequence[ClientInfo],
        dataset: Dataset,
        basis: Mapping[str, np.ndarray] | None = None,
    ) -> RunFolder:
        """Create a folder with what is known before the first round. A folder that is not empty is refused."""
        facts = describe(dataset)
        if not facts["train_rows"]:  # the rows are with the clients
            facts["train_rows"] = sum(client.rows for client in clients)
        return cls.begin(path, config, [client._asdict() for client in clients], facts, basis)

    @classmethod
    def begin(
        cls,
        path: Path,
        config: Config,
        clients: Sequence[Mapping[str, Any]],
        facts: Mapping[str, Any],
        basis: Mapping[str, np.ndarray] | None = None,
        forgotten: Mapping[str, Any] | None = None,
    ) -> RunFolder:
        """Create a folder from the contents of its JSON files. ``forgotten.json``, if any, is written first."""
        refuse_used(path)
        folder, facts = cls(path), dict(facts)
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            try:
                folder.checkpoint.mkdir()  # of two processes that start at the same time, only one can make this folder
            except FileExistsError:
                raise InputError(f"{path} already holds a run; choose another folder with --out") from None
            if forgotten is not None:
                write_json(folder.forgotten_file, forgotten)
            write_json(path / "environment.json", environment(config))
            write_json(path / "clients.json", clients)
            if basis is not None:
                content = pack(basis)
                facts["basis_sha256"] = hashlib.sha256(content).hexdigest()
                write_bytes(path / "basis.safetensors", content)
            write_json(path / "data.json", facts)
            write_bytes(folder.rounds_file, b"")
            write_bytes(path / "config.toml", config.to_toml().encode())
        return folder

    @classmethod
    def open(cls, path: Path) -> tuple[RunFolder, Config]:
        """Open an existing run."""
        if not (path / "config.toml").is_file():
            raise InputError(
                f"{path} is not a run folder: it has no config.toml; expected the folder of an earlier run"
            )
        return cls(path), load_config(path / "config.toml")

    def append(self, record: Mapping[str, Any]) -> None:
        """Append one line to ``rounds.jsonl``."""
        line = json.dumps(plain(record), allow_nan=False) + "\n"
        with disk_errors(self.path), self.rounds_file.open("ab") as file:
            file.write(line.encode())

    def sync_rounds(self) -> None:
        """Sync the lines to disk, so that a power cut cannot remove rounds that the next checkpoint counts."""
        with disk_errors(self.path), self.rounds_file.open("rb+") as file:
            os.fsync(file.fileno())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder, so that no other process runs or resumes in it. The lock ends with the process."""
        try:
            with folder_lock(self.path, wait=False):
                yield
        except BlockingIOError:
            raise InputError(f"{self.path} is in use: another process is running it; wait for it or stop it") from None

    def dataset(self, config: Config) -> Dataset:
        """Load the rows of the run, which must be the rows that it began with. Rows on nodes are not loaded."""
        dataset = read_rows(self.path, self.data_facts()) if was_passed(config) else load_dataset(config.to_dict())
        if config.data.name == "nodes":
            dataset = with_scaling(dataset, self.scaling())
        self.check_data(dataset)
        return dataset

    def check_data(self, dataset: Dataset) -> None:
        """Check that the rows are those that the run began with."""
        if self.data_facts()["sha256"] != data_checksum(dataset):
            raise InputError(
                f"the data of {self.path} has changed since the run began (another checksum than in data.json); "
                "restore it, or start anew in another folder"
            )

    def environment_changes(self, config: Config) -> list[str]:
        """List the differences from the machine on which the run began. They may change the bits of results."""
        before, now = read_json(self.path / "environment.json", "the environment of the run"), environment(config)
        if not isinstance(before, dict):
            return ["environment.json is damaged"]
        return [f"{key} was {before.get(key)}, is {now[key]}" for key in now if plain(now[key]) != before.get(key)]

    def records(self) -> list[RoundRecord]:
        """The records of all complete lines; an incomplete last line is ignored.

        Raises:
            InputError: The file does not exist, or a line of it is damaged.
        """
        return [self._record(number, line) for number, line in enumerate(self._lines(), start=1)]

    def _record(self, number: int, line: bytes) -> RoundRecord:
        where = f"{self.rounds_file}, line {number} is damaged: expected the record of round {number}"
        try:
            record = RoundRecord.from_dict(json.loads(line))
        except (ValueError, InputError) as error:
            raise InputError(f"{where}: {error}") from None
        if record.round != number:
            raise InputError(f"{where}, got that of round {record.round}")
        return record

    def cut_back(self, rounds: int) -> None:
        """Remove the lines after that round, which the checkpoint does not include."""
        lines = self._lines()
        if len(lines) < rounds:
            raise InputError(
                f"{self.rounds_file} has {len(lines)} rounds but the checkpoint is of round {rounds}: it was cut or "
                "replaced; restore it, or start the run anew in another folder"
            )
        for number, line in enumerate(lines[:rounds], start=1):
            self._record(number, line)
        with disk_errors(self.path):
            write_bytes(self.rounds_file, b"".join(lines[:rounds]))

    def _lines(self) -> list[bytes]:
        if not self.rounds_file.is_file():
            raise InputError(f"expected {self.rounds_file}, found none; {self.path} is not a whole run folder")
        return [line for line in self.rounds_file.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def write_posterior(self, particles: Any) -> None:
        with disk_errors(self.path):
            write_bytes(self.path / "posterior.safetensors", pack({"particles": particles}))

    def read_posterior(self) -> Any:
        path = self.path / "posterior.safetensors"
        if not path.is_file():
            raise InputError(f"{self.path} has no posterior yet: the run has not ended; fedstein resume {self.path}")
        arrays = unpack(path.read_bytes(), path)
        if "particles" not in arrays or arrays["particles"].ndim != 2:
            raise InputError(f"{path} is damaged: expected a tensor 'particles' of shape N x d")
        return arrays["particles"]

    def write_evaluation(self, document: Mapping[str, Any]) -> None:
        """Write the metrics of the posterior on each client's held-out rows."""
        with disk_errors(self.path):
            write_json(self.path / "clients-evaluation.json", document)

    def read_evaluation(self) -> list[dict[str, Any]] | None:
        """The held-out rows and metrics of each client; None if clients did not evaluate."""
        path = self.path / "clients-evaluation.json"
        document = read_json(path, "an evaluation by the clients") if path.is_file() else None
        return document.get("clients") if isinstance(document, dict) else None

    def client_names(self) -> tuple[str, ...]:
        """The names of the clients, in the order of their ids."""
        found = read_json(self.path / "clients.json", "the clients of the run")
        if not isinstance(found, list) or not all(isinstance(client, dict) for client in found):
            raise InputError(f"{self.path / 'clients.json'} is damaged: expected a list of clients")
        return tuple(str(client.get("name", client.get("id"))) for client in found)

    def write_gaussian(self, gaussian: SiteGaussian) -> None:
        arrays = {"mean": gaussian.mean, "precision": gaussian.precision}
        with disk_errors(self.path):
            write_bytes(self.path / "gaussian.safetensors", pack(arrays))

    def has_gaussian(self) -> bool:
        """Whether the run folder has a Gaussian of prior and sites."""
        return (self.path / "gaussian.safetensors").is_file()

    def read_gaussian(self) -> SiteGaussian:
        """The site Gaussian of a run with full sites."""
        path = self.path / "gaussian.safetensors"
        if not path.is_file():
            raise InputError(
                f"{self.path} has no Gaussian posterior: only finished runs with sites.kind = 'curvature' and "
                "sites.structure = 'full' have one; use --posterior particles"
            )
        arrays = unpack(path.read_bytes(), path)
        mean, precision = arrays.get("mean", np.zeros(0)), arrays.get("precision", np.zeros(0))
        if mean.ndim != 1 or precision.shape != (len(mean), len(mean)):
            raise InputError(f"{path} is damaged: expected tensors 'mean' (d) and 'precision' (d x d)")
        return SiteGaussian(mean, precision)

    def refined(self) -> dict[str, Any] | None:
        """The entry of ``summary.json`` about the passes that refined the sites; None if there were none."""
        if not self.summary_file.is_file():
            return None
        summary = read_json(self.summary_file, "a summary")
        found = summary.get("refined") if isinstance(summary, dict) else None
        return found if isinstance(found, dict) else None

    def saved_doubts(self) -> tuple[str, ...] | None:
        """The reasons to doubt the sums of a posterior that was saved here; None for the folder of a run."""
        summary = read_json(self.summary_file, "a summary") if self.summary_file.is_file() else None
        found = summary.get("doubts") if isinstance(summary, dict) else None
        return tuple(map(str, found)) if isinstance(found, list) else None

    def read_basis(self, config: Config) -> dict[str, np.ndarray] | None:
        """The basis of the inputs that the run was set up with, if any. The particles are coordinates in this basis."""
        if structure_of(config) != "eigen":
            return None
        path, expected = self.path / "basis.safetensors", self.data_facts().get("basis_sha256")
        try:
            content = path.read_bytes()
        except OSError:
            raise InputError(
                f"expected the basis of the run's inputs at {path}, found none; restore it or start anew"
            ) from None
        if hashlib.sha256(content).hexdigest() != expected:
            raise InputError(f"{path} is damaged: its checksum is not the one in data.json; restore it or start anew")
        return unpack(content, path)

    def scaling(self) -> Scaling:
        """How the rows of the run are scaled."""
        facts = self.data_facts()
        target = (float(facts["target_mean"]), float(facts["target_scale"]))
        return Scaling(np.array(facts["mean"], np.float64), np.array(facts["scale"], np.float64), *target)

    def encoding(self) -> Encoding | None:
        """How the columns of the user's files became the features; None if the features are columns themselves.

        Raises:
            InputError: ``data.json`` is damaged.
        """
        columns = self.data_facts().get("columns")
        try:
            return None if columns is None else Encoding.from_json(columns)
        except (TypeError, KeyError):
            raise InputError(f"{self.path / 'data.json'} is damaged: expected the coding of columns") from None

    def data_facts(self) -> dict[str, Any]:
        facts = read_json(self.path / "data.json", "the description of the data")
        kinds = {
            "features": list,
            "mean": list,
            "scale": list,
            "labels": list,
            "classes": int,
            "task": str,
            "sha256": str,
        }
        if not isinstance(facts, dict) or not all(isinstance(facts.get(key), kind) for key, kind in kinds.items()):
            raise InputError(f"{self.path / 'data.json'} is damaged: expected {', '.join(kinds)}")
        return facts


def refuse_used(path: Path) -> None:
    """Refuse an output folder that is neither new nor empty."""
    if path.is_file():
        raise InputError(f"{path} is a file; choose a folder with --out")
    if (path / "config.toml").exists():
        raise InputError(
            f"{path} already holds a run; choose another folder with --out, or continue it with: fedstein resume {path}"
        )
    if path.is_dir() and any(path.iterdir()):
        raise InputError(f"{path} is not empty; choose a new or empty folder with --out")


def environment(config: Config) -> dict[str, Any]:
    """Return everything except the config that the bits of a result depend on."""
    import jax

    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "device": jax.devices()[0].device_kind,
        "platform": jax.default_backend(),
        "threads": config.engine.threads,
        "precision": config.engine.precision,
    }


def data_checksum(dataset: Dataset) -> str:
    """One checksum of all rows, to find out whether the data has changed."""
    digest = hashlib.sha256()
    for array in (dataset.train_x, dataset.train_y, dataset.test_x, dataset.test_y):
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the facts about the data that later predictions need: columns, scales and labels, but no rows."""
    return {
        "name": dataset.name,
        "task": dataset.task,
        "features": list(dataset.feature_names),
        "mean": dataset.mean.tolist(),
        "scale": dataset.scale.tolist(),
        "classes": dataset.classes,
        "labels": list(dataset.label_names),
        "label_kind": dataset.label_kind,
        "target_mean": dataset.target_mean,
        "target_scale": dataset.target_scale,
        "sha256": data_checksum(dataset),
        "train_rows": len(dataset.train_x),
        "test_rows": len(dataset.test_x),
        **({} if dataset.encoding is None else {"columns": dataset.encoding.to_json()}),
    }
