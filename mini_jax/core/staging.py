"""Staging: running a function on tracers and recording what it does as a program."""
from __future__ import annotations

import gc
import time
import weakref
from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import config, logs, printing, source         # noqa: F401  (printing: programs print themselves)
from mini_jax.core.effects import RefEffect, of_equation
from mini_jax.core.errors import RefOperandError, ref_operand
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Literal, ProgramInfo, Var, memoized
from mini_jax.core.state import current_trace, staging, state
from mini_jax.core.trace import Trace, Tracer, eval_trace, leaked, typeof
from mini_jax.core.types import AbstractValue, ShapedArray
from mini_jax.runtime.xla import ArrayImpl


class StagingTracer(Tracer):
    """A value of the program that is being recorded."""
    __slots__ = ("variable",)              # not "var", which is a method of arrays

    def __init__(self, trace, aval, var):
        self._trace, self.aval, self.variable = trace, aval, var

    def made_by(self):
        for eqn in reversed(self._trace.eqns):
            if self.variable in eqn.outvars:
                return eqn.primitive.name, eqn.source
        return None, None

    def depends_on(self):
        info, live = self._trace.info, {self.variable}
        for eqn in reversed(self._trace.eqns):
            if not live.isdisjoint(eqn.outvars):
                live.update(v for v in eqn.invars if type(v) is Var)
        paths = [info.path(i) for i, v in enumerate(self._trace.invars) if v in live] if info is not None else []
        return tuple([path for path in paths if path is not None])


_scalars = (bool, int, float, complex, np.generic)
_scalar_types = frozenset([bool, int, float, complex, np.bool_, np.float16, np.float32, np.float64, np.int8, np.int16, np.int32,
                           np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.complex64, np.complex128])


