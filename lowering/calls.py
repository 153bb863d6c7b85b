"""Kept calls: functions that XLA compiles as such, and what they may be given.

XLA's CPU compiler lets a kept function write its result over an input that nobody needs any more, if its loop reads that input entry by entry. It does
not see that the same loop reads another input otherwise (turned, say) that is the same value, in the same memory (jaxlib 0.10 to 0.12).
So a function is given each value once. And what XLA might find to be one value only when it simplifies (y and --y), or keeps in one place (y
and its reshape), is given to no function: what that does is written in its place, and what the calls in it do. (Calls that XLA inlines may
be inlined too late.)
"""
from __future__ import annotations

from typing import NamedTuple

from lowering.emit import lowers
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, JaxprEqn, Var, memoized, subprograms
from mini_jax.core.types import ShapedArray

# It occurs only in programs that are about to be written. note: why the function is there; None: there is none. small: XLA makes one kernel of it.
outlined_p = Primitive("outlined", multiple_results=True, memoize=False, facts={"family": "higher_order"})
outlined_p.type_rule = lambda *types, jaxpr, **_: jaxpr.out_types


@lowers(outlined_p)
def _call(e, eqn, *operands):
    if eqn.params["note"] is None:
        return e.inline(eqn.params["jaxpr"], operands)
    jaxpr, distinct = eqn.params["jaxpr"], tuple(dict.fromkeys(operands))
    if len(distinct) < len(operands):
        jaxpr = _of_distinct(jaxpr, tuple([operands.index(operand) for operand in operands]))
    return e.call(jaxpr, distinct, eqn.params["name"], note=eqn.params["note"], small=eqn.params.get("small", False))


@memoized
def _of_distinct(jaxpr: Jaxpr, first: tuple[int, ...]) -> Jaxpr:
    """The function where its i-th input is its first[i]-th."""
    names = {v: jaxpr.invars[i] for v, i in zip(jaxpr.invars, first)}
    renamed = lambda variables: [names.get(v, v) if type(v) is Var else v for v in variables]
    return jaxpr.replace(invars=list(dict.fromkeys(names.values())), outvars=renamed(jaxpr.outvars),
                         eqns=[eqn.replace(invars=renamed(eqn.invars)) for eqn in jaxpr.eqns])


_CALLS = frozenset(["outlined", "jit"])
# What XLA's simplifier may make nothing of, where all other operands are constants, or one value too.
_SIMPLIFIED = frozenset("""broadcast_in_dim reshape transpose rev slice pad concatenate squeeze expand_dims dynamic_slice dynamic_update_slice gather
    convert_element_type reduce_precision bitcast_convert_type copy stop_gradient name optimization_barrier row_major neg add add_any sub mul div max min
    select_n abs sign square sqrt integer_pow pow exp log real imag conj complex and or not xor clamp reduce_sum reduce_max reduce_min reduce_prod""".split())
_PARTS = frozenset("slice dynamic_slice gather".split())        # of one value, which together may be it


class _Origin(NamedTuple):
    """What a value may equal, what it is a part of, and does it depend on constants alone?"""
    equal: Var
    whole: Var
    constant: bool


def safe_calls(program: Jaxpr) -> Jaxpr:
    """The program with the functions written out that are given what may be one value in two operands."""
    known, eqns = _origins(program), []                        # (of every program, inner ones first: what recurses finds them done)
    for eqn in program.eqns:
        given = [v for v in eqn.invars if type(v) is Var and _size(v) > 1] if eqn.primitive.name in _CALLS else []
        if eqn.primitive is outlined_p:
            given = list(dict.fromkeys(given))                 # it is given each once
        eqns.append(_inlined(eqn) if len({known[v].equal for v in given}) < len(given) else eqn)
    return program.replace(eqns=eqns) if any([a is not b for a, b in zip(eqns, program.eqns)]) else program


@memoized
def _origins(program: Jaxpr) -> dict[Var, _Origin]:
    """Of each variable of a program."""
    known = {v: _Origin(v, v, False) for v in (*program.constvars, *program.invars)}
    for eqn in program.eqns:
        name, operands = eqn.primitive.name, [v for v in eqn.invars if type(v) is Var]
        programs = [inner for _, inner in subprograms(eqn.params)] if eqn.params else []
        constant = all([known[v].constant for v in operands])
        for k, out in enumerate(eqn.outvars):
            if programs:                                       # calls, loops and branches may hand on what they take, their last operands
                handed = [v for inner in programs if k < len(inner.outvars) and type(result := inner.outvars[k]) is Var
                          for v, inside in zip(eqn.invars[-len(inner.invars):], inner.invars) if _origins(inner)[result].equal is inside]
            else:
                handed = operands if len(eqn.outvars) == 1 else eqn.invars[k:k + 1]
            own = [known[v] for v in handed if type(v) is Var and (constant or not known[v].constant)]
            equals, wholes = {o.equal for o in own}, {o.whole for o in own}
            whole = own[0].whole if name in _PARTS and own else out
            if (programs or name in _SIMPLIFIED) and (len(equals) == 1 or len(wholes) == 1):
                found, = equals if len(equals) == 1 else wholes
                known[out] = _Origin(found, found, constant) if _size(found) == _size(out) else _Origin(out, whole, constant)
            else:
                known[out] = _Origin(out, out, constant)
    return known


def _size(v: Var) -> int:
    return v.aval.size if type(v.aval) is ShapedArray else 1       # (of a token)


def _inlined(eqn: JaxprEqn) -> JaxprEqn:
    """A call whose function is written in its place, as are those in it."""
    params = {"jaxpr": _without_kept(eqn.params["jaxpr"]), "name": eqn.params["name"], "note": None}
    return JaxprEqn(outlined_p, eqn.invars, eqn.outvars, params, eqn.effects, eqn.source)


@memoized
def _without_kept(jaxpr: Jaxpr) -> Jaxpr:
    """The program with all functions written out."""
    if not any([eqn.primitive.name in _CALLS for eqn in jaxpr.eqns]):
        return jaxpr
    return jaxpr.replace(eqns=[_inlined(eqn) if eqn.primitive.name in _CALLS else eqn for eqn in jaxpr.eqns])
