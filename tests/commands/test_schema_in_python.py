"""Schemas in Python: paths, frames and arrays train alike."""

import numpy as np
import pytest

import l2p
from l2p.tables.schema import Category, Missing, Schema
from tests.commands.raw_tables import BUDGET, HEADER, WARD, lines


@pytest.mark.slow
def test_python_takes_a_path_a_frame_and_an_array_and_trains_alike(folder):
    schema = Schema(WARD.columns | {"ward": Category(("a", "b"), missing=Missing(indicator=True))}, WARD.target)
    import jax

    def trained(data):
        return l2p.private_train(data, "noisygd", BUDGET, key=jax.random.key(0), schema=schema)

    cells = [[cell.strip() for cell in line.split(";")] for line in lines(1500, 0)]
    first = trained(folder / "private.csv")
    columns = dict(zip(HEADER.split(";"), zip(*cells, strict=True), strict=True))
    for data in ([str(folder / "private.csv")], np.array(cells), columns):
        np.testing.assert_array_equal(trained(data).params, first.params)
    assert first.schema == schema
    assert first.card.table == {"name": "private.csv", "target": "back"}
    assert trained(columns).card.table == {"name": None, "target": "back"}
    pd = pytest.importorskip("pandas", reason="pandas is not installed: pip install pandas")
    np.testing.assert_array_equal(trained(pd.DataFrame(columns)).params, first.params)
    pl = pytest.importorskip("polars", reason="polars is not installed: pip install polars")
    np.testing.assert_array_equal(trained(pl.DataFrame(columns)).params, first.params)
