"""`l2p protectors`: the names that `--protector` takes."""

import dataclasses
import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import tyro

#: Width of everything that is printed, and the column that descriptions begin in, for short and long names.
WIDTH, SHORT, LONG = 80, 18, 35
#: Rows of a table that a method is shown for.
_ANY_ROWS = 10_000


@dataclasses.dataclass(frozen=True)
class Protectors:
    """List the names that `--protector` takes, with a line on each."""

    name: tyro.conf.Positional[str | None] = None
    """A method, to be shown with its settings; all by default."""
    all: bool = False
    """Also list controls and the checkpoints that only studies need, with models, public sources and ranges."""
    json: bool = False
    """Print every name as a JSON list, with its card except the arrays' structure."""

    def run(self) -> int:
        """Print them."""
        if self.name is not None:
            _print_one(self.name)
        elif self.json:
            print(json.dumps(_protectors(), indent=1))
        elif self.all:
            _print_all()
        else:
            _print_recommended()
        return 0


def _print_one(method: str) -> None:
    """What a method does, and every setting with its value on 10,000 rows and what else it may be."""
    from l2p.base.errors import InputError
    from l2p.checkpoints.settings import settings_of
    from l2p.privacy.budget import Budget
    from l2p.protectors import HAND_DESIGNED

    card = next((card for card in _protectors() if card["name"] == method), None)
    if card is None:
        raise InputError(f"there is no protector {method!r} to be shown; l2p protectors --all lists every name.")
    _print_entry(card)
    if method not in HAND_DESIGNED:
        print("    It has no settings: what it does follows from how it was trained.")
        return
    settings = settings_of(HAND_DESIGNED[method](Budget(1.0, 1e-6), num_rows=_ANY_ROWS))
    print(
        f"\nSettings, with their values on {_ANY_ROWS:,} rows, for l2p apply --set:" if settings else "    No settings."
    )
    for name, setting in settings.items():
        line = f"  {name:<20}{setting.text:<15}{setting.choices}"
        print(textwrap.fill(line, WIDTH, subsequent_indent=" " * 37))


def _print_recommended() -> None:
    from l2p.checkpoints import checkpoint
    from l2p.checkpoints.control import CONTROL

    cards = {card["name"]: card for card in _protectors()}
    first = checkpoint.first_floor()
    controls = {f"{CONTROL}-{name}" for name in first}
    shown = [name for name in first if name not in controls or cards[name]["default_for"]]
    print("Learned on public tasks; * is what l2p apply takes unless told otherwise:")
    _print_entries(
        ((f"{'*' if cards[name]['default_for'] else ' '} {name}", cards[name]["about"]) for name in shown), LONG
    )
    print("\nDesigned by hand:")
    hand_designed = [card for card in cards.values() if card["kind"] == "hand-designed"]
    _print_entries(((card["name"], card["about"]) for card in hand_designed), SHORT)
    line = (
        "Constants alone are control-NAME; a checkpoint's file and mypackage:MyProtector serve, too. "
        f"--all has every name and its range, --json the cards.{checkpoint.study_hint()}"
    )
    print(textwrap.fill(line, WIDTH, break_on_hyphens=False))


def _print_entries(entries: Iterable[tuple[str, str]], column: int) -> None:
    for name, about in entries:
        print(f"{name:<{column}}{textwrap.shorten(about, WIDTH - column, placeholder='...')}")


def _print_all() -> None:
    for card in _protectors():
        _print_entry(card)


def _print_entry(card: Mapping[str, Any]) -> None:
    from l2p.checkpoints.ranges import interval

    print(card["name"])
    ranges = {"log(mu N)": "log_signal", "features": "num_features"}
    trained = card.get("range") or {}
    limits = [f"{name} {interval(trained[key])}" for name, key in ranges.items() if key in trained]
    sources = [f"from {', '.join(card['sources'])}"] if card["sources"] else []
    parts = [card["about"].rstrip("."), ", ".join(card["models"]), *limits, *sources]
    text = "; ".join(part for part in parts if part)
    indent = " " * 4
    for line in textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent):
        print(line)


def _protectors() -> list[dict[str, Any]]:
    """The checkpoints that users need, hand-designed methods, and the checkpoints that only studies need."""
    from l2p.checkpoints import checkpoint

    cards = {card["name"]: card for card in checkpoint.available()}
    first = checkpoint.first_floor()
    floor = [_frozen(cards[name], study=False) for name in first]
    return [
        *floor,
        *_hand_designed(),
        *(_frozen(card, study=True) for name, card in cards.items() if name not in first),
    ]


def _hand_designed() -> list[dict[str, Any]]:
    from l2p.checkpoints.defaults import models_of
    from l2p.privacy.budget import Budget
    from l2p.protectors import HAND_DESIGNED

    anything = {"budget": Budget(1.0, 1e-6), "num_rows": _ANY_ROWS}
    return [
        {
            "name": name,
            "kind": "hand-designed",
            "models": list(method(**anything).models),
            "sources": [],
            "about": " ".join((method.make.__doc__ or "").splitlines()[0].split()),
            "default_for": models_of(name),
        }
        for name, method in HAND_DESIGNED.items()
    ]


def _frozen(card: Mapping[str, Any], study: bool) -> dict[str, Any]:
    from l2p.checkpoints import checkpoint
    from l2p.checkpoints.defaults import models_of

    name = card["name"]
    return {
        **{key: value for key, value in card.items() if key != "structure"},  # longer than all the rest
        "kind": "checkpoint",
        "study": study,
        "about": checkpoint.about(name),
        "default_for": models_of(name),
    }
