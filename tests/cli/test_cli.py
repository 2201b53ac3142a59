"""The command line as people meet it: real processes, exit codes, one-line errors, what is printed where."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from forked import fedstein
from small_run import SMALL_RUN

from fedstein.cli.app import app

SMALL = (*SMALL_RUN, "rounds=4")


def settings(*more: str) -> list[str]:
    """The options of a small run; steps that only particle sites take are left out where others are chosen."""
    other = any(setting.startswith("sites.kind=") and setting != "sites.kind=particles" for setting in more)
    small = [setting for setting in SMALL if not (other and setting.startswith("algorithm.distill_steps="))]
    return [part for setting in (*small, *more) for part in ("--set", setting)]


def assert_refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Exit 2, one line on standard error, no traceback."""
    assert result.returncode == 2, result.stderr
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("fedstein: ")
    for word in words:
        assert word in result.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    result = fedstein("run", *settings(), "--out", folder, "--seed", "3")
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_run_prints_plain_lines_in_a_pipe_and_ends_with_a_table_and_the_place(finished):
    folder, out = finished
    lines = out.splitlines()
    assert lines[0].startswith("blr on covertype: 4 clients")
    assert [line.split()[1] for line in lines if line.startswith("round ")] == ["1/4", "2/4", "3/4", "4/4"]
    assert "accuracy" in out
    assert "\x1b" not in out, "no animation without a terminal"
    assert str(folder) in lines[-1]
    assert json.loads((folder / "rounds.jsonl").read_text().splitlines()[0])["round"] == 1


