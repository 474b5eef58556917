"""The privacy card: what a run guarantees, to whom, by which theorem, and what it does not cover."""

import dataclasses
import importlib.metadata
import json
import platform
import textwrap
from pathlib import Path
from typing import Any

from l2p.errors import InputError
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency

_NEIGHBOURS = {
    Adjacency.ZERO_OUT: "Two tables are neighbours if one row of one is replaced by a null row that contributes "
    "nothing in the other. The number of rows N is public.",
    Adjacency.ADD_REMOVE: "Two tables are neighbours if one has a single row more than the other. The N that this "
    "card states was declared public and is not protected.",
    Adjacency.REPLACE_ONE: "Two tables are neighbours if one row of one is replaced by any other row in the other. "
    "The number of rows N is public.",
}
_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class Card:
    """Everything a reader needs to judge one run; nothing in it costs budget.

    Attributes:
      epsilon, delta, adjacency: the target the run was held to.
      epsilon_certified: the epsilon at `delta` that was certified after the run, at most `epsilon`.
      unit: what one neighbour differs in.
      num_rows: N, public by declaration.
      private_release: False when the noise came from a seed that somebody may know.
      accountant, theorem: which filter stopped the run, and why its cap holds.
      adaptive_noise: whether noise or stopping depended on earlier answers.
      sampler: how rows were chosen for each query.
      mechanisms: {query, mechanism, count, clip_norm [low, high], noise_multiplier [low, high]} per kind of query.
      events: [mechanism, noise multiplier, count] in order, multipliers exactly as used: enough to price the run again.
      steps, max_steps, stop_reason: steps done and allowed; "budget" or "max_steps".
      randomness: where the noise came from.
      not_private: sentences on what the guarantee does not cover.
      protector: {name, sha256, sources, range}; None where unknown or not applicable.
      warnings: sentences.
      versions: of l2p, jax, numpy and python.
      created: UTC, ISO 8601.
    """

    epsilon: float
    delta: float
    epsilon_certified: float
    adjacency: str
    unit: str
    num_rows: int
    private_release: bool
    accountant: str
    theorem: str
    adaptive_noise: bool
    sampler: str
    mechanisms: list[dict[str, Any]]
    events: list[list[Any]]
    steps: int
    max_steps: int
    stop_reason: str
    randomness: str
    not_private: list[str]
    protector: dict[str, Any]
    warnings: list[str]
    versions: dict[str, str]
    created: str

    @property
    def budget(self) -> Budget:
        """The target as a `Budget`."""
        return Budget(self.epsilon, self.delta, Adjacency(self.adjacency))

    def answered(self) -> list[tuple[str, float]]:
        """(mechanism, noise multiplier) of every granted query, in order: what accountants price."""
        return [(mechanism, multiplier) for mechanism, multiplier, count in self.events for _ in range(count)]

    def to_json(self) -> str:
        """The card as JSON; `from_json` reads it back without loss."""
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, path: str | Path) -> "Card":
        """The card in a file that `to_json` wrote.

        Raises:
          InputError: the file is missing, is not JSON or is not a card.
        """
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"the card {path} cannot be read as JSON ({error}); pass a run's card.json.") from error
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(content, dict) or set(content) != names or not _are_events(content["events"]):
            raise InputError(
                f"{path} does not hold the fields of a privacy card, so it cannot be priced; pass card.json."
            )
        return cls(**content)

    def to_text(self) -> str:
        """The card for people: plain text, wrapped."""
        sections = [_paragraph("", self._guarantee())]
        if not self.private_release:
            sections.insert(0, "NOT A PRIVATE RELEASE: the noise came from a user-given seed")
        facts = {
            "Certified": f"epsilon {self.epsilon_certified:g} of {self.epsilon:g}, by {self.accountant}",
            "Theorem": self.theorem,
            "Noise": "depended on earlier answers" if self.adaptive_noise else "fixed in advance",
            "Sampler": self.sampler,
            "Steps": f"{self.steps} of at most {self.max_steps}; stopped by: {self.stop_reason}",
            "Randomness": self.randomness,
            "Protector": self._protector(),
            "Made with": ", ".join(f"{name} {version}" for name, version in self.versions.items()),
            "Created": self.created,
        }
        sections.append("\n".join(_paragraph(f"{name:<12}", text) for name, text in facts.items()))
        sections.append("\n".join(["Queries answered", *map(_mechanism, self.mechanisms)]))
        sections.append("\n".join(["Not covered", *(_paragraph("- ", text) for text in self.not_private)]))
        if self.warnings:
            sections.append("\n".join(["Warnings", *(_paragraph("- ", text) for text in self.warnings)]))
        return "\n\n".join(["PRIVACY CARD", *sections]) + "\n"

    def _guarantee(self) -> str:
        return (
            f"(epsilon = {self.epsilon:g}, delta = {self.delta:g})-differential privacy for one {self.unit} of "
            f"N = {self.num_rows}. {_NEIGHBOURS[Adjacency(self.adjacency)]} Whatever is released, the odds of seeing "
            f"it differ between neighbours by a factor of at most e^epsilon, but for a probability of {self.delta:g}. "
            "Somebody who appears in k rows has k epsilon, at delta times k e^((k - 1) epsilon)."
        )

    def _protector(self) -> str:
        known = {key: value for key, value in self.protector.items() if key != "name" and value is not None}
        facts = [
            f"{key} {', '.join(value) or 'none'}" if key == "sources" else f"{key} {value}"
            for key, value in known.items()
        ]
        return "; ".join([self.protector["name"], *facts])


def versions() -> dict[str, str]:
    """Versions of what decides a run's outcome."""
    packages = {"l2p": "l2p-jax", "jax": "jax", "numpy": "numpy"}
    return {name: _version(package) for name, package in packages.items()} | {"python": platform.python_version()}


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"  # run from a checkout


def _are_events(events: Any) -> bool:
    def is_event(event: Any) -> bool:
        types = str, (int, float), int
        return isinstance(event, list) and len(event) == 3 and all(map(isinstance, event, types))

    return isinstance(events, list) and all(map(is_event, events))


def _mechanism(kind: dict[str, Any]) -> str:
    clip_norm, multiplier = (_range(kind[name]) for name in ("clip_norm", "noise_multiplier"))
    count, query, mechanism = kind["count"], kind["query"], kind["mechanism"]
    return f"- {query}: {count} times, {mechanism} noise, noise multiplier {multiplier}, clip norm {clip_norm}"


def _range(ends: list[float]) -> str:
    low, high = (f"{end:.4g}" for end in ends)
    return low if low == high else f"{low} to {high}"


def _paragraph(label: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False)
