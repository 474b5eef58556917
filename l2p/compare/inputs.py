"""Inputs of a comparison: its rows, its model and its methods."""

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.checkpoints.lookup import Method, look_up
from l2p.checkpoints.method_name import PRETRAINED, PROJECTED, MethodName
from l2p.checkpoints.overlaps import overlaps
from l2p.compare import private_choice
from l2p.compare.auxiliary import Auxiliary, public_geometry, public_solution
from l2p.compare.config import CompareConfig
from l2p.compare.methods import ComparedMethod, find_method, reads_public
from l2p.compare.public_part import Division, PublicPart
from l2p.models import Model, find_model
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency
from l2p.protectors import HAND_DESIGNED
from l2p.release.api import model_for
from l2p.run.simulate import train_size
from l2p.tables.own import source_of_file
from l2p.tables.public import catalog
from l2p.tables.public_data import checked
from l2p.tables.reading import is_table_file
from l2p.tables.reading.address import is_address
from l2p.tables.reading.opening import name_of
from l2p.tables.same_table import refuse_same
from l2p.tables.schema import Encoding, Schema, read_rows
from l2p.task.rows import Rows


def load_rows(config: CompareConfig) -> Rows:
    """The whole table."""
    if is_file(config):
        return _rows_of_file(config, [config.data])
    dataset, kinds = catalog.load(config.data), model_of(config).kinds
    if dataset.kind not in kinds:
        raise InputError(
            f"model {config.model!r} needs a {' or '.join(kinds)} target, but that of {config.data!r} is "
            f"{dataset.kind}; choose another model or data set."
        )
    return Rows(jnp.asarray(dataset.x), jnp.asarray(dataset.y), jnp.ones(len(dataset.y)))


def _rows_of_file(config: CompareConfig, files: Sequence[str | Path]) -> Rows:
    """The rows of a file, encoded by its schema."""
    if any(is_address(str(file)) for file in files):
        raise InputError(
            "a comparison splits its rows anew for every seed and knows a table by its file, which one in a database "
            "has not; export the table to a file and name that."
        )
    rows = read_rows(list(files), Encoding(_schema_of(config)), format=config.format)
    return jax.tree.map(jnp.asarray, rows)


def _schema_of(config: CompareConfig) -> Schema:
    """The schema of a file, checked to ask for no more than a comparison does; `InputError` without one."""
    if config.schema is None:
        raise InputError(
            f"{config.data} is a file that nothing declares, so its cells cannot be encoded; write a schema with "
            f"l2p schema {config.data} --target COLUMN --out schema.json, and give it as --schema."
        )
    return _plain_schema(config.schema, config.schema.stat().st_mtime_ns if config.schema.is_file() else 0)


@functools.lru_cache(maxsize=4)
def _plain_schema(path: Path, changed: int) -> Schema:
    """The schema in a file that was `changed` at this time."""
    del changed
    schema = Schema.read(path)
    declared = {
        "bounds that are bought with the budget": bool(schema.private_bounds),
        "a unit whose rows are protected together": schema.unit is not None,
        "weights of classes": schema.target.weights is not None,
    }
    if more := [words for words, is_declared in declared.items() if is_declared]:
        raise InputError(
            f"the schema {path} declares {more[0]}, which only l2p apply and its estimators know: a comparison would "
            "show other numbers than a release has. Compare with a copy of the schema that leaves this out."
        )
    return schema


def _public_file(config: CompareConfig) -> Rows | None:
    """The rows of the file that a comparison on a file names as public."""
    if not config.public:
        return None
    if not is_file(config):
        raise InputError(
            f"--public names rows beside those of a file, but {config.data} is a public set, of which a part is drawn; "
            "choose its size by --public-share or --public-per-class."
        )
    refuse_same(config.data, list(config.public))
    rows = _rows_of_file(config, config.public)
    return checked(rows, rows.x.shape[1], None if kind_of(config) == "regression" else model_of(config).labels)


def public_part(config: CompareConfig, reads: bool | None = None) -> PublicPart | None:
    """The public rows of a comparison in which a method needs some or an option asks for them; None in others.

    `reads` says whether a method needs some; None finds out.
    """
    model = model_of(config)
    if reads is None:
        budget = Budget(config.epsilon[0], config.delta, cast(Adjacency, config.adjacency))
        reads = any(
            reads_public(name, budget, model, _looked_up(name, model)) for name in map(MethodName.parse, config.methods)
        )
    if not (reads or config.asks_for_public):
        return None
    return PublicPart.of(config, model, kind_of(config), _public_file(config))


