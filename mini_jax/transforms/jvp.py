"""Forward mode: pushing tangents along with the primal values (Wengert 1964; the jvp rules of the primitives)."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from mini_jax.core import source
from mini_jax.core.linear import Zero, zero_like
from mini_jax.core.program import Jaxpr, ProgramInfo, Var, memoized, subprograms
from mini_jax.core.refs import ABSENT, LIVE, Cell, addupdate_p, described, in_transformation, is_ref, makes_refs, replace, set_p, shown, whole
from mini_jax.core.staging import StagingTracer, StagingTrace, eval_jaxpr, stage
from mini_jax.core.state import current_trace, state
from mini_jax.core.trace import Trace, Tracer, typeof
from mini_jax.core.types import ShapedArray
from mini_jax.lax import shapes
from mini_jax.lax.collectives import pvary_p


class JVPTracer(Tracer):
    """A primal value with its tangent, both values of the parent trace."""
    __slots__ = ("primal", "tangent", "_source")

    def __init__(self, trace, primal, tangent, where=None):
        self._trace, self.primal, self.tangent, self._source = trace, primal, tangent, where
        self.aval = typeof(primal)

    def made_by(self):
        return (None, self._source) if self._source is not None else _asked(self, "made_by", (None, None))

    def depends_on(self):
        return _asked(self, "depends_on", ())


def _asked(tracer: JVPTracer, question: str, otherwise):
    """The tangent of a linearization was recorded, so it knows where it comes from; a primal may."""
    for part in (tracer.tangent, tracer.primal):
        if isinstance(part, Tracer):
            return getattr(part, question)()
    return otherwise


class DifferentiatedRef(Cell):
    """A ref from outside that a function is differentiated with respect to: the ref, and beside it what holds its tangent."""
    __slots__ = ("outer", "dot")
    made_here = False

    def __init__(self, trace, outer, dot):
        """dot: a ref of tangents, or the tangent as it is at first."""
        self._trace, self.outer, self.dot = trace, outer, dot
        shown(trace, outer)
        self.aval, self.created, self.status = typeof(outer), outer.created, LIVE

    def load(self):
        with current_trace(self._trace.parent):
            primal = whole(self.outer)
            tangent = whole(self.dot) if is_ref(self.dot) else self.dot
        return primal if type(tangent) is Zero else JVPTracer(self._trace, primal, tangent)

    def store(self, value) -> None:
        primal, tangent = self._trace.split(value)
        with current_trace(self._trace.parent):
            replace(self.outer, primal)
            if not is_ref(self.dot):
                self.dot = tangent
            else:
                replace(self.dot, zero_value(tangent.aval) if type(tangent) is Zero else tangent)


def zero_value(aval: ShapedArray):
    """An array of zeros of this type."""
    zero = np.zeros((), aval.dtype)[()]
    return shapes.broadcast_in_dim(zero, aval.shape, ()) if aval.shape else zero


class LinearTrace(StagingTrace):
    """Records operations on its own tracers only, all of them linear, as a program; anything else is its parent's business.

    Values of the parent that enter the linear program are its constants: the residuals.
    """
    __slots__ = ()

    def process(self, primitive, args, params):
        if primitive.effects_rule is not None and (found := in_transformation(self, primitive, args, params)) is not ABSENT:
            return found
        for arg in args:
            if type(arg) is StagingTracer and arg._trace is self:
                break
        else:
            return self.parent.process(primitive, args, params)
        if primitive.memoize:                            # it holds no programs
            return self.record(primitive, args, params)
        if "discharge" in primitive.facts and any([makes_refs(program) for _, program in subprograms(params)]):
            with current_trace(self):
                return primitive.facts["discharge"](self, args, params)
        if "split" in primitive.facts:                   # loops and branches: what doesn't depend on our tracers is not recorded
            return primitive.facts["split"](self, args, [type(a) is StagingTracer and a._trace is self for a in args], params)
        if primitive.facts.get("call"):
            linear = tuple([type(a) is StagingTracer and a._trace is self for a in args])
            if not all_linear(params["jaxpr"], linear):          # a user's jvp rule called a jitted function of primals and tangents
                with current_trace(self):
                    return eval_jaxpr(params["jaxpr"], (), *args)
        return super().process(primitive, args, params)

    def check_write(self, ref, value) -> None:
        """Raise ValueError for a tracer of this trace written to a ref from outside."""
        if type(value) is StagingTracer and value._trace is self:
            raise DifferentiatedWriteError(ref)


class DifferentiatedWriteError(ValueError):
    """A value that is being differentiated was written to a ref from outside of the differentiated function."""

    def __init__(self, ref):
        self.type = typeof(ref)
        super().__init__(f"a value that is being differentiated was written to {described(ref)}, which is not: its derivative would be lost. "
                         "Write stop_gradient(value), make the ref inside of the differentiated function, or differentiate with respect to it: "
                         "pass it as an argument to vjp, and give with_refs a ref for its gradient")

    def known(self, args: Sequence) -> "DifferentiatedWriteError":
        """The same error of an operation on `args` in whose program it came up, where only the ref's type is known."""
        return next((DifferentiatedWriteError(arg) for arg in args if is_ref(arg) and typeof(arg) is self.type), self)


