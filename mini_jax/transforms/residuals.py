"""What differentiation saves for the backward pass, as a list for people."""
from __future__ import annotations

from typing import Callable

from mini_jax.core import dtypes, source
from mini_jax.core.program import Jaxpr, Literal
from mini_jax.transforms.jit import Options, record, take_apart
from mini_jax.transforms.linearize import linearize_jaxpr


def print_saved_residuals(f: Callable, *args, **kwargs) -> None:
    """Print, for each array that grad and vjp of f at these arguments save for the backward pass, its type and where it comes from.

    Of `checkpoint`ed functions that is what their policies say. Values that a called function saves are named by it.
    """
    call = take_apart(f, Options(), args, kwargs)
    traced = record(f, Options(), call, "print_saved_residuals")
    jaxpr = traced.callee
    count = len(traced.consts)
    parts = linearize_jaxpr(jaxpr, tuple([i >= count and dtypes.is_inexact(t.dtype) for i, t in enumerate(jaxpr.in_types)]))
    for where, i in dict.fromkeys(parts.sources):
        if where == "out":
            atom = parts.primal.outvars[i]
            print(atom.aval, "from a literal" if type(atom) is Literal else _origin(parts.primal, atom))
        elif i < count:
            print(jaxpr.in_types[i], "from a constant")
        else:
            print(jaxpr.in_types[i], f"from the argument {jaxpr.info.path(i - count)}")


def _origin(jaxpr: Jaxpr, var) -> str:
    """Which equation made a variable of a program."""
    for eqn in jaxpr.eqns:
        if var in eqn.outvars:
            name = eqn.params.get("name")
            made = f"named {name!r}" if eqn.primitive.name == "name" else f"output of function {name}" if eqn.primitive.name == "jit" else f"output of {eqn.primitive}"
            return made + (f" at {source.describe(eqn.source)}" if eqn.source is not None else "")
    return "from a constant"
