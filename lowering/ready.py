"""A program made ready for the outliner: one list of equations, of which none computes what another has computed."""
from __future__ import annotations

from lowering.labels import Labels
from mini_jax.core.program import Jaxpr, JaxprEqn, Var, dce
from mini_jax.lax.elementwise import add_p, mul_p
from mini_jax.lax.identities import optimization_barrier_p
from mini_jax.lax.shapes import add_any_p

_SPLICED = frozenset(["custom_jvp_call", "custom_vjp_call", "custom_vmap_call"])        # written as the equations in them


def spliced(program: Jaxpr) -> Jaxpr:
    """The program with the equations of functions with custom derivatives in place of their calls."""
    if not any([eqn.primitive.name in _SPLICED for eqn in program.eqns]):
        return program
    eqns: list[JaxprEqn] = []
    outer: dict = {}                                             # variables -> what they are called now
    stack = [(iter(program.eqns), outer, None)]                  # (equations to write, their variables' names, the call they stand for)
    while stack:
        remaining, names, caller = stack[-1]
        eqn = next(remaining, None)
        if eqn is None:
            stack.pop()
            if caller is not None:
                results = [names.get(v, v) if type(v) is Var else v for v in caller.params["call"].outvars]
                stack[-1][1].update(zip(caller.outvars, results))
            continue
        invars = [names.get(v, v) if type(v) is Var else v for v in eqn.invars]
        if eqn.primitive.name in _SPLICED:
            call = dce(eqn.params["call"])
            stack.append((iter(call.eqns), dict(zip(call.invars, invars)), eqn))
        else:
            outvars = eqn.outvars
            if len(stack) > 1:                                   # a program may be called again: each time with new variables
                outvars = [Var(v.aval) for v in outvars]
                names.update(zip(eqn.outvars, outvars))
            eqns.append(eqn.replace(invars=invars, outvars=outvars))
    return program.replace(eqns=eqns, outvars=[outer.get(v, v) if type(v) is Var else v for v in program.outvars])


_EITHER_WAY = frozenset([add_p, add_any_p, mul_p])              # of two variables: x · y is y · x


def shared_first(program: Jaxpr, labels: Labels) -> Jaxpr:
    """The program with what it computes several times from nothing but its inputs and constants (masks, tables) computed once, ahead.

    Of other equations that occur twice one is left. Inside of functions they would no longer be seen to be the same.
    """
    names: dict[Var, Var] = {}
    first: dict[tuple, int] = {}                                 # what is computed -> where first
    again: set[int] = set()
    kept: list[JaxprEqn | None] = []
    for eqn in program.eqns:
        invars = [names.get(v, v) if type(v) is Var else v for v in eqn.invars] if names else eqn.invars
        label = labels.of(eqn)
        if label >= 0 and labels.weight(eqn) == 1 and eqn.primitive is not optimization_barrier_p:      # which is there to keep things apart
            read = [v for v in invars if type(v) is Var]
            place = first.setdefault((label, *(sorted(read, key=id) if eqn.primitive in _EITHER_WAY else read)), len(kept))
            if place < len(kept):
                again.add(place)
                names.update(zip(eqn.outvars, kept[place].outvars))
                continue
        kept.append(eqn if invars is eqn.invars or invars == eqn.invars else labels.renamed(eqn, invars=invars))
    if not again:
        return program
    ahead = set(program.invars) | set(program.constvars)
    early, late = [], []
    for place, eqn in enumerate(kept):
        if place in again and all([v in ahead for v in eqn.invars if type(v) is Var]):
            ahead.update(eqn.outvars)
            early.append(eqn)
        else:
            late.append(eqn)
    return program.replace(eqns=early + late, outvars=[names.get(v, v) if type(v) is Var else v for v in program.outvars])
