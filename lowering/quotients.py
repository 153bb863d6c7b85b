"""Quotients by what is broadcast: products with the reciprocal, which is computed once, before it is broadcast.

XLA's CPU compiler makes the same of each x / broadcast(y), one at a time: every function that divides by y then has a kernel for 1 / y, and one
for 1 / (y · y). Done in the program's equations, the forward pass hands the backward pass 1 / y in place of y.
"""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var
from mini_jax.core.staging import stage
from mini_jax.lax.elementwise import div_p, mul_p
from mini_jax.lax.shapes import broadcast_in_dim_p

_PRECISE = frozenset([dtypes.float32, dtypes.float64])         # a narrower one would round 1 / y too much


def reciprocals(program: Jaxpr) -> Jaxpr:
    """The program with multiplications in place of such divisions, but by a single number, whose reciprocal is no loop."""
    broadcast = {eqn.outvars[0]: eqn for eqn in program.eqns if eqn.primitive is broadcast_in_dim_p and type(eqn.invars[0]) is Var
                 and eqn.out_types[0].dtype in _PRECISE and 1 < eqn.invars[0].aval.size < eqn.out_types[0].size}
    if not broadcast:
        return program
    eqns: list[JaxprEqn] = []
    of: dict[Var, Var] = {}                                    # a value, or the broadcast one -> its reciprocal, broadcast likewise

    def reciprocal(v: Var, where) -> Var:
        found = of.get(v)
        if found is None:
            found = of[v] = Var(v.aval)
            if v in broadcast:
                eqns.append(broadcast[v].replace(invars=[reciprocal(broadcast[v].invars[0], where)], outvars=[found]))
            else:
                inverse, _ = stage(lambda x: [1 / x], [v.aval])
                eqn, = inverse.eqns
                eqns.append(eqn.replace(invars=[v if type(a) is Var else a for a in eqn.invars], outvars=[found], source=where))
        return found

    for eqn in program.eqns:
        if eqn.primitive is div_p and eqn.invars[1] in broadcast:
            eqn = JaxprEqn(mul_p, [eqn.invars[0], reciprocal(eqn.invars[1], eqn.source)], eqn.outvars, {}, NO_EFFECTS, eqn.source)
        eqns.append(eqn)
    return program.replace(eqns=eqns)


def is_reciprocal(eqn: JaxprEqn) -> bool:
    """Is it c / x? XLA gives that a kernel of its own."""
    return eqn.primitive is div_p and type(eqn.invars[0]) is not Var
