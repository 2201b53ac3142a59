"""The node's reply about the columns of its file, before the server decides their coding: names, counts and sums."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from fedstein import data
from fedstein.data.column_counts import ColumnCounts
from fedstein.data.encoding import known_categories
from fedstein.data.summed_counts import first_counts, name_table
from fedstein.errors import InputError
from fedstein.flower.messages import Envelope, Head, InvalidMessage, value
from fedstein.flower.node.policy import refuse_small
from fedstein.flower.node.rows import Node, expected_rows, refuse_other_kind
from fedstein.inference.sites.base import Arrays
from fedstein.runs.config import Config


def columns(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Count the columns: how many cells are numbers, text or missing, the sum of numbers, and the names of categories.

    The reply has no arrays. Its head has the counts over all rows and over the rows to train on, as JSON.
    """
    found = [{name: each._asdict() for name, each in part.items()} for part in count_own(config, node)]
    return {"columns": json.dumps(found, allow_nan=False)}, {}


def column_sums(request: Envelope, config: Config, node: Node) -> tuple[Head, Arrays]:
    """Compute this client's summand of a secure sum: the numbers of every column, or the names in a table that adds up.

    A request for names has ``places``, the positions of the columns that have names according to the first sum.

    Raises:
        InvalidMessage: The positions are not positions of columns.
    """
    every, training = count_own(config, node)
    places = request.arrays.get("places")
    if places is None:
        return {}, first_counts(every, training)
    fit = places.dtype == np.int64 and places.ndim == 1 and (np.diff(places) > 0).all()
    if not fit or not len(places) or places[0] < 0 or places[-1] >= len(every):
        raise InvalidMessage("expected the places of columns whose names are counted, in ascending order")
    known, salt = known_categories(config.data.categories), value(request.head, "run", str)
    return {}, {"names": name_table(every, training, places.tolist(), known, salt)}


def count_own(config: Config, node: Node) -> tuple[dict[str, ColumnCounts], dict[str, ColumnCounts]]:
    """Count this node's columns, over all rows and over the rows to train on.

    Raises:
        InputError: The node has no file of its own, fewer rows than its policy requires, or columns that do not fit.
    """
    refuse_other_kind(config, node)
    if node.partition is not None:
        raise InputError(f"this node plays client {node.partition} of a trial, and has no file of its own")
    settings, expected = config.data, expected_rows(config)
    known = known_categories(settings.categories)
    counts = data.count_rows(Path(node.data).expanduser(), expected, config.evaluate.fraction, known, settings.missing)
    refuse_small(node.policy, max((each.rows for each in counts[1].values()), default=0), "rows to train on")
    return counts
