"""Loss on a scale on which tables and models can be compared: 0 is the non-private model's, 1 the best constant's."""

from collections.abc import Iterable

from l2p.compare import results
from l2p.compare.results import LOSS, Estimate, Row

#: The methods that set the scale.
CONSTANT, NONPRIVATE = "no_features", "nonprivate"
LABEL = "excess test loss\n(1: best constant, 0: non-private)"


def excess_loss(rows: Iterable[Row]) -> dict[str, dict[float, Estimate | None]]:
    """Test loss above that of the non-private model, over what the best constant has, by method and epsilon.

    The difference is paired by seed; the gap that it is divided by is a mean over seeds. Empty for a comparison without
    both references, or in which a constant is no worse than the non-private model.

    >>> loss = {"no_features": 0.7, "nonprivate": 0.3, "universal": 0.4}
    >>> rows = [{"method": name, "epsilon": 1.0, "seed": 0, "test_loss": value} for name, value in loss.items()]
    >>> round(excess_loss(rows)["universal"][1.0].mean, 3), excess_loss(rows[:2])["no_features"][1.0].mean
    (0.25, 1.0)
    >>> excess_loss(rows[1:])
    {}
    """
    losses = results.by_seed(rows, LOSS.column)
    if not {CONSTANT, NONPRIVATE} <= losses.keys():
        return {}
    gaps = {
        epsilon: Estimate.of(gap.values()).mean
        for epsilon, exact in losses[NONPRIVATE].items()
        if (gap := results.difference(losses[CONSTANT].get(epsilon, {}), exact))
    }
    if not gaps or min(gaps.values()) <= 0:
        return {}
    return {
        method: {
            epsilon: _share(results.difference(seeds, losses[NONPRIVATE][epsilon]), gaps[epsilon])
            for epsilon, seeds in cells.items()
            if epsilon in gaps
        }
        for method, cells in losses.items()
    }


def _share(excess: dict[int, float], gap: float) -> Estimate | None:
    return Estimate.of(value / gap for value in excess.values()) if excess else None