class StagingTrace(Trace):
    """Records every operation as an equation. Foreign values become the program's constants, scalars its literals."""
    __slots__ = ("eqns", "invars", "constvars", "consts", "_captured", "effects", "superseded")

    def __init__(self, info: ProgramInfo | None = None, parent: Trace | None = None):
        super().__init__(parent, info)
        self.eqns: list[JaxprEqn] = []
        self.invars: list[Var] = []
        self.constvars: list[Var] = []
        self.consts: list[Any] = []
        self._captured: dict[int, Var] = {}
        self.effects: frozenset = NO_EFFECTS
        self.superseded: list[JaxprEqn] = []         # additions that the refs' `ref[i] += v` has made part of itself

    def new_input(self, aval: AbstractValue) -> StagingTracer:
        var = Var(aval)
        self.invars.append(var)
        return tracer_of(self, aval, var)

    def process(self, primitive, args, params):
        if primitive.stage is not None:
            return primitive.stage(self, args, params)
        return self.record(primitive, args, params)

    def record(self, primitive, args, params):
        """Append an equation and return tracers of its results."""
        invars, types = [], []
        for a in args:
            v = a.variable if type(a) is StagingTracer and a._trace is self else self.atom(a)
            invars.append(v)
            types.append(v.aval)
        types = tuple(types)
        try:
            out = primitive.types(types, params)
        except RefOperandError as error:
            at = error.position
            created = getattr(args[at], "created", None) if at is not None and at < len(args) else None
            raise error if created is None else ref_operand(primitive.name, str(types[at]), source.describe(created), at) from None
        effects = NO_EFFECTS
        if primitive.effects_rule is not None:
            effects = primitive.effects_rule(types, params)
            if effects:
                effects = of_equation(effects, invars)
                self.effects |= effects
        where = state.source
        if where is None:
            where = source.capture(3, state.scope)
        if primitive.multiple_results:
            outvars = [Var(aval) for aval in out]
            self.eqns.append(JaxprEqn(primitive, invars, outvars, params, effects, where))
            return [StagingTracer(self, var.aval, var) for var in outvars]
        var = Var(out)
        self.eqns.append(JaxprEqn(primitive, invars, [var], params, effects, where))
        return StagingTracer(self, out, var) if type(out) is ShapedArray else tracer_of(self, out, var)

    def atom(self, value):
        """The variable or literal by which the program refers to a value."""
        if type(value) is StagingTracer and value._trace is self:
            return value.variable
        if type(value) in _scalar_types or isinstance(value, _scalars):
            return Literal(value, typeof(value))
        var = self._captured.get(id(value))
        if var is None:
            kept = value
            if type(value) is ArrayImpl:
                pass                                     # the usual case, found out first
            elif isinstance(value, Tracer):
                if isinstance(value, StagingTracer) and value._trace is self:        # a ref of this program
                    return value.variable
                if not value._trace.alive:
                    raise leaked(value)
            elif isinstance(value, np.ndarray):
                if value.ndim == 0 and value.dtype.kind in "biufc":
                    return Literal(value[()], typeof(value))
                value = capture_numpy(value)             # a snapshot: later writes to it must not show
            elif hasattr(value, "__jax_array__"):
                return self.atom(value.__jax_array__())
            var = Var(typeof(kept))                      # float0, of which the snapshot is bool, too
            self._captured[id(kept)] = var
            self.constvars.append(var)
            self.consts.append(value)
            if kept is not value:
                _keep_alive(self, kept)
        return var

    def program(self, outputs: Sequence) -> tuple[Jaxpr, list]:
        """The program recorded so far that returns `outputs`, and the values of its constants."""
        outvars = [self.atom(out) for out in outputs]
        effects = self.effects
        if self.superseded:
            self._drop_superseded(outvars)
            effects = NO_EFFECTS.union(*[eqn.effects for eqn in self.eqns])
        if any([type(e) is RefEffect for e in effects]):         # what is done to refs made inside is nobody's business
            inputs = {*self.constvars, *self.invars}
            effects = frozenset([e for e in effects if type(e) is not RefEffect or e.ref in inputs])
        return Jaxpr(self.constvars, self.invars, self.eqns, outvars, effects, self.info), self.consts


    def _drop_superseded(self, outvars: Sequence) -> None:
        """Remove those additions that nothing else reads, and the reads that only they needed."""
        reads: dict = {}
        for atom in [*outvars, *[v for eqn in self.eqns for v in eqn.invars]]:
            if type(atom) is Var:
                reads[atom] = reads.get(atom, 0) + 1
        made = {v: eqn for eqn in self.eqns for v in eqn.outvars}
        dropped = set()
        for eqn in self.superseded:
            if not reads.get(eqn.outvars[0]):
                dropped.add(id(eqn))
                read = eqn.invars[0]
                reads[read] -= 1
                if not reads[read]:
                    dropped.add(id(made[read]))
        self.superseded.clear()
        self.eqns = [eqn for eqn in self.eqns if id(eqn) not in dropped]


def tracer_of(trace: StagingTrace, aval: AbstractValue, var: Var) -> StagingTracer:
    """The tracer of a variable."""
    return _tracer_classes.get(type(aval), StagingTracer)(trace, aval, var)


_tracer_classes: dict[type, type] = {}               # of values that are no arrays: core.refs adds refs


def _keep_alive(trace, value):
    """An id in _captured must not be given to another object while the trace lives."""
    trace._captured[("alive", id(value))] = value


def capture_numpy(value: np.ndarray):
    """Set by mini_jax.runtime: the array on the default device that has this value now."""
    return value.copy()


def stage(fun: Callable, in_types: Sequence[AbstractValue], info: ProgramInfo | None = None) -> tuple[Jaxpr, list]:
    """The program that `fun` (flat values -> flat list of values) is on inputs of these types, and its constants' values."""
    watched, start = _watch_leaks.value, time.perf_counter()
    trace = (_WatchedTrace if watched else StagingTrace)(info, state.trace)
    try:
        with current_trace(trace), staging(True):
            outputs = fun(*[trace.new_input(aval) for aval in in_types])
            program = trace.program(outputs)
    finally:
        trace.end()
    if watched:
        del outputs
        trace.raise_if_leaked()
    if logs.compiles.value:
        program[0].memo[logs.TRACE_SECONDS] = time.perf_counter() - start
    return program


