"""Labels: numbers for what equations do, equal exactly where equations do the same to whatever variables they are given.

Labels come from a dictionary, whose keys are compared and not only hashed. 1, True and 1.0 are different, as are 0.0 and -0.0.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from mini_jax.core.program import Jaxpr, JaxprEqn, Var, axes_used, memoized, subprograms
from mini_jax.core.types import ShapedArray


class Labels:
    """The labels of the equations of one program and of the programs in it, which have numbers of their own: their structures."""

    def __init__(self):
        self._numbers: dict[Any, int] = {}
        self._structures: dict[Jaxpr, int] = {}
        self._weights: dict[Jaxpr, float] = {}
        self._alone = 0

    def structure(self, jaxpr: Jaxpr) -> int:
        """Equal for programs that do the same."""
        if jaxpr not in self._structures:
            for program in inner_first(jaxpr):
                if program not in self._structures:
                    self._learn(program)
        return self._structures[jaxpr]

    def size(self, jaxpr: Jaxpr) -> float:
        """How many equations a program has, those of the programs in it included."""
        self.structure(jaxpr)
        return self._weights[jaxpr]

    def _learn(self, jaxpr: Jaxpr) -> None:
        """Give a program its number; those in it have theirs."""
        number: dict[Var, int] = {}
        for v in (*jaxpr.constvars, *jaxpr.invars):
            number[v] = len(number)
        rows = []
        for eqn in jaxpr.eqns:
            operands = tuple([number[v] if type(v) is Var else -1 for v in eqn.invars])
            for v in eqn.outvars:
                number[v] = len(number)
            rows.append((self.of(eqn), operands))
        outputs = tuple([number[v] if type(v) is Var else _literal(v) for v in jaxpr.outvars])
        inputs = tuple([_type(v.aval) for v in (*jaxpr.constvars, *jaxpr.invars)])
        self._structures[jaxpr] = self._number((len(jaxpr.constvars), inputs, tuple(rows), outputs))
        self._weights[jaxpr] = sum([self.weight(eqn) for eqn in jaxpr.eqns])

    def alike(self, jaxpr: Jaxpr, other: Jaxpr) -> None:
        """Say that `jaxpr` is another form of the known program `other`."""
        self._structures[jaxpr], self._weights[jaxpr] = self.structure(other), self.size(other)

    def weight(self, eqn: JaxprEqn) -> float:
        """The size of an equation: one and, if programs are in it, theirs."""
        return 1 + sum([self.size(sub) for _, sub in subprograms(eqn.params)])

    def of(self, eqn: JaxprEqn) -> int:
        """The label of an equation. One with an effect is like no other."""
        if is_fixed(eqn):
            self._alone -= 1
            return self._alone
        atoms = tuple([v.aval.mlir if type(v) is Var else _literal(v) for v in eqn.invars])
        params = tuple([(name, self._exact(value)) for name, value in eqn.params.items()])
        return self._number((eqn.primitive, params, atoms, tuple([v.aval.mlir for v in eqn.outvars])))

    def _number(self, key) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._numbers)
        return found

    def _exact(self, value):
        """A parameter's value as a key."""
        kind = type(value)
        if kind is str or value is None:
            return value
        if kind is tuple:
            return (tuple, *[self._exact(item) for item in value])
        if kind is Jaxpr:
            return Jaxpr, self.structure(value)
        if isinstance(value, tuple):
            return (kind, *[self._exact(item) for item in value])
        if isinstance(value, (float, complex, np.generic)):
            return kind, _bits(value)
        try:
            hash(value)
        except TypeError:
            return kind, id(value)                       # it lives as long as the program that holds it
        return kind, value


def inner_first(jaxpr: Jaxpr) -> list[Jaxpr]:
    """The program and all programs in it, each once and after those in it."""
    order, seen, stack = [], set(), [(jaxpr, False)]
    while stack:
        program, done = stack.pop()
        if done:
            order.append(program)
        elif program not in seen:
            seen.add(program)
            stack.append((program, True))
            stack += [(sub, False) for eqn in program.eqns for _, sub in subprograms(eqn.params) if sub not in seen]
    return order


def _bits(value) -> bytes:
    value = np.asarray(value)
    return str(value.dtype).encode() + value.tobytes()


def _literal(atom):
    aval = atom.aval
    return (aval.mlir, _bits(np.asarray(atom.val).astype(aval.dtype)) if type(aval) is ShapedArray and isinstance(aval.dtype, np.dtype)
            and aval.dtype.kind in "biufc" else (type(atom.val), _bits(atom.val)))


def _type(aval):
    return aval.mlir


def is_fixed(eqn: JaxprEqn) -> bool:
    """Must an equation stay where it is? What has effects, calls Python, or communicates between replicas."""
    return bool(eqn.effects) or _calls_out(eqn)


def _calls_out(eqn: JaxprEqn) -> bool:
    facts = eqn.primitive.facts
    return bool(facts.get("host_call") or facts.get("replicates") or axes_used(eqn.primitive, eqn.params)
                or any([_calls_out_in(sub) for _, sub in subprograms(eqn.params)]))


@memoized
def _calls_out_in(jaxpr: Jaxpr) -> bool:
    return any([_calls_out(eqn) for eqn in jaxpr.eqns])
