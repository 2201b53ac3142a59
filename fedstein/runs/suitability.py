"""Rows and settings that a model cannot work with, found before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from fedstein.data import refuse_no_counts
from fedstein.data.holdout import Share
from fedstein.errors import InputError
from fedstein.models import Model
from fedstein.runs.config import Config
from fedstein.runs.config_checks import refuse_pooling, refuse_row_losses
from fedstein.selection import ReportingSettings


def refuse_unsuitable(config: Config, model: Model, shares: Sequence[Share]) -> None:
    """Refuse clients' rows that the model cannot have produced, and settings that would use part of a client.

    Args:
        config: The config of the run.
        model: The model.
        shares: The rows of every client that takes part. They are not used for models without such requirements.

    Raises:
        InputError: Targets of a model of counts are not counts; or a model whose likelihood needs all rows of a client
            would get only some of them, or the rows of several clients.
    """
    if model.whole_shard:
        refuse_pooling(model.name, config.algorithm.kind)
        refuse_row_losses(model.name, config.selection.kind)
        for client, share in enumerate(shares):
            refuse_cut(config, model, f"client {client}", len(share.y))
    if model.target == "count":
        for client, share in enumerate(shares):
            refuse_no_counts(share.y, f"client {client}")
            refuse_no_counts(share.held_y, f"client {client}, held-out rows")


def refuse_cut(config: Config, model: Model, name: str, rows: int) -> None:
    """Refuse steps and reports that would use only some rows of a client, if the model needs all of them.

    Args:
        config: The config of the run.
        model: The model.
        name: The client's name, for the message.
        rows: Its number of rows.

    Raises:
        InputError: ``algorithm.batch_size`` or ``selection.report_rows`` is less than the number of rows.
    """
    if not model.whole_shard:
        return
    why = f"the likelihood of model {model.name!r} is that of all rows of a client together, and {name} has {rows}"
    if config.algorithm.batch_size < rows:
        raise InputError(f"algorithm.batch_size = {config.algorithm.batch_size}: {why}; leave batch_size out")
    report_rows = config.selection.report_rows if isinstance(config.selection, ReportingSettings) else 0
    if 0 < report_rows < rows:
        raise InputError(f"selection.report_rows = {report_rows}: {why}; set it to 0")
