"""The shapes that base classes declare, checked on every call of their methods and of their subclasses' overrides."""

import functools
import inspect
import sys
from typing import get_args

import jax
import numpy as np
from beartype import beartype
from jaxtyping import AbstractArray, jaxtyped

from l2p.task.table import Table

#: Classes that others implement, by module: what a method takes and returns is declared there and not again.
BASES = {"l2p.queries.base": "Query", "l2p.models.base": "Model", "l2p.run.protector": "Protector"}


def check_contracts():
    """Check the methods of all classes that were imported so far; twice is once."""
    for module, base in BASES.items():
        if module in sys.modules:
            for cls in family(getattr(sys.modules[module], base)):
                check_methods(cls)


def family(base):
    return {base}.union(*map(family, base.__subclasses__()))


def check_methods(cls):
    """Replace the methods of a class by ones that raise `jaxtyping.TypeCheckError` where a shape is another one."""
    for name, method in list(vars(cls).items()):
        signature = declared(cls, name)
        if signature is not None and not hasattr(getattr(method, "fget", method), "checked"):
            setattr(cls, name, checked(method, signature))


def declared(cls, name):
    """The signature of a method in the first class that has it; None if it declares no shape."""
    owner = next(base for base in reversed(cls.__mro__) if name in vars(base))
    method = vars(owner)[name]
    method = getattr(method, "fget", method)
    if owner.__module__ == "builtins" or not callable(method):
        return None
    signature = inspect.signature(method)
    hints = [parameter.annotation for parameter in signature.parameters.values()]
    return signature if any(map(has_shape, [*hints, signature.return_annotation])) else None


def has_shape(annotation):
    if isinstance(annotation, type) and issubclass(annotation, AbstractArray):
        return True
    return any(map(has_shape, get_args(annotation)))


def shape(annotation):
    """Check of an annotation: NumPy's arrays pass for JAX's, as they do in JAX, and so does all without a shape."""
    if isinstance(annotation, type) and issubclass(annotation, AbstractArray):
        return annotation.dtype[jax.Array | np.ndarray | Table, annotation.dim_str]
    return annotation if has_shape(annotation) else inspect.Signature.empty


def checked(method, signature):
    """A method that checks what has a shape in a signature, and nothing else."""
    if isinstance(method, property):
        return property(checked(method.fget, signature))
    arguments = [
        parameter.replace(annotation=shape(parameter.annotation)) for parameter in signature.parameters.values()
    ]

    @functools.wraps(method)
    def call(*args, **kwargs):
        return method(*args, **kwargs)

    call.__signature__ = inspect.Signature(arguments, return_annotation=shape(signature.return_annotation))
    checking = jaxtyped(call, typechecker=beartype)
    checking.checked = True
    return checking