@memoized
def all_linear(jaxpr: Jaxpr, linear: tuple[bool, ...]) -> bool:
    """Does every equation, and every result, of a program depend on its inputs marked linear?"""
    live = {v for v, is_linear in zip(jaxpr.invars, linear) if is_linear}
    for eqn in jaxpr.eqns:
        inputs = tuple([type(v) is Var and v in live for v in eqn.invars])
        if not any(inputs) or eqn.primitive.facts.get("call") and not all_linear(eqn.params["jaxpr"], inputs):
            return False
        live.update(eqn.outvars)
    return all(type(v) is Var and v in live for v in jaxpr.outvars)


class JVPTrace(Trace):
    """Every operation on its tracers becomes the operation and its jvp rule, in the parent trace.

    Over a LinearTrace this is linearization: tangents are that trace's tracers, and what the rules do to them is recorded.
    """
    __slots__ = ()

    def process(self, primitive, args, params):
        if primitive.effects_rule is not None and (found := in_transformation(self, primitive, args, params)) is not ABSENT:
            return found
        primals, tangents, live = [], [], 0
        for arg in args:
            if type(arg) is JVPTracer and arg._trace is self:
                primals.append(arg.primal)
                tangents.append(arg.tangent)
                live += 1
            else:
                primals.append(arg)
                tangents.append(None)
        parent = self.parent
        if not live:
            return parent.process(primitive, args, params)
        if primitive is set_p or primitive is addupdate_p:
            raise DifferentiatedWriteError(args[0])
        saved, saved_source = state.trace, state.source
        where = saved_source or source.capture(2, state.scope)
        state.trace = parent
        try:
            if primitive.linearize is not None and type(parent) is LinearTrace:
                outs, nonzero, linear = primitive.linearize(primals, [t is not None for t in tangents], **params)
                outs_dot = iter(linear(*[t for t in tangents if t is not None]))
                return [JVPTracer(self, y, _varied(next(outs_dot), y) if state.axes else next(outs_dot)) if live else y
                        for y, live in zip(outs, nonzero)]
            if primitive.jvp is None:
                raise NotImplementedError(f"the derivative of {primitive.name} is not defined; custom_jvp or custom_vjp can define one "
                                          "for the function around it, stop_gradient leaves it out")
            if live < len(args):
                tangents = [zero_like(p) if t is None else t for p, t in zip(primals, tangents)]
            if primitive.memoize:                       # it holds no function of the user's: all that its rule does is of one line
                state.source = where
            out, out_dot = primitive.jvp(primals, tangents, **params)
            if state.axes and type(parent) is LinearTrace:
                out_dot = [_varied(t, y) for t, y in zip(out_dot, out)] if primitive.multiple_results else _varied(out_dot, out)
        except DifferentiatedWriteError as error:
            raise error.known(args) from None
        finally:
            state.trace, state.source = saved, saved_source
        if primitive.multiple_results:
            return [y if type(t) is Zero else JVPTracer(self, y, t) for y, t in zip(out, out_dot)]
        return out if type(out_dot) is Zero else JVPTracer(self, out, out_dot, where)

    def check_write(self, ref, value) -> None:
        """Raise ValueError for a value with a tangent written to a ref from outside."""
        if type(value) is JVPTracer and value._trace is self:
            raise DifferentiatedWriteError(ref)

    def concrete(self, tracer):
        primal = tracer.primal
        return primal._trace.concrete(primal) if isinstance(primal, Tracer) else primal

    def split(self, value) -> tuple[Any, Any]:
        """A result of the function as its primal value and its tangent (a Zero where it does not depend on the inputs)."""
        if type(value) is JVPTracer and value._trace is self:
            return value.primal, value.tangent
        return value, zero_like(value)


