"""Public data sets by the names that users give: find, download, read."""

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.kind import Kind
from l2p.tables.public import openml
from l2p.tables.public.download import Source, data_folder, fetch
from l2p.tables.public.public_set import Content, PublicSet, Variant
from l2p.tables.sets import NAMES, find


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A public data set.

    Attributes:
      name: the name that was asked for.
      x: f32[n, d], features in [0, 1].
      y: f32[n], labels: 0 or 1 (binary), 0..k-1 (multiclass), or in [0, 1] by public bounds (regression); around 0 for
        `quadratic`, whose model has no intercept.
      columns: d feature names.
      kind: "binary", "multiclass" or "regression".
      sha256: hexadecimal SHA-256 of the bytes of x, then y: two sets with the same one hold the same rows.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    columns: tuple[str, ...]
    kind: Kind
    sha256: str


def load(name: str, data_dir: Path | None = None, urls: Mapping[str, Sequence[str]] | None = None) -> Dataset:
    """A public data set by name, its files downloaded on first use.

    Args:
      name: one of `NAMES`, with a colon and a variant if the set has any: `mnist:3,5`, `digits:odd`,
        `digits:features` or `digits:features:1152` (`l2p.tables.public.digit_variants`); or `openml:NAME`, one of
        `l2p.tables.public.openml.TABLES`.
      data_dir: the folder of the files, by default `L2P_DATA_DIR`, else `$XDG_CACHE_HOME/l2p`, else `~/.cache/l2p`.
      urls: file name to mirrors, instead of the built-in addresses; the checksums stay.

    Raises:
      InputError: unknown name, or a file that cannot be downloaded or has the wrong checksum.

    >>> data = load("digits:3,5")
    >>> data.x.shape, data.kind, int(data.y.sum())
    ((365, 64), 'binary', 182)
    """
    folder = data_folder(data_dir)
    content = openml.read(name, folder) if openml.is_openml(name) else _packaged(name, folder, urls)
    x, y = content.x, content.y.astype(np.float32)
    return Dataset(name, x, y, content.columns, kind_of(name), hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest())


def _packaged(name: str, folder: Path, urls: Mapping[str, Sequence[str]] | None) -> Content:
    """The rows of one of `NAMES`."""
    entry, variant, text = _named(name)

    def read(source: Source) -> bytes:
        if urls is not None:
            source = dataclasses.replace(source, urls=tuple(urls.get(source.file, ())))
        return fetch(source, folder)

    content = entry.read(read)
    return content if variant is None else variant.apply(content, text)


def num_classes(name: str) -> int | None:
    """Number of classes of a set, known without reading it; None for a regression.

    >>> num_classes("digits"), num_classes("digits:odd"), num_classes("california")
    (10, 2, None)
    """
    if openml.is_openml(name):
        return openml.table_info(name).classes
    entry, variant, _ = _named(name)
    return (variant.num_classes if variant else None) or len(entry.classes) or None


def kind_of(name: str) -> Kind:
    """Kind of a set's target, known without reading it.

    >>> kind_of("digits"), kind_of("digits:odd"), kind_of("california")
    ('multiclass', 'binary', 'regression')
    """
    count = num_classes(name)
    return "regression" if count is None else "binary" if count == 2 else "multiclass"


def target(name: str) -> str:
    """What is predicted in a set, known without reading it; empty where only the table says.

    >>> target("adult"), target("openml:segment")
    ('yearly income', '')
    """
    return "" if openml.is_openml(name) else _named(name)[0].target


def _named(name: str) -> tuple[PublicSet, Variant | None, str]:
    """The set that a name asks for, its variant if the name has a colon, and what follows the colon."""
    base, colon, text = name.partition(":")
    if base in NAMES:
        entry = find(base)
        if not colon:
            return entry, None, ""
        for variant in entry.variants:
            if re.fullmatch(variant.pattern, text):
                return entry, variant, text
    raise InputError(f"unknown data set {name!r}: {_known_names()}")


def _known_names() -> str:
    by_variants: dict[tuple[Variant, ...], list[str]] = {}
    for name in NAMES:
        by_variants.setdefault(find(name).variants, []).append(name)
    sentences = [
        f"{' and '.join(names)} may be followed by {', or '.join(variant.meaning for variant in variants)}"
        for variants, names in by_variants.items()
        if variants
    ]
    tables = f"{openml.OPENML} may be followed by a table of OpenML's, {', '.join(openml.TABLES)}"
    return "; ".join([f"known names are {', '.join(NAMES)}", *sentences, tables])
