"""`l2p apply`: train on a private table within a budget."""

import contextlib
import dataclasses
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from l2p.base.errors import InputError
from l2p.checkpoints.method_name import MethodName
from l2p.commands.out_folder import claimed, saved
from l2p.commands.warn import warn
from l2p.privacy.accountants import run_names
from l2p.tables.table_options import TableOptions

if TYPE_CHECKING:
    from l2p.checkpoints.named import NamedProtector
    from l2p.commands.declared import DeclaredTable
    from l2p.privacy.budget import Budget
    from l2p.run.protector import Protector
    from l2p.task.rows import Rows

    Accountant = str
else:
    Accountant = Literal[run_names()]


_UNSEEN = (
    "with on_invalid null every row whose label is not one of the declared classes counts as null, and how many do is "
    "never said: a typo there trains on nothing, and spends the budget all the same."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Apply(TableOptions):
    """Train on a private table within a budget; write a model and its privacy card."""

    data: tuple[str, ...]
    """The private table: .csv (or .tsv, .txt, .data), .arff or .parquet; several files are one table.
    Or a table in a database: duckdb://FILE?table=T or postgresql://HOST/DATABASE?table=T (docs/sources.md)."""
    schema: Path
    """JSON that declares the table, as `l2p schema` writes it: types, bounds, categories, missing cells, the target."""
    bounds_share: float | None = None
    """Share of the budget that buys the bounds which --schema declares as "private", all together; default 0.05."""
    public: tuple[str, ...] | None = None
    """Rows that anybody may see, for methods that learn from them too: a table (or several files of one) with the same
    columns as --data. They cost no budget; the card lists their number and SHA-256."""
    epsilon: float
    """Privacy budget."""
    delta: float
    """Privacy budget, a probability below 1 / number of rows; 0 for pure differential privacy, with bolt_on."""
    out: Path
    """Folder to write to; must be empty or new."""
    protector: str | None = None
    """The protector that trains; default the one that `l2p plan` recommends for the model.
    A name that `l2p protectors` lists, a checkpoint's file, or mypackage:MyProtector for one of your own.
    `minibatch@0.02` draws batches of 2 % of the rows instead of its own 5 %.
    METHOD:private chooses the method's settings on the private rows, within the budget: the best of 10 runs or so,
    or, with lists of values after --set, one of their combinations, each tried on its own part of the rows."""
    set: tuple[str, ...] = ()
    """Public settings of a hand-designed method, as in --set num_passes=5 batch_size=10; `l2p protectors METHOD` lists
    them. They are part of the method's name on the card. With METHOD:private, lists: num_passes=1,10 ridge=0,.01."""
    accountant: Accountant | None = None
    """Default: the protector's own."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] = "zero_out"
    """The tables that count as neighbours."""
    rows: int | None = None
    """Number of rows N, public; default the lines of --data. Required under add_remove: neighbours differ in N."""
    seed: int | None = None
    """Fixes the noise, for experiments: the run is then not a private release."""
    ledger: Path | None = None
    """Ledger of all runs on this data set (see `l2p ledger create`), where this run reserves its budget.
    For METHOD:private its unit must be rdp or basic; with lists of values, basic."""
    test: str | None = None
    """A table to score the model on; the guarantee does not cover it."""
    on_invalid: Literal["refuse", "null"] = "refuse"
    """Treatment of empty, NaN or infinite cells that nothing stands in for, and undeclared labels: refuse the table,
    or count such rows as null. Their number is never shown, so a typo in a class may train on no rows at all."""
    model: str | None = None
    """The model to train: logistic, svm, hinge, softmax, mlp, square or quadratic.
    Default as the schema has the target: logistic for two classes, softmax for more, square for a number.
    The schema sets how many classes softmax has; with two classes, square is a classifier."""
    stream: Literal["auto", "yes", "no"] = "auto"
    """Read rows anew at every step instead of keeping them in memory; `auto` does so for a table that would take more
    than half of it. Needs a method that goes step by step, or bolt_on, which shuffles the rows in a file in TMPDIR."""
    in_database: bool = False
    """Have the PostgreSQL server take the passes over its rows, of which none comes here; default method bolt_on.
    Columns are numbers with declared bounds, and --data names a unique one: postgresql://HOST/DATABASE?table=T&key=ID."""
    justification: str | None = None
    """For the card, in your own words: why this budget, this unit and this release."""
    contact: str | None = None
    """For the card: whom to ask."""
    audit: str | None = None
    """For the card: what was audited, by whom, and what came out."""
    dry_run: bool = False
    """Check all that is public and print what the run would spend; reads no cell of the table, and spends nothing."""

    def leftovers(self) -> str:
        """A sentence on what an interrupted run without a ledger leaves behind."""
        return f"Nothing was written to {self.out}; no ledger counts what its queries may have spent."

    def run(self) -> int:
        """Check all that is public, then read the table, train, and write."""
        with claimed(self.out, self.dry_run), contextlib.ExitStack() as stack:
            return self._run(stack)

    def _run(self, stack: contextlib.ExitStack) -> int:
        import jax  # imported late, so that the check of the folder answers at once

        from l2p.checkpoints.defaults import default_protector
        from l2p.commands.declared import DeclaredTable
        from l2p.commands.dry_run import print_plan
        from l2p.compare import private_choice
        from l2p.compare.scores import metrics
        from l2p.privacy.budget import Budget
        from l2p.privacy.card.statements import TITLES, checked
        from l2p.privacy.events import Adjacency
        from l2p.release import api

        budget = Budget(self.epsilon, self.delta, Adjacency(self.adjacency))
        stated = checked({name: getattr(self, name) for name in TITLES})
        declared = DeclaredTable.of(self.data, self.schema, self.model, self.format, self.on_invalid)
        schema, target, model = declared.schema, declared.schema.target, declared.model
        default = "bolt_on" if self.in_database else default_protector(model.name)
        protector = MethodName.parse(self.protector or default).with_settings(self.set)
        named = self._admitted(declared, protector, budget)
        if self.in_database:
            from l2p.commands import in_database

            in_database.check(self, declared, named, protector.private)
        share = declared.share(self.bounds_share)
        if self.seed is not None and not 0 <= self.seed < 2**32:
            raise InputError(
                f"seed is {self.seed}, but a JAX key is made from 32 bits; choose a seed from 0 to 2^32 - 1."
            )
        key = None if self.seed is None else jax.random.key(self.seed)
        public_rows = None if self.public is None else declared.public_rows(self.public)
        if self.dry_run:
            warn(print_plan(named, budget, declared, self.rows, self.ledger, protector.private, share, public_rows))
            return 0

        data, options = self._to_train(declared, public_rows, protector.private, named.protector, stack)
        test = self._test_rows(declared, data)
        if target.classes and self.on_invalid == "null":
            warn([_UNSEEN])
        options |= {"model": model, "key": key, "num_rows": self.rows, "ledger": self.ledger, "kind": declared.kind}
        result = (private_choice.release if protector.private else api.private_train)(data, named, budget, **options)
        if result.schema is None:
            result = result.with_schema(schema)
        result = result.of_table(list(self.data), target.column).stating(stated)
        out = saved(result, self.out)
        if self.test is not None and test is not None:
            if schema.private_bounds:  # which have been bought
                test = declared.test_rows(self.test, result)
            scores = metrics(result.params, model, test, declared.kind, target.bounds or (0.0, 1.0))
            _save_scores(scores | {"outside_guarantee": True}, out)
        warn(result.card.warnings)
        print(result.card.to_text())
        print(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
        return 0

    def _admitted(self, declared: "DeclaredTable", protector: MethodName, budget: "Budget") -> "NamedProtector":
        """The protector, once for the whole command; neither public rows nor test rows are the private table."""
        from l2p.compare import private_choice
        from l2p.release.admission import admit
        from l2p.tables.same_table import TEST, refuse_own, refuse_same

        refuse_same(declared.files, self.public and list(self.public))
        refuse_same(declared.files, self.test and [self.test], TEST)
        run = budget, declared.model, self.accountant
        has_public = self.public is not None
        if protector.private:
            private_choice.check_kind(declared.kind)
            declared.check_plain()
            named = private_choice.admit_choice(protector, *run, has_public=has_public)
        else:
            named = admit(str(protector), *run, schema=declared.schema, has_public=has_public)
        refuse_own(declared.files, named.sources)
        return named

    def _test_rows(self, declared: "DeclaredTable", data: Any) -> "Rows | None":
        """The rows to score on, none of which is of the table to train on, which `data` is or stands for."""
        from l2p.tables.same_table import TEST, refuse_shared
        from l2p.tables.schema.stream import StreamedTable

        if self.test is None:
            return None
        test = declared.test_rows(self.test)
        if not test.mask.any():
            raise InputError(f"{self.test} has no valid row, so there is no score; check --test and the classes.")
        private = data.every_row() if isinstance(data, StreamedTable) else declared.every_row()
        refuse_shared(private, test, TEST)
        return test

    def _to_train(
        self,
        declared: "DeclaredTable",
        public: "Rows | None",
        chooses: bool,
        protector: "Protector",
        stack: contextlib.ExitStack,
    ) -> "tuple[Any, dict[str, Any]]":
        """Data and options of the training: a raw table with its schema, a table that streams until `stack` closes, or
        rows where the protector `chooses` among several runs, or rows of which the server takes the passes."""
        from l2p.commands.streaming import streams, table_of
        from l2p.tables.same_table import refuse_equal
        from l2p.task.task import Task

        if self.in_database:
            from l2p.commands import in_database

            return stack.enter_context(in_database.rows_of(declared)), {}
        streaming = streams(self.stream, declared, self.rows, chooses, protector.streams)
        if chooses:
            rows = declared.rows(protector.reads_in_order)
            if public is not None:
                refuse_equal((rows,), public)
            return Task(rows, public=public), {}
        if streaming:
            counts_rows = self.adjacency != "add_remove"  # under which their number is private
            table = stack.enter_context(table_of(declared, counts_rows))
            return table, {"public": public, "format": declared.format}
        options = {"schema": declared.schema, "format": declared.format, "on_invalid": self.on_invalid}
        return declared.files, options | {"bounds_share": self.bounds_share, "public": public}


def _save_scores(scores: dict[str, Any], folder: Path) -> None:
    """Write the scores on a test table beside the result, which is complete without them."""
    path = folder / "metrics.json"
    try:
        path.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        path.unlink(missing_ok=True)
        print(f"{path} cannot be written ({error.strerror}); all else is in {folder}.", file=sys.stderr)
