"""`l2p bolt-on`: noise on a model that another engine has trained."""

import dataclasses
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from l2p.base.errors import InputError
from l2p.base.json_fields import checked, strict
from l2p.commands.out_folder import claimed, saved
from l2p.commands.warn import warn

if TYPE_CHECKING:
    from l2p.privacy.sensitivity.engine_run import EngineRun


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoltOnCommand:
    """Add noise to a model that another engine trained by passes over the rows.

    l2p reads no row: it covers the training that is declared.

    The card lists, sentence by sentence, what the declaration vouches for."""

    weights: Path
    """Every trained coefficient, the intercept's as that of a constant column: a list of numbers in .json, or an array
    in .npy. For more than two classes, one list for each."""
    declaration: Path
    """JSON that says what the engine did, as docs/estimators.md has it."""
    epsilon: float
    """Privacy budget."""
    delta: float
    """Privacy budget, a probability below 1 / number of rows; 0 for pure differential privacy."""
    out: Path
    """Folder to write to; must be empty or new."""
    adjacency: Literal["zero_out", "replace_one"] = "zero_out"
    """The tables that count as neighbours."""
    ledger: Path | None = None
    """Ledger of all runs on this data set (see `l2p ledger create`), where this run reserves its budget."""
    dry_run: bool = False
    """Check all of it and print what the declaration vouches for; spends nothing."""

    def leftovers(self) -> str:
        """A sentence on what an interrupted run leaves behind."""
        return f"Nothing was written to {self.out}; weights without noise are as private as before."

    def run(self) -> int:
        """Check all of it, add noise, and write."""
        with claimed(self.out, self.dry_run):
            return self._run()

    def _run(self) -> int:
        from l2p.privacy.budget import Budget
        from l2p.privacy.events import Adjacency
        from l2p.release.engine import bolt_on, plan

        budget = Budget(self.epsilon, self.delta, Adjacency(self.adjacency))
        run, weights = _declared(self.declaration), _weights(self.weights)
        if self.dry_run:
            planned = plan(weights, run, budget)
            bound = run.slope * run.passes.sensitivity() * budget.adjacency.sensitivity_factor
            print(f"noise        {planned.protector.mechanisms[0]}, accountant {planned.accountant}")
            print(f"sensitivity  {bound:.6g} in length, of the weights of one class")
            print("\n".join(["vouched for", *(f"- {sentence}" for sentence in run.vouched)]))
            return 0
        result = bolt_on(weights, run, budget, ledger=self.ledger)
        out = saved(result, self.out)
        warn(result.card.warnings)
        print(result.card.to_text())
        print(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
        return 0


def _declared(path: Path) -> "EngineRun":
    from l2p.privacy.sensitivity.engine_run import EngineRun

    fields = _json(path)
    if not isinstance(fields, dict):
        raise InputError(
            f"{path} holds no JSON object, so nothing is declared; write one with the fields of a training."
        )
    kinds = typing.get_type_hints(EngineRun)
    required = [field.name for field in dataclasses.fields(EngineRun) if field.default is dataclasses.MISSING]
    if missing := [name for name in required if name not in fields]:
        raise InputError(
            f"{path} does not declare {', '.join(missing)}, without which no sensitivity is known; add what the "
            "engine's settings and its log say."
        )
    return EngineRun(**checked(fields, kinds, path))


def _weights(path: Path) -> Any:
    if path.suffix != ".npy":
        return _json(path)
    import numpy as np

    try:
        with path.open("rb") as file:
            return np.load(file, allow_pickle=False)
    except Exception as error:  # of a broken file NumPy raises whatever its parser of headers, or zipfile, does
        raise InputError(f"{path} holds no array of weights ({_reason(error)}); write one with numpy.save.") from None


def _json(path: Path) -> Any:
    try:
        return strict(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as JSON ({_reason(error)}); check its name and what it holds."
        ) from None


def _reason(error: Exception) -> str:
    """What was wrong, without a number of the file: weights are private."""
    return str(error.strerror) if isinstance(error, OSError) and error.strerror else type(error).__name__
