"""The look of every figure: colours, and for matplotlib bands, names at the ends of lines, files for light and dark.

Nothing here knows what a figure shows. A figure is drawn in light colours; `save` adds the dark ones as a style sheet.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Colours of lines on a white page, in the order of their use. A test holds that they can be told apart without red or
#: green cones, and read as text.
COLOURS = ("#0068b8", "#c24a00", "#2a7f71", "#6c0f6c", "#683a23", "#7c00f7")
#: The same on a dark page.
DARK_COLOURS = ("#58b0f0", "#ff8f4a", "#34e2c5", "#ff276f", "#ffd817", "#7474ff")
#: Two more of each, for the lines of a card: a run may ask more than six kinds of queries.
CARD_COLOURS = (*COLOURS, "#000000", "#000084")
DARK_CARD_COLOURS = (*DARK_COLOURS, "#b4f090", "#fc30c0")
PAGE, DARK_PAGE = "#ffffff", "#14171b"
TEXT, DARK_TEXT = "#000000", "#e6e9ec"
#: Lines without a name, in the background.
OTHERS, DARK_OTHERS = "#c8c8c8", "#464e57"
#: A second mark beside the colour, for prints in grey.
MARKERS = ("o", "s", "^", "D", "v", "P")
REFERENCE: dict[str, Any] = {"color": TEXT, "linestyle": "--", "linewidth": 1.0, "zorder": 1.2}
#: The least distance between two names, as a share of a panel of `HEIGHT` inches.
_LINE_HEIGHT, HEIGHT = 0.058, 3.8


class End(NamedTuple):
    """The right end of a line, for its name."""

    x: float
    y: float
    colour: str


def panels(columns: int, rows: int = 1, width: float = 5.5, height: float = HEIGHT) -> tuple["Figure", list["Axes"]]:
    """A figure of panels of so many inches, row by row; without a display or global state."""
    # Imported late, because the command line must not wait for it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def title(figure: "Figure", text: str) -> None:
    """The title of a figure, at its left; none if the text is empty."""
    if text:
        figure.suptitle(text, x=0.01, ha="left", fontsize="medium")


def band(axis: "Axes", x: Sequence[float] | np.ndarray, mean: np.ndarray, error: np.ndarray, **style: Any) -> None:
    """A line with a band of one `error` on both sides, none where it is NaN.

    Args:
      axis: the panel.
      x: f[n].
      mean: f[n].
      error: f[n].
      style: of the line.
    """
    (line,) = axis.plot(x, mean, **style)
    error = np.nan_to_num(error)
    # A logarithmic axis cannot show zero.
    low = np.maximum(mean - error, mean / 10) if axis.get_yscale() == "log" else mean - error
    axis.fill_between(x, low, mean + error, color=line.get_color(), alpha=0.2, linewidth=0, zorder=line.get_zorder())


def name_lines(axis: "Axes", ends: Mapping[str, End]) -> None:
    """Each line's name at its right end, moved where names would overlap, with an arrow where the line has left the
    panel."""
    low, high = axis.get_ylim()  # settles the limits, which `transData` would read as they were before the last line
    to_panel = axis.transData + axis.transAxes.inverted()
    at = {name: to_panel.transform((end.x, np.clip(end.y, low, high)))[1] for name, end in ends.items()}
    order = sorted(at, key=lambda name: (at[name], ends[name].y))
    gap = _LINE_HEIGHT * HEIGHT * 72 / (axis.get_window_extent().height * 72 / axis.figure.dpi)
    for name, height in zip(order, spread([at[name] for name in order], gap), strict=True):
        x, y, colour = ends[name]
        arrow = " ↑" if y > high else " ↓" if y < low else ""
        axis.annotate(
            name + arrow,
            (x, min(max(y, low), high)),
            (1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize="small",
            color=colour,
            # From the middle of the label's left side: from its centre, lines would cross other labels.
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved as little as it takes to keep them `gap` apart and, as far as they fit, in [0, 1].

    Neighbours that are too close become a block, whose middle stays where theirs was.

    >>> [round(float(height), 3) for height in spread([0.1, 0.5, 0.5, 0.9], 0.1)]
    [0.1, 0.45, 0.55, 0.9]
    >>> [round(float(height), 3) for height in spread([0.5, 1.0, 1.0], 0.1)]
    [0.5, 0.9, 1.0]
    """
    blocks: list[list[float]] = []  # each: the wanted heights of its members

    def bottom(block: list[float]) -> float:
        return sum(block) / len(block) - gap * (len(block) - 1) / 2

    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and bottom(blocks[-2]) + gap * len(blocks[-2]) > bottom(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    apart = [bottom(block) + gap * place for block in blocks for place in range(len(block))]
    below_top = [min(height, 1 - gap * place) for place, height in enumerate(reversed(apart))]
    return [max(height, gap * place) for place, height in enumerate(reversed(below_top))]


def save(figure: "Figure", path: Path) -> None:
    """Write an SVG file that follows the reader's setting, light or dark; the same figure gives the same bytes."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": path.name}):
        figure.savefig(path, format="svg", metadata={"Date": None})
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("</style>", f"\n{_dark_rules()}\n</style>", 1), encoding="utf-8")


def _dark_rules() -> str:
    """The style sheet that turns light colours, which matplotlib writes inline, into dark ones."""
    pairs = {PAGE: DARK_PAGE, TEXT: DARK_TEXT, OTHERS: DARK_OTHERS, **dict(zip(COLOURS, DARK_COLOURS, strict=True))}
    rules = [f"text {{ fill: {DARK_TEXT} }}"]
    for light, dark in pairs.items():
        rules += [f'[style*="{kind}: {light}"] {{ {kind}: {dark} !important }}' for kind in ("fill", "stroke")]
    return "@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}"
