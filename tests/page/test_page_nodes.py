"""A run over nodes in the browser: the run folder grows as that of a federation does, and nodes come and go."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from page.conftest import serious_findings, sticks_out, until
from report.test_view_nodes import EVENTS, federation

from fedstein.files import folder_lock

pytestmark = pytest.mark.slow


def test_a_federation_is_followed_node_by_node(made_up, new_page, serve, tmp_path: Path) -> None:
    folder = made_up(tmp_path / "runs" / "clinics", {"partition.clients": 3, "engine.kind": "flower"}, stop=6)
    federation(folder, [EVENTS[0], EVENTS[1], ("joined", 0, 2)])

    def note(event: str, number: int, client: int, name: str, **more: object) -> None:
        entry = {"event": event, "round": number, "client": client, "name": name, "time": 1e9, **more}
        with (folder / "events.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def says(place: str, text: str) -> None:
        shown = f"document.querySelector('#view-nodes {place}')?.textContent"  # the view may not be there yet
        until(page, f"Boolean({shown}?.includes({json.dumps(text)}))")

    server = serve(tmp_path / "runs")
    with folder_lock(folder, wait=False):  # as the server of a run holds it
        page = new_page()
        page.goto(server.address)
        says("p", "3 of 3 nodes are connected. Nobody is asked")
        (folder / "asking.json").write_text('{"round": 7, "kind": "train", "clients": [1], "since": 1000000000.0}')
        says("p", "Waiting for east.")
        says("tbody tr:nth-child(2)", "training since")
        note("left", 7, 1, "east")  # no round passes: the server waits
        says("tbody tr:nth-child(2)", "away since round 7")
        says("tbody tr:nth-child(2)", "awaited for training")
        note("joined", 7, 1, "east")
        note("asked again", 7, 1, "east", kind="train")
        note("missing", 7, 2, "south", kind="ask")
        note("left out", 7, 2, "south", until=12)
        says("tbody tr:nth-child(2)", "connectedtraining")
        says("tbody tr:nth-child(3)", "left out until round 12")
        (folder / "asking.json").unlink()
        says("p", "Nobody is asked at this moment.")
        cells = page.locator("#view-nodes tbody tr:nth-child(2) td").all_inner_texts()
        heads = page.locator("#view-nodes thead th").all_inner_texts()
        assert dict(zip(heads[1:], cells, strict=True))["Asked again"] == "1"
        marks = page.locator("#view-incidents .chart").get_attribute("aria-label")
        assert marks == "Faults and events by round: asked again, joined, left, left out, missing."
        assert serious_findings(page) == []
        narrow = new_page(400, "dark")
        narrow.goto(server.address)
        narrow.wait_for_selector("#view-nodes tbody tr")
        assert sticks_out(narrow) == []
        assert serious_findings(narrow) == []
    page.wait_for_selector("#runs .badge.stopped")  # the server of the run has ended
    says("p", "not at work")
    assert page.locator("#view-nodes tbody tr").all_inner_texts()[0].split("\t")[1] == "was connected"
