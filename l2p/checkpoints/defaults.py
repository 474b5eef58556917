"""Which protector trains a model where nobody names one: the only place that says so."""

from l2p.models import MODELS, plain_name
from l2p.models.softmax import Softmax

#: By model and, where a model learns several kinds of target, by kind; what ships as a checkpoint was learned for it.
_DEFAULTS = {
    ("logistic", "binary"): "universal",
    ("svm", "binary"): "universal-svm-synthetic",
    ("square", "regression"): "regression",
    ("square", "binary"): "universal-square-synthetic",
    ("softmax", "multiclass"): "probe",
    ("mlp", "binary"): "control-universal-mlp-synthetic",
    ("hinge", "binary"): "control-filter",
    # Nothing learned ships for it.
    ("quadratic", "regression"): "noisygd",
}
_KINDS = {"regression": "numbers", "binary": "two classes"}


def default_protector(model: str, kind: str | None = None) -> str:
    """Name of the protector that `l2p apply`, `l2p plan` and `private_train` use unless told otherwise.

    Args:
      model: a model's name, as `l2p.models.find_model` takes it.
      kind: of the target, as in `Model.kinds`; None for the model's own.

    Raises:
      InputError: no model has this name.

    >>> default_protector("square"), default_protector("square", "binary"), default_protector("softmax:10")
    ('regression', 'universal-square-synthetic', 'probe')
    """
    plain = plain_name(model)
    kinds = Softmax.kinds if plain == Softmax.name else MODELS[plain].kinds
    return _DEFAULTS[plain, kinds[0] if kind is None else kind]


def models_of(name: str) -> list[str]:
    """Models whose default it is.

    >>> models_of("noisygd")
    ['quadratic']
    """
    return [model for (model, _), default in _DEFAULTS.items() if default == name]


def what_to_use(model: str) -> str:
    """The end of a sentence on a protector that does not fit: which one trains this model.

    >>> what_to_use("svm")
    'for svm use universal-svm-synthetic'
    >>> what_to_use("square")
    'for square use regression (numbers) or universal-square-synthetic (two classes)'
    """
    plain = plain_name(model)
    found = {kind: name for (one, kind), name in _DEFAULTS.items() if one == plain}
    if len(found) == 1:
        return f"for {plain} use {next(iter(found.values()))}"
    return f"for {plain} use {' or '.join(f'{name} ({_KINDS[kind]})' for kind, name in found.items())}"