def test_the_resolved_config_repeats_the_run_bit_for_bit(finished, tmp_path):
    folder, _ = finished
    again = fedstein("run", folder / "config.toml", "--out", tmp_path / "again", "--quiet")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    names = ("posterior.safetensors", "config.toml")
    assert all((folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes() for name in names)


def test_float64_runs_end_in_float64(tmp_path):
    from safetensors.numpy import load_file

    result = fedstein("run", *settings("engine.precision=float64"), "--out", tmp_path / "r", "--quiet")
    assert result.returncode == 0, result.stderr
    assert load_file(tmp_path / "r" / "posterior.safetensors")["particles"].dtype == np.float64


def test_without_out_a_free_folder_is_chosen(tmp_path):
    for _ in range(2):
        assert fedstein("run", *settings("rounds=1"), "--quiet", cwd=tmp_path).returncode == 0
    assert sorted(p.name for p in (tmp_path / "runs").iterdir()) == ["covertype-ksd-seed0", "covertype-ksd-seed0-2"]


def test_a_key_of_the_file_that_the_command_overrides_is_said(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[selection]\nkind = 'round_robin'\norder = 'seeded'\n")
    result = fedstein("run", file, *settings("rounds=1", "selection.kind=ksd"), "--out", tmp_path / "r", "--quiet")
    assert result.returncode == 0
    assert result.stderr == "fedstein: note: selection.order is not used: selection.kind is 'ksd'\n"


def test_a_key_that_contradicts_the_command_is_refused(tmp_path):
    result = fedstein("run", *settings("rounds=1", "selection.order=seeded"), "--out", tmp_path / "r", "--quiet")
    assert result.returncode == 2
    assert "selection.order is not used: selection.kind is 'ksd' by default" in result.stderr
    assert "selection.kind = 'round_robin'" in result.stderr


def test_config_says_what_every_key_means(tmp_path):
    result = fedstein("config", "--set", "data.name=mnist", "--set", "sites.damping=0.5", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    for word in ("[selection]", "per_round", "number > 0", "bnn_classifier", "Set to 0.5 by the command line."):
        assert word in " ".join(result.stdout.split())
    assert max(len(line.rstrip()) for line in result.stdout.splitlines()) <= 80
    assert not list(tmp_path.iterdir())
    assert fedstein("config", "--set", "sites.bandwidth=-1").returncode == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--set", "selection.kind=kds"], ["did you mean 'ksd'", "round_robin, random, ksd, hip"]),
        (["run", "--set", "algorithm.partciles=9"], ["did you mean 'particles'"]),
        (["run", "--set", "data.name=covertyp"], ["did you mean 'covertype'"]),
        (["run", "--set", "algorithm.particles=1"], ["algorithm.particles = 1", "at least 2"]),
        (
            ["run", "--set", "algorithm.kind=fedavg", "--set", "selection.kind=ksd"],
            ["'ksd' does not go with", "'fedavg'", "use round_robin or random"],
        ),
        (["run", "--set", "sites.kind=none"], ["'none' does not go with", "use curvature or particles"]),
        (["run", "--set", "sites.kind=curvature", "--set", "sites.damping=2"], ["sites.damping", "got 2"]),
        (["run", "--set", "partition.clients=50000"], ["50000", "partition.clients"]),
        (["run", "--set", "partition.rows_per_client=5000"], ["rows_per_client"]),
        (["run", "--set", "model.kind=bnn_regressor"], ["regression", "blr, bnn_classifier"]),
        (["run", "--set", "data.name=mnist", "--set", "model.kind=blr"], ["two classes", "bnn_classifier"]),
        (["run", "nowhere.toml"], ["nowhere.toml", "found none"]),
        (["run", "--sed", "3"], ["--sed"]),
        (["run", "--seed", "x"], ["'x'"]),
        (["rnu"], ["rnu"]),
        (["resume", "nowhere"], ["nowhere", "not a run folder"]),
        (["report", "nowhere"], ["nowhere"]),
        (["predict", "nowhere", "x.csv"], ["nowhere", "not a run folder"]),
        (["data", "get", "iris"], ["iris", "covertype"]),
        (["run", "--set", "data.name=covertype-full"], ["fedstein data get covertype"]),
        (["run", "--set", "data.name=5"], ["data.name", "got 5"]),
        (["run", "--set", "data.name=file", "--set", "data.path=[1]"], ["data.path"]),
        (["run", "--set", "rounds=true"], ["rounds", "got True"]),
        (["run", "--set", "engine.threads=999999"], ["engine.threads"]),
        (["run", "--set", "algorithm.particles=999999", "--set", "data.name=mnist"], ["GB", "fewer particles"]),
        (["run", "--out", "x" * 300], ["too long"]),
        (["run", "--set", "data.name=file", "--set", "data.path=" + "y" * 300 + ".csv"], ["too long"]),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(arguments, words, tmp_path):
    result = fedstein(*arguments, cwd=tmp_path, FEDSTEIN_CACHE=str(tmp_path / "cache"))
    assert_refused(result, *words)
    assert not (tmp_path / "runs").exists(), "nothing is written before the input is known to be right"


def test_a_folder_that_holds_something_is_refused(finished, tmp_path):
    folder, _ = finished
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert_refused(fedstein("run", *settings(), "--out", folder), "already holds a run", "fedstein resume")
    (tmp_path / "note.txt").write_text("mine")
    assert_refused(fedstein("run", *settings(), "--out", tmp_path), "not empty")
    assert_refused(fedstein("run", *settings(), "--out", tmp_path / "note.txt"), "is a file")
    assert before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    assert_refused(fedstein("resume", folder), "finished")


def test_predict_writes_probabilities_and_checks_columns(finished, tmp_path):
    from fedstein.data import load

    folder, _ = finished
    facts = json.loads((folder / "data.json").read_text())
    test_x = load("covertype").test_x[:7].astype(float) * facts["scale"] + facts["mean"]
    rows = tmp_path / "rows.csv"
    with rows.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*facts["features"], "extra"])
        writer.writerows([[*row, "ignored"] for row in test_x])
    result = fedstein("predict", folder, rows)
    assert result.returncode == 0, result.stderr
    table = list(csv.DictReader(result.stdout.splitlines()))
    assert len(table) == 7
    for line in table:
        probabilities = {label: float(line[f"p_{label}"]) for label in facts["labels"]}
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-4)
        assert line["prediction"] == max(probabilities, key=probabilities.__getitem__)
    to_file = fedstein("predict", folder, rows, "--out", tmp_path / "p.csv")
    assert (tmp_path / "p.csv").read_text() == result.stdout
    assert "7 predictions" in to_file.stdout
    pq.write_table(pa.table(dict(zip(facts["features"], test_x.T, strict=True))), tmp_path / "rows.parquet")
    assert fedstein("predict", folder, tmp_path / "rows.parquet").stdout == result.stdout
    (tmp_path / "short.csv").write_text("a,b\n1,2\n")
    assert_refused(fedstein("predict", folder, tmp_path / "short.csv"), facts["features"][0])
    text = rows.read_text().splitlines()
    text[1] = "nan," + text[1].split(",", 1)[1]
    (tmp_path / "nan.csv").write_text("\n".join(text))
    assert_refused(fedstein("predict", folder, tmp_path / "nan.csv"), facts["features"][0])


