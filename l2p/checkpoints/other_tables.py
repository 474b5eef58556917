"""Tables unlike those that a protector was fine-tuned on: its gains were measured on rows of these alone."""

from collections.abc import Mapping, Sequence
from typing import Any

from l2p.checkpoints.defaults import UNIVERSAL
from l2p.tables.own import columns_sha256
from l2p.tables.schema import Schema

#: A sentence, without its end, on other tables than a protector's own: the most and the least in
#: benchmarks/pages/learning.md, "On tables of one's own".
ELSEWHERE = (
    f"on tables with other columns such protectors ended up to .10 above {UNIVERSAL} in test loss, and at most .04 "
    f"below it, so that {UNIVERSAL} is the better choice there"
)


def unlike(
    tables: Sequence[Mapping[str, Any]], name: str, num_features: int, kind: str, schema: Schema | None
) -> list[str]:
    """A warning if a table is like none of those that a protector was fine-tuned on, by what is public of it.

    Args:
      tables: entries on its checkpoint card; none of a protector that was not fine-tuned.
      name: of the protector.
      num_features: of the table, encoded; compared where there is no schema.
      kind: of its target.
      schema: of the table, if it has one.
    """
    if schema is None:
        field, here, text = "features", num_features, f"with {num_features} features and such a target"
    else:
        field, here = "columns_sha256", columns_sha256(schema.features, schema.target.column)
        text = "with these columns and such a target"
    if not tables or any(table[field] == here and table["kind"] == kind for table in tables):
        return []
    return [
        f"{name} was fine-tuned on no table {text}: {ELSEWHERE}. Choose it, or first compare the two on public tables "
        "like this one."
    ]
