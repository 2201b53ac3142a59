"""Atomic files, checkpoints and what happens when they are damaged, foreign or torn."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedstein import files
from fedstein.errors import InputError
from fedstein.federation.protocol import first, run_rounds
from fedstein.federation.records import RoundRecord
from fedstein.runs import checkpoint, runner
from fedstein.runs.folder import RunFolder


@pytest.fixture
def saved(make, tmp_path):
    """A run after three rounds with a checkpoint of round 2: (folder, prepared run, state at round 3, sites saved)."""
    prepared = make("selection.kind=round_robin")
    folder = RunFolder.create(tmp_path / "r", prepared.config, prepared.engine.clients, prepared.dataset)
    state = first(prepared.context)
    for done, record in run_rounds(prepared.context, state):
        state = done
        folder.append(record)
        if state.round == 2:
            checkpoint.save(folder.checkpoint, prepared.config, state, prepared.engine, None)
            kept = state.sites
        if state.round == 3:
            break
    return folder, prepared, state, kept


def load(folder, prepared):
    return checkpoint.load(folder.checkpoint, prepared.config, prepared.engine, prepared.context.empty_sites())


def test_a_failing_write_leaves_the_old_file_and_no_debris(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    files.write_json(path, {"a": 1})

    def broken(*_):
        raise OSError(28, "no space")

    monkeypatch.setattr(files.os, "fsync", broken)
    with pytest.raises(OSError, match="no space"):
        files.write_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_non_finite_numbers_become_null(tmp_path):
    files.write_json(tmp_path / "a.json", {"a": [float("nan"), float("inf"), 1.5]})
    assert json.loads((tmp_path / "a.json").read_text()) == {"a": [None, None, 1.5]}


def test_a_checkpoint_writes_only_the_states_that_changed(saved):
    folder, prepared, state, kept = saved
    before = {p.name: p.stat().st_mtime_ns for p in folder.checkpoint.iterdir()}
    assert {n for n in before if n.startswith("client-")} == {
        "client-0-000002.safetensors",
        "client-1-000002.safetensors",
    }
    checkpoint.save(folder.checkpoint, prepared.config, state, prepared.engine, kept)
    after = {p.name: p.stat().st_mtime_ns for p in folder.checkpoint.iterdir()}
    for name in ("client-0-000002.safetensors", "client-1-000002.safetensors"):
        assert after[name] == before[name], "untouched"
    assert set(after) - set(before) == {"client-2-000003.safetensors", "server-000003.safetensors"}
    assert set(before) - set(after) == {"server-000002.safetensors"}, "swept after the swap"


def test_until_the_manifest_is_swapped_the_old_checkpoint_holds(saved, make, monkeypatch):
    folder, prepared, state, kept = saved

    def power_cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_json", power_cut)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.save(folder.checkpoint, prepared.config, state, prepared.engine, kept)
    fresh = make("selection.kind=round_robin")
    restored = load(folder, fresh)
    assert restored.round == 2
    assert sorted(restored.sites) == [0, 1]


@pytest.mark.parametrize("name", ["server-000002.safetensors", "client-1-000002.safetensors"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "empty"])
def test_a_damaged_array_file_is_refused(saved, make, name, damage):
    folder, *_ = saved
    path = folder.checkpoint / name
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        changed = {"truncated": content[:-9], "flipped": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}
        path.write_bytes(changed[damage])
    fresh = make("selection.kind=round_robin")
    with pytest.raises(InputError, match=name):
        load(folder, fresh)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: "[]", "damaged"),
        (lambda text: json.dumps({**json.loads(text), "format": 99}), "format 99"),
        (lambda text: json.dumps({**json.loads(text), "server": 3}), "damaged"),
        (lambda text: json.dumps({**json.loads(text), "clients": {"x": {}}}), "damaged"),
    ],
)
def test_a_damaged_manifest_is_refused(saved, make, change, words):
    folder, *_ = saved
    path = folder.checkpoint / "manifest.json"
    path.write_text(change(path.read_text()))
    fresh = make("selection.kind=round_robin")
    with pytest.raises(InputError, match=words):
        load(folder, fresh)


def test_a_checkpoint_of_an_old_format_is_refused_with_the_version_that_reads_it(saved, make):
    folder, *_ = saved
    path = folder.checkpoint / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["format"] == checkpoint.FORMAT == 2
    path.write_text(json.dumps({**manifest, "format": 1}))
    fresh = make("selection.kind=round_robin")
    with pytest.raises(InputError) as caught:
        load(folder, fresh)
    assert str(caught.value) == (
        f"{path} has format 1, this version of fedstein reads format 2; it can be continued with "
        f"{checkpoint.OLD_FORMATS[1]}"
    )
    assert set(checkpoint.OLD_FORMATS) == set(range(1, checkpoint.FORMAT)), "every older format has its reader named"
    opened, config = runner.open_run(folder.path)
    before = folder.rounds_file.read_bytes()
    with pytest.raises(InputError, match="has format 1"):
        runner.resume(opened, config, lambda *_: None, lambda record: None)
    assert folder.rounds_file.read_bytes() == before, "nothing is lost"


def test_a_checkpoint_of_another_run_is_refused(saved, make):
    folder, *_ = saved
    other = make("selection.kind=round_robin", "seed=9")
    with pytest.raises(InputError, match="another run"):
        load(folder, other)


def test_rounds_are_cut_back_to_the_checkpoint(saved):
    folder, *_ = saved
    assert len(folder.records()) == 3
    folder.cut_back(2)
    assert [record["round"] for record in folder.records()] == [1, 2]


def line_of(number):
    record = RoundRecord(round=number, selected=[0], bytes_down=0, bytes_up=0, seconds=0.1)
    return json.dumps(record.to_dict()).encode() + b"\n"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b"", "has 0 rounds"),
        (b'{"round": 1}\n{"round": 2}\n', "line 1 is damaged.*expected the key 'selected'"),
        (line_of(1) + b"nonsense\n", "line 2 is damaged"),
        (line_of(1) + line_of(7), "line 2 is damaged.*got that of round 7"),
    ],
)
def test_rounds_that_do_not_fit_the_checkpoint_are_refused(saved, lines, words):
    folder, *_ = saved
    folder.rounds_file.write_bytes(lines)
    with pytest.raises(InputError, match=words):
        folder.cut_back(2)
    assert folder.rounds_file.read_bytes() == lines, "nothing is lost"


def test_arrays_come_back_with_their_shapes_scalars_and_transposes_too(tmp_path):
    arrays = {"count": np.int32(7), "turned": np.arange(6.0).reshape(2, 3).T, "none": np.zeros((0, 2), np.float32)}
    back = files.unpack(files.pack(arrays), tmp_path)
    assert {k: (a.shape, a.dtype) for k, a in back.items()} == {k: (np.shape(a), a.dtype) for k, a in arrays.items()}
    assert all(np.array_equal(back[name], array) for name, array in arrays.items())
