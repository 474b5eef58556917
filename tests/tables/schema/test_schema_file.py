"""Schemas: what their files say is what they hold, and what contradicts itself is refused in a sentence."""

import copy
import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.tables.schema import Category, Ignore, Missing, Number, Schema, Target, Unit
from l2p.tables.schema.file import from_json, to_json

GOOD = {
    "format": "l2p-schema-1",
    "about": "patients of a ward",
    "unit": {"column": "person", "max_rows": 3},
    "target": {"column": "back", "classes": ["no", "yes"], "aliases": {"yes.": "yes"}, "weights": [1, 2.5]},
    "missing_words": ["?"],
    "columns": {
        "age": {"type": "number", "bounds": [0, 120], "missing": {"fill": 40, "indicator": True}, "curve": 8},
        "weight": {"type": "number", "bounds": [0, 200], "curve": [0, 50, 80, 200]},
        "dose": {"type": "number", "bounds": "private"},
        "ward": {"type": "category", "values": ["a", "b"], "shares": [3, 1], "missing": {"indicator": True}},
        "stay": {"type": "category", "values": [1, 2, 3], "ordered": True, "other": True, "missing": {"fill": 2}},
        "person": {"type": "ignore"},
    },
}
LEAVE_OUT = object()


def changed(path, value):
    """The good content with one thing changed, or left out."""
    content = copy.deepcopy(GOOD)
    *way, last = path.split("/")
    place = content
    for key in way:
        place = place[key]
    if value is LEAVE_OUT:
        del place[last]
    else:
        place[last] = value
    return content


def test_a_file_holds_what_was_declared(tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(GOOD))
    assert Schema.read(path) == Schema(
        {
            "age": Number(0, 120, Missing(40, indicator=True), curve=8),
            "weight": Number(0, 200, curve=(0, 50, 80, 200)),
            "dose": Number.private(),
            "ward": Category(("a", "b"), missing=Missing(indicator=True), shares=(3, 1)),
            "stay": Category((1, 2, 3), ordered=True, missing=Missing(2), other=True),
            "person": Ignore(),
        },
        Target("back", ("no", "yes"), aliases={"yes.": "yes"}, weights=(1, 2.5)),
        Unit("person", 3),
        ("?",),
    )


