"""Pruning: what a finished run keeps, and that it goes on, forgets and predicts from it. Clients by name."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from reading import read_rounds
from safetensors.numpy import load_file

from fedstein import load
from fedstein.cli.prune import prune_folders
from fedstein.errors import InputError
from fedstein.report import load_run
from fedstein.report.groups import group_runs
from fedstein.runs import forgetting, pruning, runner
from fedstein.runs.client_names import client_id
from fedstein.runs.extending import extend
from fedstein.runs.reading import resolve_layers

NETWORK = (
    "sites.kind=curvature",
    "sites.structure=diagonal",
    "selection.kind=round_robin",
    "algorithm.schedule=constant",
    "rounds=4",
)


def continue_run(folder, rounds):
    opened, config = extend(folder, rounds)
    return runner.resume(opened, config, lambda done, changes: None, lambda record: None)


@pytest.fixture
def pruned(run, tmp_path):
    folder = tmp_path / "run"
    run(folder, *NETWORK)
    before = load_file(next((folder / "checkpoint").glob("server-*.safetensors")))
    assert pruning.prune_run(folder, limit=0) > 0
    return folder, before


def test_what_is_left_is_the_servers_state_without_the_sums(pruned):
    folder, before = pruned
    assert pruning.is_pruned(folder)
    names = sorted(path.name for path in (folder / "checkpoint").iterdir())
    assert names == ["manifest.json", "pruned-000004.safetensors"]
    kept = load_file(folder / "checkpoint" / "pruned-000004.safetensors")
    assert set(kept) == {"particles"}
    np.testing.assert_array_equal(kept["particles"], before["particles"])
    assert pruning.prune_run(folder, limit=0) == 0  # a second time changes nothing
    assert load(folder).particles.shape == before["particles"].shape


def test_a_pruned_run_goes_on_from_sites_expanded_at_its_last_particles(pruned, make):
    folder, _ = pruned
    opened, _ = pruning.RunFolder.open(folder)
    prepared = make(*NETWORK)
    state = pruning.restore(opened, prepared)
    assert sorted(state.sites) == [0, 1, 2, 3]
    spec = prepared.federation.program.method.spec
    particles = spec.model.split(state.server["particles"])
    shard = prepared.engine.shards[2]  # at the point of expansion a site has the score of its likelihood
    expected = spec.model.likelihood_score(particles, shard.x, shard.y, (np.arange(len(shard.y)) < shard.rows) * 1.0)
    found = spec.site.site_score(particles, dict(state.sites[2]))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=2e-3)
    summary = continue_run(folder, 6)
    assert summary["rounds"] == 6
    assert [line["round"] for line in read_rounds(folder)] == [1, 2, 3, 4, 5, 6]
    assert not pruning.is_pruned(folder)
    manifest = json.loads((folder / "checkpoint" / "manifest.json").read_text())
    assert len(manifest["clients"]) == 4


def test_runs_prune_themselves_above_the_limit_unless_they_are_to_keep_all(run, tmp_path, monkeypatch):
    monkeypatch.setattr(pruning.prune, "__defaults__", (0,))
    run(tmp_path / "pruned", *NETWORK)
    run(tmp_path / "kept", *NETWORK, "checkpoint.keep=all")
    assert pruning.is_pruned(tmp_path / "pruned")
    assert not pruning.is_pruned(tmp_path / "kept")
    assert read_rounds(tmp_path / "pruned") == read_rounds(tmp_path / "kept")
    prune_folders([tmp_path], 0, True)
    assert pruning.is_pruned(tmp_path / "kept")
    with pytest.raises(InputError, match="expected a run folder"):
        prune_folders([tmp_path / "none"], 0, True)


def test_particle_sites_cannot_be_computed_again_and_are_kept(run, tmp_path):
    run(tmp_path / "run", "rounds=4")
    assert pruning.prune_run(tmp_path / "run", limit=0) == 0
    assert not pruning.is_pruned(tmp_path / "run")


def test_forgetting_from_a_pruned_run_by_name(run, tmp_path):
    folder = tmp_path / "run"
    full = ("sites.kind=curvature", "sites.structure=full", "sites.expand=mean")
    run(folder, *full, "selection.kind=round_robin", "rounds=4")
    assert pruning.prune_run(folder, limit=0) > 0
    client = forgetting.find_client(folder, "client-2")
    assert client == 2
    notes: list[str] = []
    source, config = forgetting.open_source(folder, client, tmp_path / "new")
    forgetting.forget(source, config, client, tmp_path / "new", notes.append, lambda steps, to_go: None)
    assert len(notes) == 1
    assert "expanded anew" in notes[0]
    assert json.loads((tmp_path / "new" / "forgotten.json").read_text())["steps"][0]["had_site"] is True
    assert pruning.is_pruned(folder), "the old folder is only read"
    with pytest.raises(InputError, match=r"has no client north: expected a name or an id of client-0 \(0\)"):
        forgetting.find_client(folder, "north")


def test_a_name_wins_over_an_id_and_a_name_of_several_is_refused():
    names = {0: "7", 1: "south", 2: "south"}
    assert client_id("7", names, "it") == 0
    assert client_id(1, names, "it") == 1
    with pytest.raises(InputError, match="2 clients called 'south'"):
        client_id("south", names, "it")


def test_clients_are_barred_by_name(tmp_path):
    table = tmp_path / "rows.csv"
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal():.4f},{rng.normal():.4f},{name},{k % 2}" for name in "cab" for k in range(30)]
    table.write_text("x,z,place,y\n" + "\n".join(lines) + "\n")
    data = {"name": "file", "path": str(table), "client": "place", "target": "y"}
    read = resolve_layers([("settings", {"data": data, "selection": {"barred": ["b"]}})])
    names = list(read.dataset.client_names)
    assert [names[client] for client in read.config.selection.barred] == ["b"]
    with pytest.raises(InputError, match="the data has no client d"):
        resolve_layers([("settings", {"data": data, "selection": {"barred": ["d"]}})])


def test_the_report_knows_names_that_are_not_just_numbers(run, tmp_path):
    run(tmp_path / "run", "rounds=2")
    assert load_run(tmp_path / "run").client_names == {}
    clients = json.loads((tmp_path / "run" / "clients.json").read_text())
    clients[1]["name"] = "nördlich"
    (tmp_path / "run" / "clients.json").write_text(json.dumps(clients))
    named = load_run(tmp_path / "run")
    assert named.client_names[1] == "nördlich"
    without = replace(named, config={**named.config, "selection": {**named.config["selection"], "barred": [1]}})
    assert [group.label for group in group_runs([named, without])] == ["base", 'barred=["nördlich"]']
