"""`jax.export`: jitted functions as StableHLO, to be stored, and called later or elsewhere without the Python code that they were made of.

    exported = export(jit(f))(ShapeDtypeStruct((3,), "float32"))
    blob = exported.serialize()
    deserialize(blob).call(x)

What is stored is the text of the program for each platform, the types and the structure of arguments and results, and the arrays that the function
captured: JSON, compressed. Nothing in it is executed by reading it.
"""
from __future__ import annotations

import base64
import functools
import json
import re
import zlib
from typing import Any, Callable, Sequence

import numpy as np

from lowering.emit import lowers
from lowering.physical import is_extended
from lowering.program import Lowered, lower
from mini_jax.core import dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.pytree import PyTreeDef, keystr, tree_flatten, tree_flatten_with_path, tree_structure
from mini_jax.core.trace import typeof
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.runtime import xla
from mini_jax.runtime.array import device_put
from mini_jax.runtime.devices import current_device
from mini_jax.runtime.platforms import exact
from mini_jax.transforms.autodiff import vjp
from mini_jax.transforms.custom_derivatives import custom_vjp
from mini_jax.transforms.jit import jit
from mini_jax.transforms.stages import ShapeDtypeStruct

__all__ = ["DisabledSafetyCheck", "Exported", "default_export_platform", "deserialize", "export"]

_MAGIC = b"mini_jax export 1\n"


class DisabledSafetyCheck:
    """Names of checks that `export(disabled_checks=…)` may leave out: none is made here, so these change nothing."""
    platform = staticmethod(lambda: "platform")
    custom_call = staticmethod(lambda target_name: f"custom_call:{target_name}")


class Exported:
    """A function that has been exported. Made by `export` and `deserialize`.

    fun_name; in_tree, out_tree: structures, of (args, kwargs) and of the result; in_avals, out_avals: types, flat; platforms: for which there is a
    program; nr_devices: on how many it runs.
    """

    nr_devices = 1

    def __init__(self, fun_name: str, in_tree: PyTreeDef, in_avals: Sequence[ShapedArray], out_tree: PyTreeDef, out_avals: Sequence[ShapedArray],
                 texts: dict[str, str], consts: Sequence[np.ndarray], make_vjp: Callable[[], "Exported"] | None):
        """texts: of the module for each platform, whose main function takes the consts, which the function captured, then all arguments."""
        self.fun_name, self.in_tree, self.out_tree = fun_name, in_tree, out_tree
        self.in_avals, self.out_avals, self._make_vjp = tuple(in_avals), tuple(out_avals), make_vjp
        self._texts, self._consts = texts, tuple(consts)
        self._vjp: Exported | None = None

    platforms = property(lambda self: tuple(self._texts))

    @functools.cached_property
    def _arrays(self) -> list:
        return [device_put(c) for c in self._consts]

    def mlir_module(self) -> str:
        """The StableHLO text, for the first of the platforms."""
        return next(iter(self._texts.values()))

    @property
    def mlir_module_serialized(self) -> bytes:
        """The same as bytes."""
        return self.mlir_module().encode()

    def has_vjp(self) -> bool:
        """Can it be differentiated?"""
        return self._make_vjp is not None

    def vjp(self) -> "Exported":
        """Its reverse mode: (arguments, cotangents of the results), flat, -> cotangents of those arguments that are floating or complex, flat.
        ValueError where that was not stored with it."""
        if self._make_vjp is None:
            raise ValueError(f"the exported function {self.fun_name} has no derivative: store it with serialize(vjp_order=1)")
        if self._vjp is None:
            self._vjp = self._make_vjp()
        return self._vjp

    def call(self, *args, **kwargs) -> Any:
        """The function, on arguments of the structure and types that it was exported for; also inside jit, and under grad where has_vjp().

        Raises TypeError for another structure and under jvp, ValueError for other types and on another platform, NotImplementedError under vmap."""
        leaves, tree = tree_flatten((args, kwargs))
        if tree != self.in_tree:
            raise TypeError(f"the exported function {self.fun_name} takes arguments of the structure {self.in_tree}, got {tree}")
        for (path, x), want in zip(tree_flatten_with_path((args, kwargs))[0], self.in_avals):
            have = typeof(x)
            if have.shape != want.shape or have.dtype != want.dtype and not have.weak_type:
                raise ValueError(f"the exported function {self.fun_name} takes {want} for (args, kwargs){keystr(path)}, got {have}")
        leaves = [np.asarray(x, t.dtype) if type(x) in dtypes.python_scalar_types else x for x, t in zip(leaves, self.in_avals)]
        return self.out_tree.unflatten(_differentiable(self)(*leaves))

    def serialize(self, vjp_order: int = 0) -> bytearray:
        """All of it as bytes, with derivatives up to the order vjp_order. NotImplementedError for structures other than of tuples, lists, dictionaries
        and None, and for types that are not of arrays."""
        return bytearray(_MAGIC + zlib.compress(json.dumps(_encoded(self, vjp_order)).encode()))

    def __repr__(self):
        return f"Exported({self.fun_name}: ({', '.join(map(str, self.in_avals))}) -> ({', '.join(map(str, self.out_avals))}), platforms={self.platforms})"