words = st.text(min_size=1, max_size=5).map(str.strip).filter(bool)
values = st.one_of(
    *(st.lists(kind, min_size=2, max_size=4, unique=True).map(tuple) for kind in (words, st.integers(-9, 9))),
    st.just((False, True)),
)
bounds = st.tuples(st.integers(-9, 0), st.integers(1, 9))
columns = st.one_of(
    st.builds(
        lambda pair, missing, count: Number(*pair, missing, (pair[0], pair[1] / 2, pair[1]) if count == 2 else count),
        bounds,
        st.sampled_from([None, Missing(0), Missing(0, True)]),
        st.sampled_from([None, 2, 3, 64]),
    ),
    st.just(Number.private()),
    st.builds(Category, values, st.booleans()),
    st.builds(
        lambda categories, ordered: Category(categories, ordered, Missing(categories[-1], True)), values, st.booleans()
    ),
)
schemas = st.builds(
    lambda named, target, unit: Schema(named, target, unit),
    st.dictionaries(st.text("abc", min_size=1, max_size=3), columns, min_size=1, max_size=4),
    st.one_of(
        st.builds(lambda classes: Target("y", classes), values),
        st.builds(lambda pair: Target("y", bounds=pair), bounds),
    ),
    st.sampled_from([None, Unit("who", 4)]),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(schemas)
def test_writing_and_reading_gives_the_same_schema(schema):
    assert from_json(json.loads(json.dumps(to_json(schema)))) == schema


BAD = [
    ("format", LEAVE_OUT, 'the key "format" must be "l2p-schema-1"'),
    ("format", "l2p-schema-9", 'the key "format" must be "l2p-schema-1"'),
    ("colums", {}, "'colums' was unexpected"),
    ("columns", {}, "no column is left to learn from"),
    ("columns", {"id": {"type": "ignore"}}, "no column is left to learn from"),
    ("columns", [], "'columns' of the whole"),
    ("columns/age", "number", "column 'age': it must say what it holds"),
    ("columns/age/type", "text", "column 'age': it must say what it holds"),
    ("columns/age/low", 3, "'low' was unexpected"),
    ("columns/age/bounds", LEAVE_OUT, "'bounds' is a required property"),
    ("columns/age/bounds", [0], "'bounds' of it"),
    ("columns/age/bounds", [120, 0], "column 'age': bounds [120, 0] leave no room"),
    ("columns/age/bounds", [5, 5], "column 'age': bounds [5, 5] leave no room"),
    ("columns/age/bounds", ["0", "9"], "'bounds"),
    ("columns/age/bounds", [True, 9], "'bounds"),
    ("columns/age/bounds", "buy", "'bounds' of it"),
    ("columns/age/curve", 2, "column 'age': a curve has from 3 to 64 knots"),
    ("columns/age/curve", True, "'curve' of it"),
    ("columns/age/curve", [0, 60, 60, 120], "column 'age': the knots of a curve must increase"),
    ("columns/age/curve", [0, 60, 100], "column 'age': the knots of a curve begin at 0 and end at 100, but"),
    ("columns/dose/curve", [0, 60, 100], "column 'dose': the knots of a curve lie between its number's bounds, which"),
    ("columns/ward/curve", 8, "'curve' was unexpected"),
    ("columns/age/missing/fill", 300, "column 'age': the fill 300 of missing cells is outside the bounds [0, 120]"),
    ("columns/age/missing/fill", "old", "column 'age': the fill of a number's missing cells must be a finite number"),
    ("columns/age/missing", {}, "neither a fill nor an indicator"),
    ("columns/age/missing/word", "?", "'word' was unexpected"),
    ("columns/ward/values", [], "column 'ward': values must be at least 1, but there is none"),
    ("columns/ward/values", ["a", "a"], "column 'ward': values name 'a' twice"),
    ("columns/ward/values", ["a", " a"], "column 'ward': values name 'a' twice"),
    ("columns/ward/values", ["a", 1], "must be all texts, all finite numbers or all booleans"),
    ("columns/ward/values", ["a", ""], "an empty cell is a missing one"),
    ("columns/ward/values", "ab", "'values' of it"),
    ("columns/ward/missing", {"fill": "c"}, "the fill 'c' of missing cells is none of the category's values"),
    ("columns/ward/ordered", "yes", "'ordered' of it"),
    ("columns/stay/values", [1], "column 'stay': values must be at least 2, but there is one"),
    ("columns/ward/shares", [1], "column 'ward': shares must be 2 numbers of at least 0"),
    ("columns/ward/shares", [1, -1], "column 'ward': shares must be 2 numbers of at least 0"),
    ("columns/ward/shares", [0, 0], "column 'ward': shares must have a sum above 0"),
    ("columns/stay/other", 1, "'other' of it"),
    ("columns/back", {"type": "ignore"}, "column 'back' is both the target and a column to learn from"),
    ("columns/person", {"type": "number", "bounds": [0, 9]}, "column 'person' is both the unit and a column"),
    ("columns/ ", {"type": "number", "bounds": [0, 9]}, "a column has no name"),
    ("columns/ward=a", {"type": "number", "bounds": [0, 9]}, "would both give a feature named 'ward=a'"),
    ("target", LEAVE_OUT, "'target' is a required property"),
    ("target/column", LEAVE_OUT, "'column' is a required property"),
    ("target/classes", LEAVE_OUT, "the target has neither classes nor bounds"),
    ("target/classes", ["yes"], "classes must be at least 2"),
    ("target/classes", ["no", "=1+1"], "spreadsheets would run it as a formula"),
    ("target/bounds", [0, 1], "the target has both classes and bounds"),
    ("target/aliases", {"maybe": "perhaps"}, "the alias 'maybe' stands for 'perhaps', which is no class"),
    ("target/aliases", {"yes": "no"}, "the alias 'yes' is empty or a class itself"),
    ("target/weights", [1], "weights must be 2 numbers above 0"),
    ("target/weights", [1, 0], "weights must be 2 numbers above 0"),
    ("unit/max_rows", 0, "the most rows per unit must be a whole number of at least 1"),
    ("unit/max_rows", LEAVE_OUT, "'max_rows' is a required property"),
    ("unit/column", "back", "both the target and the unit"),
    ("missing_words", "?", "'missing_words' of the whole"),
    ("columns/age/type", None, "column 'age' is not declared yet"),
    ("columns/age/bounds", None, "column 'age' is not declared yet"),
    ("columns/ward/values", None, "column 'ward' is not declared yet"),
    ("target/classes", None, "column 'back' is not declared yet"),
]


@pytest.mark.parametrize(("path", "value", "phrase"), BAD, ids=range(len(BAD)))
def test_a_bad_schema_is_refused_in_a_sentence(tmp_path, path, value, phrase):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(changed(path, value)))
    with pytest.raises(InputError) as refusal:
        Schema.read(file)
    text = str(refusal.value)
    assert phrase in text
    assert text.startswith(f"in the schema {file}, ")
    assert text.endswith(".")
    assert "\n" not in text


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("", "cannot be read as JSON"),
        ("{", "cannot be read as JSON"),
        ("[]", 'the key "format"'),
        (json.dumps(GOOD).replace("120", "NaN"), "NaN is not a JSON number"),
        (json.dumps(GOOD).replace("120", "1e999"), "1e999 is not a JSON number"),
        (json.dumps(GOOD).replace('"dose"', '"age"'), "the name 'age' occurs twice"),
        (b"\xff\xfe{", "no text in UTF-8"),
        (b"[" * 100_000, "no schema of this version"),
    ],
    ids=range(8),
)
def test_what_is_no_json_is_refused_in_a_sentence(tmp_path, text, phrase):
    file = tmp_path / "schema.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=r"^(in )?the schema ") as refusal:
        Schema.read(file)
    assert phrase in str(refusal.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        Schema.read(tmp_path / "nope.json")


def test_bought_bounds_take_the_place_of_private_ones_and_hold_the_fill():
    schema = Schema({"dose": Number.private(Missing(50)), "age": Number(0, 9)}, Target("y", bounds=(0, 1)))
    assert schema.private_bounds == ("dose",)
    bought = schema.with_bounds({"dose": (-8, 8)})
    assert bought.private_bounds == ()
    assert bought.columns["dose"] == Number(-8, 8, Missing(8))
    with pytest.raises(InputError, match="no private bounds"):
        schema.with_bounds({"age": (0, 1)})


def test_a_schema_is_declared_without_jax():
    code = "import sys, l2p.tables.schema; print('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
