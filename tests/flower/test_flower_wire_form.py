"""Sites in the wire's form on disk: the checkpoint of either engine and a node's folder, resumed to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from flower_runs import BNN, Fleet, in_process, lines, settings

from fedstein.federation.wire_form import ROUNDS
from fedstein.files import unpack
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run

CLIENTS, ROUNDS_PLAYED = 6, 8


class Stopped(Exception):
    """What ends a run after some rounds."""


def few_bits(codec: str, packing: str = "none") -> dict[str, Any]:
    """A run whose sites are trained and renewed; a checkpoint after every other round."""
    more = {"channel": {"codec": codec, "packing": packing}, "checkpoint": {"every": 2}}
    sites = {"kind": "curvature", "structure": "eigen", "renew": True}
    selection = {"kind": "hip", "pool": 2}  # a third of the clients, so that sites are renewed whole
    partition, model = {"clients": CLIENTS}, {"hidden": [24]}
    return settings(
        BNN, rounds=ROUNDS_PLAYED, sites=sites, selection=selection, partition=partition, model=model, **more
    )


def stop_after(number: int) -> Any:
    def on_round(record: Any) -> None:
        if record["round"] == number:
            raise Stopped

    return on_round


def stored(folder: Path) -> list[dict[str, Any]]:
    return [unpack(path.read_bytes(), path) for path in sorted(folder.glob("client-*.safetensors"))]


def assert_equal(here: Path, there: Path) -> None:
    assert lines(here) == lines(there)
    assert (here / "posterior.safetensors").read_bytes() == (there / "posterior.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["none", "deflate"])
def test_both_engines_resume_to_the_bit_from_messages(fleet: Fleet, tmp_path: Path, packing: str) -> None:
    raw = few_bits("int4", packing)
    fleet.grid.nodes.update({100 + client: fleet.node(client) for client in range(CLIENTS)})
    whole = in_process(raw, tmp_path / "whole")
    dataset = load_dataset(raw)
    config, _ = resolve(raw, facts_of(dataset))
    with pytest.raises(Stopped):
        runner.start(prepare_run(config, dataset), tmp_path / "cut", stop_after(5))
    found = stored(tmp_path / "cut" / "checkpoint")
    assert any(not {"eta", "precision"} & set(arrays) and arrays[ROUNDS][1] for arrays in found), "one that is renewed"
    assert all("precision" not in arrays for arrays in found)
    runner.resume(*runner.open_run(tmp_path / "cut"), lambda *_: None, lambda record: None)
    assert_equal(whole, tmp_path / "cut")

    with pytest.raises(Stopped):
        fleet.run(raw, tmp_path / "flower", stop_after(6))
    fleet.run(raw, tmp_path / "flower")
    assert_equal(whole, tmp_path / "flower")
    nodes = [path for path in fleet.folder.rglob("*.safetensors") if path.stem in ("committed", "pending")]
    kept = [unpack(path.read_bytes(), path) for path in nodes]
    assert kept
    assert all(f"state/{ROUNDS}" in arrays and "state/precision" not in arrays for arrays in kept)
    assert not any(name.startswith("state/wire/update/") for arrays in kept for name in arrays), (
        "the update is kept once"
    )


@pytest.mark.slow
def test_few_bits_take_less_disk_and_plain_files_are_as_they_were(tmp_path: Path) -> None:
    plain, few = (in_process(few_bits(codec), tmp_path / codec) for codec in ("plain", "int4"))
    assert all(set(arrays) == {"eta", "precision"} for arrays in stored(plain / "checkpoint"))
    manifest = json.loads((plain / "checkpoint" / "manifest.json").read_text())
    assert all(set(entry) == {"file", "sha256"} for entry in manifest["clients"].values())
    sizes = [
        {path.name.split("-")[1]: path.stat().st_size for path in (folder / "checkpoint").glob("client-*")}
        for folder in (plain, few)
    ]
    assert all(sizes[1][client] < 0.6 * sizes[0][client] for client in set(sizes[0]) & set(sizes[1]))
