"""Refs: arrays that programs read and write in place. Their type, what programs do to them, and how they are discharged.

A ref stands in a program as a variable of type `Ref{f32[3]}`. Where operations run at once it is an object that owns an array
(runtime/refs.py); while a program is recorded, a tracer. Every other transformation holds the value of a ref made inside of it in a
`Cell`, on which reads and writes are ordinary operations on that value: it is discharged on the fly, and no rule for derivatives or
batching needs to know of refs. `discharged` does the same to a whole program: refs among its inputs become values, what they hold at
the end becomes further results.

A primitive that takes refs, or holds programs that do, says how it is discharged by the fact "discharge":
    rule(trace, args, params) -> results       args: refs among them are read by `load`, written by `store`
"""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

from mini_jax.core import source
from mini_jax.core.effects import RefEffect
from mini_jax.core.errors import ref_operand
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import NO_EFFECTS, Jaxpr, any_in, memoized, primitives_in, subprograms
from mini_jax.core.staging import StagingTrace, StagingTracer, _tracer_classes, eval_jaxpr
from mini_jax.core.state import current_trace, staging, state
from mini_jax.core.trace import Trace, Tracer, eval_trace, typeof
from mini_jax.core.types import RefType, ref_type

# --- the objects ---------------------------------------------------------------------------------------------------------------

LIVE, FROZEN = "live", "frozen"


class RefLike:
    """What a user holds: the object that owns an array, or what stands for one in a transformation.

    created: where, as `core.source` captured it; status: LIVE, FROZEN, or why it can't be used any more.
    numpy/refs.py sets the methods of indexing on this class.
    """
    __slots__ = ()
    __hash__ = object.__hash__
    __array__ = None

    def check_live(self) -> None:
        """Raise RuntimeError for a ref that has been frozen or lost."""
        if self.status is not LIVE:
            why = "is frozen: freeze gave its last value as an array, which is now all there is" if self.status is FROZEN else self.status
            raise RuntimeError(f"{described(self)} {why}")


def described(ref) -> str:
    """A ref in words, for messages."""
    return f"the ref of type {typeof(ref)} created at {source.describe(ref.created)}"


def is_ref(value) -> bool:
    return isinstance(value, RefLike)


def refuse_refs(operation: str, values: Sequence) -> None:
    """Raise RefOperandError for a ref among the arguments of what takes arrays."""
    for value in values:
        if isinstance(value, RefLike) and not (isinstance(value, Tracer) and not value._trace.alive):
            raise ref_operand(operation.lstrip("_"), str(typeof(value)), source.describe(value.created))


class StagedRef(RefLike, StagingTracer):
    """A ref in a program that is being recorded."""
    __slots__ = ("created", "status", "made_here")

    def __init__(self, trace, aval, var):
        super().__init__(trace, aval, var)
        self.status, self.made_here = LIVE, not (trace.invars and trace.invars[-1] is var)
        given = None if self.made_here or trace.info is None else trace.info.refs.get(len(trace.invars) - 1)
        self.created = given or state.source or source.capture(3)


_tracer_classes[RefType] = StagedRef


class Cell(RefLike, Tracer):
    """A ref made inside of a transformation that records nothing: a place that holds a value of that transformation."""
    __slots__ = ("value", "created", "status")
    made_here = True

    def __init__(self, trace, value):
        self._trace, self.value, self.aval = trace, value, ref_type(typeof(value))
        self.created, self.status = state.source or source.capture(3), LIVE

    def load(self):
        return self.value

    def store(self, value) -> None:
        self.value = value


class View(Cell):
    """A ref from outside of a transformation, as that one sees it: with values of type `inner`, which `read` makes of those of the outer ref and
    `write` makes into them."""
    __slots__ = ("outer", "read", "write")
    made_here = False

    def __init__(self, trace, outer, inner, read: Callable[[Any], Any], write: Callable[[Any], Any]):
        self._trace, self.outer, self.read, self.write = trace, outer, read, write
        shown(trace, outer)
        self.aval, self.created, self.status = ref_type(inner), getattr(outer, "created", None), LIVE

    def load(self):
        with current_trace(self._trace.parent):
            return self.read(whole(self.outer))

    def store(self, value) -> None:
        with current_trace(self._trace.parent):
            replace(self.outer, self.write(value))


def shown(trace: Trace, outer) -> None:
    """Note that a transformation shows a ref from outside as one of its own. ValueError where it does so already."""
    if any([outer is other for other in trace.views]):
        raise aliased(trace, outer, "given to it twice")
    trace.views += (outer,)


def aliased(trace: Trace, ref, how: str) -> ValueError:
    """A ref reached a function by two ways."""
    what = "a transformed function" if trace.info is None else f"{trace.info.transformation} of {trace.info.name}"
    return ValueError(f"{what}: {described(ref)} is {how}: what is written to one would not be known to the other. Pass it once, and use the argument only")


# --- the words ------------------------------------------------------------------------------------------------------------------

def _uses(kind: str) -> frozenset:
    return frozenset([RefEffect(kind, 0)])


_FACTS = {"family": "refs", "named_axes": True}
new_ref_p = Primitive("new_ref", type_rule=ref_type, effects_rule=lambda types, params: NO_EFFECTS, memoize=False, facts=dict(_FACTS))
get_p = Primitive("get", effects_rule=lambda types, params: _uses("read"), facts=dict(_FACTS))
set_p = Primitive("set", multiple_results=True, effects_rule=lambda types, params: _uses("write"), facts=dict(_FACTS))
addupdate_p = Primitive("addupdate", multiple_results=True, effects_rule=lambda types, params: _uses("accumulate"), facts=dict(_FACTS))
freeze_p = Primitive("freeze", type_rule=lambda t: t.inner, effects_rule=lambda types, params: _uses("write"), facts=dict(_FACTS))

