"""A checker for programs: every variable bound once and before use, every equation of the types its primitive's rule gives."""
from __future__ import annotations

from mini_jax.core.effects import RefEffect, of_equation
from mini_jax.core.errors import JaxprTypeError
from mini_jax.core.program import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, subprograms
from mini_jax.core.trace import typeof


def check_jaxpr(jaxpr: Jaxpr | ClosedJaxpr) -> None:
    """Raise JaxprTypeError where the program is ill-formed, saying at which equation."""
    if isinstance(jaxpr, ClosedJaxpr):
        for var, const in zip(jaxpr.jaxpr.constvars, jaxpr.consts):
            have = typeof(const)
            if have.shape != var.aval.shape or have.dtype != var.aval.dtype:
                raise JaxprTypeError(f"a constant of type {have} is bound to a variable of type {var.aval}")
        jaxpr = jaxpr.jaxpr
    bound: set[Var] = set()
    for var in (*jaxpr.constvars, *jaxpr.invars):
        _bind(var, bound, "the inputs")
    for eqn in jaxpr.eqns:
        try:
            _check_eqn(eqn, bound, jaxpr)
        except JaxprTypeError as error:
            raise JaxprTypeError(f"{error}\nin the equation {eqn}\nof the program\n{jaxpr}") from None
    for atom in jaxpr.outvars:
        _use(atom, bound)


def _bind(var: Var, bound: set, where: str) -> None:
    if var in bound:
        raise JaxprTypeError(f"a variable of type {var.aval} is bound twice, again by {where}")
    bound.add(var)


def _use(atom, bound: set) -> None:
    if type(atom) is Literal:
        have = typeof(atom.val)
        if have.shape != () or have.dtype != atom.aval.dtype:
            raise JaxprTypeError(f"the literal {atom.val!r} of type {have} is declared as {atom.aval}")
    elif atom not in bound:
        raise JaxprTypeError(f"a variable of type {atom.aval} is used before it is bound")


def _check_eqn(eqn: JaxprEqn, bound: set, jaxpr: Jaxpr) -> None:
    for atom in eqn.invars:
        _use(atom, bound)
    for name, program in subprograms(eqn.params):
        if program.constvars:
            raise JaxprTypeError(f"the program {name} has constants; programs inside equations take them as inputs")
        check_jaxpr(program)
    out = eqn.primitive.types(tuple(eqn.in_types), eqn.params)
    types = list(out) if eqn.primitive.multiple_results else [out]
    if len(types) != len(eqn.outvars):
        raise JaxprTypeError(f"{eqn.primitive.name} has {len(types)} results, but binds {len(eqn.outvars)} variables")
    for var, type_ in zip(eqn.outvars, types):
        if var.aval is not type_ and str(var.aval) != str(type_):
            raise JaxprTypeError(f"a result of {eqn.primitive.name} has type {type_}, but its variable {var.aval}")
        _bind(var, bound, eqn.primitive.name)
    effects = of_equation(eqn.primitive.effects(tuple(eqn.in_types), eqn.params), eqn.invars)
    inputs = {*jaxpr.constvars, *jaxpr.invars}
    outside = {e for e in eqn.effects if type(e) is not RefEffect or e.ref in inputs}
    if not effects <= eqn.effects or not outside <= jaxpr.effects:
        raise JaxprTypeError(f"effects {set(effects)} of {eqn.primitive.name} are not among those of the equation and the program")
