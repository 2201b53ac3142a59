"""The live page and the report in the system's Chromium, as people use them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page.conftest import FEDSTEIN, drawn_charts, serious_findings, sticks_out, until
from small_run import SMALL_RUN

from fedstein import load
from fedstein.report import write_report
from fedstein.report.views import views
from fedstein.runs.federate import split_rows
from fedstein.runs.folder import RunFolder

pytestmark = pytest.mark.slow


def with_reports(folder: Path, clients: int = 30) -> Path:
    """Add selection probabilities, reports and a fault to the rounds of a made-up run."""
    rng = np.random.default_rng(3)
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    for line in lines:
        line["reports"] = [round(v, 4) for v in rng.gamma(2.0, size=clients)]
        line["probabilities"] = [round(v / sum(line["reports"]), 5) for v in line["reports"]]
    lines[-1]["failed"] = [1]
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.fixture(scope="module")
def real_run(tmp_path_factory) -> Path:
    """A run of six rounds with full sites: it has coefficients, particles and rows to show."""
    out = tmp_path_factory.mktemp("real") / "real"
    particles_only = ("sites", "algorithm.distill")
    settings = [*(s for s in SMALL_RUN if not s.startswith(particles_only)), "rounds=6", "sites.expand=mean"]
    flags = [word for setting in settings for word in ("--set", setting)]
    subprocess.run([*FEDSTEIN, "run", "--quiet", *flags, "--out", str(out)], check=True, timeout=300)
    return out


def test_the_report_needs_nothing_else_and_fits_every_width(made_up, new_page, real_run, tmp_path: Path) -> None:
    runs = [made_up(tmp_path / f"{k}{s}", {"selection.kind": k, "seed": s}) for k in ("ksd", "hip") for s in (0, 1)]
    with_reports(runs[0])
    alone = write_report([real_run], tmp_path / "alone").html
    for html, charts in ((write_report(runs, tmp_path / "four").html, 7), (alone, 9)):
        for width, scheme in (
            (1280, "light"),
            (1280, "dark"),
            (800, "light"),
            (800, "dark"),
            (400, "light"),
            (400, "dark"),
        ):
            page = new_page(width, scheme)
            page.goto(html.as_uri())
            page.wait_for_selector(".chart", state="attached")
            assert drawn_charts(page) >= charts, f"{html} at {width} px"
            assert sticks_out(page) == [], f"{html} at {width} px"
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert serious_findings(page) == []
    assert page.locator("#view-rows li").count() == 12
    assert "epistemic" in page.locator("#view-rows").inner_text()
    assert page.locator("#view-forest .chart").get_attribute("aria-label") == "Forest plot of 56 coefficients"
    slider = page.locator("#frame")
    before = page.locator("#view-particles output").inner_text()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#view-particles output").inner_text() != before


def test_rows_and_clients_are_scored_as_the_definitions_say(real_run: Path) -> None:
    shown = views(real_run)["runs"][0]["details"]
    posterior = load(real_run)
    folder, config = RunFolder.open(real_run)
    dataset = folder.dataset(config)
    index = np.linspace(0, len(dataset.test_x) - 1, 1000).round().astype(int)
    weights = posterior.particles[:, :-1].astype(np.float64)  # the last column is log xi

    def probability(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-posterior.model.prepare(x) @ weights.T))  # rows x particles

    def entropy(p: np.ndarray) -> np.ndarray:
        return -(p * np.log(p) + (1 - p) * np.log(1 - p))

    each = probability(dataset.test_x[index])
    mutual = entropy(each.mean(axis=1)) - entropy(each).mean(axis=1)
    best = int(mutual.argmax())
    top = shown["rows"]["rows"][0]
    assert top["row"] == index[best]
    assert top["epistemic"] == pytest.approx(mutual[best], rel=1e-2)
    scores = dict(zip(shown["clients"]["clients"], shown["clients"]["score"], strict=True))
    for client, rows in enumerate(split_rows(config, dataset)):
        right = (probability(dataset.train_x[rows]).mean(axis=1) > 0.5) == dataset.train_y[rows]
        assert scores[f"client-{client}"] == pytest.approx(right.mean(), abs=1e-4)
    assert shown["particles"]["rounds"] == [1, 2, 3, 4, 5, 6]


def test_compare_filter_and_choose_by_keyboard(made_up, new_page, serve, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    for kind in ("ksd", "hip"):
        for seed in (0, 1):
            with_reports(made_up(root / f"{kind}-{seed}", {"selection.kind": kind, "seed": seed, "rounds": 40}))
    made_up(root / "later" / "unfinished", {"seed": 7}, stop=9)
    broken = made_up(root / "broken", {"seed": 8})
    (broken / "config.toml").write_text("seed = [")
    lines = (broken / "rounds.jsonl").read_text().splitlines(keepends=True)
    (broken / "rounds.jsonl").write_text("".join(lines[:20]) + "{half\n" + "".join(lines[21:]) + lines[0][:40])
    (broken / "summary.json").unlink()
    server = serve(root)
    assert "Only this machine" in server.said
    page = new_page()
    page.goto(server.address)
    page.wait_for_selector(".chart", state="attached")
    until(page, "document.querySelectorAll('#runs li').length === 6")
    until(page, "document.getElementById('connection').textContent === 'Live'")

    page.fill("#filter", "hip")
    assert page.locator("#runs li").count() == 2
    assert page.locator("#count").inner_text() == "2 of 6 runs"
    page.click("#all")
    until(page, "document.getElementById('heading').textContent === '2 runs compared'")
    until(page, "document.getElementById('view-headline').textContent.includes('mean of 2 seeds')")
    page.fill("#filter", "")
    page.locator("#runs input").nth(page.locator("#runs .name").all_inner_texts().index("ksd-0")).focus()
    page.keyboard.press("Space")
    until(page, "document.querySelectorAll('#view-curves .legend li').length === 2")
    assert page.url.count("run=") == 3
    page.locator("#view-curves input[value=round]").focus()
    page.keyboard.press("ArrowRight")
    until(page, "document.querySelector('#view-curves .chart').getAttribute('aria-label').includes('bytes sent')")
    assert drawn_charts(page) >= 8
    assert serious_findings(page) == []
    heat = page.locator("#view-heat .chart")
    heat.scroll_into_view_if_needed()
    drawn = "echarts.getInstanceByDom(document.querySelector('#view-heat .chart'))"
    corner, cell = heat.bounding_box(), page.evaluate(f"{drawn}.convertToPixel({{ gridIndex: 0 }}, [6, 2])")
    page.mouse.move(corner["x"] + cell[0], corner["y"] + cell[1])
    until(page, "document.querySelector('#view-heat .chart').innerText.includes('client 2, round 7')")

    page.reload()
    until(page, "document.getElementById('heading').textContent === '3 runs compared'")
    page.select_option("#state", "damaged")
    assert page.locator("#runs .name").all_inner_texts() == ["broken"]
    page.click("#all")
    until(page, "document.getElementById('view-problems').textContent.includes('Line 21')")
    assert "config.toml is damaged" in page.locator("#view-problems").inner_text()
    assert drawn_charts(page) >= 2
    page.click("#none")
    until(page, "document.getElementById('heading').textContent === 'No run is chosen'")
    for width, scheme in ((800, "light"), (800, "dark"), (400, "light"), (400, "dark")):
        narrow = new_page(width, scheme)
        narrow.goto(server.address + "#run=ksd-0&run=hip-0")
        narrow.wait_for_selector(".chart", state="attached")
        assert drawn_charts(narrow) >= 8
        assert sticks_out(narrow) == []
        assert serious_findings(narrow) == []


def start_run(out: Path, *command: str) -> subprocess.Popen[bytes]:
    flags = [word for setting in (*SMALL_RUN, "rounds=100000", "checkpoint.every=5") for word in ("--set", setting)]
    words = [*FEDSTEIN, "run", "--quiet", *flags, "--out", str(out)] if not command else [*FEDSTEIN, *command]
    return subprocess.Popen(words, start_new_session=True)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def advances(page: Any, beyond: int) -> int:
    until(page, f"FedsteinPage.measured.round > {beyond}")
    return page.evaluate("FedsteinPage.measured.round")


def test_a_run_that_starts_later_is_followed_through_kill_and_resume(new_page, serve, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    server = serve(root)
    page = new_page()
    page.goto(server.address)
    until(page, "document.getElementById('heading').textContent === 'No runs yet'")
    assert serious_findings(page) == []
    run = start_run(root / "first")
    try:
        seen = advances(page, 2)
        assert page.locator("#runs .badge").inner_text() == "running"
        seen = advances(page, seen + 3)
    finally:
        kill(run)
    page.wait_for_selector("#runs .badge.stopped")
    written = len((root / "first" / "rounds.jsonl").read_bytes().splitlines())
    again = start_run(root / "first", "resume", str(root / "first"), "--quiet")
    try:
        page.wait_for_selector("#runs .badge.running")
        seen = advances(page, written)
        assert server.stop() == 0
        until(page, "document.getElementById('connection').textContent.includes('does not answer')")
        serve(root, server.port)
        until(page, "document.getElementById('connection').textContent === 'Live'")
        advances(page, seen + 3)
    finally:
        kill(again)
    page.wait_for_selector("#runs .badge.stopped")
    page.locator("#error").wait_for(state="hidden")  # what failed while the server was away is no longer said


def test_ten_thousand_rounds_of_120_clients_stay_smooth(made_up, new_page, serve, tmp_path: Path, capsys) -> None:
    folder = made_up(tmp_path / "runs" / "long", {"rounds": 10_000, "partition.clients": 120}, stop=10_000)
    with_reports(folder, 120)
    server = serve(tmp_path / "runs")
    page = new_page()
    page.goto(server.address)  # the server reads the folder meanwhile
    until(page, "FedsteinPage.measured.painted !== null")
    page.goto("about:blank")
    page.goto(server.address)
    until(page, "FedsteinPage.measured.painted !== null")
    painted = page.evaluate("FedsteinPage.measured.painted")
    last = json.loads((folder / "rounds.jsonl").read_text().splitlines()[-1])
    watched = page.context.new_cdp_session(page)
    watched.send("Performance.enable", {"timeDomain": "threadTicks"})  # processor time of the page's thread

    def processor() -> float:
        found = {entry["name"]: entry["value"] for entry in watched.send("Performance.getMetrics")["metrics"]}
        return 1000 * (found["TaskDuration"] + server.processor_seconds())

    whole, inside, began = [], [], processor()
    for number in range(10_001, 10_006):
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(last | {"round": number}) + "\n")
        written = time.monotonic()
        until(page, f"FedsteinPage.measured.round === {number}", 0.01)
        whole.append(1000 * (time.monotonic() - written))
        inside.append(page.evaluate("FedsteinPage.measured.updates.at(-1)"))
    computed = (processor() - began) / len(whole)
    with capsys.disabled():
        print(
            f"\n10,000 rounds x 120 clients at load {os.getloadavg()[0]:.1f}: first paint {painted:.0f} ms; an update "
            f"{np.median(inside):.0f} ms from the news to the drawing, {np.median(whole):.0f} ms from the line in the "
            f"file, {computed:.0f} ms of processor time in server and page"
        )
    assert computed < 200  # however busy the machine is
    # A machine with more work than cores is allowed more time, in proportion; a quiet one is not.
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    allowed = 1.0 if load <= 1.0 else 2 * load
    assert painted < 1_500 * allowed
    assert np.median(inside) < 200 * allowed
