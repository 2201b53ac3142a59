"""The promise: a part of any family is one small file, used by name from a config and from ``fit``; nothing is edited.

The parts are the modules beside this file. Runs over Flower with them are in ``tests/flower``.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from small_run import without_passes

import fedstein
from fedstein.errors import InputError
from fedstein.evaluation.metrics import METRICS
from fedstein.federation.channel import KINDS, Wire
from fedstein.federation.codecs import CODECS
from fedstein.inference.methods import METHODS
from fedstein.inference.sites import SITES
from fedstein.models import MODELS
from fedstein.registry import only_plugins
from fedstein.runs import runner
from fedstein.runs.config import resolve
from fedstein.runs.federate import facts_of, load_dataset, prepare_run
from fedstein.selection import SCHEMES
from fedstein.stein import KERNELS
from plugins.bfloat16_codec import BFLOAT16
from plugins.imq_kernel import IMQ
from plugins.laplace_method import LAPLACE
from plugins.loss_scheme import LOSS
from plugins.ridge_model import RIDGE
from plugins.tangent_site import TANGENT
from plugins.top_two_metric import TOP_TWO

SMALL: dict[str, Any] = {
    "rounds": 4,
    "data": {"name": "breast_cancer"},
    "partition": {"clients": 3},
    "algorithm": {"particles": 5, "local_steps": 3},
    "engine": {"threads": 1},
}
# Family: the settings that name its plug-in by import path.
BY_PATH: dict[str, dict[str, Any]] = {
    "scheme": {"selection": {"kind": "plugins.loss_scheme:LOSS", "sharpness": 2.0}},
    "site": {"sites": {"kind": "plugins.tangent_site:TANGENT", "trust": 0.5}},
    "method": {"algorithm": {"kind": "plugins.laplace_method:LAPLACE", "inflation": 2.0, "particles": 50}},
    "model": {"model": {"kind": "plugins.ridge_model:RIDGE", "ridge": 3.0}},
    "metric": {"evaluate": {"metrics": ["plugins.top_two_metric:TOP_TWO"]}},
    "codec": {"channel": {"codec": "plugins.bfloat16_codec:BFLOAT16"}},
    "kernel": {"algorithm": {"kernel": "plugins.imq_kernel:IMQ"}},
}
REGISTRIES = {
    "scheme": (SCHEMES, LOSS),
    "site": (SITES, TANGENT),
    "method": (METHODS, LAPLACE),
    "model": (MODELS, RIDGE),
    "metric": (METRICS, TOP_TWO),
    "codec": (CODECS, BFLOAT16),
    "kernel": (KERNELS, IMQ),
}


def with_settings(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {key: dict(value) if isinstance(value, dict) else value for key, value in base.items()}
    for section, values in changes.items():
        merged[section] = {**merged.get(section, {}), **values}
    return without_passes(merged)


def run(raw: dict[str, Any], out: Path) -> Path:
    dataset = load_dataset(raw)
    config, notes = resolve(raw, facts_of(dataset))
    assert notes == []
    runner.start(prepare_run(config, dataset), out, lambda record: None)
    return out


def lines(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in found]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run without any plug-in."""
    return run(with_settings(SMALL, {}), tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize("family", BY_PATH)
def test_a_config_names_a_plug_in_by_its_import_path(family: str, plain: Path, tmp_path: Path) -> None:
    changes = BY_PATH[family]
    first = run(with_settings(SMALL, changes), tmp_path / "a")
    again = run(with_settings(SMALL, changes), tmp_path / "b")
    assert lines(first) == lines(again), "the same seed gives the same run"
    assert lines(first) != lines(plain), "the plug-in makes a difference"
    last = lines(first)[-1]
    assert last["accuracy"] > 0.8
    assert math.isfinite(last["nll"])
    written = (first / "config.toml").read_text()
    for section, values in changes.items():  # the run folder spells the plug-in and its own settings out
        for value in values.values():
            assert (f'"{value}"' if isinstance(value, str) else str(value).strip("[]'")) in written, section
    summary = json.loads((first / "summary.json").read_text())
    assert summary["status"] == "finished"


@pytest.mark.parametrize("family", BY_PATH)
def test_a_run_with_a_plug_in_resumes_to_the_same_bits(family: str, tmp_path: Path) -> None:
    raw = with_settings(SMALL, {**BY_PATH[family], "checkpoint": {"every": 1}})
    whole = run(raw, tmp_path / "whole")
    dataset = load_dataset(raw)
    prepared = prepare_run(resolve(raw, facts_of(dataset))[0], dataset)

    class Stopped(Exception):
        pass

    def stop(record: Any) -> None:
        if record["round"] == 3:
            raise Stopped

    with pytest.raises(Stopped):
        runner.start(prepared, tmp_path / "cut", stop)
    folder, config = runner.open_run(tmp_path / "cut")
    runner.resume(folder, config, lambda done, changes: None, lambda record: None)
    assert lines(tmp_path / "cut") == lines(whole)
    for name in ("posterior.safetensors",):
        assert (tmp_path / "cut" / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize("family", BY_PATH)
def test_fit_takes_a_registered_plug_in_by_its_own_name(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, part = REGISTRIES[family]
    monkeypatch.setattr(parts, "_parts", dict(parts._parts))
    parts.register(part)
    assert parts[part.name] is part
    assert part.name in set(parts)
    draw = np.random.default_rng(0)
    clients = []
    for shift in (-0.5, 0.0, 0.5):
        x = draw.normal(shift, 1.0, size=(60, 2)).astype(np.float32)
        clients.append((x, (x.sum(axis=1) > 0).astype(int)))
    changes = {
        "scheme": {"selection__kind": "loss", "selection__sharpness": 0.5},
        "site": {"sites__kind": "tangent"},
        "method": {"algorithm__kind": "laplace", "algorithm__particles": 40},
        "model": {"model__ridge": 0.5},
        "metric": {"evaluate__metrics": ["top_two"]},
        "codec": {"channel__codec": "bf16"},
        "kernel": {"algorithm__kernel": "imq"},
    }[family]
    model = "ridge" if family == "model" else "blr"
    if family not in ("site", "method"):
        changes["sites__expand"] = "mean"
    posterior = fedstein.fit(model, clients, rounds=12, test=clients[1], **changes)
    assert posterior.rounds[-1]["accuracy"] > 0.8
    assert posterior.predict(np.array([[2.0, 2.0]], np.float32))[0, 1] > 0.5
    assert ("top_two" in posterior.rounds[-1]) == (family == "metric")
    if family == "metric":
        assert posterior.rounds[-1]["top_two"] == 1.0  # of two classes both are among the first two


def test_settings_of_a_plug_in_are_checked_like_any_other() -> None:
    facts = facts_of(load_dataset({"data": {"name": "breast_cancer"}}))
    with pytest.raises(InputError, match=r"selection\.sharpness: .*greater than 0.*got -1"):
        resolve({"selection": {"kind": "plugins.loss_scheme:LOSS", "sharpness": -1.0}}, facts)
    with pytest.raises(InputError, match="sharpnes"):
        resolve({"selection": {"kind": "plugins.loss_scheme:LOSS", "sharpnes": 1.0}}, facts)
    with pytest.raises(InputError, match="has no 'LOST'"):
        resolve({"selection": {"kind": "plugins.loss_scheme:LOST"}}, facts)
    with pytest.raises(InputError, match="cannot be imported"):
        resolve({"selection": {"kind": "plugins.nowhere:LOSS"}}, facts)
    with pytest.raises(InputError, match="SchemeKind, got SiteKind"):
        resolve({"selection": {"kind": "plugins.tangent_site:TANGENT"}}, facts)


def test_a_module_that_is_not_found_or_fails_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "halfway.py").write_text("def broken(:\n")
    (tmp_path / "needy.py").write_text("import a_package_that_nobody_has\n")
    with pytest.raises(InputError, match=r"'elsewhere' cannot be imported: No module named 'elsewhere'; .*PYTHONPATH"):
        SCHEMES.find("elsewhere:LOSS")
    with pytest.raises(InputError, match=r"module 'halfway' cannot be imported: SyntaxError: "):
        SCHEMES.find("halfway:LOSS")
    missing = r"'needy' cannot be imported: ModuleNotFoundError: No module named 'a_package_that_nobody_has'"
    with pytest.raises(InputError, match=missing + r" \(needy\.py, line 1\); correct the plug-in"):
        SCHEMES.find("needy:LOSS")


def install(folder: Path, name: str) -> None:
    """What an installer leaves of a package whose entry point is the plug-in."""
    made = folder / f"{name}-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text(f"[fedstein.schemes]\n{name} = plugins.loss_scheme:LOSS\n")


def test_a_plug_in_is_found_through_its_entry_point(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SCHEMES, "_parts", dict(SCHEMES._parts))
    monkeypatch.setattr(SCHEMES, "_plugins", dict(SCHEMES._plugins))
    install(tmp_path, "installed_loss")
    assert "installed_loss" not in set(SCHEMES), "its folder is not on the path yet"
    monkeypatch.syspath_prepend(tmp_path)
    assert "installed_loss" in set(SCHEMES)
    install(tmp_path, "installed_later")
    assert "installed_later" in set(SCHEMES), "a package that is installed while the process runs"
    facts = facts_of(load_dataset({"data": {"name": "breast_cancer"}}))
    config, _ = resolve({"selection": {"kind": "installed_loss", "sharpness": 4.0}}, facts)
    assert config.selection.kind == "installed_loss"
    assert SCHEMES["installed_loss"] is LOSS
    with only_plugins([]), pytest.raises(InputError, match=r"'plugins\.loss_scheme:LOSS' is not listed on this node"):
        SCHEMES["installed_loss"]
    with only_plugins(["plugins.loss_scheme"]):
        assert SCHEMES["installed_loss"] is LOSS


def test_a_name_is_taken_once() -> None:
    with pytest.raises(InputError, match="exists already"):
        SCHEMES.register(LOSS._replace(name="ksd"))


def test_the_federated_laplace_is_exact_for_a_linear_gaussian_model(linear_gaussian: Any) -> None:
    """Every client once, temperature 1: mean and covariance of the posterior, wherever the expansion was."""
    model = linear_gaussian.model()
    draw = np.random.default_rng(1)
    clients = []
    for n in (9, 12, 15):
        x = draw.normal(size=(n, 2)).astype(np.float32)
        clients.append((x, (x @ [-1.0, 2.0] + draw.normal(size=n)).astype(np.float32)))
    posterior = fedstein.fit(
        model,
        clients,
        rounds=3,
        selection__kind="round_robin",
        algorithm__kind="plugins.laplace_method:LAPLACE",
        algorithm__particles=4000,
    )
    x, y = (np.concatenate(arrays).astype(float) for arrays in zip(*clients, strict=True))
    mean, covariance = linear_gaussian.posterior(x, y)
    got = posterior.particles.astype(float)
    sd = np.sqrt(np.diag(covariance))
    assert np.abs(got.mean(axis=0) - mean).max() < 5 * sd.max() / math.sqrt(4000)
    np.testing.assert_allclose(np.cov(got.T), covariance, atol=6 * sd.max() ** 2 / math.sqrt(4000))


def test_the_loss_scheme_prefers_the_client_that_is_predicted_worst(tmp_path: Path) -> None:
    raw = with_settings(SMALL, {"selection": {"kind": "plugins.loss_scheme:LOSS", "sharpness": 1.0, "draw": "greedy"}})
    for line in lines(run({**raw, "rounds": 6}, tmp_path / "run")):
        assert line["selected"] == [int(np.argmax(line["reports"]))]


def test_bfloat16_halves_the_bytes_of_the_particles(plain: Path, tmp_path: Path) -> None:
    half = run(with_settings(SMALL, BY_PATH["codec"]), tmp_path / "run")
    before, after = lines(plain)[0], lines(half)[0]
    assert after["bytes_down"] == before["bytes_down"] / 2
    assert before["bytes_up"] / 2 <= after["bytes_up"] < 0.51 * before["bytes_up"]
    wire = Wire(dict.fromkeys(KINDS, BFLOAT16), 0, "float32")
    arrays = {"a": np.linspace(-3, 3, 101, dtype=np.float32), "rows": np.int32(7)}
    encoded = wire.encode("update", 1, 0, arrays)
    decoded = wire.decode("update", 1, 0, encoded)
    assert decoded["rows"] == 7
    np.testing.assert_allclose(decoded["a"], arrays["a"], rtol=2**-8)
    again = wire.encode("update", 1, 0, {name: jnp.asarray(array) for name, array in decoded.items()})
    for name, array in encoded.items():
        np.testing.assert_array_equal(np.asarray(array), np.asarray(again[name]))


def test_the_docs_say_how_long_the_plug_ins_are() -> None:
    here = Path(__file__).resolve().parent
    page = (here.parents[1] / "docs" / "extending.md").read_text()
    found = {name: int(lines) for name, lines in re.findall(r"\| `(\w+\.py)`[^|]*\| (\d+) \|", page)}
    modules = [path for path in here.glob("*.py") if not path.name.startswith(("test_", "__"))]
    assert found == {path.name: len(path.read_text().splitlines()) for path in modules}