def test_predict_works_from_a_run_that_rotated_its_inputs(tmp_path):
    from safetensors.numpy import load_file

    from fedstein.data import load

    choice = ("sites.kind=curvature", "sites.structure=eigen")
    result = fedstein("run", *settings(*choice), "--out", tmp_path / "r", "--quiet")
    assert (result.returncode, result.stderr) == (0, "")
    facts = json.loads((tmp_path / "r" / "data.json").read_text())
    scaled = load("covertype").test_x[:5].astype(float)
    with (tmp_path / "rows.csv").open("w", newline="") as file:
        csv.writer(file).writerows([facts["features"], *(scaled * facts["scale"] + facts["mean"])])
    result = fedstein("predict", tmp_path / "r", tmp_path / "rows.csv")
    assert result.returncode == 0, result.stderr
    weights = load_file(tmp_path / "r" / "posterior.safetensors")["particles"][:, :-1].astype(float)
    expected = 1 / (1 + np.exp(-(scaled @ weights[:, :-1].T + weights[:, -1])))
    got = [float(line[f"p_{facts['labels'][1]}"]) for line in csv.DictReader(result.stdout.splitlines())]
    assert got == pytest.approx(expected.mean(axis=1), abs=1e-3)


def test_report_writes_a_page_and_pictures(finished, tmp_path):
    folder, _ = finished
    result = fedstein("report", folder, "--out", tmp_path / "report")
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "report" / "report.html").stat().st_size > 5_000
    assert list((tmp_path / "report" / "figures").glob("*.png"))


def test_a_reader_that_leaves_does_not_stop_the_run(tmp_path):
    words = ["run", *settings("rounds=40"), "--out", str(tmp_path / "r")]
    command = [sys.executable, "-c", "from fedstein.cli import main; main()", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=300) == 0, process.stderr.read()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["rounds"] == 40


def test_no_words_at_all_show_the_help():
    for words in ([], ["data"]):
        result = fedstein(*words)
        assert result.returncode == 0
        assert result.stdout.count("\n") > 5


def commands() -> list[tuple[str, ...]]:
    group = typer.main.get_command(app)
    found: list[tuple[str, ...]] = []
    for name, command in group.commands.items():
        found += [(name, inner) for inner in getattr(command, "commands", ())] or [(name,)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_help_of_every_command_has_an_example_and_explains_every_parameter(words):
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    with click.Context(command, info_name="fedstein " + " ".join(words)) as context:
        text = command.get_help(context)
    assert re.search(rf"Examples?:\n +fedstein {' '.join(words)}\b", text)
    assert "\\[" not in text
    assert text.count("rguments:") <= 1
    for parameter in command.params:
        assert parameter.help, parameter.name
        assert " ".join(parameter.help.split()[:2]) in text


def test_lists_name_everything():
    from fedstein.cli.listing import registries

    result = fedstein("list", COLUMNS="200")
    assert result.returncode == 0
    for _, name, about in registries():
        assert name in result.stdout
        assert about in result.stdout
    for name in ("covertype", "mnist-full", "CC BY-SA 3.0"):
        assert name in fedstein("data", "list", COLUMNS="120").stdout


def test_help_and_version_are_quick_because_nothing_heavy_is_imported():
    script = "import sys, fedstein.cli\ntry: fedstein.cli.main([sys.argv[1]])\nexcept SystemExit as e: code = e.code\n"
    script += "assert not code and 'jax' not in sys.modules and 'matplotlib' not in sys.modules"
    for flag in ("--help", "--version"):
        assert subprocess.run([sys.executable, "-c", script, flag], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a,b,label\n" + "1,2,0\n3,nan,1\n" * 30, ["a value", "'b'"]),
        ("a,b,label\n" + "1,2,0\n3,oops,1\n" * 30, ["'b'", "oops"]),
        ("a,b,label\n", ["row"]),
        ("", []),
    ],
)
def test_a_file_of_ones_own_is_checked(content, words, tmp_path):
    (tmp_path / "mine.csv").write_text(content)
    result = fedstein("run", "--set", "data.name=file", "--set", f"data.path={tmp_path / 'mine.csv'}", cwd=tmp_path)
    assert_refused(result, *words)


