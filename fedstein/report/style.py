"""The style of every figure, and its conversion to bytes that are the same each time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Literal

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

INK, MUTED, GRID, PAPER = "#1b1f24", "#5c6672", "#dfe3e8", "#ffffff"
# Okabe and Ito's palette without black and yellow, which vanish on a dark or a white page.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
Dashes = tuple[float, Sequence[float]] | Literal["-"]
DASHES: tuple[Dashes, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
WIDTH = 9.0  # inches
ON_PAPER = 7.16 / WIDTH  # the width of the text of a two-column page; text is then 8 points high
_scale: ContextVar[float] = ContextVar("scale", default=1.0)

_RC = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # ships with Matplotlib: the same glyphs everywhere
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "svg.hashsalt": "fedstein",
}


@contextmanager
def style(scale: float = 1.0) -> Iterator[None]:
    """Use Matplotlib's defaults with our changes, regardless of the user's settings, which are restored afterwards.

    Args:
        scale: Figures, text and lines become this much smaller; ON_PAPER makes a figure as wide as a page's text.
    """
    sizes: dict[str, Any] = {"font.size": 10 * scale, "axes.titlesize": 11 * scale, "lines.linewidth": 1.8 * scale}
    sizes["savefig.dpi"] = 160 / scale
    token = _scale.set(scale)
    try:
        with matplotlib.style.context(["default", _RC, sizes], after_reset=False):
            yield
    finally:
        _scale.reset(token)


def figure(height: float, width: float = WIDTH) -> Figure:
    """Make a figure with its own Agg canvas. Pyplot and its global state are not used.

    Args:
        height: In inches.
        width: In inches.
    """
    scale = _scale.get()
    fig = Figure(figsize=(width * scale, height * scale), layout="constrained")
    FigureCanvasAgg(fig)
    return fig


def colour(index: int) -> str:
    """Return the colour of a curve."""
    return COLOURS[index % len(COLOURS)]


def dashes(index: int) -> Dashes:
    """Return the line pattern of a curve: solid, and another pattern for each repetition of the colours."""
    return DASHES[index // len(COLOURS) % len(DASHES)]


def shortened(name: str, length: int = 16) -> str:
    """A name, cut to a length that fits an axis.

    Args:
        name: The name.
        length: The most characters to show.
    """
    return name if len(name) <= length else f"{name[: length - 1]}…"


def legend(fig: Figure, labels: Sequence[str], band: bool) -> None:
    """Draw one legend above the figure. A single group has no name in it.

    Args:
        fig: The figure.
        labels: The names of the curves.
        band: Whether to explain the band over seeds.
    """
    handles: list[Line2D | Patch] = []
    names = list(labels) if len(labels) > 1 else []
    for i in range(len(names)):
        handles.append(Line2D([], [], color=colour(i), linestyle=dashes(i), linewidth=2.2))
    if band:
        handles.append(Patch(facecolor=MUTED, alpha=0.25, linewidth=0))
        names.append("range over seeds")
    if names:
        columns = max(1, min(len(names), 100 // (max(map(len, names)) + 7)))
        fig.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=2.4, columnspacing=1.6)


def integer_axis(ax: Axes) -> None:
    """Use integer ticks on the x axis."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def log_axis(ax: Axes, fine: bool = False) -> None:
    """Make the y axis logarithmic with plain numbers; ``fine`` adds ticks for a range of less than a decade."""
    ax.set_yscale("log")
    subs = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0) if fine else (1.0, 2.0, 3.0, 5.0, 7.0)
    ax.yaxis.set_major_locator(LogLocator(subs=subs))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())


def as_files(fig: Figure) -> dict[str, bytes]:
    """Return the figure by format: png, svg and pdf. The layout is computed once for all formats."""
    fig.draw_without_rendering()
    fig.set_layout_engine("none")
    pdf = io.BytesIO()
    fig.savefig(pdf, format="pdf", metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return {"png": as_png(fig), "svg": as_svg(fig).encode(), "pdf": pdf.getvalue()}


def as_png(fig: Figure) -> bytes:
    """Return the figure as PNG."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def as_svg(fig: Figure) -> str:
    """Return the figure as SVG."""
    buffer = io.StringIO()
    fig.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()
