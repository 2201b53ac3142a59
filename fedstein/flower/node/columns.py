"""The node's reply about the columns of its file, before the server decides their coding: names, counts and sums."""

from __future__ import annotations

import json
from pathlib import Path

from fedstein import data
from fedstein.data.encoding import known_categories
from fedstein.errors import InputError
from fedstein.flower.messages import Envelope, Head
from fedstein.flower.node.policy import refuse_small
from fedstein.flower.node.rows import Node, expected_rows, refuse_other_kind
from fedstein.inference.sites.base import Arrays
from fedstein.runs.config import Config


def columns(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Count the columns: how many cells are numbers, text or missing, the sum of numbers, and the names of categories.

    The reply has no arrays. Its head has the counts over all rows and over the rows to train on, as JSON.
    """
    refuse_other_kind(config, node)
    if node.partition is not None:
        raise InputError(f"this node plays client {node.partition} of a trial, and has no file of its own")
    settings, expected = config.data, expected_rows(config)
    known = known_categories(settings.categories)
    counts = data.count_rows(Path(node.data).expanduser(), expected, config.evaluate.fraction, known, settings.missing)
    refuse_small(node.policy, max((each.rows for each in counts[1].values()), default=0), "rows to train on")
    found = [{name: each._asdict() for name, each in part.items()} for part in counts]
    return {"columns": json.dumps(found, allow_nan=False)}, {}
