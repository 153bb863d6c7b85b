"""Order of calls to Python: a program that makes such calls becomes one that hands a value from each call to the next.

XLA runs what does not depend on each other in any order. So each call takes what the call before it returned, a number
without meaning, which also goes through the programs called (as a first argument and result), is carried by loops, and
passes through all branches of a choice. A replica orders its own calls; between replicas there is no order.
"""
from __future__ import annotations

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.effects import host_effects
from mini_jax.core.program import Jaxpr, JaxprEqn, Literal, Var, memoized, subprograms
from mini_jax.core.types import array_type

TURN = array_type((), dtypes.uint8)              # the type of what is handed on


@memoized
def sequenced(jaxpr: Jaxpr) -> Jaxpr:
    """The program with its calls of Python one after the other, in the order in which they were recorded."""
    if not host_effects(jaxpr.effects):
        return jaxpr
    return jaxpr.replace(eqns=_handing_on(jaxpr, Literal(np.uint8(0), TURN))[0])


@memoized
def _threaded(jaxpr: Jaxpr) -> Jaxpr:
    """(turn, inputs) -> (turn, outputs): the program as one that takes the turn from the call before it and hands it on."""
    turn = Var(TURN)
    eqns, last = _handing_on(jaxpr, turn)
    return jaxpr.replace(invars=(turn, *jaxpr.invars), eqns=eqns, outvars=(last, *jaxpr.outvars))


def _handing_on(jaxpr: Jaxpr, turn) -> tuple[list[JaxprEqn], Var | Literal]:
    """The equations with the turn going through them, and who has it last."""
    eqns = []
    for eqn in jaxpr.eqns:
        effects = host_effects(eqn.effects)
        if effects:
            rule = _host_call if eqn.primitive.facts.get("host_call") else _rules.get(eqn.primitive.name)
            new = None if rule is None else rule(eqn, turn)
            if new is not None:
                eqn, turn = new, new.outvars[0]
            elif any([effect.ordered for effect in effects]):
                raise NotImplementedError(f"ordered calls of Python have no order inside of {_REFUSED.get(eqn.primitive.name, eqn.primitive.name)}; "
                                          "call with ordered=False")
            elif eqn.primitive.name == "pmap":
                eqn = eqn.replace(params=eqn.params | {"jaxpr": sequenced(eqn.params["jaxpr"])})
        eqns.append(eqn)
    return eqns, turn


_REFUSED = {"pmap": "pmap, whose replicas run at the same time", "while": "the condition of a while_loop"}


def _with_turn(eqn: JaxprEqn, position: int, turn, **params) -> JaxprEqn:
    """The equation with the turn as its operand at this position and as its first result."""
    return eqn.replace(invars=[*eqn.invars[:position], turn, *eqn.invars[position:]], outvars=[Var(TURN), *eqn.outvars],
                       params=eqn.params | params)


def _host_call(eqn, turn):
    return _with_turn(eqn, 0, turn, takes_turn=True)


def _call(eqn, turn):
    (name, program), = subprograms(eqn.params)
    return _with_turn(eqn, 0, turn, **{name: _threaded(program)})


def _cond(eqn, turn):
    return _with_turn(eqn, 1, turn, branches=tuple([_threaded(branch) for branch in eqn.params["branches"]]))


def _scan(eqn, turn):
    consts = eqn.params["num_consts"]
    return _with_turn(eqn, consts, turn, jaxpr=_turn_at(_threaded(eqn.params["jaxpr"]), consts), num_carry=eqn.params["num_carry"] + 1)


def _while(eqn, turn):
    """None where the condition makes calls: it has no result to hand the turn on."""
    condition, cond_nconsts, body_nconsts = eqn.params["cond_jaxpr"], eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    if host_effects(condition.effects):
        return None
    condition = condition.replace(invars=[*condition.invars[:cond_nconsts], Var(TURN), *condition.invars[cond_nconsts:]])
    return _with_turn(eqn, cond_nconsts + body_nconsts, turn, cond_jaxpr=condition,
                      body_jaxpr=_turn_at(_threaded(eqn.params["body_jaxpr"]), body_nconsts))


def _turn_at(jaxpr: Jaxpr, position: int) -> Jaxpr:
    """A threaded program that takes the turn at this position instead of first."""
    turn, *others = jaxpr.invars
    return jaxpr.replace(invars=[*others[:position], turn, *others[position:]])


_rules = {"scan": _scan, "while": _while, "cond": _cond,
          **dict.fromkeys(["jit", "checkpoint", "custom_jvp_call", "custom_vjp_call", "custom_vmap_call"], _call)}
