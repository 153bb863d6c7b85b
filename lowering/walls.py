"""Walls: what is in memory in any case is computed once.

What a product takes is in memory. But where it takes a value reshaped, and others read that value as it is, XLA's CPU compiler fuses what computes
it into the reshape and again into all others: a residual stream is computed anew at each use. A demand for a layout stops that. XLA sees nothing
behind it until it has chosen all layouts; then nothing is left of it, and the reshape costs nothing.
"""
from __future__ import annotations

from typing import Collection

from lowering.emit import lowers
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var
from mini_jax.lax.dot import dot_general_p
from mini_jax.lax.shapes import reshape_p

# It occurs only in programs that are about to be written: the value, in memory row by row.
row_major_p = Primitive("row_major", type_rule=lambda x: x, facts={"family": "walls"})


lowers(row_major_p)(lambda e, eqn, x: e.row_major(x, eqn.in_types[0]))


def walled(program: Jaxpr, values: Collection[Var]) -> Jaxpr:
    """The program with these of its results laid out row by row, for all who read them."""
    if not values:
        return program
    eqns: list[JaxprEqn] = []
    names: dict[Var, Var] = {}
    renamed = lambda variables: [names.get(v, v) if type(v) is Var else v for v in variables]
    for eqn in program.eqns:
        eqns.append(eqn.replace(invars=renamed(eqn.invars)) if names else eqn)
        for v in eqn.outvars:
            if v in values:
                names[v] = Var(v.aval)
                eqns.append(JaxprEqn(row_major_p, [v], [names[v]], {}, NO_EFFECTS, eqn.source))
    return program.replace(eqns=eqns, outvars=renamed(program.outvars))


# What XLA computes again in each loop that reads it.
_FUSED = frozenset("transpose add add_any sub mul div max min select_n neg abs exp log tanh logistic sqrt rsqrt integer_pow pow".split())


def in_memory_once(program: Jaxpr) -> Jaxpr:
    """The program with walls behind what products take reshaped and others as it is."""
    factors = {v for eqn in program.eqns if eqn.primitive is dot_general_p for v in eqn.invars if type(v) is Var}
    reshaped: set[Var] = set()
    others = {v for v in program.outvars if type(v) is Var}
    for eqn in program.eqns:
        into_product = eqn.primitive is reshape_p and eqn.outvars[0] in factors
        (reshaped if into_product else others).update([v for v in eqn.invars if type(v) is Var])
    both = reshaped & others
    return walled(program, {eqn.outvars[0] for eqn in program.eqns if both and eqn.primitive.name in _FUSED and eqn.outvars[0] in both})
