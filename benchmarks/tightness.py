"""The epsilon that each accountant certifies for the same noise, and the time it takes (the appendix figure of the L2P
paper).

    python -m benchmarks.tightness [FOLDER]

Writes tightness.csv and tightness.svg into FOLDER, runs/tightness by default. Noise is constant and fixed beforehand,
since only then are all of these valid; adjacency zero_out, delta 1e-8.
"""

import csv
import sys
from pathlib import Path

from matplotlib.figure import Figure

from l2p.base import drawing
from l2p.base.drawing import End
from l2p.privacy import Adjacency, FullBatch, Poisson, Sampler
from l2p.privacy.cap.planning import equal_steps
from l2p.privacy.fixed import accountants, table

DELTA, STEPS = 1e-8, (10, 20, 50, 100, 200, 500, 1000)
SETTINGS: dict[str, tuple[Sampler, float]] = {
    "full batch, noise multiplier 500": (FullBatch(), 500.0),
    "Poisson, q = 1000/30400, noise multiplier 20": (Poisson(1000 / 30_400), 20.0),
}


def measure() -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for setting, (sampler, noise_multiplier) in SETTINGS.items():
        for steps in STEPS:
            for row in table(equal_steps(steps, noise_multiplier), sampler, Adjacency.ZERO_OUT, DELTA):
                answer = {"epsilon": row.epsilon, "seconds": round(row.seconds, 6), "note": row.note}
                rows.append({"setting": setting, "steps": steps, "accountant": row.name, **answer})
    return rows


def draw(rows: list[dict[str, object]]) -> Figure:
    figure, axes = drawing.panels(len(SETTINGS), 2, height=3.4)
    for place, axis in enumerate(axes):
        setting, quantity = list(SETTINGS)[place % len(SETTINGS)], ("epsilon", "seconds")[place // len(SETTINGS)]
        axis.set(xscale="log", yscale="log", xlabel="steps", ylabel=quantity)
        axis.set_title(setting if place < len(SETTINGS) else "", fontsize="medium", loc="left")
        ends = {}
        for index, name in enumerate(accountants()):
            selected = [row for row in rows if (row["setting"], row["accountant"]) == (setting, name)]
            points = [(row["steps"], row[quantity]) for row in selected if row["epsilon"] is not None]
            if points:
                colour = (*drawing.COLOURS, drawing.TEXT)[index % (len(drawing.COLOURS) + 1)]
                # Accountants beyond the last colour begin anew with dashes.
                style = "-" if index <= len(drawing.COLOURS) else "--"
                axis.plot(*zip(*points, strict=True), color=colour, linestyle=style)
                ends[name] = End(*points[-1], colour)
        drawing.name_lines(axis, ends)
    return figure


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = measure()
    with (folder / "tightness.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    drawing.save(draw(rows), folder / "tightness.svg")
    for row in rows:
        epsilon = "-" if row["epsilon"] is None else f"{row['epsilon']:.4g}"
        print(f"{row['setting']:<46} T={row['steps']:<5} {row['accountant']:<20} {epsilon:>8}   {row['seconds']} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("runs", "tightness"))
