"""Families by the names of the public sets that their tasks come from."""

import dataclasses
import functools
import os
import re

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.kind import Kind
from l2p.tables.own import is_own
from l2p.tables.public import catalog
from l2p.tables.public.openml import FOLDER, is_openml
from meta_train.tasks import own_tables
from meta_train.tasks.corpus.family import corpus
from meta_train.tasks.family import Family, TaskFamily
from meta_train.tasks.fresh_rows import Halved
from meta_train.tasks.mixtures import Mixture
from meta_train.tasks.pictures import Pictures
from meta_train.tasks.quadratics import QUADRATICS, Quadratics
from meta_train.tasks.synthetic import (
    STYLES,
    SYNTHETIC,
    SYNTHETIC_CLASSES,
    SYNTHETIC_NUMBERS,
    Synthetic,
    SyntheticClasses,
    SyntheticNumbers,
)
from meta_train.tasks.targets import from_table
from meta_train.tasks.whole_tables import WholeTables

#: Minimum standard deviation of an image column that a mixture's tasks may draw.
MIN_DEVIATION = 0.05
#: Rows of one of OpenML's tables beyond these are left out, at random. Tables are constants of every program that draws
#: tasks, a mixture has a dozen of them, and a task takes a thousand rows or two.
MAX_ROWS = 8192
#: The share of their tasks that are the table as it is. Drawn columns and labels make many tasks of few tables, but a
#: part of a table's columns tells less about its label than all do, and users come with whole tables.
PLAIN = 0.6
#: The same of the corpus, which has tables enough.
PLAIN_OF_CORPUS = 0.9
#: All digits but a few; two of those left are a task's classes; as pixels or as frozen features.
_REST = re.compile(r"(mnist|digits):rest:([\d,]*)(:features(?::\d+)?)?")
#: Families of synthetic tasks without several classes.
_SYNTHETIC = {SYNTHETIC: Synthetic, SYNTHETIC_NUMBERS: SyntheticNumbers}
#: Synthetic images and signals, followed by the number of their classes.
IMAGES, SIGNALS = "synthetic:images:", "synthetic:signals:"
#: Tables of the corpus (`meta_train.tasks.corpus`) with two classes, numbers, or the number of classes that follows.
CORPUS, CORPUS_NUMBERS, CORPUS_CLASSES = "corpus", "corpus:numbers", "corpus:classes:"
#: Separates the names of a mixture's sources.
AND = "+"


def parts_of(source: str) -> tuple[str, ...]:
    """The sources that a mixture names.

    >>> parts_of("adult+digits:rest:3,5"), parts_of("adult")
    (('adult', 'digits:rest:3,5'), ('adult',))
    """
    return tuple(source.split(AND))


def kind_of(source: str) -> Kind:
    """The kind of targets of a source's tasks: two classes, several classes, or numbers.

    >>> kind_of("adult+synthetic"), kind_of("digits"), kind_of(QUADRATICS)
    ('binary', 'multiclass', 'regression')

    Raises:
      InputError: sources of different kinds are mixed.
    """
    kinds = {_kind_of_part(part) for part in parts_of(source)}
    if len(kinds) > 1:
        raise InputError(
            f"the mixture {source} has targets of two kinds, and a model learns only one; leave out one of them."
        )
    return kinds.pop()


def class_counts(source: str) -> set[int]:
    """The numbers of classes of the sets that a source names; none for two classes and for numbers.

    >>> class_counts("digits+synthetic:classes:3"), class_counts("adult"), class_counts(QUADRATICS)
    ({10, 3}, set(), set())
    """
    if kind_of(source) != "multiclass":
        return set()
    return {_drawn_classes(part) or _classes_of_table(part) or 0 for part in parts_of(source)}


def _classes_of_table(source: str) -> int | None:
    return own_tables.find(source).num_classes if is_own(source) else catalog.num_classes(source)


