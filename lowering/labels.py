"""Labels: numbers for what equations do, equal exactly where equations do the same to whatever variables they are given.

Labels come from a dictionary, whose keys are compared and not only hashed. 1, True and 1.0 are different, as are 0.0 and -0.0.
"""
from __future__ import annotations

from typing import Any, Collection

import numpy as np

from lowering.digest import UNREAD
from mini_jax.core.program import Jaxpr, JaxprEqn, Var, axes_used, memoized, subprograms

_HUGE = 1e9                                                   # sizes of calls in calls grow without bounds
_ORDINARY = frozenset([int, bool, str, type(None)])           # of these, equal values of one type are the same


class Labels:
    """The labels of the equations of one program and of the programs in it, which have numbers of their own: their structures."""

    def __init__(self):
        self._numbers: dict[Any, int] = {}
        self._known: dict[JaxprEqn, tuple[int, float]] = {}   # label, size
        self._structures: dict[Jaxpr, int] = {}
        self._sizes: dict[Jaxpr, float] = {}
        self._alone = 0

    def of(self, eqn: JaxprEqn) -> int:
        """The label of an equation. One that must stay where it is has a negative one, like no other."""
        found = self._known.get(eqn)
        return self._look(eqn)[0] if found is None else found[0]

    def weight(self, eqn: JaxprEqn) -> float:
        """The size of an equation: one and, if programs are in it, theirs."""
        found = self._known.get(eqn)
        return self._look(eqn)[1] if found is None else found[1]

    def renamed(self, eqn: JaxprEqn, **changes) -> JaxprEqn:
        """The equation with other variables, which changes neither label nor size."""
        self.of(eqn)
        new = eqn.replace(**changes)
        self._known[new] = self._known[eqn]
        return new

    def structure(self, jaxpr: Jaxpr) -> int:
        """Equal for programs that do the same."""
        if jaxpr not in self._structures:
            for program in inner_first(jaxpr, self._structures):
                self._learn(program)
        return self._structures[jaxpr]

    def size(self, jaxpr: Jaxpr) -> float:
        """How many equations a program has, those of the programs in it included."""
        self.structure(jaxpr)
        return self._sizes[jaxpr]

    def alike(self, jaxpr: Jaxpr, other: Jaxpr) -> None:
        """Say that `jaxpr` is another form of `other`."""
        self._structures[jaxpr], self._sizes[jaxpr] = self.structure(other), self.size(other)

    def _learn(self, jaxpr: Jaxpr) -> None:
        """Give a program its number; those in it have theirs."""
        inputs = (*jaxpr.constvars, *jaxpr.invars)
        number = {v: i for i, v in enumerate(inputs)}
        rows = []
        for eqn in jaxpr.eqns:
            rows.append((self.of(eqn), *[number[v] for v in eqn.invars if type(v) is Var]))
            for v in eqn.outvars:
                number[v] = len(number)
        outputs = tuple([number[v] if type(v) is Var else _literal(v) for v in jaxpr.outvars])
        key = (len(jaxpr.constvars), *[v.aval.mlir for v in inputs]), tuple(rows), outputs
        self._structures[jaxpr] = self._number(key)
        self._sizes[jaxpr] = min(sum([self.weight(eqn) for eqn in jaxpr.eqns]), _HUGE)

    def _look(self, eqn: JaxprEqn) -> tuple[int, float]:
        params, primitive = eqn.params, eqn.primitive
        inner = [sub for _, sub in subprograms(params)] if params else []
        size = min(1 + sum([self.size(sub) for sub in inner]), _HUGE) if inner else 1
        if is_fixed(eqn):
            self._alone -= 1
            label = self._alone
        else:
            unread = UNREAD.get(primitive.name, ())
            label = self._number((primitive, *[(name, self._exact(value)) for name, value in params.items() if name not in unread],
                                  *[v.aval.mlir if type(v) is Var else _literal(v) for v in eqn.invars], *[v.aval.mlir for v in eqn.outvars]))
        found = self._known[eqn] = label, size
        return found

    def _number(self, key) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _exact(self, value):
        """A parameter's value as a key."""
        kind = type(value)
        if kind in _ORDINARY:
            return kind, value
        if isinstance(value, tuple):
            kinds = tuple(map(type, value))
            return (kind, kinds, value) if _ORDINARY.issuperset(kinds) else (kind, *map(self._exact, value))
        if kind is Jaxpr:
            return Jaxpr, self.structure(value)
        if isinstance(value, (float, complex, np.generic)):
            return kind, _bits(value)
        try:
            hash(value)
        except TypeError:
            return kind, id(value)                            # it lives as long as the program that holds it
        return kind, value


def inner_first(jaxpr: Jaxpr, known: Collection[Jaxpr] = ()) -> list[Jaxpr]:
    """The program and all programs in it that are not known, each once and after those in it."""
    order, seen, stack = [], set(), [(jaxpr, False)]
    while stack:
        program, done = stack.pop()
        if done:
            order.append(program)
        elif program not in seen and program not in known:
            seen.add(program)
            stack.append((program, True))
            stack += [(sub, False) for eqn in program.eqns if eqn.params for _, sub in subprograms(eqn.params)]
    return order


def _bits(value) -> tuple:
    value = np.asarray(value)
    return value.dtype, value.tobytes()


def _literal(atom) -> tuple:
    return atom.aval.mlir, type(atom.val), _bits(atom.val)


_NEW_EACH_TIME = frozenset(["rng_uniform", "shard_map"])


def is_fixed(eqn: JaxprEqn) -> bool:
    """Must an equation stay where it is? What has effects, calls Python or LAPACK, communicates between replicas, or gives new numbers each time."""
    return bool(eqn.effects) or _calls_out(eqn)


def _calls_out(eqn: JaxprEqn) -> bool:
    facts, params = eqn.primitive.facts, eqn.params
    if eqn.primitive.name in _NEW_EACH_TIME or facts.get("host_call") or facts.get("replicates") or facts.get("family") == "linalg":
        return True                                      # (LAPACK writes over its operands, and in a kept call XLA may not copy them before)
    if "axes" in facts and axes_used(eqn.primitive, params):
        return True
    return bool(params) and any([axes_used(eqn.primitive, params) or _calls_out_in(sub) for _, sub in subprograms(params)])


@memoized
def _calls_out_in(jaxpr: Jaxpr) -> bool:
    return any([_calls_out(eqn) for eqn in jaxpr.eqns])
