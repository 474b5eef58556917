"""`l2p protectors`: what may follow `--protector`."""

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class Protectors:
    """List the protectors: hand-designed methods and shipped checkpoints."""

    json: bool = False
    """Print a JSON list instead of a table."""

    def run(self) -> int:
        """Print them."""
        listed = _protectors()
        if self.json:
            print(json.dumps(listed, indent=1))
            return 0
        from rich.console import Console
        from rich.table import Column, Table

        table = Table(Column("name", overflow="fold"), "models", "public sources", "log(mu N)", "features")
        for card in listed:
            ranges = card.get("range") or {}
            limits = (_interval(ranges.get(name)) for name in ("log_signal", "num_features"))
            table.add_row(card["name"], ", ".join(card["models"]), ", ".join(card["sources"]) or "none", *limits)
        Console().print(table)
        return 0


def _protectors() -> list[dict[str, Any]]:
    from l2p import checkpoint
    from l2p.privacy.budget import Budget
    from l2p.protectors import HAND_DESIGNED

    anything = {"budget": Budget(1.0, 1e-6), "num_rows": 10_000}
    models = {name: list(make(**anything).models) for name, make in HAND_DESIGNED.items()}
    made = [{"name": name, "kind": "hand-designed", "models": models[name], "sources": []} for name in models]
    frozen = [{**card, "kind": "checkpoint"} for card in checkpoint.available()]
    # A structure is for machines that load the checkpoint, and longer than all the rest.
    return made + [{key: card[key] for key in card if key != "structure"} for card in frozen]


def _interval(ends: list[float] | None) -> str:
    return "any" if ends is None else f"{ends[0]:g} to {ends[1]:g}"
