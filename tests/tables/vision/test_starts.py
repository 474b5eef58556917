"""Starts from the names of classes, and rows of length 1."""

import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic, Softmax, Square
from l2p.tables.vision.starts import from_names, read_encodings, unit_rows

NAMES = np.random.default_rng(0).normal(size=(3, 5)) * [[1.0], [7.0], [0.2]]
ROWS = np.random.default_rng(1).normal(size=(20, 5))


def nearest(rows, encodings):
    return np.argmax(unit_rows(rows) @ unit_rows(encodings).T, axis=1)


def test_the_zero_shot_model_predicts_the_nearest_name():
    model = Softmax(3)
    params = from_names(NAMES, model)
    assert np.array_equal(model.predict(params, jnp.asarray(unit_rows(ROWS))), nearest(ROWS, NAMES))
    assert len(np.unique(nearest(ROWS, NAMES))) == 3
    margins = model.margins(params, jnp.asarray(unit_rows(ROWS)))
    np.testing.assert_allclose(margins, 100 * unit_rows(ROWS) @ unit_rows(NAMES).T, rtol=1e-4, atol=1e-4)


def test_declared_bounds_change_the_params_and_not_the_predictions():
    """Rows of features in [-1, 1] are trained on after these are mapped to [0, 1]."""
    model, unit = Softmax(3), unit_rows(ROWS)
    params = from_names(NAMES, model, bounds=(-1.0, 1.0))
    margins = model.margins(params, jnp.asarray((unit + 1.0) / 2.0))
    np.testing.assert_allclose(margins, 100 * unit @ unit_rows(NAMES).T, rtol=1e-4, atol=1e-3)


def test_two_names_start_a_logistic_regression():
    params = from_names(NAMES[:2], Logistic())
    predicted = Logistic().predict(params, jnp.asarray(unit_rows(ROWS)))
    assert np.array_equal(predicted, nearest(ROWS, NAMES[:2]))


@pytest.mark.parametrize(
    ("encodings", "model", "message"),
    [
        (NAMES[:2], Softmax(3), "one line per class"),
        (NAMES * [[1.0], [0.0], [1.0]], Softmax(3), "zero or not finite"),
        (np.where(NAMES > 1, np.nan, NAMES), Softmax(3), "zero or not finite"),
        (NAMES[:2], Square(), "choose softmax or logistic"),
    ],
)
def test_encodings_that_do_not_fit_are_refused(encodings, model, message):
    with pytest.raises(InputError, match=message):
        from_names(encodings, model)


def test_encodings_are_read_from_either_kind_of_file(tmp_path):
    np.save(tmp_path / "names.npy", NAMES)
    np.savetxt(tmp_path / "names.csv", NAMES, delimiter=",")
    np.testing.assert_array_equal(read_encodings(tmp_path / "names.npy"), NAMES)
    np.testing.assert_allclose(read_encodings(tmp_path / "names.csv"), NAMES)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("names.txt", b"1,2", "neither .npy nor .csv"),
        ("names.csv", b"a,b\nc,d\n", "cannot be read as a matrix"),
        ("names.npy", b"nothing", "cannot be read as a matrix"),
        ("gone.npy", None, "cannot be read as a matrix"),
    ],
)
def test_a_file_without_a_matrix_is_refused(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_encodings(tmp_path / name)


def test_a_vector_is_no_matrix(tmp_path):
    np.save(tmp_path / "names.npy", NAMES[0])
    with pytest.raises(InputError, match="one line per class"):
        read_encodings(tmp_path / "names.npy")


def test_a_row_has_length_one_whatever_other_rows_are():
    alone = np.concatenate([unit_rows(ROWS[index : index + 1]) for index in range(20)])
    np.testing.assert_array_equal(unit_rows(ROWS), alone)
    np.testing.assert_allclose(np.linalg.norm(unit_rows(ROWS), axis=1), 1.0)
