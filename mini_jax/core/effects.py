"""Effects: what a program does beside computing its results. They stand in `eqn.effects` and `Jaxpr.effects`."""
from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Sequence


class HostEffect(NamedTuple):
    """A call of Python that must happen: neither dropped nor repeated. ordered: after those before it in program order."""
    kind: str                        # "debug" or "io"
    ordered: bool


class CheckEffect(NamedTuple):
    """A check of `checkify` that must not be dropped before checkify has made it a value. debug: without checkify it is nothing."""
    debug: bool


class RefEffect(NamedTuple):
    """What is done to a ref. kind: "read", "write" or "accumulate". ref: the variable; in what `effects_rule` says of an operation,
    which of its operands it is."""
    kind: str
    ref: Any


def host_effects(effects: Iterable) -> list[HostEffect]:
    """Those among effects that are calls of Python."""
    return [effect for effect in effects if type(effect) is HostEffect]



def of_equation(effects: frozenset, operands: Sequence) -> frozenset:
    """The effects of an operation, as its rule gives them, on these operands."""
    return frozenset([RefEffect(e.kind, operands[e.ref]) if type(e) is RefEffect else e for e in effects])


def of_call(jaxpr, offset: int = 0) -> frozenset:
    """The effects of an operation that calls a program with its operands, of which `offset` come first."""
    effects = jaxpr.effects
    if not any([type(e) is RefEffect for e in effects]):
        return effects
    place = {v: i + offset for i, v in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    return frozenset([RefEffect(e.kind, place[e.ref]) if type(e) is RefEffect else e
                      for e in effects if type(e) is not RefEffect or e.ref in place])
