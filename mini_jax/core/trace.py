"""Traces and tracers: a trace is the meaning of operations while a function runs; a tracer is a value it follows."""
from __future__ import annotations

import operator
from typing import Any

import numpy as np

from mini_jax.core import dtypes, errors, source
from mini_jax.core.program import ProgramInfo
from mini_jax.core.state import state
from mini_jax.core.types import AbstractValue, array_type
from mini_jax.runtime import xla


class Trace:
    """One running transformation. `parent` is the meaning that operations have outside of it; `views`: refs from there that it shows as
    ones of its own."""
    __slots__ = ("parent", "info", "alive", "views")

    def __init__(self, parent: "Trace | None", info: ProgramInfo | None = None):
        self.parent, self.info, self.alive, self.views = parent, info, True, ()

    def process(self, primitive, args: tuple, params: dict):
        """Apply `primitive`. Arguments that are no tracers of this trace are its constants."""
        raise NotImplementedError

    def concrete(self, tracer) -> Any:
        """The value behind a tracer, or None when it is not known while tracing."""
        return None

    def end(self):
        """After this, a tracer of this trace is a leaked one."""
        self.alive = False


class Tracer:
    """A value that a trace follows. The NumPy operators and methods are set on this class by mini_jax.numpy."""
    __slots__ = ("_trace", "aval", "__weakref__")
    __array_priority__ = 1000
    __hash__ = None

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)
    itemsize = property(lambda self: self.aval.dtype.itemsize)
    nbytes = property(lambda self: self.aval.size * self.aval.dtype.itemsize)

    def __len__(self):
        return len(self.aval)

    def _known(self, error, *facts):
        """The concrete value behind this tracer; raises `error(type, *facts, whence)` where there is none yet."""
        if not self._trace.alive:
            raise leaked(self)
        value = self._trace.concrete(self)
        if value is None:
            raise error(str(self.aval), *facts, whence(self))
        return value

    def __bool__(self):
        return bool(self._known(errors.bool_conversion))

    def __int__(self):
        return int(self._known(errors.scalar_conversion, "int"))

    def __float__(self):
        return float(self._known(errors.scalar_conversion, "float"))

    def __complex__(self):
        return complex(self._known(errors.scalar_conversion, "complex"))

    def __index__(self):
        return operator.index(self._known(errors.integer_conversion))

    def __array__(self, *args, **kwargs):
        raise leaked(self) if not self._trace.alive else errors.array_conversion(str(self.aval), whence(self))

    def item(self, *args):
        return self._known(errors.scalar_conversion, "item").item(*args)

    def tolist(self):
        return self._known(errors.scalar_conversion, "tolist").tolist()

    def __repr__(self):
        return f"Tracer<{self.aval}> of {self._trace.info.transformation if self._trace.info else 'a trace'}"

    def __format__(self, spec):
        return format(self._known(errors.scalar_conversion, "format") if spec else repr(self), spec)

    def __reduce__(self):
        raise TypeError(f"{self!r} stands for a value that is not known yet and can't be pickled")

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def block_until_ready(self):
        return self

    def copy_to_host_async(self):
        pass

    # what a message may want to know; looked up only then
    def depends_on(self) -> tuple[str, ...]:
        """The paths of the arguments of the traced function that this value depends on, as far as the trace knows."""
        return ()

    def made_by(self) -> tuple[str | None, Any]:
        """The name of the operation that made it, and where, as `core.source` captured it."""
        return None, None


def whence(tracer: Tracer) -> errors.Whence:
    """Where a tracer comes from, in words."""
    info = tracer._trace.info
    operation, where = tracer.made_by()
    if operation is None and where is not None:
        operation = "an operation"
    return errors.Whence(info.transformation if info else None, info.name if info else None, info.location if info else None,
                         tracer.depends_on(), operation, None if where is None else source.describe(where))


def known_int(value, function: str, argument: str) -> int:
    """An int on which the shape of a result depends. ConcretizationTypeError, naming function and argument, where it is traced; TypeError for
    what is no int."""
    try:
        return operator.index(value)
    except errors.TracerIntegerConversionError:
        raise errors.shape_depends_on_value(function, argument, whence(value)) from None


def leaked(tracer: Tracer) -> errors.UnexpectedTracerError:
    """The error for a tracer met outside of the function call that it belongs to."""
    if tracer._trace.alive:
        return errors.concretization(str(tracer.aval), whence(tracer))
    return errors.leaked(str(tracer.aval), whence(tracer))


class EvalTrace(Trace):
    """The outermost meaning: run it now."""
    __slots__ = ()

    def process(self, primitive, args, params):
        impl = primitive.impl
        if impl is None:
            impl = primitive.impl = make_dispatcher(primitive, tuple(params) or primitive.facts.get("parameters", ()))
        return impl(*args, **params)


def make_dispatcher(primitive, parameters: tuple[str, ...]):
    """Set by mini_jax.runtime.dispatch: a primitive's own compiled programs behind a C++ dispatcher."""
    raise RuntimeError("mini_jax.runtime.dispatch is not loaded")


eval_trace = EvalTrace(None)
type(state).trace = eval_trace
xla.set_tracer_class(Tracer)


# --- types of values ---------------------------------------------------------------------------------------------------

def typeof(value) -> AbstractValue:
    """The type of a value: an array, tracer, NumPy array or Python scalar. TypeError for anything else."""
    rule = _type_rules.get(type(value))
    if rule is not None:
        return rule(value)
    for cls, rule in tuple(_type_rules.items()):
        if isinstance(value, cls):
            _type_rules[type(value)] = rule
            return rule(value)
    convert = getattr(value, "__jax_array__", None)
    if convert is not None:
        return typeof(convert())
    raise TypeError(f"{value!r:.200} of type {type(value).__name__} is not an array or a number")


def _numpy_type(value):
    if value.dtype.kind in "OSUMmV" and value.dtype != dtypes.float0 and value.dtype not in dtypes.all_dtypes:
        raise TypeError(f"NumPy arrays of dtype {value.dtype} are not values of array programs")
    return array_type(value.shape, dtypes.canonicalize(value.dtype))


def _int_type(value):
    dtypes.check_scalar_range(value)
    return array_type((), dtypes.default_int(), True)


_by_aval = operator.attrgetter("aval")
_type_rules: dict[type, Any] = {
    Tracer: _by_aval,
    xla.ArrayImpl: _by_aval,
    np.ndarray: _numpy_type,
    np.generic: _numpy_type,
    bool: lambda value: array_type((), dtypes.bool_),
    int: _int_type,
    float: lambda value: array_type((), dtypes.canonicalize(dtypes.float64), True),
    complex: lambda value: array_type((), dtypes.canonicalize(dtypes.complex128), True),
}


def register_type(cls: type, rule) -> None:
    """Values of class `cls` are values of programs; `rule(value)` is their type."""
    _type_rules[cls] = rule


def is_value(value) -> bool:
    """Is it something that `typeof` knows?"""
    return type(value) in _type_rules or isinstance(value, tuple(_type_rules)) or hasattr(value, "__jax_array__")