def test_a_file_with_a_client_column_trains_those_clients(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["a,b,clinic,label"]
    for row in range(200):
        a, b = rng.normal(size=2)
        lines.append(f"{a:.4f},{b:.4f},{'north' if row % 3 else 'south'},{'ill' if a + b > 0 else 'well'}")
    (tmp_path / "mine.csv").write_text("\n".join(lines))
    more = [
        "data.name=file",
        f"data.path={tmp_path / 'mine.csv'}",
        "data.client=clinic",
        "data.target=label",
        "rounds=8",
    ]
    arguments = [part for setting in more for part in ("--set", setting)]
    result = fedstein("run", *arguments, "--out", tmp_path / "r", "--quiet")
    assert result.returncode == 0, result.stderr
    clients = json.loads((tmp_path / "r" / "clients.json").read_text())
    assert [client["name"] for client in clients] == ["north", "south"]
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["final"]["accuracy"] > 0.8


def test_a_full_disk_is_one_line_and_exit_2_and_the_run_can_go_on(finished, tmp_path):
    """The limit on file sizes fails writes with a real error of the system, as a full disk does.

    ``finished`` has the same programs, so that JAX writes none to its cache under the limit.
    """
    script = (
        "import resource, sys\n"
        "sys.dont_write_bytecode = True\n"  # Python would leave half of a compiled module behind
        "resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))\n"
        "from fedstein.cli import main\nmain(sys.argv[1:])"
    )
    arguments = ["run", *settings("rounds=40", "checkpoint.every=1"), "--out", str(tmp_path / "r"), "--quiet"]
    command = [sys.executable, "-c", script, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert_refused(result, "no room left", "fedstein resume")
    assert not list((tmp_path / "r").rglob("*.tmp")), "no debris"
    done = json.loads((tmp_path / "r" / "checkpoint" / "manifest.json").read_text())["round"]
    assert 1 <= done < 40
    again = fedstein("resume", tmp_path / "r", "--quiet")
    assert again.returncode == 0, again.stderr
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["rounds"] == 40


def test_the_preset_is_the_papers_method_and_the_default_remembers(tmp_path):
    small = settings("rounds=1")
    unset = [w for pair in zip(small[::2], small[1::2], strict=True) if "sites." not in pair[1] for w in pair]
    unset = [w for pair in zip(unset[::2], unset[1::2], strict=True) if "distill" not in pair[1] for w in pair]
    for name, words, kind in (("paper", ["--preset", "paper"], "particles"), ("ours", [], "curvature")):
        result = fedstein("run", *words, *unset, "--out", tmp_path / name, "-q")
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
        assert f'[sites]\nkind = "{kind}"' in (tmp_path / name / "config.toml").read_text()
    assert_refused(fedstein("run", "--preset", "papr"), "unknown preset", "did you mean 'paper'")


def test_tune_prints_the_setting_to_use_and_goes_on_where_it_stopped(tmp_path):
    chosen = [*settings("rounds=2", "selection.kind=round_robin"), "--seeds", "1", "--out", tmp_path / "t.json"]
    first = fedstein("tune", "--grid", "0.01,0.05,0.2", *chosen)
    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines()[-1].startswith("--set algorithm.step_size=0.")
    assert "3/3" in first.stdout
    again = fedstein("tune", "--grid", "0.01,0.05,0.2", *chosen)
    assert again.stdout.splitlines()[-1] == first.stdout.splitlines()[-1]
    assert_refused(fedstein("tune", "--grid", "0.1,-2", *chosen), "--grid expects positive numbers", "'0.1,-2'")
    assert_refused(fedstein("tune", "--fraction", "1.5", *chosen), "--fraction", "1.5")


def test_reproduce_knows_its_settings():
    assert_refused(fedstein("reproduce", "fig1", "--setting", "blr31"), "--setting", "did you mean 'blr30'")
    assert_refused(fedstein("reproduce", "fig4", "--setting", "blr30"), "fig4 has no panel with blr30")
    assert_refused(fedstein("reproduce", "theory", "--setting", "blr30"), "leave --setting out")
