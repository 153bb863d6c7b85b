"""Functions given to control flow, as programs: recorded once, their results checked against what the loop or choice needs."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mini_jax.core import config, dtypes
from mini_jax.core.program import Jaxpr, ProgramInfo
from mini_jax.core.pytree import PyTreeDef, keystr, prefix_errors, tree_flatten_with_path
from mini_jax.core.refs import described, is_ref
from mini_jax.core.staging import stage
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, is_value, typeof
from mini_jax.core.types import ShapedArray
from mini_jax.lax import shapes
from mini_jax.runtime import xla
from mini_jax.runtime.caches import ByFunction, recorded
from mini_jax.transforms.arguments import argument_paths, checked_outputs, keyable, weakly

flatten = xla.registry.flatten


# --- recording ------------------------------------------------------------------------------------------------------------

class Body(NamedTuple):
    """A recorded function: its program (constants first, then the arguments), the constants' values, the structure of its results."""
    jaxpr: Jaxpr
    consts: list
    structure: Any


_bodies = ByFunction()


def record(fun: Callable, transformation: str, apply: Callable, tree: PyTreeDef, types: tuple, info: ProgramInfo | None = None) -> Body:
    """The program of `fun` for arguments of the structure `tree` (a tuple's) and of these flat types.

    apply(fun, info, *args) -> (flat results, their structure): how it is called and what is made of its result; equal for equal
    ways to do so, and holding nothing of the user's, since the program is kept by it.
    Recorded once for each function, unless it holds values of an outer trace.
    """
    fun = keyable(fun)
    kept, key = _bodies.of(fun), (apply, tree, types, config.trace_key(), tuple(state.axes.items()))

    def build():
        whose, structure = info or body_info(transformation, fun, tree), None

        def flat(*leaves):
            nonlocal structure
            results, structure = apply(fun, whose, *tree.unflatten(leaves))
            return results
        jaxpr, consts = stage(flat, types, whose)
        return Body(jaxpr.hoisted(), consts, structure)
    body = recorded.once(kept, key, build)
    if any([isinstance(c, Tracer) for c in body.consts]):
        kept.pop(key, None)
    return body


def record_carrying(fun: Callable, what: str, apply: Callable, tree: PyTreeDef, init: Sequence, other_types: tuple, carry_tree: PyTreeDef,
                    counters: int = 0) -> tuple[Body, list]:
    """The body of a loop, and its initial carry in the types that the carry has in it.

    tree: the structure of the arguments of `fun`, whose leaves are the carry's and then others of `other_types`. The structure that
    `apply` gives begins with that of the carry, which must be carry_tree. counters: how many leaves at the head of the carry are no
    part of it, but arguments of their own that apply sees to.
    Raises TypeError where the carry does not keep its structure or its types.
    """
    info = body_info(what, fun, tree)
    types, count = value_types(init, info), len(init)
    check_arrays(init, info)
    while True:
        body = record(fun, what, apply, tree, (*types, *other_types), info)
        out_types = body.jaxpr.out_types[:count]
        new = promoted(types, out_types) if body.structure[0] == carry_tree else None
        if new is None:
            check_carry(what, info, carry_tree, types[counters:], body.structure[0], out_types[counters:], counters)
            return body, [converted(value, t) for value, t in zip(init, types)]
        types = new


def value_types(leaves: Sequence, info: ProgramInfo) -> tuple:
    """The types of flat arguments; TypeError names the one that is no array."""
    try:
        return tuple([typeof(leaf) for leaf in leaves])
    except TypeError:
        position, leaf = next((i, leaf) for i, leaf in enumerate(leaves) if not is_value(leaf))
        raise TypeError(f"{info.transformation}: {info.path(position)} of {info.name} is {leaf!r:.200} of type {type(leaf).__name__}, which is "
                        "not an array, a number or a pytree of them. What is no array reaches the function as a default argument or a "
                        "variable around it.") from None


def check_arrays(leaves: Sequence, info: ProgramInfo) -> None:
    """TypeError for a ref among what a loop carries or slices."""
    for position, leaf in enumerate(leaves):
        if is_ref(leaf):
            raise TypeError(f"{info.transformation}: {info.path(position)} of {info.name} is {described(leaf)}. Loops carry and slice arrays; let the "
                            "body use the ref without passing it")


def body_info(transformation: str, fun: Callable, tree: PyTreeDef) -> ProgramInfo:
    fun_ref = weakly(fun)
    return ProgramInfo(transformation, fun, lambda: argument_paths(fun_ref(), _with_kwargs(tree)))


def _with_kwargs(tree: PyTreeDef) -> PyTreeDef:
    return flatten((tree.unflatten([0] * tree.num_leaves), {}))[1]