def _varied(tangent, primal):
    """A tangent that a linear program records, varying along the named axes along which the value does: what a rule handed on as it is, as
    that of b in x + b, was broadcast, and its cotangent is to be summed."""
    varying = typeof(primal).varying
    if not varying or type(tangent) is Zero or varying <= typeof(tangent).varying:
        return tangent
    missing = varying - typeof(tangent).varying
    return pvary_p.bind(tangent, axes=tuple([name for name in state.axes if name in missing]))


def jvp_flat(fun: Callable, primals: Sequence, tangents: Sequence, info: ProgramInfo | None = None) -> tuple[list, list]:
    """(fun(*primals), its derivative at primals applied to tangents); tangents may be Zeros, in and out."""
    trace = JVPTrace(state.trace, info)
    try:
        with current_trace(trace):
            outs = fun(*[p if type(t) is Zero else DifferentiatedRef(trace, p, t) if is_ref(p) else JVPTracer(trace, p, t)
                         for p, t in zip(primals, tangents)])
        pairs = [trace.split(out) for out in outs]
    finally:
        trace.end()
    return [p for p, _ in pairs], [t for _, t in pairs]


@memoized
def jvp_jaxpr(jaxpr: Jaxpr, nonzero: tuple[bool, ...]) -> tuple[Jaxpr, list, tuple[bool, ...]]:
    """The program (primals, tangents of the inputs marked nonzero) -> (outputs, their tangents that are not Zero).

    Returns it with the values of its leading inputs (constants that rules brought in) and which output tangents it has.
    """
    count, out_nonzero = len(jaxpr.invars), ()

    def fun(*args):
        nonlocal out_nonzero
        given = iter(args[count:])
        tangents = [next(given) if live else Zero(t.tangent()) for live, t in zip(nonzero, jaxpr.in_types)]
        outs, outs_dot = jvp_flat(lambda *xs: eval_jaxpr(jaxpr, (), *xs), args[:count], tangents)
        out_nonzero = tuple([type(t) is not Zero for t in outs_dot])
        return [*outs, *[t for t in outs_dot if type(t) is not Zero]]

    tangent_types = [t.tangent() for t, live in zip(jaxpr.in_types, nonzero) if live]
    program, consts = stage(fun, [*jaxpr.in_types, *tangent_types], jaxpr.info)
    return program.hoisted(), consts, out_nonzero


def jvp_call(primitive, primals: Sequence, tangents: Sequence, jaxpr: Jaxpr, params: dict) -> tuple[list, list]:
    """The jvp rule of a primitive that calls a program: it calls the program of values and tangents."""
    program, consts, out_nonzero = jvp_jaxpr(jaxpr, tuple([type(t) is not Zero for t in tangents]))
    results = primitive.bind(*consts, *primals, *[t for t in tangents if type(t) is not Zero], jaxpr=program, **params)
    outs, outs_dot = results[:len(jaxpr.outvars)], iter(results[len(jaxpr.outvars):])
    return outs, [next(outs_dot) if live else Zero(t.tangent()) for live, t in zip(out_nonzero, jaxpr.out_types)]
