"""The files of a report: complete, self-contained, escaped, the same each time."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

from fedstein.errors import InputError
from fedstein.report import ReportResult, load_run, table, tables, write_report

VOID = {"meta", "br", "hr", "img"}


class Checker(HTMLParser):
    """Every element is closed in order, no id comes twice."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        self._note(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._note(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def _note(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            self.references += re.findall(r"url\(#([^)]+)\)", value or "")
            if name == "href":
                self.references.append((value or "").removeprefix("#"))


def parsed(file: Path) -> Checker:
    checker = Checker()
    checker.feed(file.read_text("utf-8"))
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def folders(tmp_path_factory, run_writer) -> list[Path]:
    root = tmp_path_factory.mktemp("runs")
    kinds = ("round_robin", "hip")
    return [run_writer(root / f"{k}{s}", {"selection.kind": k, "seed": s}) for k in kinds for s in range(2)]


@pytest.fixture(scope="module")
def report(folders, tmp_path_factory) -> ReportResult:
    return write_report(folders, tmp_path_factory.mktemp("report") / "out")


def test_everything_is_there(report) -> None:
    out = report.html.parent
    names = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    kinds = ("png", "svg", "pdf")
    pictures = {f"figures/{n}.{e}" for n in ("curves", "cost", "reliability", "selection") for e in kinds}
    texts = {"report.html", "report.csv", "methods.md", "references.bib", "figures/captions.md"}
    assert names == texts | pictures
    assert {p.relative_to(out).as_posix() for p in report.figures} == pictures
    assert (report.html, report.csv) == (out / "report.html", out / "report.csv")


def test_the_same_bytes_each_time_in_another_process(report, folders, tmp_path: Path) -> None:
    code = "import sys; from fedstein.report import write_report; write_report(sys.argv[2:], sys.argv[1])"
    other = {**os.environ, "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    subprocess.run([sys.executable, "-c", code, tmp_path / "out", *folders], env=other, check=True)
    files = [file for file in report.html.parent.rglob("*") if file.is_file()]
    assert len(files) == 17
    for file in files:
        again = tmp_path / "out" / file.relative_to(report.html.parent)
        assert file.read_bytes() == again.read_bytes(), file.name


def test_the_page_is_sound_and_loads_nothing(report, folders) -> None:
    page = report.html.read_text("utf-8")
    checker = parsed(report.html)
    assert len(checker.ids) == len(set(checker.ids))
    assert checker.references
    assert set(checker.references) <= set(checker.ids)
    assert str(folders[0].parent) not in page
    marked_up = re.sub(r"(<script[^>]*>).*?</script>", r"\1", page, flags=re.DOTALL)
    assert marked_up.count("<script") == 5
    for word in ("http", "<link", "@import", "src="):
        assert word not in marked_up
    assert page.count('role="img"') == 4
    assert "prefers-color-scheme: dark" in page
    assert "fedstein run round_robin0/config.toml" in checker.text
    assert "95% interval" in checker.text


def test_text_is_escaped(make_run, tmp_path: Path) -> None:
    nasty = "<script>alert('&')</script>[bold]"
    folders = [make_run("a", {"data.name": nasty}), make_run("b", {"data.name": "plain"})]
    result = write_report(folders, tmp_path / "out")
    page = result.html.read_text("utf-8")
    assert nasty not in page
    assert "\\u003cscript>alert" in page  # in the data that the page draws
    assert nasty in parsed(result.html).text
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table(result.rows))
    assert nasty in capture.get()


def test_the_csv_has_a_row_for_each_group_and_each_run(report, folders) -> None:
    with report.csv.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["level"], r["group"], r["seed"]) for r in rows] == [
        ("group", "round_robin", ""),
        ("seed", "round_robin", "0"),
        ("seed", "round_robin", "1"),
        ("group", "hip", ""),
        ("seed", "hip", "0"),
        ("seed", "hip", "1"),
    ]
    assert float(rows[1]["tail_accuracy"]) == load_run(folders[0]).tail["accuracy"]["mean"]
    assert float(rows[3]["tail_accuracy"]) == pytest.approx(
        (float(rows[4]["tail_accuracy"]) + float(rows[5]["tail_accuracy"])) / 2
    )
    assert float(rows[3]["difference_mean"]) == pytest.approx(
        float(rows[3]["tail_accuracy"]) - float(rows[0]["tail_accuracy"])
    )
    assert rows[0]["difference_mean"] == ""
    assert rows[0]["tail_rmse"] == ""


def test_where_it_goes_without_being_told(folders, tmp_path: Path, monkeypatch) -> None:
    assert write_report(folders[:1]).html == folders[0] / "report" / "report.html"
    monkeypatch.chdir(tmp_path)
    assert write_report(folders[:2]).html == Path("report") / "report.html"
    assert (tmp_path / "report" / "report.html").is_file()


