"""A protector of the user's own, named where it is written: `mypackage:MyProtector`."""

import importlib
import os
import sys

from l2p.base.errors import InputError
from l2p.checkpoints.method_name import MethodName
from l2p.protectors.hand_designed import HandDesigned, Problem
from l2p.run.protector import Protector

_HOW = "name a Protector, a class of one that takes no arguments, or a function that makes one of a Problem"


def import_protector(name: MethodName, problem: Problem) -> Protector:
    """The protector that `MODULE:OBJECT` names; modules are also looked for in the current folder.

    Only called with a name that the user wrote, since importing runs the module's code.

    Raises:
      InputError: there is no such module or object, it fails, or it is no protector and makes none.

    >>> from l2p.privacy.budget import Budget
    >>> name = MethodName.parse("l2p.protectors.by_hand.gradient_descent:noisygd")
    >>> import_protector(name, Problem(Budget(1.0, 1e-5))).num_steps
    50
    """
    module, _, path = name.base.partition(":")
    here = os.getcwd()
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)  # a console script has its own folder there, and not the one it was called in
    try:
        named = getattr(importlib.import_module(module), path)
        return _protector_of(named, name.base, problem)
    except InputError:
        raise
    except AttributeError as error:
        raise InputError(f"protector {name.base!r} cannot be used ({error}); check the name after the colon.") from None
    except Exception as error:  # of the user's own code
        raise InputError(
            f"protector {name.base!r} cannot be used ({type(error).__name__}: {error}); check its module, or {_HOW}."
        ) from error
    finally:
        if added:
            sys.path.remove(here)


def _protector_of(named: object, name: str, problem: Problem) -> Protector:
    if isinstance(named, HandDesigned):
        named = named.make
    if not isinstance(named, Protector) and callable(named):
        named = named() if isinstance(named, type) else named(problem)
    if not isinstance(named, Protector):
        raise InputError(f"protector {name!r} is of type {type(named).__name__}; {_HOW}.")
    return named
