"""Figures of attacks: the success of a guesser beside the bound that epsilon sets, and reconstructed images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedstein.report import style


class Curve(NamedTuple):
    """False and true positive rates of a guesser; ``bound`` marks what is allowed instead of what was measured."""

    false: np.ndarray
    true: np.ndarray
    bound: bool = False


def draw_rates(panels: Sequence[tuple[str, Mapping[str, Curve]]]) -> dict[str, bytes]:
    """Draw true against false positive rates, both logarithmic, a panel for each guesser.

    Args:
        panels: For each panel its title and its curves by name.

    Returns:
        The figure by format: png, svg and pdf.
    """
    with style.style():
        fig = style.figure(4.4)
        axes = fig.subplots(1, len(panels), squeeze=False)
        for ax, (title, curves) in zip(axes.flat, panels, strict=True):
            chance = np.geomspace(1e-3, 1, 50)
            ax.plot(chance, chance, color=style.MUTED, linewidth=1, label="guessing blindly")
            measured = [name for name, curve in curves.items() if not curve.bound]
            for name, curve in curves.items():
                if curve.bound:
                    owner = next((i for i, other in enumerate(measured) if name.endswith(other)), 0)
                    pattern, width = style.DASHES[1], 1.2
                else:
                    owner, pattern, width = measured.index(name), "-", 1.8
                colour = style.colour(owner)
                ax.plot(curve.false, curve.true, color=colour, linestyle=pattern, linewidth=width, label=name)
            ax.set(xscale="log", yscale="log", xlim=(1e-3, 1), ylim=(1e-3, 1.1), title=title)
            ax.set(xlabel="False positive rate", ylabel="True positive rate")
            ax.legend(loc="lower right", fontsize=8)
        return style.as_files(fig)


def draw_images(rows: Sequence[tuple[str, np.ndarray]], side: int = 8) -> dict[str, bytes]:
    """Draw images, one line for each attack.

    Args:
        rows: For each line its name and its images, count x (side * side).
        side: Pixels of a side.

    Returns:
        The figure by format: png, svg and pdf.
    """
    columns = max(len(images) for _, images in rows)
    with style.style():
        fig = style.figure(0.95 * len(rows) + 0.2)
        axes = fig.subplots(len(rows), columns + 1, squeeze=False, width_ratios=[3.4, *[1] * columns])
        for line, (name, images) in zip(axes, rows, strict=True):
            line[0].text(1.0, 0.5, name, ha="right", va="center", transform=line[0].transAxes)
            for ax in line:
                ax.axis("off")
            for ax, image in zip(line[1:], images, strict=False):
                ax.imshow(image.reshape(side, side), cmap="gray_r", vmin=0.0, vmax=1.0)
        return style.as_files(fig)
