"""Programs that call Python: pure_callback, io_callback, and the primitives of these and of debug.callback.

    pure_callback_p    arrays -> results; a function of its arguments, which may be called more or less often than written
    io_callback_p      arrays -> results; called once for each time that the program comes to it
    debug_callback_p   arrays -> nothing; likewise, and derivatives leave it where it is

Eagerly the function is simply called. A compiled program calls it through a `HostFunction`. Under vmap most calls become one
call of a function that goes through the examples (`OfBatch`).
"""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from lowering.emit import lowers
from lowering.shards import ON_EACH, called_where
from lowering.ordering import TURN
from mini_jax.core import config, dtypes, source
from mini_jax.core.effects import HostEffect
from mini_jax.core.errors import JaxRuntimeError
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import function_name
from mini_jax.core.pytree import PyTreeDef, flatten, prefix_errors
from mini_jax.core.trace import Tracer, is_value, leaked, typeof
from mini_jax.core.tracebacks import boundary, hide_our_frames
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.lax import prng, shapes
from mini_jax.runtime import dispatch
from mini_jax.runtime.array import host_value, put_host
from mini_jax.runtime.devices import current_device
from mini_jax.runtime.executable import in_replica
from mini_jax.runtime.refs import calling
from mini_jax.runtime.sharding import on_device
from mini_jax.transforms.vmap import move_batch

_FACTS = {"family": "callbacks", "host_call": True}              # and "where": see control/masks.py
pure_callback_p = Primitive("pure_callback", multiple_results=True, memoize=False, facts=dict(_FACTS))
io_callback_p = Primitive("io_callback", multiple_results=True, memoize=False, facts=dict(_FACTS))
debug_callback_p = Primitive("debug_callback", multiple_results=True, memoize=False, facts=dict(_FACTS))

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


_NARROWED = {np.dtype(wide): np.dtype(narrow) for wide, narrow in (("f8", "f4"), ("i8", "i4"), ("u8", "u4"), ("c16", "c8"))}


# --- on the host ------------------------------------------------------------------------------------------------------------------

class Call:
    """The user's function as one from flat NumPy arrays to flat NumPy arrays, its results checked against their declared types.

    what: the name of what it was given to, for messages. rebuild: flat arrays -> (args, kwargs). out_tree: the declared structure
    (None: the result is of no interest).
    """
    __slots__ = ("fun", "what", "rebuild", "out_tree")

    def __init__(self, fun: Callable, what: str, rebuild: Callable[[Sequence], tuple], out_tree: PyTreeDef | None):
        self.fun, self.what, self.rebuild, self.out_tree = fun, what, rebuild, out_tree

    def __call__(self, arrays: Sequence[np.ndarray], types: Sequence[ShapedArray], x64: bool) -> list[np.ndarray]:
        args, kwargs = self.rebuild(arrays)
        result = self.fun(*args, **kwargs)
        if self.out_tree is None:
            return []
        leaves, tree = flatten(result)
        if tree != self.out_tree:
            declared, found = (t.unflatten([0] * t.num_leaves) for t in (self.out_tree, tree))
            where = next(prefix_errors(found, declared, None, "its result", "the declared result"), "")
            raise TypeError(f"{self} returned {tree}, but result_shape_dtypes declares {self.out_tree}" + (f": {where}" if where else ""))
        return [self._checked(leaf, type_, i, x64) for i, (leaf, type_) in enumerate(zip(leaves, types))]

    def _checked(self, leaf, declared: ShapedArray, position: int, x64: bool) -> np.ndarray:
        value = np.asarray(leaf)
        which = f" as result {position}" if self.out_tree.num_leaves > 1 else ""
        if value.shape != declared.shape:
            raise TypeError(f"{self} returned an array of shape {value.shape}{which}, but result_shape_dtypes declares {declared}")
        if _NARROWED.get(value.dtype) == declared.dtype and (not x64 or type(leaf) in dtypes.python_scalar_types):
            value = value.astype(declared.dtype)
        if value.dtype != declared.dtype:
            raise TypeError(f"{self} returned an array of dtype {value.dtype}{which}, but result_shape_dtypes declares {declared}: "
                            f"return it as .astype({declared.dtype.name!r}), or declare {value.dtype}")
        return value

    def __str__(self):
        code = getattr(self.fun, "__code__", None)
        if code is not None and source.is_internal(code.co_filename):
            return self.what
        return f"the function {function_name(self.fun)}" + (f" at {code.co_filename}:{code.co_firstlineno}" if code else "") + f", called by {self.what},"


