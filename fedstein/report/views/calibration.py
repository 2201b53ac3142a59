"""The views of calibration: reliability diagrams with counts, and the scores of each client."""

from __future__ import annotations

from typing import Any

from fedstein.evaluation.metrics import METRICS
from fedstein.report.follow import FollowedRun
from fedstein.report.views.grouping import FollowedGroup
from fedstein.report.views.points import short

FEW = 0.01  # a bin with a smaller share of the rows, or with fewer than FEWEST rows, is drawn faded
FEWEST = 20
NOT_YET = "Calibration is in summary.json, which is written after the last round."
NO_BINS = "The summary of this run has no reliability bins: it is a regression, or it was not evaluated."

DAMAGED = "The reliability bins in summary.json are damaged."


def sparse(count: int, total: int) -> bool:
    """Whether a bin has too few rows for its accuracy to say much."""
    return count < max(FEWEST, FEW * total)


def reliability(group: FollowedGroup) -> dict[str, Any]:
    """The bins of all seeds of a group together, with counts; bins with few rows are marked."""
    summaries = [run.summary for run in group.runs]
    finished = [found for found in summaries if found is not None]
    stored = [found["reliability"] for found in finished if found.get("reliability")]
    tables = [bins for bins in stored if _sound(bins)]
    if not tables:
        return {"missing": DAMAGED if stored else NO_BINS if finished else NOT_YET}
    bins = []
    for same in zip(*tables, strict=False):
        count = sum(b["count"] for b in same)
        filled = [b for b in same if b["count"]]
        mean = {
            k: sum(b["count"] * b[k] for b in filled) / count if count else None for k in ("confidence", "accuracy")
        }
        bins.append({"low": same[0]["low"], "high": same[0]["high"], "count": count, **mean})
    total = sum(b["count"] for b in bins)
    ece = sum(b["count"] * abs(b["confidence"] - b["accuracy"]) for b in bins if b["count"]) / max(total, 1)
    return {
        "bins": [
            {
                **{key: short(b[key]) for key in ("low", "high", "confidence", "accuracy", "count")},
                "few": sparse(b["count"], total),
            }
            for b in bins
        ],
        "rows": total,
        "ece": short(ece),
        "seeds": len(tables),
    }


def _sound(bins: Any) -> bool:
    keys = ("low", "high", "count", "confidence", "accuracy")
    return isinstance(bins, list) and all(isinstance(b, dict) and all(key in b for key in keys) for b in bins)


def clients_evaluated(run: FollowedRun, metric: str) -> dict[str, Any] | None:
    """The scores of each client on its own held-out rows, the worst first; None if clients did not evaluate."""
    document = run.files["clients-evaluation.json"].value
    entries = (document or {}).get("clients")
    if not isinstance(entries, list) or run.summary is None:
        return None
    scored = [e for e in entries if isinstance(e, dict) and isinstance(e.get(metric), (int, float))]
    if not scored:
        return None
    return client_scores(scored, metric, "on its own held-out rows, which nobody trained on")


def client_scores(entries: list[dict[str, Any]], metric: str, where: str) -> dict[str, Any]:
    """The view of scores by client.

    Args:
        entries: Name, rows and metrics of each client.
        metric: The leading metric.
        where: Which rows the scores are of, in words.

    Returns:
        Names, rows and scores, the worst first.
    """
    sign = 1 if METRICS[metric].larger_is_better else -1
    order = sorted(entries, key=lambda e: sign * e[metric])
    return {
        "clients": [str(e.get("name") or e.get("id")) for e in order],
        "rows": [e.get("rows") for e in order],
        "metric": metric,
        "score": [short(e[metric]) for e in order],
        "ece": [short(e.get("ece")) for e in order] if metric == "accuracy" else None,
        "nll": [short(e.get("nll")) for e in order],
        "where": where,
    }
