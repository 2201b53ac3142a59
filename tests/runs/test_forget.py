"""Forgetting a client: what is taken out, what stays, what is refused; barring and late joiners."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from fedstein.errors import InputError
from fedstein.federation import protocol
from fedstein.federation.evaluation import unmeasured
from fedstein.inference.sites.settle import TOLERANCE
from fedstein.report import write_report
from fedstein.runs import checkpoint, forgetting, runner
from fedstein.runs.build import build_site, round_context
from fedstein.runs.config import load_config
from fedstein.runs.federate import federate
from fedstein.runs.folder import RunFolder

FULL = ("sites.kind=curvature", "sites.structure=full", "sites.expand=mean", "selection.kind=round_robin")


def checksums(folder):
    return {
        str(path.relative_to(folder)): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def forget(folder, client, out, notes=None):
    source, config = forgetting.open_source(folder, client, out)
    note = notes.append if notes is not None else lambda text: pytest.fail(text)
    return forgetting.forget(source, config, client, out, note, lambda steps, to_go: None)


def sites_in(folder):
    """The server's arrays and the clients' sites of a folder's checkpoint."""
    manifest = json.loads((folder / "checkpoint" / "manifest.json").read_text())
    server = load_file(folder / "checkpoint" / manifest["server"]["file"])
    clients = {int(k): load_file(folder / "checkpoint" / e["file"]) for k, e in manifest["clients"].items()}
    return server, clients


@pytest.fixture
def forgotten(run, tmp_path):
    run(tmp_path / "r", *FULL, "selection.kind=ksd", "selection.per_round=4", "rounds=2")
    before = checksums(tmp_path / "r")
    summary = forget(tmp_path / "r", 2, tmp_path / "new")
    return tmp_path / "r", before, tmp_path / "new", summary


def test_the_old_folder_is_untouched_and_the_new_one_has_everything(forgotten):
    old, before, new, summary = forgotten
    assert checksums(old) == before
    names = {path.name for path in new.iterdir()}
    # What is of the old particles, or of sites that clients have checked, is not copied.
    kept = {path.name for path in old.iterdir()} - {"particles.jsonl", "weights.json", "weighted.safetensors"}
    assert names == kept | {"forgotten.json"}
    assert json.loads((new / "summary.json").read_text()) == json.loads(json.dumps(summary))
    assert {"before", "final", "settled", "gaussian", "reliability", "tail"} <= set(summary)
    assert summary["settled"]["settled"]
    assert summary["settled"]["to_go"] <= TOLERANCE
    entry = json.loads((new / "forgotten.json").read_text())
    assert entry["clients"] == [2]
    config = load_config(old / "config.toml")
    assert entry["steps"][0]["source"]["config_sha256"] == checkpoint.fingerprint(config)
    assert entry["steps"][0]["had_site"]