class OfBatch(NamedTuple):
    """Calls the function for each example of a batch, in order, and stacks the results along axis 0."""
    call: Callable
    dims: tuple
    size: int

    def __call__(self, arrays, types, x64):
        types = [t.update(shape=t.shape[1:]) for t in types]
        rows = [self.call([a if d is None else np.take(a, i, d) for a, d in zip(arrays, self.dims)], types, x64) for i in range(self.size)]
        return [np.stack(column) for column in zip(*rows)] if rows else [np.zeros((0, *t.shape), t.dtype) for t in types]

    def __str__(self):
        return str(self.call)


class Where(NamedTuple):
    """Calls the function where its first argument, a boolean, is true; elsewhere its results are zeros, which nobody reads."""
    call: Callable

    def __call__(self, arrays, types, x64):
        return self.call(arrays[1:], types, x64) if arrays[0] else [np.zeros(t.shape, t.dtype) for t in types]

    def __str__(self):
        return str(self.call)


class HostFunction:
    """What XLA calls: NumPy arrays -> a tuple of NumPy arrays. An exception ends the program; here its story is kept for the caller.

    carries_on: the program goes on, with zeros as results, and the caller raises when it has ended.
    """
    __slots__ = ("call", "types", "x64", "takes_turn", "gives_turn", "place", "failures", "carries_on")

    def __init__(self, call: Callable, types: Sequence[ShapedArray], takes_turn: bool, gives_turn: bool, place: str | None):
        self.call, self.types, self.x64 = call, tuple(types), config.enable_x64.value
        self.takes_turn, self.gives_turn, self.place, self.failures, self.carries_on = takes_turn, gives_turn, place, [], False

    def __call__(self, *arrays):
        saved = in_replica.value, calling.inside
        calling.inside = True
        try:
            if self.carries_on:
                in_replica.set_local(True)
            results = self.call(arrays[self.takes_turn:], self.types, self.x64)
        except BaseException as error:
            failure = told(error, self.call, self.place)
            self.failures[:] = [failure]
            if not self.carries_on:
                raise failure if isinstance(failure, Exception) else RuntimeError(repr(error))
            results = [np.zeros(t.shape, t.dtype) for t in self.types]
        finally:
            calling.inside = saved[1]
            if self.carries_on:
                in_replica.set_local(saved[0])
        return (np.uint8(0), *results) if self.gives_turn else tuple(results)


def told(error: BaseException, call: Callable, place: str | None = None) -> BaseException:
    """What a caller sees of an error in a function that a program called: a JaxRuntimeError with all of its story, from the error.
    KeyboardInterrupt and the like are themselves."""
    if not isinstance(error, Exception):
        return error
    hide_our_frames(error)
    import traceback
    story = "".join(traceback.format_exception(error)).rstrip()
    failure = JaxRuntimeError(f"{call} failed with {type(error).__name__}: {error}\n" + (f"It was called for {place}.\n" if place else "") + story)
    failure.__cause__ = error
    return failure


def _as_arrays(values: Sequence[np.ndarray]) -> list:
    """Host arrays as arrays of ours, of exactly their dtypes whatever the options of the thread that XLA calls from."""
    where = on_device(current_device())
    return [put_host(value, array_type(value.shape, value.dtype), where, False) for value in values]


def _called(args: Sequence, call: Callable, result_types: Sequence) -> list[np.ndarray]:
    """The call when nothing is compiled."""
    for arg in args:
        if isinstance(arg, Tracer):
            raise leaked(arg)
    return call([np.asarray(arg) if hasattr(arg, "aval") else host_value(arg)[0] for arg in args], result_types, config.enable_x64.value)


def _impl(*args, call, result_types, **_):
    """An error in the function is what it is in a program."""
    try:
        results = _called(args, call, result_types)
    except BaseException as error:
        failure = told(error, call)
        raise failure from failure.__cause__
    return _as_arrays(results)


# --- taking apart -----------------------------------------------------------------------------------------------------------------

def bind_call(primitive: Primitive, fun: Callable, what: str, args: tuple, kwargs: dict, out_tree: PyTreeDef | None,
              result_types: tuple, *, as_numpy: bool = False, static: bool = False, **params) -> list:
    """Bind one of the primitives to the arrays among the leaves of args and kwargs. static: other leaves go along as they are.

    as_numpy: the function gets NumPy arrays instead of arrays of ours.
    """
    leaves, tree = flatten((args, kwargs))
    values, places, keys = [], [], {}
    for place, leaf in enumerate(leaves):
        if static and not is_value(leaf):
            continue
        try:
            type_ = typeof(leaf)
        except TypeError as error:
            raise TypeError(f"{what}: an argument of {function_name(fun)} is no array: {error}") from None
        if dtypes.is_extended(type_.dtype):
            keys[len(values)] = type_.dtype
            leaf = prng.random_unwrap_p.bind(leaf)
        places.append(place)
        values.append(leaf)
    others = [None if place in places else leaf for place, leaf in enumerate(leaves)] if len(places) < len(leaves) else [None] * len(leaves)

    def rebuild(arrays: Sequence) -> tuple:
        arrays = list(arrays) if as_numpy and not keys else _as_arrays(arrays)
        for i, dtype in keys.items():
            arrays[i], = dispatch.wrapped([array_type(arrays[i].shape[:-1], dtype)], [arrays[i]])
        filled = list(others)
        for place, array in zip(places, arrays):
            filled[place] = array
        return tree.unflatten(filled)
    return primitive.bind(*values, call=Call(fun, what, rebuild, out_tree), result_types=result_types, **params)