def test_a_folder_given_twice_counts_once(folders, tmp_path: Path) -> None:
    result = write_report([folders[0], folders[0] / ".." / folders[0].name], tmp_path / "out")
    assert [row["level"] for row in result.rows] == ["group", "seed"]


def test_pictures_of_an_earlier_report_do_not_stay(make_run, tmp_path: Path) -> None:
    write_report([make_run("a")], tmp_path / "out")
    write_report([make_run("b", {"model.kind": "bnn_regressor"})], tmp_path / "out")
    assert not (tmp_path / "out" / "figures" / "reliability.png").exists()
    assert (tmp_path / "out" / "figures" / "curves.png").exists()


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"model.kind": "bnn_regressor", "evaluate.every": 9}, {}),
        ({"evaluate.every": 9}, {"stop": 40}),
        ({"evaluate.every": 50}, {"stop": 2}),
        ({"rounds": 1}, {}),
        ({"partition.clients": 1}, {}),
    ],
)
def test_odd_runs_work(make_run, tmp_path: Path, changes: dict, options: dict) -> None:
    result = write_report([make_run("a", changes, **options)], tmp_path / "out")
    parsed(result.html)
    table(result.rows)
    assert any("One seed" in note for note in result.notes)


def test_nothing_to_report_on(tmp_path: Path, folders) -> None:
    with pytest.raises(InputError, match="at least one run folder"):
        write_report([], tmp_path)
    with pytest.raises(InputError, match="folder to write to"):
        write_report(folders, folders[0] / "config.toml")


def test_the_terminal_table_fits_80_columns(report) -> None:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(table(report.rows))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert len(lines) == 6  # two of heading, a rule, two groups, the caption: nothing folded
    assert "± " in lines[3]


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (tables.size, 0, "0 B"),
        (tables.size, 999, "999 B"),
        (tables.size, 8960, "8.96 kB"),
        (tables.size, 143_480, "143 kB"),
        (tables.size, 178e6, "178 MB"),
        (tables.size, 12.34e9, "12.3 GB"),
        (tables.size, None, "–"),
        (tables.duration, 0.0349, "35 ms"),
        (tables.duration, 0.0996, "0.10 s"),
        (tables.duration, 0.456, "0.46 s"),
        (tables.duration, 12.34, "12.3 s"),
        (tables.duration, 0.000_42, "0.42 ms"),
    ],
)
def test_numbers_for_people(form, value: float | None, text: str) -> None:
    assert form(value) == text


def break_line(folder: Path, number: int) -> None:
    lines = (folder / "rounds.jsonl").read_text().splitlines()
    lines[number - 1] = "{half"
    (folder / "rounds.jsonl").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_damaged_runs_are_shown_as_far_as_they_can_be(make_run, tmp_path) -> None:
    whole, damaged, lost = make_run("whole"), make_run("damaged", {"seed": 1}), make_run("lost", {"seed": 2})
    break_line(damaged, 7)
    (damaged / "config.toml").write_text("seed = = 1")
    (damaged / "summary.json").write_text("{")
    (damaged / "reference.json").write_text("[]")
    (lost / "rounds.jsonl").write_text("{half\n" * 20)
    result = write_report([whole, damaged, lost], tmp_path / "report")
    page = parsed(result.html).text
    for said in ("expected valid TOML", "a JSON object", "the distances from NUTS", "broken line 7"):
        (note,) = [note for note in result.notes if said in note]
        assert note.startswith(f"{damaged} is damaged: expected ")
        assert note.endswith("; the report shows the rest.")
        assert note in page
    of_lost = [note for note in result.notes if note.startswith(f"{lost} is damaged")]
    assert len(of_lost) == 6  # the first places, and how many more there are
    assert of_lost[0].endswith("so the run is left out.")
    assert [run.path for run in result.summary.runs] == [whole, damaged]
    rounds = [line.round for line in result.summary.runs[1].rounds]
    assert rounds == [number for number in range(1, 121) if number != 7]
    with pytest.raises(InputError, match="at least one finished round"):
        write_report([lost], tmp_path / "report")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("summary.json", '{"rounds": 120}', "expected 'final' in"),
        ("clients-evaluation.json", "{", "expected each client's evaluation in"),
        ("config.toml", "seed = 'one'", "expected an integer seed in"),
    ],
)
def test_what_is_damaged_is_listed_and_the_rest_is_read(make_run, file: str, text: str, said: str) -> None:
    folder = make_run("damaged")
    (folder / file).write_text(text)
    with pytest.raises(InputError, match=said):
        load_run(folder)
    problems: list[str] = []
    assert len(load_run(folder, problems).rounds) == 120
    assert len(problems) == 1
    assert said in problems[0]
