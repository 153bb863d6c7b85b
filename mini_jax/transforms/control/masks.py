"""Programs whose effects happen only where a mask holds: what a batched branch or loop runs for the examples that are not in it.

vmap over the predicate of a cond runs all branches for all examples, and a batched while_loop goes on until the last example has ended.
Each example's calls of Python, and its checks, must happen there only as if it ran alone. So, before it is batched, the program of one
example gets a mask, a boolean scalar, that goes along to all of its effects.
"""
from __future__ import annotations

from typing import Any, Sequence

from mini_jax.core.dtypes import bool_
from mini_jax.core.effects import CheckEffect, HostEffect, RefEffect
from mini_jax.core.program import Jaxpr, Literal, Var, memoized
from mini_jax.core.staging import stage
from mini_jax.core.state import state
from mini_jax.core.types import array_type

MASK = array_type((), bool_)


def maskable(effects) -> bool:
    """Can all of these effects be left out where a mask says so?"""
    return all([type(effect) in (HostEffect, CheckEffect) or type(effect) is RefEffect and effect.kind == "read" for effect in effects])


@memoized
def where(jaxpr: Jaxpr) -> Jaxpr:
    """(mask, inputs) -> outputs: the program, with its effects only where the mask holds."""
    program, consts = stage(lambda mask, *args: _run(jaxpr, mask, args), [MASK, *jaxpr.in_types], jaxpr.info)
    assert not consts, "a closed program has no constants"
    return program


def _run(jaxpr: Jaxpr, mask, args: Sequence) -> list:
    env: dict[Var, Any] = dict(zip(jaxpr.invars, args, strict=True))
    value = lambda atom: atom.val if type(atom) is Literal else env[atom]
    saved = state.source
    try:
        for eqn in jaxpr.eqns:
            state.source = eqn.source
            values = [value(v) for v in eqn.invars]
            if any([type(effect) is not RefEffect for effect in eqn.effects]):       # of refs, those are read, and those made inside are theirs
                rule = eqn.primitive.facts.get("where") or _rules.get(eqn.primitive.name)
                if rule is None:
                    raise NotImplementedError(f"vmap: {eqn.primitive.name} has effects, and can't leave them out for examples whose branch or loop is "
                                              "another: take them out of it")
                outs = rule(eqn.primitive, mask, values, eqn.params)
            else:
                outs = eqn.primitive.bind(*values, **eqn.params)
            env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs]))
    finally:
        state.source = saved
    return [value(v) for v in jaxpr.outvars]


# --- programs inside programs ---------------------------------------------------------------------------------------------------

def _call(primitive, mask, args, params):
    return primitive.bind(mask, *args, **params | {"jaxpr": where(params["jaxpr"])})


def _pmap(primitive, mask, args, params):
    return _call(primitive, mask, args, params | {"in_dims": (None, *params["in_dims"])})


def _custom(primitive, mask, args, params):
    """The mask is a value that the function has captured; the user's rules stay as they are."""
    return primitive.bind(*args, **params | {"call": lambda *xs: _run(params["call"], mask, xs)})


def _cond(primitive, mask, args, params):
    return primitive.bind(args[0], mask, *args[1:], branches=tuple([where(branch) for branch in params["branches"]]))


def _scan(primitive, mask, args, params):
    return _call(primitive, mask, args, params | {"num_consts": params["num_consts"] + 1})


def _while(primitive, mask, args, params):
    first = params["cond_nconsts"]
    return primitive.bind(mask, *args[:first], mask, *args[first:], cond_jaxpr=where(params["cond_jaxpr"]), body_jaxpr=where(params["body_jaxpr"]),
                          cond_nconsts=first + 1, body_nconsts=params["body_nconsts"] + 1)


_rules = {"cond": _cond, "scan": _scan, "while": _while, "pmap": _pmap, "jit": _call, "checkpoint": _call,
          **dict.fromkeys(["custom_jvp_call", "custom_vjp_call", "custom_vmap_call"], _custom)}
