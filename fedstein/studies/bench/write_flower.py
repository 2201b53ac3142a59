"""The page of ``fedstein bench --flower``: ``flower.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedstein.federation.channel import KINDS
from fedstein.studies.markdown import table

BUSY = 2.5  # the load from which times are said to be those of a busy machine
IDLE = 0.01  # the largest share of a core that an idle node should use


def markdown(document: Mapping[str, Any]) -> str:
    """Return the page ``flower.md``."""
    before, after = document["load"]
    lines = ["# Rounds on Flower", "", f"{document['nodes']} resident nodes, a link and a server on this machine, "]
    lines[-1] += f"{document['threads']} thread(s) each. The load of the machine was {before:.1f} before and "
    lines[-1] += f"{after:.1f} after the measurement. Seconds of a round after the first: the least, and the median."
    if before > BUSY:
        lines += ["", "**The machine was busy with other work before the measurement: the times are too long.**"]
    head = ["task", "in process", "on Flower", "reports at nodes", "training at nodes", "rest", "idle node, CPU"]
    lines += ["", *table(head, [row(task) for task in document["tasks"]])]
    lines += ["", "The rest is the link, the waits between looks for messages, and the server's own part.", ""]
    lines += ["MB of a round of the default network on MNIST with 27 clients, by kind of message:", ""]
    rows = [[codec, *(f"{sizes[kind] / 1e6:.2f}" for kind in KINDS), f"{sum(sizes.values()) / 1e6:.1f}"]
            for codec, sizes in document["bytes"].items()]  # fmt: skip
    return "\n".join([*lines, *table(["codec", *KINDS, "sum"], rows), ""])


def row(task: Mapping[str, Any]) -> list[str]:
    """The row of one task."""
    there = task["on_flower"]
    rest = {key: there["total"][key] - there["reports"][key] - there["training"][key] for key in ("least", "median")}
    cells = [task["in_process"], there["total"], there["reports"], there["training"], rest]
    idle = f"{task['idle']:.2%}" + ("" if task["idle"] < IDLE else " (above 1%)")
    return [task["name"], *(f"{cell['least']:.3f}, {cell['median']:.3f}" for cell in cells), idle]