WHOLE = ()                                           # the structure of the index `...`


def whole(ref):
    """The value of a ref."""
    return get_p.bind(ref, structure=WHOLE)


def replace(ref, value) -> None:
    """Write the value of a ref."""
    set_p.bind(ref, value, structure=WHOLE)


# --- in a transformation ----------------------------------------------------------------------------------------------------------

def load(trace: Trace, ref):
    """The value of a ref, in a trace that discharges: what a cell of its own holds; another ref is read outside."""
    if isinstance(ref, Cell) and ref._trace is trace:
        return ref.load()
    if trace is eval_trace:
        ref.check_live()
        return ref.array
    with current_trace(trace.parent):
        return whole(ref)


def store(trace: Trace, ref, value) -> None:
    """Write the value of a ref, in a trace that discharges."""
    if isinstance(ref, Cell) and ref._trace is trace:
        ref.store(value)
        return
    if trace is eval_trace:
        ref.update(lambda _: value)
        return
    trace.check_write(ref, value)
    with current_trace(trace.parent):
        replace(ref, value)


ABSENT = object()


def in_transformation(trace: Trace, primitive, args: Sequence, params: dict):
    """What an operation means in a trace that discharges refs; ABSENT where the trace's own rules say it."""
    if primitive is new_ref_p:
        return Cell(trace, args[0])
    if trace.views:
        for arg in args:
            if any([arg is outer for outer in trace.views]):
                raise aliased(trace, arg, "an argument of it and captured by it")
    for arg in args:
        if isinstance(arg, Cell) and arg._trace is trace:
            break
    else:
        return ABSENT
    rule = primitive.facts.get("discharge")
    if rule is None:
        raise TypeError(f"{primitive.name} can't be given {described(next(a for a in args if is_ref(a)))}: read it with ref[...]")
    with current_trace(trace):
        return rule(trace, args, params)


# --- whole programs ----------------------------------------------------------------------------------------------------------------

class Discharged(NamedTuple):
    """A program without refs: (values of the refs among its inputs, other inputs) -> (results, values of the refs that it writes).

    written: which inputs these are.
    """
    jaxpr: Jaxpr
    written: tuple[int, ...]


class DischargeTrace(StagingTrace):
    """Records a program as one without refs."""
    __slots__ = ()

    def process(self, primitive, args, params):
        if primitive is new_ref_p:
            return Cell(self, args[0])
        if primitive.effects_rule is not None and "discharge" in primitive.facts and (
                any([isinstance(a, Cell) for a in args]) or any([uses_refs(p) for _, p in subprograms(params)])):
            return primitive.facts["discharge"](self, args, params)
        return super().process(primitive, args, params)


@memoized
def uses_refs(jaxpr: Jaxpr) -> bool:
    """Are there refs anywhere in a program?"""
    return (any([type(t) is RefType for t in jaxpr.in_types]) or any([p.facts.get("family") == "refs" for p in primitives_in(jaxpr)])
            or any_in(uses_refs, jaxpr))


@memoized
def makes_refs(jaxpr: Jaxpr) -> bool:
    """Are refs made anywhere in a program?"""
    return new_ref_p in primitives_in(jaxpr) or any_in(makes_refs, jaxpr)


@memoized
def discharged(jaxpr: Jaxpr) -> Discharged:
    """A program as one without refs."""
    if not uses_refs(jaxpr):
        return Discharged(jaxpr, ())
    jaxpr = jaxpr.hoisted()
    trace = DischargeTrace(jaxpr.info, state.trace)
    try:
        with current_trace(trace), staging(True):
            inputs = [trace.new_input(t.inner if type(t) is RefType else t) for t in jaxpr.in_types]
            given = [Cell(trace, x) if type(t) is RefType else x for x, t in zip(inputs, jaxpr.in_types)]
            outs = eval_jaxpr(jaxpr, (), *given)
            written = tuple([i for i, v in enumerate(jaxpr.invars) if v in _written(jaxpr)])
            program, consts = trace.program([*outs, *[given[i].value for i in written]])
    finally:
        trace.end()
    assert not consts, "a closed program has no constants"
    return Discharged(program, written)


def without_refs(jaxpr: Jaxpr) -> Jaxpr:
    """A program that takes no refs, without those that it makes."""
    pure, count = discharged(jaxpr).jaxpr, len(jaxpr.constvars)
    return pure.replace(constvars=pure.invars[:count], invars=pure.invars[count:])


@memoized
def _written(jaxpr: Jaxpr) -> frozenset:
    """The inputs, refs, that a program writes."""
    return frozenset([effect.ref for effect in jaxpr.effects if type(effect) is RefEffect and effect.kind != "read"])


def discharge_call(primitive, name: str = "jaxpr", written_out: bool = False) -> Callable:
    """The discharge rule of a primitive that calls a program, its parameter `name`, on all of its arguments.

    written_out: given refs, the program stands in place of the call (one with a rule of the user's, which does not apply then)."""
    def rule(trace: Trace, args: Sequence, params: dict):
        jaxpr = params[name]
        if written_out and any(map(is_ref, args)):
            return eval_jaxpr(jaxpr, (), *args)
        pure = discharged(jaxpr)
        values = [load(trace, a) if is_ref(a) else a for a in args]
        outs = primitive.bind(*values, **{**params, name: pure.jaxpr})
        count = len(jaxpr.outvars)
        for i, value in zip(pure.written, outs[count:]):
            store(trace, args[i], value)
        return outs[:count]
    return rule