def check_callable(fun, what: str) -> None:
    if not callable(fun):
        raise TypeError(f"{what} must be a function, got {fun!r:.200} of type {type(fun).__name__}")


def flat_result(fun_result, info: ProgramInfo) -> tuple[list, PyTreeDef]:
    """A function's result as flat values, checked to be arrays, and its structure."""
    leaves, tree = flatten(fun_result)
    return checked_outputs(leaves, tree, info), tree


# --- a carry has one type ----------------------------------------------------------------------------------------------------

def same_type(a, b) -> bool:
    """Do they agree, but for weak_type and varying axes?"""
    return a is b or type(a) is ShapedArray and type(b) is ShapedArray and a.shape == b.shape and a.dtype == b.dtype


def promoted(carry_in: Sequence, carry_out: Sequence) -> tuple | None:
    """The types with which to record the body again: a weakly typed input gives way to the dtype of its output, and what varies
    over a named axis after a step varies before. None where nothing changes."""
    new = []
    for have, out in zip(carry_in, carry_out):
        if have is not out and type(have) is ShapedArray and type(out) is ShapedArray:
            if have.weak_type and have.shape == out.shape and have.dtype != out.dtype and not dtypes.is_extended(out.dtype):
                dtype, weak = dtypes.promote_pair(have.dtype, True, out.dtype, out.weak_type)
                have = have.update(dtype=dtype, weak_type=weak)
            if not out.varying <= have.varying:
                have = have.update(varying=have.varying | out.varying)
        new.append(have)
    return None if all([a is b for a, b in zip(new, carry_in)]) else tuple(new)


def converted(value, type_):
    """An initial carry as a value of the promoted type."""
    if typeof(value).dtype == type_.dtype:
        return value
    if isinstance(value, (bool, int, float, complex)):
        return np.asarray(value).astype(type_.dtype)[()]
    return shapes.convert_element_type(value, type_.dtype, type_.weak_type)


def check_carry(what: str, info: ProgramInfo, tree_in: PyTreeDef, types_in: Sequence, tree_out: PyTreeDef, types_out: Sequence,
                position: int = 0) -> None:
    """TypeError where the carry that a body returns has another structure or other types than the one it took.

    position: which argument of the function the carry is.
    """
    if tree_in != tree_out:
        where = next(prefix_errors(tree_out.unflatten([0] * tree_out.num_leaves), tree_in.unflatten([0] * tree_in.num_leaves), None,
                                   "the carry that it returns", "the carry that it was given"), None)
        raise TypeError(f"{what}: the function {_named(info)} must return a carry of the structure that it was given, {tree_in}, "
                        f"but returns {tree_out}" + (f":\n  {where}" if where else "")
                        + "\nReturn the same containers, with the same keys and lengths.")
    wrong = [i for i, (a, b) in enumerate(zip(types_in, types_out)) if not same_type(a, b)]
    if wrong:
        paths = tree_paths(tree_in, _argument(info, position))
        lines = [f"  {paths[i]} is {types_in[i]} before a step and {types_out[i]} after it: {_mending(types_in[i], types_out[i])}" for i in wrong]
        raise TypeError(f"{what}: the carry must keep its type from step to step, but the function {_named(info)} changes it:\n" + "\n".join(lines))


def _argument(info: ProgramInfo, position: int) -> str:
    code = info.code
    if code is None:
        return "carry"
    names = code.co_varnames[:code.co_argcount]
    names = names[1:] if names[:1] == ("self",) else names
    return names[position] if position < len(names) else "carry"


def tree_paths(tree: PyTreeDef, name: str) -> list[str]:
    """For each leaf of a structure the path to it, from the variable `name`."""
    return [name + keystr(path) for path, _ in tree_flatten_with_path(tree.unflatten([0] * tree.num_leaves))[0]]


def _named(info: ProgramInfo) -> str:
    return info.name + (f" at {info.location}" if info.location else "")


def _mending(before, after) -> str:
    """What to do about a carry of type `before` that becomes `after`."""
    if before.shape != after.shape:
        if _broadcasts(before.shape, after.shape):
            return f"start with an array of shape {after.shape} (jnp.broadcast_to), or reduce the result to shape {before.shape}"
        return f"return an array of shape {before.shape}, or start with one of shape {after.shape}"
    return f"convert the result with .astype({before.dtype.name!r}), or start with a carry of dtype {after.dtype.name}"


def _broadcasts(small: tuple, large: tuple) -> bool:
    return len(small) <= len(large) and all(a in (1, b) for a, b in zip(small[::-1], large[::-1]))
