"""`jax.ffi`: functions of compiled libraries, called by programs through XLA's foreign function interface.

    library = ctypes.cdll.LoadLibrary("librms.so")
    register_ffi_target("rms_norm", pycapsule(library.RmsNorm), platform="cpu")
    y = ffi_call("rms_norm", ShapeDtypeStruct(x.shape, x.dtype), vmap_method="broadcast_all")(x, eps=np.float32(1e-5))
"""
from __future__ import annotations

import ctypes
from typing import Any, Callable, Sequence

import numpy as np

from lowering.emit import lowers
from mini_jax.core import dtypes
from mini_jax.core.effects import HostEffect
from mini_jax.core.primitive import Primitive
from mini_jax.core.pytree import flatten
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.core.types import array_type
from mini_jax.lax import shapes
from mini_jax.runtime import xla
from mini_jax.transforms.callbacks import VMAP_METHODS, declared_results
from mini_jax.transforms.control.map import map as lax_map
from mini_jax.transforms.vmap import move_batch

__all__ = ["ffi_call", "register_ffi_target", "pycapsule", "include_dir"]


def include_dir() -> str:
    """The directory of the header files (xla/ffi/api/ffi.h) that such functions are compiled with."""
    return xla.include_dir()


def pycapsule(funcptr) -> Any:
    """A function pointer, loaded with ctypes, as register_ffi_target takes it."""
    destructor = ctypes.CFUNCTYPE(None, ctypes.py_object)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, destructor)
    return new(funcptr, None, destructor(0))


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Make a function callable by this name.

    fn: a capsule (see pycapsule), or a dictionary of them by the stage that they are for ("instantiate", "prepare", "initialize", "execute").
    api_version: 1, the typed interface, or 0, the one before it.
    """
    xla.register_custom_call(name, fn, platform, api_version, **kwargs)


ffi_call_p = Primitive("ffi_call", multiple_results=True, memoize=False, facts={"family": "foreign"})


def ffi_call(target_name: str, result_shape_dtypes, *, has_side_effect: bool = False, vmap_method: str | None = None, input_layouts=None,
             output_layouts=None, input_output_aliases: dict[int, int] | None = None, custom_call_api_version: int = 4,
             legacy_backend_config: str | None = None, vectorized: bool | None = None) -> Callable:
    """A function that calls a registered one: f(*arrays, **attributes).

    result_shape_dtypes: an object with a shape and a dtype, or a sequence of them: what it returns. attributes: what the function is
    configured with: NumPy scalars and arrays of one dimension, Python numbers (64-bit), strings, dictionaries of these.
    vmap_method: as for pure_callback. input_output_aliases: operand → result, which may share its buffer.
    input_layouts, output_layouts: for each array the order of its dimensions, the slowest first; default: as they are.
    has_side_effect: it is called even if nobody uses the results. custom_call_api_version, legacy_backend_config: for functions of the interfaces
    before the typed one. It has no derivative: custom_jvp or custom_vjp around it can define one.
    """
    if vectorized is not None:
        vmap_method = "legacy_vectorized" if vectorized else "sequential"
    if vmap_method is not None and vmap_method not in VMAP_METHODS:
        raise ValueError(f"ffi_call: vmap_method is one of {', '.join(map(repr, VMAP_METHODS))} or None, got {vmap_method!r}")
    types, tree = declared_results(result_shape_dtypes, "ffi_call")
    one = tree.num_leaves == 1 and tree == flatten(0)[1]
    out_layouts = [output_layouts] if one and output_layouts is not None else output_layouts

    @boundary
    def call(*args, **attributes):
        if attributes and custom_call_api_version != 4:
            raise ValueError("ffi_call: attributes go with custom_call_api_version 4; use legacy_backend_config")
        config = legacy_backend_config if custom_call_api_version != 4 else _attribute(attributes)
        outs = ffi_call_p.bind(*args, target=target_name, result_types=types, effectful=bool(has_side_effect), vmap_method=vmap_method,
                               layouts=(_orders(input_layouts, [typeof(a) for a in args]), _orders(out_layouts, types)),
                               aliases=tuple(sorted((input_output_aliases or {}).items())), version=custom_call_api_version, config=config)
        return tree.unflatten(outs)
    return call


def _orders(layouts, types: Sequence) -> tuple:
    """For each array its dimensions, the fastest first."""
    layouts = layouts if layouts is not None else [None] * len(types)
    if len(layouts) != len(types):
        raise ValueError(f"ffi_call: {len(layouts)} layouts for {len(types)} arrays")
    return tuple([tuple(range(t.ndim))[::-1] if order is None else tuple(order)[::-1] for order, t in zip(layouts, types)])


def _attribute(value) -> str:
    """A value as an MLIR attribute."""
    if isinstance(value, dict):
        return "{" + ", ".join([f"{key} = {_attribute(v)}" for key, v in sorted(value.items())]) + "}"
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        value = np.array(value)[()]
    if isinstance(value, (np.generic, np.ndarray)) and value.ndim <= 1:
        kind = array_type((), dtypes.as_dtype(value.dtype)).mlir.removeprefix("tensor<").removesuffix(">")
        numbers = [repr(float(v)) if dtypes.is_inexact(value.dtype) else str(int(v)) for v in np.ravel(value)]
        return f"{numbers[0]} : {kind}" if value.ndim == 0 else f"array<{kind}{': ' if numbers else ''}{', '.join(numbers)}>"
    raise TypeError(f"ffi_call: an attribute is a number, a string, a NumPy array of one dimension or a dictionary of them, got {value!r:.100} of type "
                    f"{type(value).__name__}")


# --- rules ----------------------------------------------------------------------------------------------------------------------

def _refuse(*_, **params):
    raise ValueError(f"ffi_call of {params['target']!r} has no derivative: put it in a function with one of its own (custom_jvp, custom_vjp)")


def _batch(axis, args, dims, *, target, result_types, vmap_method, layouts, **params):
    params |= {"target": target, "vmap_method": vmap_method}
    if vmap_method is None:
        raise NotImplementedError(f"vmap: ffi_call of {target!r} has no vmap_method: pass ffi_call(..., vmap_method=\"sequential\"), or, if it takes arrays "
                                  "with a leading axis, \"expand_dims\" or \"broadcast_all\"")
    if vmap_method.startswith("sequential"):
        mapped = [shapes.moveaxis(a, d, 0) for a, d in zip(args, dims) if d is not None]

        def one(rows):
            rows = iter(rows)
            return ffi_call_p.bind(*[a if d is None else next(rows) for a, d in zip(args, dims)], result_types=result_types, layouts=layouts, **params)
        outs = lax_map(one, mapped)
        return outs, [0] * len(outs)
    whole = {"expand_dims": lambda a: shapes.expand_dims(a, (0,)), "broadcast_all": lambda a: move_batch(a, axis.size, None, 0), "legacy_vectorized": None}
    given = [move_batch(a, axis.size, d, 0) if d is not None else whole[vmap_method](a) if whole[vmap_method] else a for a, d in zip(args, dims)]
    grown = [typeof(a).ndim - len(order) for a, order in zip(given, layouts[0])]
    orders = (tuple([(*[i + n for i in order], *range(n)) for order, n in zip(layouts[0], grown)]), tuple([(*[i + 1 for i in order], 0) for order in layouts[1]]))
    outs = ffi_call_p.bind(*given, result_types=tuple([t.update(shape=(axis.size, *t.shape)) for t in result_types]), layouts=orders, **params)
    return outs, [0] * len(outs)


ffi_call_p.type_rule = lambda *types, result_types, **_: list(result_types)
ffi_call_p.jvp = ffi_call_p.transpose = _refuse
ffi_call_p.batch = _batch
ffi_call_p.effects_rule = lambda types, params: frozenset([HostEffect("io", False)]) if params["effectful"] else frozenset()


@lowers(ffi_call_p)
def _lower(e, eqn, *operands):
    params, types = eqn.params, [v.aval for v in eqn.outvars]
    orders = [", ".join([f"dense<{list(order) if order else ''}> : tensor<{len(order)}xindex>" for order in side]) for side in params["layouts"]]
    single = len(types) == 1
    aliases = ", ".join([f"#stablehlo.output_operand_alias<output_tuple_indices = {[] if single else [out]}, operand_index = {operand}, "
                         "operand_tuple_indices = []>" for operand, out in params["aliases"]])
    aliases = f", output_operand_aliases = [{aliases}]" if aliases else ""
    config = f'backend_config = "", mhlo.backend_config = {params["config"]}' if params["version"] == 4 else (
        f"api_version = {params['version']} : i32, backend_config = {_attribute(params['config'] or '')}")
    results = ", ".join([t.mlir for t in types])
    if params["effectful"] and e.module.devices is not None and not e.axes.partitions:
        raise NotImplementedError(f"ffi_call of {params['target']!r} with has_side_effect in a program over a mesh: XLA doesn't take such calls; make it in a "
                                  "shard_map, on each device, or with arrays that are not spread over a mesh")
    return e.emit_many(f"stablehlo.custom_call @{_symbol(params['target'])}({', '.join(operands)}) {{has_side_effect = {str(params['effectful']).lower()}, {config}, "
                       f"operand_layouts = [{orders[0]}], result_layouts = [{orders[1]}]{aliases}}} : "
                       f"({', '.join([t.mlir for t in eqn.in_types])}) -> {results if single else f'({results})'}", len(types), pure=not params["effectful"])


def _symbol(name: str) -> str:
    return name if name.replace("_", "a").replace(".", "a").isalnum() else _attribute(name)
