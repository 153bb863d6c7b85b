"""Replay: what a library function records for the second time is copied from then on, instead of running the function again.

What such a function records depends on the types of the traced values it is given, on its other arguments and on the configuration, and
on nothing else: that is what lets it be compiled once when it runs on values, and be copied when it is recorded.
"""
from __future__ import annotations

import enum
import functools
from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import config, source
from mini_jax.core.program import NO_EFFECTS, JaxprEqn, Literal, Var
from mini_jax.core.pytree import flatten
from mini_jax.core.staging import StagingTrace, StagingTracer
from mini_jax.core.state import state

_ONCE, _NEVER = "made once", "not to be copied"       # most calls of a program that is recorded once are not worth keeping more of
_templates: dict[tuple, "_Template | str"] = {}
_CAPACITY = 4096

forget = _templates.clear


class _Template:
    """Equations in a form to copy. Values go by number: `literals` first, then the different tracers given, then the results."""
    __slots__ = ("literals", "steps", "tree", "outputs")

    def __init__(self, literals: list, steps: list, tree, outputs: list):
        self.literals, self.steps, self.tree, self.outputs = literals, steps, tree, outputs

    def copy(self, trace: StagingTrace, given: Sequence[Var], where):
        """Append the equations, as recorded of these variables at this place, and return what the function returned."""
        values, eqns = [*self.literals, *given], trace.eqns
        for primitive, operands, types, params in self.steps:
            results = [Var(aval) for aval in types]
            eqns.append(JaxprEqn(primitive, [values[i] for i in operands], results, params, NO_EFFECTS, where))
            values += results
        return self.tree.unflatten([StagingTracer(trace, values[i].aval, values[i]) for i in self.outputs])


def replayed(fun: Callable) -> Callable:
    """`fun`, a library function, with what it records kept and copied."""
    @functools.wraps(fun)
    def recording(*args, **kwargs):
        trace = state.trace
        if type(trace) is not StagingTrace:
            return fun(*args, **kwargs)
        key, given = [fun, config.trace_key(), *kwargs], {}
        if not _describe(args, trace, key, given) or kwargs and not _describe(kwargs.values(), trace, key, given):
            return fun(*args, **kwargs)
        key = tuple(key)
        template = _templates.get(key)
        if template is None:
            if len(_templates) >= _CAPACITY:
                _templates.clear()
            _templates[key] = _ONCE
        if template is None or template is _NEVER:
            return fun(*args, **kwargs)
        where = state.source or source.capture(2, state.scope)
        if template is not _ONCE:
            return template.copy(trace, given, where)
        start, warned = len(trace.eqns), state.warned
        out = fun(*args, **kwargs)
        made = _template(trace.eqns[start:], given, out, where)
        _templates[key] = _NEVER if made is None or state.warned != warned else made
        return out
    return recording


# What says all of an argument that is no array. Zeros have signs, and NaN is not itself: those are told by their text.
_PLAIN = frozenset([int, bool, str, type(None), type(...)])


def _describe(args, trace: StagingTrace, key: list, given: dict[Var, int]) -> bool:
    """Add to `key` what decides about the equations, and to `given` the tracers' variables, numbered. False where more than can be said decides."""
    for arg in args:
        kind = type(arg)
        if kind is StagingTracer:
            if arg._trace is not trace:
                return False
            key += arg.aval, given.setdefault(arg.variable, len(given))
        elif kind in _PLAIN:
            key += kind, arg
        elif kind is float or kind is complex:
            key += kind, arg if arg and arg == arg and kind is float else repr(arg)
        elif isinstance(arg, (tuple, list)):
            key += kind, len(arg)
            if not _describe(arg, trace, key, given):
                return False
        elif isinstance(arg, np.generic):
            key += kind, arg.tobytes()
        elif isinstance(arg, (np.dtype, enum.Enum)):
            key += kind, arg
        else:
            return False
    return True


def _template(eqns: Sequence[JaxprEqn], given: dict[Var, int], out, where) -> _Template | None:
    """These equations to copy; None where they do something besides, came from elsewhere too, or hold programs or functions, which are
    of this call."""
    literals = list(dict.fromkeys([v for eqn in eqns for v in eqn.invars if type(v) is Literal]))
    number: dict[Any, int] = {v: i for i, v in enumerate([*literals, *given])}
    known, steps = len(number), []
    for eqn in eqns:
        operands = [number.get(v) for v in eqn.invars]
        if eqn.effects or not eqn.primitive.memoize or eqn.source != where or None in operands:
            return None
        steps.append((eqn.primitive, operands, [v.aval for v in eqn.outvars], eqn.params))
        for v in eqn.outvars:
            number[v] = len(number)
    leaves, tree = flatten(out)
    outputs = [number.get(leaf.variable, -1) if type(leaf) is StagingTracer else -1 for leaf in leaves]
    if any([i < known for i in outputs]):            # an argument handed on, or a value that is no result
        return None
    return _Template(literals, steps, tree, outputs)
