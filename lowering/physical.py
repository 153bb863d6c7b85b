"""Extended dtypes made physical: a program on typed keys becomes one on arrays of their bits.

An array of shape S whose elements are blocks of n numbers is, physically, an array of shape (*S, n). What a structural
operation (reshape, gather, select, …) does to the elements, it does to all n numbers of each alike: it is the batched
operation, batched over the last dimension. So the batching rules are all that is needed.
"""
from __future__ import annotations

from typing import NamedTuple

from mini_jax.core import dtypes
from mini_jax.core.program import Jaxpr, Var, any_in, memoized, subprograms
from mini_jax.core.staging import stage
from mini_jax.core.state import state
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.lax import prng, shapes


class _Block(NamedTuple):
    """The axis that runs over the numbers of one element, as batching rules take an axis."""
    size: int
    name: None = None


def is_extended(aval) -> bool:
    """Is it the type of an array of an extended dtype?"""
    return type(aval) is ShapedArray and dtypes.is_extended(aval.dtype)


def physical_type(aval):
    """The type of the array of numbers that stands for a value of this type; itself where the dtype is none of ours."""
    if not is_extended(aval):
        return aval
    return array_type((*aval.shape, *aval.dtype.physical_shape), aval.dtype.physical_dtype, False, aval.varying)


def physical_value(value):
    """The array of numbers that a value of an extended dtype consists of; other values are themselves."""
    return value._data if is_extended(getattr(value, "aval", None)) else value


@memoized
def physicalize(jaxpr: Jaxpr) -> Jaxpr:
    """The same program, and those it calls, without extended dtypes; the program itself where none occurs."""
    if not _mentions_extended(jaxpr):
        return jaxpr
    env: dict[Var, object] = {}
    replaced = lambda atom: env.get(atom, atom) if type(atom) is Var else atom

    def physical_var(var):
        if not is_extended(var.aval):
            return var
        new = env[var] = Var(physical_type(var.aval))
        return new

    constvars, invars = [physical_var(v) for v in jaxpr.constvars], [physical_var(v) for v in jaxpr.invars]
    eqns = []
    for eqn in jaxpr.eqns:
        atoms = [replaced(v) for v in eqn.invars]
        called = {name: _physical_param(eqn.params[name]) for name, _ in subprograms(eqn.params)}
        if eqn.primitive in (prng.random_wrap_p, prng.random_unwrap_p):
            env[eqn.outvars[0]] = atoms[0]
        elif called or not any([is_extended(v.aval) for v in (*eqn.invars, *eqn.outvars)]):
            eqns.append(eqn.replace(invars=atoms, outvars=[physical_var(v) for v in eqn.outvars], params=eqn.params | called))
        else:
            body = _on_blocks(eqn)
            env.update(zip(body.invars, atoms))
            eqns += [e.replace(invars=[replaced(v) for v in e.invars], source=eqn.source) for e in body.eqns]
            env.update(zip(eqn.outvars, [replaced(v) for v in body.outvars]))
    return jaxpr.replace(constvars=constvars, invars=invars, eqns=eqns, outvars=[replaced(v) for v in jaxpr.outvars])


@memoized
def _mentions_extended(jaxpr: Jaxpr) -> bool:
    if any([is_extended(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)]):
        return True
    return any([is_extended(v.aval) for eqn in jaxpr.eqns for v in eqn.outvars]) or any_in(_mentions_extended, jaxpr)


def _physical_param(value):
    if type(value) is Jaxpr:
        return physicalize(value)
    return tuple([physicalize(item) if type(item) is Jaxpr else item for item in value])


def _on_blocks(eqn) -> Jaxpr:
    """What a structural equation does to the physical arrays."""
    primitive = eqn.primitive
    sizes = {n for v in (*eqn.invars, *eqn.outvars) if is_extended(v.aval) for n in [v.aval.dtype.physical_shape]}
    if len(sizes) != 1 or len(block := sizes.pop()) != 1 or primitive.batch is None:
        raise TypeError(f"{primitive.name} does not take typed keys: {', '.join(str(v.aval) for v in eqn.invars)}")

    def fun(*arrays):
        dims = [array.ndim - 1 if is_extended(v.aval) else None for array, v in zip(arrays, eqn.invars)]
        outs, out_dims = primitive.batch(_Block(block[0]), arrays, dims, **eqn.params)
        if not primitive.multiple_results:
            outs, out_dims = [outs], [out_dims]
        if [d is not None for d in out_dims] != [is_extended(v.aval) for v in eqn.outvars]:
            raise TypeError(f"{primitive.name} does not take typed keys together with {', '.join(str(v.aval) for v in eqn.invars)}")
        return [out if d is None else shapes.moveaxis(out, d, out.ndim - 1) for out, d in zip(outs, out_dims)]

    saved, state.source = state.source, eqn.source
    try:
        return stage(fun, [physical_type(v.aval) for v in eqn.invars])[0]
    finally:
        state.source = saved
