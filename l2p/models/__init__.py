"""Models: the loss of one row, over a flat parameter vector, one model per file."""

from l2p.errors import InputError
from l2p.models.base import INTERCEPT_COLUMN, LEAST_NORM, Model
from l2p.models.linear import GeneralizedLinear
from l2p.models.logistic import Logistic
from l2p.models.mlp import MLP
from l2p.models.softmax import Softmax
from l2p.models.square import Quadratic, Square
from l2p.models.svm import Hinge, HuberSVM

__all__ = [
    "INTERCEPT_COLUMN",
    "LEAST_NORM",
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

#: Models that their name alone determines.
MODELS: dict[str, Model] = {
    model.name: model for model in (Logistic(), HuberSVM(), Hinge(), Square(), MLP(), Quadratic())
}
#: Every name; of `softmax`, the number of classes must be told.
NAMES: tuple[str, ...] = (*MODELS, Softmax.name)
#: That a softmax may be declared to have: names come from files, too.
MOST_CLASSES = 2**16


def find_model(name: str, num_classes: int | None = None) -> Model:
    """The model that a name stands for.

    Args:
      name: one of `NAMES`, or `softmax:K`; K is public by declaration and never read off labels.
      num_classes: K as declared elsewhere, for a name that leaves it out; else unused.

    Raises:
      InputError: an unknown name, or `softmax` without its classes.

    >>> find_model("softmax:10") == find_model("softmax", 10), find_model("logistic", 2)
    (True, Logistic())
    """
    plain, _, given = name.partition(":")
    if plain_name(name) != Softmax.name:
        return MODELS[plain]
    if given and num_classes not in (None, int(given)):
        raise InputError(
            f"model {name!r} has {given} classes, but {num_classes} are declared; leave out one of the two numbers."
        )
    count = int(given) if given else num_classes
    if count is None or not 2 <= count <= MOST_CLASSES:
        raise InputError(
            f"model 'softmax' must know how many classes there are, at least 2 and at most {MOST_CLASSES}, before it "
            "meets a label; declare them (--classes 0 1 2), or name it softmax:3."
        )
    return Softmax(count)


def plain_name(name: str) -> str:
    """The name without a number of classes: what protectors and cards list.

    Raises:
      InputError: no model is called that.

    >>> plain_name("softmax:10")
    'softmax'
    """
    plain, colon, given = name.partition(":")
    if plain not in NAMES or (colon and (plain != Softmax.name or not given.isdecimal() or len(given) > 9)):
        known = ", ".join([*MODELS, "softmax:K for K classes"])
        raise InputError(f"model {name[:60]!r} is unknown; choose one of {known}.")
    return plain
