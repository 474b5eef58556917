"""What one meta-training is: everything that decides its outcome, in one JSON file."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from l2p.errors import InputError

#: Budgets are grouped in this many bands, of equally many tasks each: to report on, and with a multiplier each where
#: spending is a constraint, since each budget is a constraint of its own.
BANDS = 8


@dataclasses.dataclass(frozen=True)
class MetaConfig:
    """A meta-training, reproducible from this alone.

    Attributes:
      name: name of the checkpoint it makes.
      protector: name of the starting point in `meta_train.builders`.
      source: public data set that tasks are drawn from.
      warm_start: checkpoint whose parameters the starting point takes over, or None.
      method: "gradient" for meta-gradients, "search" for random search.
      steps: outer steps (meta-gradients, or candidates of the search).
      tasks: tasks per outer step.
      rows: rows per task; each stands for N / rows rows of the simulated table.
      num_features: feature counts that tasks cycle through.
      log_signal: range of log(mu N) that tasks are drawn from, uniformly.
      learning_rate: peak of a cosine schedule.
      objective: "final" differentiates the whole run and scores its last loss; "truncated" scores the mean loss of
        each segment of `unroll` steps.
      unroll: steps per segment when truncated.
      constraint: "share" for schedulers that cannot overspend; "augmented_lagrangian" for those that can (Eq. 2).
      alternate: scheduler updates and projector updates in turn, such as [1, 5] (Setup); None updates both at once.
      accountant: in whose unit the constraint is measured and the shipped protector deployed.
      eval_every: outer steps between scores on held-out tasks and between resumable checkpoints.
      eval_tasks: held-out tasks per feature count.
      seed: of everything.
    """

    name: str
    protector: str
    source: str = "adult"
    warm_start: str | None = None
    method: str = "gradient"
    steps: int = 600
    tasks: int = 16
    rows: int = 1024
    num_features: tuple[int, ...] = (8, 24, 52, 104)
    log_signal: tuple[float, float] = (0.7, 8.7)
    learning_rate: float = 3e-3
    objective: str = "final"
    unroll: int = 10
    constraint: str = "share"
    alternate: tuple[int, int] | None = None
    accountant: str = "gdp"
    eval_every: int = 50
    eval_tasks: int = 32
    seed: int = 0

    def __post_init__(self):
        choices = {
            "method": ("gradient", "search"),
            "objective": ("final", "truncated"),
            "constraint": ("share", "augmented_lagrangian"),
            "accountant": ("gdp", "zcdp", "ctcdp"),
        }
        for field, allowed in choices.items():
            if getattr(self, field) not in allowed:
                raise InputError(f"{field} {getattr(self, field)!r} is unknown; choose one of {', '.join(allowed)}.")
        for field in ("steps", "rows", "unroll", "eval_every", "tasks", "eval_tasks"):
            count = getattr(self, field)
            unit = BANDS if field in ("tasks", "eval_tasks") else 1
            if not isinstance(count, int) or count < 1 or count % unit:
                raise InputError(f"{field} is {count!r}, but it counts; choose a positive multiple of {unit}.")

    def task_arguments(self, num_features: int) -> dict[str, Any]:
        """Arguments of `TaskFamily.sample` for one outer step's tasks."""
        return {
            "num_tasks": self.tasks,
            "num_rows": self.rows,
            "num_features": num_features,
            "log_signal": self.log_signal,
        }

    @classmethod
    def read(cls, path: Path) -> "MetaConfig":
        """A config from a JSON file; unknown fields are refused."""
        try:
            fields = json.loads(Path(path).read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"the config {path} cannot be read as JSON ({error}); pass a file of fields.") from error
        known = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(fields, dict) or not {"name", "protector"} <= set(fields):
            raise InputError(f"the config {path} must be an object that names at least a name and a protector.")
        if unknown := sorted(set(fields) - known):
            raise InputError(f"the config {path} has unknown fields {', '.join(unknown)}; known: {sorted(known)}.")
        values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}
        return cls(**values)
