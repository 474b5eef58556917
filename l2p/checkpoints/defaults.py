"""The default protector of each model, listed here alone."""

from l2p.models import NAMES, plain_name

#: Trains every model but those in `_OTHERS`.
UNIVERSAL = "universal"
#: Nothing learned ships for these.
_OTHERS = {"quadratic": "noisygd"}


def default_protector(model: str) -> str:
    """Name of the protector that `l2p apply`, `l2p plan` and `private_train` use unless told otherwise.

    Args:
      model: a model's name, as `l2p.models.find_model` takes it.

    Raises:
      InputError: no model has this name.

    >>> default_protector("square"), default_protector("softmax:10"), default_protector("quadratic")
    ('universal', 'universal', 'noisygd')
    """
    return _OTHERS.get(plain_name(model), UNIVERSAL)


def models_of(name: str) -> list[str]:
    """Models whose default it is.

    >>> models_of("noisygd")
    ['quadratic']
    """
    return [model for model in NAMES if default_protector(model) == name]


def what_to_use(model: str) -> str:
    """The end of a sentence on a protector that does not fit: which one trains this model.

    >>> what_to_use("svm")
    'for svm use universal'
    """
    return f"for {plain_name(model)} use {default_protector(model)}"