def test_nothing_of_the_client_is_left(forgotten):
    old, _, new, _ = forgotten
    (_, sites), (server, left) = sites_in(old), sites_in(new)
    assert set(left) == {0, 1, 3}
    for name in ("eta", "precision"):
        assert np.array_equal(server[name], sum(sites[k][name].astype(np.float64) for k in (0, 1, 3)))
    assert not any("client-2-" in path.name for path in new.rglob("*"))
    assert [client["id"] for client in json.loads((new / "clients.json").read_text())] == [0, 1, 3]
    lines = [json.loads(line) for line in (new / "rounds.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    for line in lines[:2]:
        assert line["reports"][2] is None
        assert line["reports"][0] is not None
        assert line["probabilities"] is None
    assert lines[2]["selected"] == []
    assert lines[2]["forgotten"] == 2
    assert lines[2]["accuracy"] is not None
    config = load_config(new / "config.toml")
    assert config.selection.barred == [2]
    assert config.selection.per_round == 3


def test_the_particles_are_settled_on_the_remaining_sites(forgotten):
    _, _, new, _ = forgotten
    particles = load_file(new / "posterior.safetensors")["particles"].astype(np.float64)
    gaussian = load_file(new / "gaussian.safetensors")
    sd = np.sqrt(np.diag(np.linalg.inv(gaussian["precision"])))
    off = np.abs(particles.mean(axis=0) - gaussian["mean"]) / sd
    assert off[:-1].max() < 0.25, "log xi apart, which few particles get wrong"


def test_the_new_folder_serves_reports_and_another_forgetting_but_no_training(forgotten, tmp_path):
    _, _, new, _ = forgotten
    assert write_report([new], tmp_path / "report").rows
    with pytest.raises(InputError, match="is finished"):
        runner.open_run(new)
    again = forget(new, 0, tmp_path / "again")
    assert again["settled"]["settled"]
    server, left = sites_in(tmp_path / "again")
    assert set(left) == {1, 3}
    assert np.array_equal(server["eta"], left[1]["eta"].astype(np.float64) + left[3]["eta"])
    assert json.loads((tmp_path / "again" / "forgotten.json").read_text())["clients"] == [2, 0]
    with pytest.raises(InputError, match="client 2 takes no part"):
        forget(tmp_path / "again", 2, tmp_path / "third")
    (new / "summary.json").unlink()
    with pytest.raises(InputError, match="was not finished by fedstein forget"):
        runner.open_run(new)


def test_a_client_that_never_trained_is_barred_all_the_same(run, tmp_path):
    run(tmp_path / "r", *FULL, "rounds=2")
    notes: list[str] = []
    forget(tmp_path / "r", 3, tmp_path / "new", notes)
    assert len(notes) == 1
    assert "never trained" in notes[0]
    (server, _), (after, left) = sites_in(tmp_path / "r"), sites_in(tmp_path / "new")
    assert set(left) == {0, 1}
    assert np.array_equal(server["eta"], after["eta"])
    assert load_config(tmp_path / "new" / "config.toml").selection.barred == [3]


def test_diagonal_sites_in_a_basis_can_be_forgotten_too(run, tmp_path):
    run(tmp_path / "r", "sites.kind=curvature", "sites.structure=eigen", "selection.kind=round_robin")
    summary = forget(tmp_path / "r", 1, tmp_path / "new")
    assert summary["settled"]["settled"]
    assert "gaussian" not in summary
    assert (tmp_path / "r" / "basis.safetensors").read_bytes() == (tmp_path / "new" / "basis.safetensors").read_bytes()
    assert np.isfinite(load_file(tmp_path / "new" / "posterior.safetensors")["particles"]).all()


def test_what_cannot_be_forgotten_is_refused(run, make, tmp_path):
    run(tmp_path / "p", "rounds=1", "sites.kind=particles")
    run(tmp_path / "one", *FULL, "rounds=1")
    with pytest.raises(InputError, match=r"sites\.kind = .particles."):
        forget(tmp_path / "p", 0, tmp_path / "new")
    for client in (-1, 4):
        with pytest.raises(InputError, match=f"has no client {client}: expected an id from 0 to 3"):
            forget(tmp_path / "one", client, tmp_path / "new")
    with pytest.raises(InputError, match="no client but 0 has trained"):
        forget(tmp_path / "one", 0, tmp_path / "new")
    with pytest.raises(InputError, match="lies inside"):
        forget(tmp_path / "one", 0, tmp_path / "one" / "new")
    with pytest.raises(InputError, match="already holds a run"):
        forget(tmp_path / "one", 0, tmp_path / "p")
    with pytest.raises(InputError, match="not a run folder"):
        forget(tmp_path / "nowhere", 0, tmp_path / "new")
    with RunFolder(tmp_path / "one").locked(), pytest.raises(InputError, match="in use"):
        forget(tmp_path / "one", 1, tmp_path / "new")
    (tmp_path / "one" / "summary.json").unlink()
    with pytest.raises(InputError, match="is not finished; finish it first"):
        forget(tmp_path / "one", 0, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_rows_that_are_gone_cost_the_metrics_and_nothing_else(run, tmp_path, monkeypatch):
    run(tmp_path / "r", *FULL, "rounds=2")

    def gone(raw):
        raise InputError("expected rows, found none")

    monkeypatch.setattr("fedstein.runs.folder.load_dataset", gone)
    notes: list[str] = []
    summary = forget(tmp_path / "r", 0, tmp_path / "new", notes)
    assert notes == ["not evaluated: expected rows, found none"]
    assert summary["final"]["accuracy"] is None
    assert write_report([tmp_path / "new"], tmp_path / "report").rows


@pytest.mark.parametrize("kind", ["round_robin", "random", "ksd"])
def test_a_barred_client_is_never_asked(run, tmp_path, kind):
    run(tmp_path / "r", *FULL, f"selection.kind={kind}", "selection.barred=[1]", "rounds=8", "evaluate.every=8")
    lines = [json.loads(line) for line in (tmp_path / "r" / "rounds.jsonl").read_text().splitlines()]
    assert all(line["selected"] in ([0], [2], [3]) for line in lines)
    assert all(line["candidate_ids"] == [0, 2, 3] for line in lines)
    if kind == "round_robin":
        assert [line["selected"][0] for line in lines] == [0, 2, 3, 0, 2, 3, 0, 2]


@pytest.mark.parametrize("barred", ["[4]", "[1,1]", "[0,1,2,3]"])
def test_nonsense_is_not_barred(make, barred):
    with pytest.raises(InputError, match=r"selection\.barred"):
        make(*FULL, f"selection.barred={barred}")


def test_a_late_joiner_starts_with_a_zero_site(make):
    """Three clients train first; the fourth joins and meets the whole sum as its cavity."""
    prepared = make(*FULL, "selection.kind=random", "rounds=12", "evaluate.every=12")
    early = prepared.context._replace(barred=frozenset({3}), rounds=6)
    state = protocol.first(early)
    for state, record in protocol.run_rounds(early, state):  # noqa: B007, B020 - the last state is what counts
        assert record["selected"] != [3]
    assert 3 not in state.sites
    site = build_site(prepared.config, prepared.federation.model)
    for name, array in site.sums.cavity(state.server, state.sites.accepted.get(3)).items():
        assert np.array_equal(array, state.server[name].astype(array.dtype))
    assert all(not np.any(array) for array in prepared.federation.program.first_state.values())
    for state, record in protocol.run_rounds(prepared.context, state):  # noqa: B007, B020 - the last state is what counts
        pass
    assert 3 in state.sites
    assert record["accuracy"] > 0.5
    total = sum(np.asarray(state.sites.accepted[k]["eta"], np.float64) for k in sorted(state.sites.accepted))
    np.testing.assert_allclose(state.server["eta"], total, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_forgetting_comes_near_a_run_that_never_had_the_client(covertype, tmp_path, seed):
    """Covertype, 30 clients of 500 rows: every weight's mean within a quarter of a posterior sd."""
    from fedstein.runs.build import build_model, conclude
    from fedstein.runs.config import merge, resolve
    from fedstein.runs.federate import facts_of, prepare_run, split_rows

    settings = [*FULL, f"seed={seed}", "evaluate.every=120", "engine.threads=1"]
    config, _ = resolve(merge({}, settings), facts_of(covertype))
    runner.start(prepare_run(config, covertype), tmp_path / "r", lambda record: None)
    forget(tmp_path / "r", 7, tmp_path / "new")
    kept = [rows for client, rows in enumerate(split_rows(config, covertype)) if client != 7]
    model = build_model(config, covertype.train_x.shape[1], 2, "classification")
    never = federate(config, model, [(covertype.train_x[rows], covertype.train_y[rows]) for rows in kept])
    context = round_context(config, never.program, never.engine, unmeasured)
    for state, _ in protocol.run_rounds(context, protocol.first(context)):  # noqa: B007 - the last state is what counts
        pass
    found = conclude(never.program.method, state.server)
    got = load_file(tmp_path / "new" / "posterior.safetensors")["particles"].mean(axis=0)
    off = np.abs(got - np.asarray(found.server["particles"]).mean(axis=0)) / found.gaussian.sd
    assert off[:-1].max() < 0.25
