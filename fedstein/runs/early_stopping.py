"""Early stopping: a run ends when the NLL of held-out rows has stopped falling (``evaluate.patience``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def stop_reason(patience: int | None, records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the reason why a run ends with its latest round, if it does.

    Args:
        patience: How many evaluations in a row may bring no lower NLL; None sets no limit.
        records: The rounds so far. Their NLL is that of rows that clients hold out.

    Returns:
        A sentence, or None if the run goes on. The latest round must have been evaluated.
    """
    if patience is None or not records or records[-1]["nll"] is None:
        return None
    found = [(record["round"], record["nll"]) for record in records if record["nll"] is not None]
    values = [nll if math.isfinite(nll) else math.inf for _, nll in found]
    best = values.index(min(values))
    if len(values) - 1 - best < patience:
        return None
    return (
        f"the NLL of held-out rows has not fallen below {values[best]:.4g}, that of round {found[best][0]}, in "
        f"{patience} evaluation{'' if patience == 1 else 's'}"
    )