def declared_results(result_shape_dtypes, what: str) -> tuple[tuple, PyTreeDef]:
    """The types that a callback declares, and their structure."""
    leaves, tree = flatten(result_shape_dtypes)
    types = []
    for leaf in leaves:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise TypeError(f"{what}: result_shape_dtypes holds objects with a shape and a dtype (ShapeDtypeStruct, arrays), got {leaf!r:.200}")
        dtype = dtypes.as_dtype(leaf.dtype)
        if dtypes.canonicalize(dtype) != dtype:
            raise ValueError(f"{what}: result_shape_dtypes declares {dtype}, but 64-bit dtypes exist only with jax_enable_x64: "
                             f"declare {dtypes.canonicalize(dtype)}, or config.update('jax_enable_x64', True)")
        types.append(array_type(tuple(leaf.shape), dtype))
    return tuple(types), tree


def _check_function(fun, what: str) -> None:
    if not callable(fun):
        raise TypeError(f"{what} takes a function, got {fun!r:.200} of type {type(fun).__name__}")


# --- the functions ----------------------------------------------------------------------------------------------------------------

@boundary
def pure_callback(callback: Callable, result_shape_dtypes: Any, *args, sharding=None, vectorized: bool | None = None,
                  vmap_method: str | None = None, **kwargs):
    """callback(*args, **kwargs), run by Python each time that the compiled program comes to it.

    callback: a pure function of arrays; it may be called more or less often than the program says, or not at all.
    result_shape_dtypes: the structure of its result, with an object with `shape` and `dtype` for each array.
    vmap_method: what vmap makes of it. "sequential", "sequential_unrolled": a call for each example; "expand_dims": one call, with a
        leading axis on every argument, of size 1 where it is not mapped; "broadcast_all": likewise, of the full size everywhere;
        "legacy_vectorized": a leading axis on mapped arguments only. None: vmap raises NotImplementedError.
    vectorized: the older way to say "legacy_vectorized" (True) or "sequential" (False).
    It has no derivative: custom_jvp or custom_vjp around it can define one. An exception in the callback, and a result that is not
    as declared, raise JaxRuntimeError where the program is called.
    """
    _check_function(callback, "pure_callback")
    if vectorized is not None:
        if vmap_method is not None:
            raise ValueError("pure_callback: vectorized is the older name of vmap_method; pass vmap_method only")
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ValueError(f"pure_callback: vmap_method is one of {', '.join(map(repr, VMAP_METHODS))} or None, got {vmap_method!r}")
    types, tree = declared_results(result_shape_dtypes, "pure_callback")
    return tree.unflatten(bind_call(pure_callback_p, callback, "pure_callback", args, kwargs, tree, types, vmap_method=vmap_method))


@boundary
def io_callback(callback: Callable, result_shape_dtypes: Any, *args, sharding=None, ordered: bool = False, **kwargs):
    """callback(*args, **kwargs), run by Python exactly once each time that the compiled program comes to it.

    result_shape_dtypes: the structure of its result (None: nothing), with an object with `shape` and `dtype` for each array.
    ordered: after all ordered calls that come before it in the program. vmap calls it for each example, in order; it refuses ordered
    calls, as pmap does (ValueError). It has no derivative: custom_jvp or custom_vjp around it can define one.
    """
    _check_function(callback, "io_callback")
    types, tree = declared_results(result_shape_dtypes, "io_callback")
    return tree.unflatten(bind_call(io_callback_p, callback, "io_callback", args, kwargs, tree, types, effect=HostEffect("io", bool(ordered))))


# --- rules ------------------------------------------------------------------------------------------------------------------------

def _no_derivative(what: str):
    def refuse(*_, **__):
        raise ValueError(f"{what} has no derivative: what Python computes is not recorded. Put the call in a function with a derivative "
                         "of its own (custom_jvp, custom_vjp), or use stop_gradient on its arguments.")
    return refuse


def _debug_jvp(primals, tangents, **params):
    return debug_callback_p.bind(*primals, **params), []


def _debug_transpose(cts, *args, **params):
    raise ValueError("debug callbacks can't show tangents in reverse mode: there they have no values yet. Show cotangents from the "
                     "backward rule of a custom_vjp, or use forward mode (jvp).")


def _batched_types(result_types: Sequence, size: int) -> tuple:
    return tuple([t.update(shape=(size, *t.shape)) for t in result_types])


