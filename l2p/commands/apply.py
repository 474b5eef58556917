"""`l2p apply`: train on a private table within a budget."""

import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from l2p.checkpoints.method_name import MethodName
from l2p.errors import InputError, withheld

if TYPE_CHECKING:
    from l2p.result import Result
    from l2p.task import Rows


@dataclasses.dataclass(frozen=True)
class Apply:
    """Train on a private table within a budget, and write the model with its privacy card."""

    protector: str
    """A method's or checkpoint's name (see `l2p protectors`), or a checkpoint's file; `minibatch@0.02` for batches of
    another rate than its own; METHOD:private for the best of 10 runs on average, with settings that are chosen on the
    private rows and paid for."""
    data: Path
    """The private table, .csv or .parquet."""
    target: str
    """Its column of labels, or of numbers to predict."""
    bounds: Path
    """JSON {column: [low, high]} for every feature, from public knowledge; for the target too where it is a number to
    predict (model square or quadratic)."""
    epsilon: float
    """Budget, in nats."""
    delta: float
    """Budget, a probability below one over the number of rows."""
    out: Path
    """Folder to write to; must be empty or new."""
    classes: tuple[float, ...] | None = None
    """Labels of class 0, 1, 2 and so on; else labels are 0 and 1, or -1 and 1. Model softmax has as many classes as are
    named here; model square is a classifier where two are."""
    accountant: (
        Literal["gdp", "rdp", "zcdp", "ctcdp", "paper_13", "pld", "moments", "strong_composition", "basic"] | None
    ) = None
    """Else the protector's own."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] = "zero_out"
    """Which tables are neighbours."""
    rows: int | None = None
    """N, public; else the number of lines of --data. Required under add_remove, where neighbours differ in it."""
    seed: int | None = None
    """Fixes the noise, so that the run is not a private release; for experiments."""
    ledger: Path | None = None
    """What all runs on this data set have spent together (see `l2p ledger create`); the run is reserved there. For
    METHOD:private it must be in unit rdp or basic."""
    test: Path | None = None
    """A table to score the model on, outside the guarantee."""
    on_invalid: Literal["refuse", "null"] = "refuse"
    """What to do with empty, NaN or infinite cells and undeclared labels: stop, or count their rows as null. How many
    were, nothing says, so a typo in --classes trains on nothing."""
    model: str = "logistic"
    """The model to train: logistic, svm, hinge, softmax, mlp, square or quadratic."""

    def run(self) -> int:
        """Check all that is public, then read the table, train, and write."""
        _claim(self.out)
        import jax  # only now: the checks above should answer at once

        from l2p import api
        from l2p.compare import private_choice
        from l2p.data import prepare, read_bounds, read_table
        from l2p.data.table import Kind, check_classes
        from l2p.models import find_model
        from l2p.privacy import Adjacency, Budget

        budget = Budget(self.epsilon, self.delta, Adjacency(self.adjacency))
        bounds = read_bounds(self.bounds)
        model = find_model(self.model, len(self.classes) if self.classes else None)
        kind = cast(Kind, model.kind(self.classes))
        check_classes(self.classes, kind)
        check, train = api.check, api.private_train
        if MethodName.parse(self.protector).private:
            check, train = private_choice.released, private_choice.release
        check(self.protector, budget, str(model), self.accountant)
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise InputError(f"seed is {self.seed}, but a JAX key holds 32 bits of it; choose one from 0 to 2^32 - 1.")
        key = None if self.seed is None else jax.random.key(self.seed)

        declared = {self.target, *bounds}
        table = read_table(self.data, declared)
        rows = prepare(table, self.target, bounds, self.classes, self.on_invalid, kind=kind)
        columns = [column for column in table.columns if column != self.target]
        test = None
        if self.test is not None:
            given = read_table(self.test, declared)
            test = prepare(given, self.target, bounds, self.classes, self.on_invalid, columns, kind)
            if not test.mask.any():
                raise InputError(f"{self.test} has no valid row, so there is no score; check --test and --classes.")
        result = train(
            rows,
            self.protector,
            budget,
            model=str(model),
            key=key,
            accountant=self.accountant,
            num_rows=self.rows,
            ledger=self.ledger,
            kind=kind,
        )
        out = _save(result, self.out, columns, bounds, self.classes, self.target)
        if test is not None:
            (out / "metrics.json").write_text(json.dumps(_score(result, test, kind), indent=1) + "\n", encoding="utf-8")
        print(result.card.to_text())
        print(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
        return 0


def _claim(folder: Path) -> None:
    """Make an empty folder, before anything is spent that could then not be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise InputError(f"the folder {folder} cannot be written ({error.strerror}); name another in --out.") from error
    if occupied:
        raise InputError(
            f"the folder {folder} is not empty, and a result is never overwritten; name a new one in --out."
        )


def _save(result: "Result", folder: Path, *about: Any) -> Path:
    """Write the result, which is paid for: elsewhere, if the folder cannot be written any more."""
    try:
        result.save(folder, *about)
    except OSError as error:
        rescue = Path(tempfile.mkdtemp(prefix="l2p-"))
        print(f"{folder} cannot be written ({error.strerror}), so the result goes to {rescue}", file=sys.stderr)
        result.save(rescue, *about)
        return rescue
    return folder


@withheld("scoring the rows of --test")
def _score(result: "Result", rows: "Rows", kind: str) -> dict[str, object]:
    """Accuracy or squared error, and unregularised mean loss, on rows outside the guarantee; null rows do not count."""
    import jax
    import jax.numpy as jnp

    from l2p.models import find_model
    from l2p.simulate import mean_loss, score

    model, rows = find_model(result.model), jax.tree.map(jnp.asarray, rows)
    return {
        "test_mse" if kind == "regression" else "test_accuracy": float(score(result.params, model, rows, kind)),
        "test_loss": float(mean_loss(result.params, model, rows)),
        "outside_guarantee": True,
    }