# --- exporting --------------------------------------------------------------------------------------------------------------------------

def default_export_platform() -> str:
    """The platform for which export makes a program if none is named: the one that is used now."""
    return _platform(current_device().platform)


def _platform(name: str) -> str:
    return exact(name.lower())


def export(fun_jit: Callable, *, platforms: Sequence[str] | None = None, disabled_checks: Sequence = ()) -> Callable[..., Exported]:
    """The function (*args, **kwargs) -> Exported: fun_jit, what jit returned, for arguments of these types, which may be ShapeDtypeStructs.

    platforms: for which programs are made ("cpu", "cuda", "rocm", "tpu"); default: the one that is used now. disabled_checks: of no effect.
    Raises ValueError for a function that is not jitted, NotImplementedError for one that calls Python functions, runs on several devices or takes
    or returns random keys.
    """
    if not hasattr(fun_jit, "trace"):
        raise ValueError(f"export takes what jit returns, got {fun_jit!r:.100}: export(jit(f))(*args)")

    def make(*args, **kwargs) -> Exported:
        traced = fun_jit.trace(*args, **kwargs)
        programs = {p: _program(traced, p) for p in map(_platform, platforms or [default_export_platform()])}
        [consts, *_] = [program.consts for program in programs.values()]                  # which don't depend on the platform
        exported = Exported(traced.fun_name, traced.in_tree, traced.jaxpr.in_avals, traced.out_tree, traced.jaxpr.out_avals,
                            {p: program.text for p, program in programs.items()}, map(np.asarray, consts), lambda: _exported_vjp(fun_jit, exported, platforms))
        return exported
    return make


def _program(traced, platform: str) -> Lowered:
    where = f"export of {traced.fun_name}"
    if any([is_extended(t) for t in (*traced.jaxpr.in_avals, *traced.jaxpr.out_avals)]):
        raise NotImplementedError(f"{where}: random keys as arguments or results; pass random.key_data(key), and wrap_key_data inside")
    program = lower(traced.jaxpr.jaxpr, traced.jaxpr.consts, name=f"jit_{traced.fun_name}", keep_unused=True, platform=platform)
    if program.callbacks:
        raise NotImplementedError(f"{where}: it calls Python functions, which can't be stored")
    if program.num_replicas > 1:
        raise NotImplementedError(f"{where}: it runs on {program.num_replicas} devices by pmap")
    return program


def _exported_vjp(fun_jit, exported: Exported, platforms) -> Exported:
    """See Exported.vjp."""
    count = len(exported.in_avals)
    smooth = _smooth(exported.in_avals)

    def pulled(*flat):
        leaves, cts = list(flat[:count]), flat[count:]

        def of_smooth(*moving):
            for i, x in zip(smooth, moving):
                leaves[i] = x
            args, kwargs = exported.in_tree.unflatten(leaves)
            out = tree_flatten(fun_jit(*args, **kwargs))[0]
            return [out[i] for i in _smooth(exported.out_avals)]
        return vjp(of_smooth, *[leaves[i] for i in smooth])[1](list(cts))
    cts = [exported.out_avals[i] for i in _smooth(exported.out_avals)]
    return export(jit(pulled), platforms=platforms)(*[ShapeDtypeStruct(t.shape, t.dtype) for t in (*exported.in_avals, *cts)])


def _smooth(types) -> list[int]:
    """The positions of what has a derivative."""
    return [i for i, t in enumerate(types) if dtypes.is_inexact(t.dtype)]


# --- calling ------------------------------------------------------------------------------------------------------------------------------

call_exported_p = Primitive("call_exported", multiple_results=True, memoize=False, facts={"family": "exported"})


def _differentiable(exported: Exported) -> Callable:
    """The flat function, with its stored reverse mode."""
    @custom_vjp
    def call(*leaves):
        return call_exported_p.bind(*exported._arrays, *leaves, exported=exported)

    def backward(leaves, cts):
        found = iter(exported.vjp().call(*leaves, *[cts[i] for i in _smooth(exported.out_avals)]))
        return tuple([next(found) if dtypes.is_inexact(t.dtype) else np.zeros(t.shape, dtypes.float0) for t in exported.in_avals])
    call.defvjp(lambda *leaves: (call(*leaves), leaves), backward)
    return call


