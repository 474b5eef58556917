"""Model objects of a user's own that are refused: their functions must be those of one margin and one target."""

import jax
import jax.numpy as jnp
import pytest

from l2p.models import Logistic, Square
from tests.release.tables import table


class Steep(Logistic):
    """Ten times the logistic loss, under its name and with its Lipschitz constant."""

    def residual(self, margin, y):
        return 10.0 * super().residual(margin, y)


@pytest.mark.parametrize("protector", ["outpert", "noisygd"])
def test_a_model_under_the_name_of_another_is_refused(protector, refused):
    sentence = refused(data=table(40), protector=protector, model=Steep(), params=None)
    assert "a model of your own is named 'logistic'" in sentence


class Robust(Square):
    """Residuals are limited by the spread of those of all rows that are computed at once."""

    name = "robust"

    def residual(self, margin, y):
        plain = super().residual(margin, y)
        return jnp.clip(plain, -jnp.std(plain), jnp.std(plain))


class Running(Logistic):
    """Targets count as the largest of those before them."""

    name = "running"

    def residual(self, margin, y):
        return super().residual(margin, jax.lax.cummax(y) if jnp.ndim(y) else y)


class Lagging(Logistic):
    name = "lagging"

    def residual(self, margin, y):
        return super().residual(jnp.concatenate([margin[:1], margin[:-1]]), y)


class Weighing:
    """A part of a class that weighs classes by how often they occur in what it is given."""

    def residual(self, margin, y):
        return jnp.where(y > 0.5, jnp.mean(y), 1.0 - jnp.mean(y)) * (jax.nn.sigmoid(margin) - y)


class Mixed(Weighing, Logistic):
    name = "mixed"


class Changed(Logistic):
    name = "changed"


Changed.residual = Weighing.residual


class OfItself(Logistic):
    name = "of itself"

    def __init__(self):
        object.__setattr__(self, "residual", lambda margin, y: jax.nn.sigmoid(margin) - jnp.mean(y))


class Showing(Logistic):
    name = "showing"

    def residual(self, margin, y):
        jax.debug.print("{}", margin)
        return super().residual(margin, y)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (Robust(), "residual of model robust is another for a row where others stand"),
        (Running(), "residual of model running is another for a row where others stand"),
        (Lagging(), r"residual of model lagging could not be computed of one margin and one target (IndexError"),
        (Mixed(), "residual of model mixed is another for a row where others stand"),
        (Changed(), "residual of model changed is no method that its class was made with"),
        (OfItself(), "residual of model of itself is no method that its class was made with"),
        (Showing(), "calls debug_print"),
    ],
)
def test_a_model_that_reaches_beyond_a_row_is_refused(model, says, refused):
    kind = "regression" if isinstance(model, Square) else None
    assert says in refused(data=table(40), protector="noisygd", model=model, params=None, kind=kind)


def test_an_object_that_is_no_model_is_told_what_is_one(refused):
    assert "model is of type int, which does not say" in refused(data=table(40), model=3, params=None)