def _looked_up(name: MethodName, model: Model) -> Method | None:
    """A learned method, or one of the user's own; None for others, and where there is none of this name."""
    try:
        return None if name.base in HAND_DESIGNED else look_up(MethodName(name.base), model)
    except InputError:
        return None


def is_file(config: CompareConfig) -> bool:
    """True if the data are a file of the user's, and not a public set."""
    return config.schema is not None or is_table_file(config.data)


def identity(config: CompareConfig) -> str:
    """The data of the comparison, as the source that no protector may have been made from."""
    return source_of_file(config.data) if is_file(config) else config.data


def model_of(config: CompareConfig) -> Model:
    """The model with its number of classes, declared by the data set's documentation or by a file's schema."""
    if not is_file(config):
        # A regression has no classes; `load_rows` refuses a model that needs some.
        return find_model(config.model, catalog.num_classes(config.data) or 2)
    return model_for(_schema_of(config), config.model)[0]


def kind_of(config: CompareConfig) -> str:
    """The kind of the target, which determines the metric."""
    if not is_file(config):
        return catalog.kind_of(config.data)
    return _schema_of(config).target.kind


def title_of(config: CompareConfig, model: str) -> str:
    """Table, target, model and what else a picture of the comparison has to say of it.

    >>> title_of(CompareConfig("digits:odd", Path("cmp"), delta=1e-5), "logistic")
    'digits:odd, target digit, model logistic, delta 1e-05, 10 seeds'
    """
    if not is_file(config):
        table, target = config.data, catalog.target(config.data)
    else:  # results of shards may be merged where their tables, or the schema, are not
        table = name_of(config.data)
        target = Schema.read(config.schema).target.column if config.schema and config.schema.is_file() else ""
    words = [table, f"target {target}" if target else "", f"model {model}", f"delta {config.delta:g}"]
    return ", ".join(word for word in [*words, f"{config.seeds} seeds"] if word)


def resolve_methods(config: CompareConfig, rows: Rows) -> list[ComparedMethod]:
    """Every method at every budget; none may be made from the data that it will be scored on. Where the protector of a
    name is, one of its folds takes its place."""
    # Budget takes an adjacency's name, and refuses an unknown one with a sentence.
    adjacency = cast(Adjacency, config.adjacency)
    budgets = [Budget(epsilon, config.delta, adjacency) for epsilon in config.epsilon]
    budgets[0].check_rows(train_size(rows))
    names = [MethodName.parse(name) for name in config.methods]
    if any(name.private for name in names):
        private_choice.check_kind(kind_of(config))
    model, avoid = model_of(config), (identity(config),)
    # Those that are tuned are looked up where it is known which public rows they may be tuned on.
    looked_up = [None if name.tuned else look_up(name.protector, model, avoid=avoid) for name in names]
    reads = [reads_public(name, budgets[0], model, method) for name, method in zip(names, looked_up, strict=True)]
    part = public_part(config, any(reads))
    variants = frozenset().union(*(name.variants for name in names)) & {PRETRAINED, PROJECTED}
    auxiliary = _auxiliary(config, variants) if part is None else None
    methods = []
    for name, method, needs in zip(names, looked_up, reads, strict=True):
        division = Division(part, part is not None and (name.given_public or needs))
        methods.append(
            find_method(
                name,
                budgets,
                model,
                division.num_private(rows),
                config.accountant,
                config.aux,
                avoid,
                auxiliary,
                division,
                method,
            )
        )
    return methods


def _auxiliary(config: CompareConfig, variants: frozenset[str]) -> Auxiliary | None:
    """The auxiliary set, as far as these variants need it; None without variants."""
    if not variants:
        return None
    if config.aux is None:
        raise InputError(
            f"METHOD{min(variants)} takes something from a public set, but no auxiliary set is named; name it in "
            "--aux, or have a part of the training rows public (--public-share)."
        )
    if overlaps(config.aux, (identity(config),)):
        raise InputError(
            f"the auxiliary set {config.aux} shares rows with {config.data}, so what is taken from it would flatter "
            "every method; choose another set."
        )
    public = dataclasses.replace(config, data=config.aux, schema=None)
    rows, model = load_rows(public), model_of(public)
    start: np.ndarray | str | None = None
    if PRETRAINED in variants:
        start = public_solution(model, rows)
        if model != model_of(config):
            reason = f"model {model} on {config.aux} gives no start for {model_of(config)}"
            start = f"{reason}; choose a set with as many classes."
    return Auxiliary(start, public_geometry(rows) if PROJECTED in variants else None)
