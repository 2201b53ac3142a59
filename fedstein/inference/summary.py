"""Summaries to quote: mean, sd, median and a 90% interval of each parameter, with R-hat and ESS of chains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from fedstein.errors import InputError
from fedstein.inference.draw_diagnostics import DrawDiagnostics

COLUMNS = ("name", "mean", "sd", "median", "5%", "95%", "R-hat", "ESS")
ABOUT = {
    "weighted": "draws from the prior times the sites, weighted by the clients' likelihoods",
    "nuts": "NUTS draws from the prior times the sites",
    "gaussian": "draws from the site Gaussian",
    "particles": "the particles",
}

Row = dict[str, Any]


class Summary(Sequence[Row]):
    """One row, a mapping with the keys of ``COLUMNS``, for each parameter.

    Attributes:
        rows: The rows. R-hat and ESS are None for what is not a Markov chain.
        using: What the numbers come from: ``"weighted"``, ``"nuts"``, ``"gaussian"`` or ``"particles"``.
        problems: Sentences that say why the intervals cannot be trusted; empty if they can.
        note: A caution that applies even if nothing is wrong with the draws; empty if there is none.
    """

    def __init__(self, rows: list[Row], using: str, problems: Sequence[str] = (), note: str = ""):
        self.rows, self.using, self.problems, self.note = rows, using, list(problems), note

    @property
    def trusted(self) -> bool:
        """Whether nothing is wrong with the draws; ``note`` says what they cannot tell."""
        return not self.problems

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def cells(self) -> list[list[str]]:
        """Every row as text, in the order of ``COLUMNS``."""
        return [
            [
                row["name"],
                *(_number(row[key], row["sd"]) for key in COLUMNS[1:-2]),
                _fixed(row["R-hat"], 3),
                _fixed(row["ESS"], 0),
            ]
            for row in self.rows
        ]

    def __str__(self) -> str:
        lines = [list(COLUMNS), *self.cells()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS))]
        text = ["  ".join(_aligned(cell, width, i) for i, (cell, width) in enumerate(zip(line, widths, strict=True)))
                for line in lines]  # fmt: skip
        return "\n".join([*(line.rstrip() for line in text), self.verdict()])

    __repr__ = __str__

    def verdict(self) -> str:
        """Name the posterior and say whether to trust it, in one line or more."""
        doubt = "; not to be trusted:" if self.problems else ""
        return "\n".join([f"from {ABOUT[self.using]}{doubt}", *self.problems, *filter(None, [self.note])])

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame with the names as index.

        Raises:
            InputError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise InputError("to_pandas needs pandas, which is not installed: pip install pandas") from None
        return pandas.DataFrame(self.rows, columns=list(COLUMNS)).set_index("name")


def summarise_draws(
    draws: np.ndarray,
    names: Sequence[str],
    using: str,
    diagnostics: DrawDiagnostics | None = None,
    problems: Sequence[str] = (),
    note: str = "",
) -> Summary:
    """Summarise draws column by column.

    Args:
        draws: n x d.
        names: The d names of the parameters.
        using: What the draws are.
        diagnostics: The diagnostics of the chains, if the draws come from chains.
        problems: Why the draws are not to be trusted.
        note: What to keep in mind.

    Returns:
        The summary.
    """
    low, median, high = np.quantile(draws, (0.05, 0.5, 0.95), axis=0)
    columns = (draws.mean(axis=0), draws.std(axis=0, ddof=1 if len(draws) > 1 else 0), median, low, high)
    rows = []
    for i, name in enumerate(names):
        values: list[Any] = [float(column[i]) for column in columns]
        values += [None, None] if diagnostics is None else [float(diagnostics.rhat[i]), float(diagnostics.ess[i])]
        rows.append(dict(zip(COLUMNS, [name, *values], strict=True)))
    return Summary(rows, using, problems, note)


def _number(value: float, sd: float) -> str:
    return f"{value:.3f}" if 1e-2 <= sd < 1e4 else f"{value:.3g}"


def _fixed(value: float | None, places: int) -> str:
    return "-" if value is None or value != value else f"{value:.{places}f}"


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.rjust(width) if column else cell.ljust(width)
