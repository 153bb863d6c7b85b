"""The pieces that programs of loops and branches are put together from: other inputs and outputs, zeros, flags, residuals."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Literal, Var, memoized
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.lax import shapes
from mini_jax.lax.collectives import in_order, pvary_p
from mini_jax.transforms.linearize import Linearized


# --- flags ------------------------------------------------------------------------------------------------------------------

def chosen(values: Sequence, which: Sequence) -> list:
    """The values whose flag is true."""
    return [v for v, w in zip(values, which) if w]


def joined(a: Sequence[bool], b: Sequence[bool]) -> tuple[bool, ...]:
    """Where either flag is true."""
    return tuple([x or y for x, y in zip(a, b)])


def given(values: Sequence, which: Sequence[bool], otherwise: Sequence) -> list:
    """For each flag the next of `values` where it is true, else the entry of `otherwise`."""
    values = iter(values)
    return [next(values) if live else other for live, other in zip(which, otherwise)]


# --- zeros ------------------------------------------------------------------------------------------------------------------

def _zero_atom(aval: ShapedArray) -> tuple[Any, list[JaxprEqn]]:
    """An atom that is an array of zeros, and the equation that makes it."""
    literal = Literal(np.zeros((), aval.dtype)[()], array_type((), aval.dtype))
    if not aval.shape:
        return literal, []
    var = Var(aval)
    return var, [JaxprEqn(shapes.broadcast_in_dim_p, [literal], [var], {"shape": aval.shape, "broadcast_dimensions": ()}, NO_EFFECTS, None)]


# --- inputs and outputs --------------------------------------------------------------------------------------------------------

def with_outputs(jaxpr: Jaxpr, outputs: Sequence, invars: Sequence[Var] | None = None) -> Jaxpr:
    """The program with other inputs and outputs: each output an atom of the program, or a type, which stands for zeros of it."""
    eqns, outvars = [], []
    for out in outputs:
        if isinstance(out, ShapedArray):
            out, more = _zero_atom(out)
            eqns += more
        outvars.append(out)
    return Jaxpr((), jaxpr.invars if invars is None else invars, [*jaxpr.eqns, *eqns], outvars, jaxpr.effects, jaxpr.info)


@memoized
def adapted(jaxpr: Jaxpr, axes: tuple[frozenset, ...], how: Callable) -> Jaxpr:
    """The program with each result along these named axes, where it does not vary along them, made one that does: how(result, axes)."""
    missing = [more - t.varying if more else more for more, t in zip(axes, jaxpr.out_types)]
    if not any(missing):
        return jaxpr
    return stage(lambda *xs: [how(out, more) if more else out for out, more in zip(eval_jaxpr(jaxpr, (), *xs), missing)], jaxpr.in_types, jaxpr.info)[0]


def copied(value, axes: frozenset):
    """The value, of which each index of the named axes has a copy of its own."""
    return pvary_p.bind(value, axes=in_order(axes))


@memoized
def widened(jaxpr: Jaxpr, types: tuple, places: tuple[int, ...]) -> Jaxpr:
    """The program as one of more inputs, of these types; places: where among them its own are."""
    invars: list = [None] * len(types)
    for var, place in zip(jaxpr.invars, places):
        invars[place] = var
    return jaxpr.replace(invars=[Var(t) if v is None else v for v, t in zip(invars, types)])


def in_common(programs: Sequence[Jaxpr | None], consts: Sequence[Sequence], types: Sequence) -> tuple[list, list]:
    """Programs (own constants, inputs of `types`) as programs (the constants of all, those inputs), and the values of those constants."""
    own = [t for program, values in zip(programs, consts) if program is not None for t in program.in_types[:len(values)]]
    out, start = [], 0
    for program, values in zip(programs, consts):
        if program is not None:
            places = (*range(start, start + len(values)), *range(len(own), len(own) + len(types)))
            program = widened(program, (*own, *types), places)
        out.append(program)
        start += len(values)
    return out, [value for values in consts for value in values]


# --- residuals ------------------------------------------------------------------------------------------------------------------

class Unfolded(NamedTuple):
    """A linear program in the variables of the primal program: its equations and results, its tangents, and the residuals that
    it reads: variables of the primal program, each once."""
    eqns: list[JaxprEqn]
    outvars: list
    tangents: list[Var]
    residuals: list[Var]


def unfolded(parts: Linearized) -> Unfolded:
    """The linear part of a linearization, reading the primal program's variables.

    A residual that the primal program made larger (a broadcast, a conversion to a wider dtype) is made again from what it was
    made of, which is what must then be kept.
    """
    primal, count = parts.primal, len(parts.sources)
    inputs = primal.invars[len(parts.consts):]
    names = {var: inputs[i] if where == "in" else primal.outvars[i] for var, (where, i) in zip(parts.linear.invars, parts.sources)}
    renamed = lambda atom: names.get(atom, atom) if type(atom) is Var else atom
    made = {v: eqn for eqn in primal.eqns for v in eqn.outvars}
    again: set[int] = set()
    residuals: dict[Var, None] = {}
    pending = [atom for atom in names.values() if type(atom) is Var][::-1]
    while pending:
        var = pending.pop()
        eqn = made.get(var)
        if eqn is not None and enlarges(eqn):
            again.add(id(eqn))
            pending += [v for v in eqn.invars if type(v) is Var]
        else:
            residuals[var] = None
    eqns = [eqn for eqn in primal.eqns if id(eqn) in again]
    eqns += [eqn.replace(invars=[renamed(v) for v in eqn.invars]) for eqn in parts.linear.eqns]
    return Unfolded(eqns, [renamed(v) for v in parts.linear.outvars], list(parts.linear.invars[count:]), list(residuals))


def enlarges(eqn: JaxprEqn) -> bool:
    """Does an equation only write its operand larger?"""
    if eqn.primitive is not shapes.broadcast_in_dim_p and eqn.primitive is not shapes.convert_element_type_p:
        return False
    small, large = eqn.invars[0].aval, eqn.outvars[0].aval
    if dtypes.is_extended(small.dtype):
        return False
    return small.size * small.dtype.itemsize < large.size * large.dtype.itemsize


def dependent(jaxpr: Jaxpr, inputs: Sequence[bool]) -> tuple[list[JaxprEqn], tuple[bool, ...]]:
    """The equations, and for each output whether it does so, that depend on the inputs marked."""
    live, eqns = set(chosen(jaxpr.invars, inputs)), []
    for eqn in jaxpr.eqns:
        if not live.isdisjoint([v for v in eqn.invars if type(v) is Var]):
            live.update(eqn.outvars)
            eqns.append(eqn)
    return eqns, tuple([type(v) is Var and v in live for v in jaxpr.outvars])
