"""The default protector of each model, and the default model of each kind of target, listed here alone."""

from l2p.models import NAMES, Model, Softmax, plain_name
from l2p.tables.kind import Kind

#: The model that is trained unless another is named, by the kind of the target.
MODEL_OF: dict[Kind, str] = {"binary": "logistic", "multiclass": Softmax.name, "regression": "square"}

#: Trains every model but those in `_OTHERS`.
UNIVERSAL = "universal"
#: Nothing learned ships for these.
_OTHERS = {"quadratic": "noisygd"}
#: Trains models that users bring along, of which nothing was learned. Its steps do not grow with the noise; those of
#: `noisygd` do, and end far above the start on two hidden layers (`benchmarks/network_methods.py`); and a pull to the
#: start keeps networks from being too sure of themselves on small tables, as with `dp_adam`
#: (`benchmarks/network_table.py`).
OF_USERS = "dp_adam_pulled"


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


def default_for(model: Model) -> str:
    """`default_protector` of a model, which may be a user's own.

    >>> from l2p.models import MODELS
    >>> default_for(MODELS["svm"])
    'universal'
    """
    return default_protector(model.name) if model.name in NAMES else OF_USERS