def _drawn_classes(source: str) -> int | None:
    """The number of classes in a source named `SYNTHETIC_CLASSES` plus a number, in any style, `CORPUS_CLASSES` plus a
    number, or `IMAGES` or `SIGNALS` plus a number, which may be two; None for other sources.

    Raises:
      InputError: what follows is not a number of classes.
    """
    plain = _style_of(source)[1]
    prefixes = SYNTHETIC_CLASSES, CORPUS_CLASSES, IMAGES, SIGNALS
    prefix = next((prefix for prefix in prefixes if plain.startswith(prefix)), None)
    if prefix is None:
        return None
    count, least = plain.removeprefix(prefix), 2 if prefix in (IMAGES, SIGNALS) else 3
    if not count.isdecimal() or int(count) < least:
        two = f", or {prefix.partition(':')[0]} for two" if least > 2 else ""
        raise InputError(
            f"source {source!r} does not say how many classes its tasks have, from {least} up; name it {prefix}10{two}."
        )
    return int(count)


def _style_of(source: str) -> tuple[str, str]:
    """The style in the name of a source of synthetic tasks, and the name without it; "" and other names as they are.

    >>> _style_of("synthetic:rough:numbers"), _style_of("synthetic:one_hot"), _style_of("synthetic:numbers")
    (('rough', 'synthetic:numbers'), ('one_hot', 'synthetic'), ('', 'synthetic:numbers'))
    """
    first, *words = source.split(":")
    if first != SYNTHETIC or not words or words[0] not in STYLES:
        return "", source
    return words[0], ":".join([first, *words[1:]])


def _kind_of_part(source: str) -> Kind:
    if is_own(source):
        return own_tables.find(source).kind
    if count := _drawn_classes(source):
        return "binary" if count == 2 else "multiclass"
    plain = _style_of(source)[1]
    if plain in (QUADRATICS, SYNTHETIC_NUMBERS, CORPUS_NUMBERS):
        return "regression"
    if plain in (SYNTHETIC, CORPUS) or _REST.fullmatch(source):
        return "binary"
    return catalog.kind_of(source)


def families(source: str, fresh_rows: bool = False, distinct: bool = False) -> tuple[Family, Family]:
    """The family to meta-train on and one of held-out tasks: from 80 % and 20 % of a public table.

    Args:
      source: a data set's name; `openml:NAME`, of which at most `MAX_ROWS` rows are used, and `PLAIN` of whose tasks
        are the table as it is; `mnist:rest:3,5` (or `digits:...`), all digits but those, two at a time, and
        `mnist:rest:3,5:features:1152`, the same digits with 1152 frozen features; `QUADRATICS`, `SYNTHETIC`,
        `SYNTHETIC_NUMBERS` or `SYNTHETIC_CLASSES` and a number, drawn independently for the two families, with one of
        `STYLES` in their names (`synthetic:rough:numbers`); `IMAGES` or `SIGNALS` and a number, likewise; `CORPUS`,
        `CORPUS_NUMBERS` or `CORPUS_CLASSES` and a number, from different tables for the two families; a user's own
        table that was read (`own_tables`); or several sources of one kind joined by `AND`.
      fresh_rows: whether runs are scored on rows of their task that they did not read. Held-out tasks from users' own
        tables are then these tables, of which runs read the rows to train on and are scored on the held-out ones.
      distinct: whether each row of a task then counts once, so that a short table has no more rows than it has.
    """
    train, held_out = _families(source)
    if not fresh_rows:
        return train, held_out
    if all(map(is_own, parts_of(source))):
        read, scored = (family.parts if isinstance(family, Mixture) else (family,) for family in (train, held_out))
        return Halved(train.with_rows_apart(distinct)), WholeTables.of(read, scored)  # pyrefly: ignore
    return Halved(train.with_rows_apart(distinct)), Halved(held_out.with_rows_apart(distinct))


