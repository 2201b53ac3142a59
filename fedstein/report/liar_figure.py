"""The figure of accuracy against the share of lying clients: a panel for each lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fedstein.report import style


class Line(NamedTuple):
    """A scheme with or without protection: its mean accuracy and the range over seeds at each share of liars."""

    scheme: str
    protected: bool
    shares: Sequence[float]
    means: Sequence[float]
    ranges: Sequence[tuple[float, float]]


def draw_liars(panels: Sequence[tuple[str, Sequence[Line]]]) -> dict[str, bytes]:
    """Draw the figure; protected runs are solid, the others dashed.

    Args:
        panels: For each lie its title and its lines.

    Returns:
        The figure by format: png, svg and pdf.
    """
    schemes = list(dict.fromkeys(line.scheme for _, lines in panels for line in lines))
    with style.style():
        fig = style.figure(4.0)
        axes = fig.subplots(1, len(panels), squeeze=False, sharey=True)
        known = {}
        for ax, (title, lines) in zip(axes.flat, panels, strict=True):
            for line in lines:
                colour = style.colour(schemes.index(line.scheme))
                label = f"{line.scheme}, {'bounded' if line.protected else 'not protected'}"
                pattern = "-" if line.protected else style.DASHES[1]
                (known[label],) = ax.plot(line.shares, line.means, color=colour, linestyle=pattern, marker="o", ms=4)
                low, high = zip(*line.ranges, strict=True)
                ax.fill_between(line.shares, low, high, color=colour, alpha=0.12, linewidth=0)
            ax.set(title=title, xlabel="Share of lying clients")
        axes[0, 0].set_ylabel("Accuracy after the last round")
        fig.legend(known.values(), known.keys(), loc="outside upper left", ncols=3, columnspacing=1.6, handlelength=4.5)
        return style.as_files(fig)