def _no_vmap(axis, args, dims, *, exported):
    raise NotImplementedError(f"vmap of the exported function {exported.fun_name}: its program is for one example; export jit(vmap(f))")


call_exported_p.type_rule = lambda *types, exported: list(exported.out_avals)
call_exported_p.batch = _no_vmap


@lowers(call_exported_p)
def _lower(e, eqn, *operands):
    """The functions of the stored module, under names of their own, and a call of its main one."""
    exported = eqn.params["exported"]
    platform = _platform(e.module.platform)
    text = exported._texts.get(platform)
    if text is None:
        raise ValueError(f"the function {exported.fun_name} was exported for {', '.join(exported.platforms)}, and is called on {platform}")
    if "@lapack_" in text or "@tridiagonal_solve_perturbed" in text:
        xla.register_lapack()
    main = e.module.imported.get(text)
    if main is None:
        main, functions = _renamed(text, e.module, exported.fun_name)
        e.module.texts += functions
        e.module.imported[text] = main
    ins, outs = ", ".join([t.mlir for t in eqn.in_types]), ", ".join([v.aval.mlir for v in eqn.outvars])
    return e.emit_many(f"func.call @{main}({', '.join(operands)}) : ({ins}) -> ({outs})", len(eqn.outvars))


def _renamed(text: str, module, name: str) -> tuple[str, list[str]]:
    """The name that the main function of a module's text gets in another module, and the texts of all its functions there."""
    functions = re.split(r"(?m)^(?=  (?://.*\n  )?func\.func )", text.rstrip().removesuffix("}").rstrip() + "\n")[1:]
    names = {old: module._unique(f"{name}_{old}") for old in re.findall(r"(?m)^  func\.func \w+ @([\w.]+)", text)}
    texts = [re.sub(r"(?<!custom_call )@([\w.]+)", lambda m: f"@{names.get(m[1], m[1])}", f).replace("func.func public", "func.func private", 1).rstrip("\n") for f in functions]
    return names["main"], texts


# --- storing -------------------------------------------------------------------------------------------------------------------------------

def deserialize(blob: bytes | bytearray) -> Exported:
    """What `serialize` stored. ValueError for other bytes."""
    blob = bytes(blob)
    try:
        if not blob.startswith(_MAGIC):
            raise ValueError("they don't begin as such do")
        return _decoded(json.loads(zlib.decompress(blob[len(_MAGIC):])))
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise ValueError(f"deserialize: these {len(blob)} bytes are no exported function: {error}") from None


def _encoded(exported: Exported, vjp_order: int) -> dict:
    return {"name": exported.fun_name, "in_tree": _tree(exported.in_tree), "out_tree": _tree(exported.out_tree),
            "in_avals": [_aval(t) for t in exported.in_avals], "out_avals": [_aval(t) for t in exported.out_avals],
            "texts": exported._texts,
            "consts": [[list(c.shape), c.dtype.name, base64.b64encode(np.ascontiguousarray(c).tobytes()).decode()] for c in exported._consts],
            "vjp": _encoded(exported.vjp(), vjp_order - 1) if vjp_order > 0 else None}


def _decoded(stored: dict) -> Exported:
    trees = [tree_structure(_untree(stored[key])) for key in ("in_tree", "out_tree")]
    types = [[array_type(tuple(shape), dtypes.as_dtype(dtype), weak) for shape, dtype, weak in stored[key]] for key in ("in_avals", "out_avals")]
    consts = [np.frombuffer(base64.b64decode(data), dtypes.as_dtype(dtype)).reshape(shape) for shape, dtype, data in stored["consts"]]
    make_vjp = None if stored["vjp"] is None else lambda: _decoded(stored["vjp"])
    return Exported(stored["name"], trees[0], types[0], trees[1], types[1], stored["texts"], consts, make_vjp)


def _aval(t: ShapedArray) -> list:
    return [list(t.shape), np.dtype(t.dtype).name, t.weak_type]


def _tree(tree: PyTreeDef):
    def encode(node):
        if node is None or node == 0 and type(node) is int:
            return node
        if type(node) in (tuple, list):
            return {type(node).__name__: [encode(x) for x in node]}
        if type(node) is dict and all([isinstance(key, (str, int)) for key in node]):
            return {"dict": [[key, encode(x)] for key, x in node.items()]}
        raise NotImplementedError(f"serialize: structures of tuples, lists, dictionaries with words or ints as keys, and None can be stored, not "
                                  f"of {type(node).__name__}")
    return encode(tree.unflatten([0] * tree.num_leaves))


def _untree(stored):
    if not isinstance(stored, dict):
        return stored
    [(kind, items)] = stored.items()
    if kind == "dict":
        return {key: _untree(x) for key, x in items}
    return (tuple if kind == "tuple" else list)([_untree(x) for x in items])
