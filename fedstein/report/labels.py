"""Labels of points that do not cover each other or other points."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from fedstein.report.style import INK, MUTED

# The possible positions of a label, in typographic points from its data point: near and at the right first.
STEPS = (6, 14, 24, 36, 50, 66, 84, 104)
PLACES = [(side * 5, up * step) for step in STEPS for up in (1, -1) for side in (1, -1)]
RADIUS = 4.0  # pixels of a point that a label must not cover


def place_labels(
    axes: Axes, labels: Sequence[tuple[str, float, float]], points: Sequence[tuple[float, float]]
) -> list[Bbox]:
    """Write a label beside each point, at a free position. A thin line connects a label that is far from its point.

    The figure must have its final size and limits. A label for which there is no free place stands at the last one.

    Args:
        axes: The panel.
        labels: Text and coordinates.
        points: The coordinates of all points, which no label may cover.

    Returns:
        The boxes of the labels, in pixels.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # a panel always belongs to a figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    taken = []
    for x, y in points:
        centre = axes.transData.transform((x, y))
        taken.append(Bbox([centre - RADIUS, centre + RADIUS]))
    inside = axes.get_window_extent(renderer)
    boxes: list[Bbox] = []
    for text, x, y in sorted(labels, key=lambda label: (-label[2], label[1])):
        for place in PLACES:
            note = axes.annotate(
                text,
                (x, y),
                place,
                textcoords="offset points",
                fontsize=7,
                color=INK,
                ha="left" if place[0] > 0 else "right",
                va="center",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.4, "alpha": 0.8},
                arrowprops={"arrowstyle": "-", "color": MUTED, "lw": 0.6} if abs(place[1]) > STEPS[1] else None,
            )
            note.update_positions(renderer)
            box = Text.get_window_extent(note, renderer)  # without the line, which may cross other things
            free = not any(box.overlaps(other) for other in (*taken, *boxes))
            if (free and inside.x0 <= box.x0 and box.x1 <= inside.x1 + 20) or place == PLACES[-1]:
                boxes.append(box)
                break
            note.remove()
    return boxes
