"""Models: the loss of one row, over a flat parameter vector, one model per file."""

from l2p.base.errors import InputError
from l2p.models.base import INTERCEPT_COLUMN, Model
from l2p.models.linear import GeneralizedLinear
from l2p.models.logistic import Logistic
from l2p.models.mlp import MLP
from l2p.models.parts import MIN_NORM
from l2p.models.softmax import Softmax
from l2p.models.square import Quadratic, Square
from l2p.models.svm import Hinge, HuberSVM

__all__ = [
    "INTERCEPT_COLUMN",
    "MIN_NORM",
    "MLP",
    "MODELS",
    "NAMES",
    "GeneralizedLinear",
    "Hinge",
    "HuberSVM",
    "Logistic",
    "Model",
    "Quadratic",
    "Softmax",
    "Square",
    "find_model",
    "plain_name",
]

#: Models that are fully determined by their name.
MODELS: dict[str, Model] = {
    model.name: model for model in (Logistic(), HuberSVM(), Hinge(), Square(), MLP(), Quadratic())
}
#: All names; `softmax` also needs its number of classes.
NAMES: tuple[str, ...] = (*MODELS, Softmax.name)
#: Limit on the declared classes of a softmax, because names also come from files.
MAX_CLASSES = 2**16


def find_model(name: str | Model, num_classes: int | None = None) -> Model:
    """The model of this name; a model is returned as it is.

    Args:
      name: one of `NAMES`, or `softmax:K`; K is declared, never read off the labels.
      num_classes: K as declared elsewhere, for a `softmax` without it; unused for other models.

    Raises:
      InputError: no name, an unknown one, one that a model of another class has, or `softmax` without its classes.

    >>> find_model("softmax:10") == find_model("softmax", 10), find_model("logistic", 2)
    (True, Logistic())
    """
    if isinstance(name, Model):
        expected = type(MODELS[name.name]) if name.name in MODELS else Softmax
        if name.name in NAMES and type(name) is not expected:
            raise InputError(
                f"a model of your own is named {name.name!r}, as one whose loss it need not have, so that proofs and "
                "cards would speak of that one; give its class another name."
            )
        if isinstance(name, Softmax) and num_classes is not None:
            return find_model(str(name), num_classes)  # which compares the two numbers
        return name
    if not isinstance(name, str):
        raise InputError(
            f"model is of type {type(name).__name__}, which does not say the loss of a row; name one of "
            f"{', '.join(NAMES)}, or pass a Model or a function loss(params, row)."
        )
    plain, _, suffix = name.partition(":")
    if plain_name(name) != Softmax.name:
        return MODELS[plain]
    if suffix and num_classes not in (None, int(suffix)):
        raise InputError(
            f"model {name!r} has {suffix} classes, but {num_classes} are declared; leave out one of the two numbers."
        )
    count = int(suffix) if suffix else num_classes
    if count is None or not 2 <= count <= MAX_CLASSES:
        raise InputError(
            f"model 'softmax' must be told how many classes there are, from 2 to {MAX_CLASSES}: reading them "
            "off the labels would leak; declare them in the table's schema, or name the model softmax:3."
        )
    return Softmax(count)


def plain_name(name: str) -> str:
    """The name without a number of classes, as protectors and cards list it.

    Raises:
      InputError: no model has this name.

    >>> plain_name("softmax:10")
    'softmax'
    """
    plain, colon, suffix = name.partition(":")
    if plain not in NAMES or (colon and (plain != Softmax.name or not suffix.isdecimal() or len(suffix) > 9)):
        choices = ", ".join([*MODELS, "softmax:K for K classes"])
        raise InputError(f"model {name[:60]!r} is unknown; choose one of {choices}.")
    return plain