def _families(source: str) -> tuple[Family, Family]:
    if len(parts_of(source)) > 1:
        train, held_out = zip(*(_varied(*_families(part)) for part in parts_of(source)), strict=True)
        stacked = frozenset(place for place, part in enumerate(parts_of(source)) if is_openml(part) or is_own(part))
        return Mixture(train, stacked), Mixture(held_out, stacked)
    (style, plain_source), classes = _style_of(source), _drawn_classes(source)
    if source in (CORPUS, CORPUS_NUMBERS) or source.startswith(CORPUS_CLASSES):
        return corpus({CORPUS: 2, CORPUS_NUMBERS: None}.get(source, classes), PLAIN_OF_CORPUS)
    if classes and not plain_source.startswith(SYNTHETIC_CLASSES):
        first, second = (Pictures(stream, classes, source.startswith(SIGNALS)) for stream in (0, 1))
        return first, second
    if classes:
        first, second = (SyntheticClasses(stream, style=style, num_classes=classes) for stream in (0, 1))
        return first, second
    if source == QUADRATICS:
        return Quadratics(0), Quadratics(1)
    if (synthetic := _SYNTHETIC.get(plain_source)) is not None:
        return synthetic(0, style=style), synthetic(1, style=style)
    x, y = _load(source)
    kind, count = kind_of(source), None if _REST.fullmatch(source) else _classes_of_table(source)
    make = TaskFamily.from_table if kind == "binary" else functools.partial(from_table, num_classes=count)
    pair = (make(x[part], y[part]) for part in _parted(y, alike=is_own(source)))
    plain = PLAIN if is_openml(source) or is_own(source) else 0.0
    train, held_out = (dataclasses.replace(part, plain=plain) for part in pair)
    if (is_own(source) or is_openml(source)) and isinstance(train, TaskFamily) and isinstance(held_out, TaskFamily):
        # Of a rare class, chance may hold none out.
        return tuple(dataclasses.replace(part, classes=(0, 1)) for part in (train, held_out))  # pyrefly: ignore
    return train, held_out


def _parted(y: np.ndarray, alike: bool) -> tuple[np.ndarray, np.ndarray]:
    """Rows to train on and to hold out, four in five and the fifth, in random order; `alike` has every fifth held out
    of rows that are sorted by their targets, so that a rare class is in both parts."""
    chance = np.random.default_rng(0)
    order = chance.permutation(y.size)
    if not alike:
        cut = int(0.8 * order.size)
        return order[:cut], order[cut:]
    order = order[np.argsort(y[order], kind="stable")]
    is_held_out = np.arange(order.size) % 5 == 2
    return chance.permutation(order[~is_held_out]), chance.permutation(order[is_held_out])


def _varied(train: Family, held_out: Family) -> tuple[Family, Family]:
    """Families of images without the columns that hardly vary, such as borders, which carry no information."""
    if not (isinstance(train, TaskFamily) and isinstance(held_out, TaskFamily)) or len(train.classes) == 2:
        return train, held_out
    columns = np.flatnonzero(np.asarray(train.x.std(0)) > MIN_DEVIATION)
    return train.with_columns(columns), held_out.with_columns(columns)


def _load(source: str) -> tuple[np.ndarray, np.ndarray]:
    """x f32[n, c], and y f32[n]: classes, or the remaining digits, or numbers."""
    if is_own(source):
        table = own_tables.find(source)
        return table.x, table.y
    if is_openml(source):
        return _some_rows(source, os.environ.get(FOLDER))
    match = _REST.fullmatch(source)
    dataset = catalog.load(match[1] + (match[3] or "") if match else source)
    if match:
        mask = ~np.isin(dataset.y, [int(digit) for digit in match[2].split(",") if digit])
        return dataset.x[mask], dataset.y[mask]
    return dataset.x, dataset.y


@functools.lru_cache(maxsize=64)  # each shape and each family of a training asks anew
def _some_rows(source: str, folder: str | None) -> tuple[np.ndarray, np.ndarray]:
    """At most `MAX_ROWS` rows of one of OpenML's tables, which is read from `folder` or downloaded."""
    del folder
    dataset = catalog.load(source)
    indices = np.sort(np.random.default_rng(0).permutation(len(dataset.y))[:MAX_ROWS])
    return dataset.x[indices], dataset.y[indices]