_watch_leaks = config.check_tracer_leaks


class _WatchedTrace(StagingTrace):
    """For the option check_tracer_leaks: knows its tracers, and raises when one of them is still there after the end."""
    __slots__ = ("made",)

    def __init__(self, info, parent):
        super().__init__(info, parent)
        self.made: list[weakref.ref] = []

    def new_input(self, aval):
        tracer = super().new_input(aval)
        self.made.append(weakref.ref(tracer))
        return tracer

    def record(self, primitive, args, params):
        out = super().record(primitive, args, params)
        self.made += map(weakref.ref, out if primitive.multiple_results else [out])
        return out

    def raise_if_leaked(self) -> None:
        """UnexpectedTracerError for a tracer that something outside of the traced function still holds."""
        if any([ref() is not None for ref in self.made]):
            gc.collect()                             # what only a cycle holds is on its way out
        for ref in self.made:
            tracer = ref()
            if tracer is not None:
                raise leaked(tracer)


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence, *args) -> list:
    """Run a program: bind its equations in order, in the current trace, and return its outputs."""
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, consts))
    env.update(zip(jaxpr.invars, args, strict=True))
    trace = state.trace
    saved = state.source
    try:
        for eqn in jaxpr.eqns:
            state.source = eqn.source
            values = tuple([v.val if type(v) is Literal else env[v] for v in eqn.invars])
            out = trace.process(eqn.primitive, values, eqn.params)
            if eqn.primitive.multiple_results:
                env.update(zip(eqn.outvars, out))
            else:
                env[eqn.outvars[0]] = out
    finally:
        state.source = saved
    return [v.val if type(v) is Literal else env[v] for v in jaxpr.outvars]


def for_types(jaxpr: Jaxpr, types: Sequence[AbstractValue]) -> Jaxpr:
    """The program for inputs that may vary over more named axes than those that it was recorded for; else itself.

    A cotangent, say, can vary along more axes than the value that it belongs to.
    """
    more = [have.varying - want.varying if have is not want and type(have) is type(want) is ShapedArray else NO_EFFECTS
            for have, want in zip(types, jaxpr.in_types, strict=True)]
    return _varying(jaxpr, tuple(more)) if any(more) else jaxpr


@memoized
def _varying(jaxpr: Jaxpr, more: tuple) -> Jaxpr:
    types = [t.update(varying=t.varying | axes) if axes else t for t, axes in zip(jaxpr.in_types, more)]
    return stage(lambda *xs: eval_jaxpr(jaxpr, (), *xs), types, jaxpr.info)[0]


def settled(jaxpr: Jaxpr, types: Sequence[AbstractValue], carried: slice) -> list[AbstractValue]:
    """The types of the results of a program that is run again and again for inputs of such types, its first results being its inputs
    `carried` the next time: what varies along a named axis after any time. What it was recorded for as varying does."""
    types = [have.update(varying=have.varying | want.varying) if type(have) is type(want) is ShapedArray else have
             for have, want in zip(types, jaxpr.in_types, strict=True)]
    while True:
        outs = for_types(jaxpr, types).out_types
        grown = [have if type(have) is not ShapedArray or out.varying <= have.varying else have.update(varying=have.varying | out.varying)
                 for have, out in zip(types[carried], outs)]
        if all([new is old for new, old in zip(grown, types[carried])]):
            return [*[out.update(varying=have.varying) if type(out) is ShapedArray else out for out, have in zip(outs, grown)], *outs[len(grown):]]
        types[carried] = grown


def without_staging():
    """A context in which operations run now, whatever is being recorded around it (`ensure_compile_time_eval`)."""
    from contextlib import ExitStack
    stack = ExitStack()
    stack.enter_context(current_trace(eval_trace))
    stack.enter_context(staging(None))
    return stack
