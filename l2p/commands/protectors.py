"""`l2p protectors`: the names that `--protector` takes."""

import dataclasses
import json
import textwrap
from typing import Any

#: Width and indent of the plain list.
WIDTH, INDENT = 80, "    "


@dataclasses.dataclass(frozen=True)
class Protectors:
    """List the protectors that users need, with descriptions; with --all, every name that `--protector` takes."""

    all: bool = False
    """Also list hand-designed methods and the checkpoints that only studies need, with all ranges."""
    json: bool = False
    """Print every name as a JSON list, with its card except the arrays' structure."""

    def run(self) -> int:
        """Print them."""
        if self.json:
            print(json.dumps(_protectors(), indent=1))
        elif self.all:
            _print_all()
        else:
            _print_recommended()
        return 0


def _print_recommended() -> None:
    from l2p.checkpoints import checkpoint
    from l2p.protectors import HAND_DESIGNED

    cards = {card["name"]: card for card in _protectors()}
    for name in checkpoint.first_floor():
        print(f"{name} ({', '.join(cards[name]['models'])})")
        print(textwrap.indent(cards[name]["about"] or f"from {', '.join(cards[name]['sources'])}", INDENT))
    print()
    for line in (
        f"Hand-designed methods: {', '.join(HAND_DESIGNED)}.",
        "l2p protectors --all lists every name with its models, sources and range, including checkpoints that only "
        f"studies need; --json prints cards.{checkpoint.study_hint()}",
    ):
        print(textwrap.fill(line, WIDTH, break_on_hyphens=False))


def _print_all() -> None:
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(Column("name", overflow="fold"), "models", "public sources", "log(mu N)", "features")
    for card in _protectors():
        ranges = card.get("range") or {}
        limits = (_interval(ranges.get(name)) for name in ("log_signal", "num_features"))
        table.add_row(card["name"], ", ".join(card["models"]), ", ".join(card["sources"]) or "none", *limits)
    Console().print(table)


def _protectors() -> list[dict[str, Any]]:
    """Hand-designed methods, the checkpoints that users need, and those that only studies need."""
    from l2p.checkpoints import checkpoint
    from l2p.privacy.budget import Budget
    from l2p.protectors import HAND_DESIGNED

    anything = {"budget": Budget(1.0, 1e-6), "num_rows": 10_000}
    models = {name: list(make(**anything).models) for name, make in HAND_DESIGNED.items()}
    made = [{"name": name, "kind": "hand-designed", "models": models[name], "sources": []} for name in models]
    cards = {card["name"]: card for card in checkpoint.available()}
    first = checkpoint.first_floor()
    frozen = [
        {
            **{key: value for key, value in cards[name].items() if key != "structure"},  # longer than all the rest
            "kind": "checkpoint",
            "study": name not in first,
            "about": checkpoint.about(name),
            "aliases": checkpoint.aliases(name),
        }
        for name in dict.fromkeys([*first, *cards])
    ]
    return made + frozen


def _interval(ends: list[float] | None) -> str:
    return "any" if ends is None else f"{ends[0]:g} to {ends[1]:g}"