def _each_example(primitive, axis, args, dims, call, result_types, params):
    outs = primitive.bind(*args, call=OfBatch(call, tuple(dims), axis.size), result_types=_batched_types(result_types, axis.size), **params)
    return outs, [0] * len(outs)


def _pure_batch(axis, args, dims, *, call, result_types, vmap_method):
    if vmap_method is None:
        raise NotImplementedError(f"vmap: {call} has no vmap_method. Pass pure_callback(..., vmap_method=\"sequential\") to call it for each "
                                  "example; or, if it takes arrays with a leading axis, \"expand_dims\" (size 1 where an argument is not "
                                  "mapped) or \"broadcast_all\" (the full size everywhere).")
    if vmap_method.startswith("sequential"):
        return _each_example(pure_callback_p, axis, args, dims, call, result_types, {"vmap_method": vmap_method})
    unmapped = {"expand_dims": lambda a: shapes.expand_dims(a, (0,)), "broadcast_all": lambda a: move_batch(a, axis.size, None, 0),
                "legacy_vectorized": lambda a: a}[vmap_method]
    args = [unmapped(a) if d is None else shapes.moveaxis(a, d, 0) for a, d in zip(args, dims)]
    outs = pure_callback_p.bind(*args, call=call, result_types=_batched_types(result_types, axis.size), vmap_method=vmap_method)
    return outs, [0] * len(outs)


def _effect_batch(primitive):
    def batch(axis, args, dims, *, call, result_types, effect):
        if effect.ordered and effect.kind == "io":
            raise ValueError(f"vmap: {call} is ordered, and the examples of a batch have no order: call with ordered=False")
        return _each_example(primitive, axis, args, dims, call, result_types, {"effect": effect})
    return batch


for _p in (pure_callback_p, io_callback_p, debug_callback_p):
    _p.type_rule, _p.impl = lambda *types, result_types, **_: list(result_types), _impl
def _where(primitive, mask, args, params):
    return primitive.bind(mask, *args, **params | {"call": Where(params["call"])})


for _p in (io_callback_p, debug_callback_p):
    _p.facts["where"] = _where
    _p.effects_rule, _p.batch = lambda types, params: frozenset([params["effect"]]), _effect_batch(_p)
debug_callback_p.impl = lambda *args, call, result_types, effect: _called(args, call, result_types)
pure_callback_p.batch = _pure_batch
pure_callback_p.jvp = pure_callback_p.transpose = _no_derivative("pure_callback")
io_callback_p.jvp = io_callback_p.transpose = _no_derivative("io_callback")
debug_callback_p.jvp, debug_callback_p.transpose = _debug_jvp, _debug_transpose


# --- lowering ---------------------------------------------------------------------------------------------------------------------

@lowers(pure_callback_p, io_callback_p, debug_callback_p)
def _lower(e, eqn, *operands):
    if e.module.platform != "cpu":
        raise NotImplementedError(f"{eqn.primitive.name}: a program for {e.module.platform} can't call Python functions, one for the CPU can: "
                                  "move its arguments there with device_put(x, devices('cpu')[0]), or call outside of jit")
    params, effectful = eqn.params, bool(eqn.effects)
    turns = params.get("takes_turn", False)
    types = [TURN, *params["result_types"]] if effectful else list(params["result_types"])
    place = None if eqn.source is None else str(source.describe(eqn.source))
    e.module.callbacks.append(HostFunction(params["call"], params["result_types"], turns, effectful, place))
    results = e.emit_many(
        f"stablehlo.custom_call @xla_ffi_python_cpu_callback({', '.join(operands)}) {{has_side_effect = {str(effectful).lower()}, "
        f'backend_config = "", mhlo.backend_config = {{index = {len(e.module.callbacks) - 1} : ui64}}, '
        f"operand_layouts = [{_layouts(eqn.in_types)}], result_layouts = [{_layouts(types)}]{called_where(e.module, e.axes.partitions, types)}}} : "
        f"({', '.join([t.mlir for t in eqn.in_types])}) -> ({', '.join([t.mlir for t in types])})", len(types), pure=not effectful)
    results = results[effectful and not turns:]
    if e.module.devices is None or len(e.module.devices) == 1 or e.axes.partitions:
        return results
    each = e.module.mesh(ON_EACH)                       # called for the first device, wanted on all
    return [e.emit(f"sdy.sharding_constraint {r} <@{each}, [{', '.join(['{}'] * t.ndim)}]> : {t.mlir}") for r, t in zip(results, types[effectful and not turns:])]


def _layouts(types: Sequence[ShapedArray]) -> str:
    """NumPy's order of dimensions for each."""
    return ", ".join([f"dense<{list(range(t.ndim - 1, -1, -1)) if t.ndim else ''}> : tensor<{t.ndim}xindex>" for t in types])
