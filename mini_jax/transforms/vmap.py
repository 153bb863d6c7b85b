"""Vectorization: a function of one example becomes one of a batch, by the batching rules of its primitives."""
from __future__ import annotations

import weakref
from functools import lru_cache
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mini_jax.core import source
from mini_jax.core.program import Jaxpr, ProgramInfo, axes_used, memoized
from mini_jax.core.pytree import broadcast_prefix, keystr, tree_flatten_with_path, tree_leaves
from mini_jax.core.effects import RefEffect
from mini_jax.core.refs import ABSENT, View, described, get_p, in_transformation, is_ref, whole
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.state import current_trace, named_axes, state
from mini_jax.core.trace import Trace, Tracer, typeof
from mini_jax.core.tracebacks import boundary_of
from mini_jax.core.types import ShapedArray
from mini_jax.lax import shapes
from mini_jax.runtime import xla
from mini_jax.transforms.arguments import argument_paths, check_no_refs

_flatten = xla.registry.flatten


class Axis(NamedTuple):
    """The axis being mapped: its size, its name if it has one, and the axes of a mesh over which the batch is cut."""
    size: int
    name: Any = None
    cut: tuple = ()


class BatchTracer(Tracer):
    """One example's value, standing for the whole batch: dimension `dim` of `val` runs over the examples."""
    __slots__ = ("val", "dim", "_source")

    def __init__(self, trace, val, dim, where=None):
        self._trace, self.val, self.dim, self._source = trace, val, dim, where
        self.aval = example_type(typeof(val), dim, trace.axis.name)

    def made_by(self):
        return None, self._source

    def depends_on(self):
        """The argument that it is; where it was computed from arguments, nobody has kept which."""
        trace = self._trace
        for position, tracer in trace.inputs:
            if tracer() is self and trace.info is not None:
                path = trace.info.path(position)
                return () if path is None else (path,)
        return ()


@lru_cache(maxsize=4096)
def example_type(aval: ShapedArray, dim: int, name) -> ShapedArray:
    """The type of one example of a batch; with a named axis it varies over that axis."""
    varying = aval.varying if name is None else aval.varying | {name}
    return aval.update(shape=aval.shape[:dim] + aval.shape[dim + 1:], varying=varying)


class BatchTrace(Trace):
    """Every operation on its tracers becomes the batched operation, in the parent trace."""
    __slots__ = ("axis", "inputs")

    def __init__(self, parent, axis: Axis, info: ProgramInfo | None = None):
        super().__init__(parent, info)
        self.axis, self.inputs = axis, ()

    def process(self, primitive, args, params):
        if primitive.effects_rule is not None:
            found = in_transformation(self, primitive, args, params)
            if found is not ABSENT:
                return found
            if any(map(is_ref, args)):
                return self._at_captured_refs(primitive, args, params)
        return self._batched(primitive, args, params)

    def _at_captured_refs(self, primitive, args, params):
        """An operation on refs from outside, which all examples share: they are read, not written."""
        for effect in primitive.effects_rule(tuple([typeof(a) for a in args]), params):
            if type(effect) is RefEffect and effect.kind != "read":
                raise shared_write(args[effect.ref])
        if primitive is get_p and any([type(a) is BatchTracer and a._trace is self for a in args]):
            with current_trace(self.parent):
                value = whole(args[0])
            return get_p.facts["meaning"](value, args[1:], **params)
        return self._batched(primitive, args, params)

    def check_write(self, ref, value) -> None:
        """Raise ValueError: a ref from outside is shared by all examples."""
        raise shared_write(ref)

    def _batched(self, primitive, args, params):
        vals, dims, live = [], [], False
        for arg in args:
            if type(arg) is BatchTracer and arg._trace is self:
                vals.append(arg.val)
                dims.append(arg.dim)
                live = True
            else:
                vals.append(arg)
                dims.append(None)
        if not live and (self.axis.name is None or self.axis.name not in axes_used(primitive, params)):
            return self.parent.process(primitive, args, params)
        if primitive.batch is None:
            raise NotImplementedError(f"{primitive.name} has no batching rule")
        saved = state.trace
        state.trace = self.parent
        try:
            out, out_dim = primitive.batch(self.axis, vals, dims, **params)
        finally:
            state.trace = saved
        if primitive.multiple_results:
            return [y if d is None else BatchTracer(self, y, d) for y, d in zip(out, out_dim)]
        return out if out_dim is None else BatchTracer(self, out, out_dim, state.source or source.capture(3))

    def split(self, value) -> tuple[Any, int | None]:
        """A result as its batched value and batch dimension (None where it is the same for every example)."""
        if type(value) is BatchTracer and value._trace is self:
            return value.val, value.dim
        return value, None


def shared_write(ref) -> ValueError:
    """A mapped function wrote to a ref that all of its examples share."""
    return ValueError(f"vmap of a function that writes to {described(ref)}, which it captures or takes with in_axes None: every example "
                      "would write to the same place. Pass it as an argument with an axis to map over, each example having its own entry, "
                      "or return the value and write it outside")


def _input(trace: BatchTrace, arg, dim: int | None):
    """An argument as the mapped function sees it. A mapped ref is a view: each example reads and writes its own entry."""
    if dim is None:
        return arg
    if not is_ref(arg):
        return BatchTracer(trace, arg, dim)
    size = trace.axis.size
    return View(trace, arg, example_type(typeof(arg).inner, dim, trace.axis.name), lambda value: BatchTracer(trace, value, dim),
                lambda value: move_batch(*_both(trace, value, size), dim))


def _both(trace: BatchTrace, value, size: int):
    value, dim = trace.split(value)
    return value, size, dim


def batch_flat(fun: Callable, axis: Axis, args: Sequence, dims: Sequence[int | None],
               info: ProgramInfo | None = None) -> tuple[list, list[int | None]]:
    """Run fun on examples of the batch; returns the outputs and where their batch dimensions are."""
    trace = BatchTrace(state.trace, axis, info)
    try:
        inputs = [_input(trace, arg, dim) for arg, dim in zip(args, dims)]
        trace.inputs = [(i, weakref.ref(x)) for i, x in enumerate(inputs) if type(x) is BatchTracer]
        with current_trace(trace):
            if axis.name is None:
                outs = fun(*inputs)
            else:
                with named_axes({axis.name: axis.size}):
                    outs = fun(*inputs)
        pairs = [trace.split(out) for out in outs]
    finally:
        trace.end()
    return [v for v, _ in pairs], [d for _, d in pairs]


def move_batch(value, size: int, source: int | None, destination: int):
    """A batched value with its batch dimension at `destination`; one that is the same for all examples is repeated."""
    if source is None:
        shape = typeof(value).shape
        dims = tuple([i + (i >= destination) for i in range(len(shape))])
        return shapes.broadcast_in_dim(value, (*shape[:destination], size, *shape[destination:]), dims)
    return shapes.moveaxis(value, source, destination)


class Batched(NamedTuple):
    """A batched program, the values of its leading inputs (constants), and the batch dimensions of its outputs."""
    jaxpr: Jaxpr
    consts: list
    out_dims: tuple


@memoized
def batch_jaxpr(jaxpr: Jaxpr, axis: Axis, dims: tuple, out_dims: tuple | None = None) -> Batched:
    """The program of a batch, given the batch dimensions of the inputs.

    out_dims: where the outputs' batch dimensions must be (an entry None leaves that output as it comes); default: as they come.
    """
    found: tuple = ()

    def fun(*args):
        nonlocal found
        outs, found = batch_flat(lambda *xs: eval_jaxpr(jaxpr, (), *xs), axis, args, dims, jaxpr.info)
        if out_dims is not None:
            outs = [out if want is None else move_batch(out, axis.size, have, want) for out, have, want in zip(outs, found, out_dims)]
            found = [have if want is None else want for have, want in zip(found, out_dims)]
        return outs

    types = [batch_type(t, axis, d) for t, d in zip(jaxpr.in_types, dims)]
    program, consts = stage(fun, types, jaxpr.info)
    return Batched(program.hoisted(), consts, tuple(found))


def batch_type(aval, axis: Axis, dim: int | None):
    """The type of a batch of values of this type."""
    if axis.name is not None and axis.name in aval.varying:
        aval = aval.update(varying=aval.varying - {axis.name})
    return aval if dim is None else aval.update(shape=(*aval.shape[:dim], axis.size, *aval.shape[dim:]))


def batch_call(primitive, axis: Axis, args: Sequence, dims: Sequence, jaxpr: Jaxpr, params: dict):
    """The batching rule of a primitive that calls a program: it calls the batched program."""
    batched = batch_jaxpr(jaxpr, axis, tuple(dims))
    return primitive.bind(*batched.consts, *args, jaxpr=batched.jaxpr, **params), list(batched.out_dims)


# --- the transformation -------------------------------------------------------------------------------------------------------

def vmap(fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name=None, axis_size: int | None = None, spmd_axis_name=None) -> Callable:
    """Vectorize `fun`: the result maps it over array axes, as one batched computation.

    in_axes: which axis of each argument to map over: an int (negative counts from the end), None (not mapped), or a tuple
        or nested structure of them that is a prefix of the arguments' structure. Keyword arguments are mapped over axis 0.
    out_axes: where the mapped axis is in the results, likewise; None for a result that is the same for all.
    axis_name: a name for the axis, for collectives (lax.psum …). axis_size: its size; needed only when nothing is mapped.
    spmd_axis_name: an axis of a mesh, or a tuple, by which the batch is cut wherever with_sharding_constraint or shard_map say how a value is.
    Raises ValueError where sizes differ or an axis does not exist, naming the argument.
    """
    if not callable(fun):
        raise TypeError(f"vmap takes a function, got {fun!r:.200} of type {type(fun).__name__}")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    check_axes(in_axes, "vmap in_axes", of_arguments=True)
    check_axes(out_axes, "vmap out_axes")
    cut = () if spmd_axis_name is None else tuple(spmd_axis_name) if isinstance(spmd_axis_name, (tuple, list)) else (spmd_axis_name,)

    @boundary_of(fun)
    def vmap_fun(*args, **kwargs):
        leaves, tree = _flatten((args, kwargs))
        info = ProgramInfo("vmap", fun, lambda: argument_paths(fun, tree))
        dims = flat_in_axes(in_axes, args, kwargs, leaves, info)
        size = mapped_size(leaves, dims, info, axis_size)
        out_tree = None

        def flat_fun(*flat):
            nonlocal out_tree
            args, kwargs = tree.unflatten(flat)
            outs, out_tree = _flatten(fun(*args, **kwargs))
            check_no_refs(outs, out_tree, info)
            return outs
        outs, out_dims = batch_flat(flat_fun, Axis(size, axis_name, cut), leaves, dims, info)
        flat_out = [out_axes] * len(outs) if type(out_axes) is int else broadcast_prefix(out_axes, out_tree, is_none, "vmap out_axes", "the result")
        return out_tree.unflatten([_placed(out, size, have, want, i, out_tree, info)
                                   for i, (out, have, want) in enumerate(zip(outs, out_dims, flat_out))])
    return vmap_fun


def is_none(x) -> bool:
    return x is None


def check_axes(axes, name: str, of_arguments: bool = False) -> None:
    """TypeError unless `axes` is an int, None or a structure of them. name: what they are, "vmap in_axes".
    of_arguments: the structure must be a tuple, with an entry for each argument.
    """
    for leaf in tree_leaves(axes):
        if not isinstance(leaf, (int, np.integer)) or isinstance(leaf, bool):
            raise TypeError(f"{name} must be ints, None or nested structures of them, got {leaf!r} in {axes!r}")
    if of_arguments and not (axes is None or isinstance(axes, (int, np.integer, tuple))):
        raise TypeError(f"{name} must be an int, None or a tuple with an entry for each positional argument, got {axes!r}; "
                        f"of one argument, write in_axes=({axes!r},)")


def flat_in_axes(in_axes, args: tuple, kwargs: dict, leaves: Sequence, info: ProgramInfo) -> list[int | None]:
    """The axis, non-negative, to map over of each flat argument; keyword arguments are mapped over axis 0. The errors name the argument."""
    if isinstance(in_axes, tuple) and len(in_axes) != len(args):
        raise ValueError(f"{info.transformation} in_axes has {len(in_axes)} entries, but {info.name} was called with {len(args)} positional arguments")
    if kwargs or in_axes != 0:
        flat_axes = broadcast_prefix(in_axes, _flatten(args)[1], is_none, f"{info.transformation} in_axes", "the tuple of arguments")
        flat_axes = [*flat_axes, *[0] * (len(leaves) - len(flat_axes))]
    else:
        flat_axes = [0] * len(leaves)
    return [None if a is None else _checked_axis(leaf, a, i, info) for i, (leaf, a) in enumerate(zip(leaves, flat_axes))]


def _checked_axis(leaf, axis: int, position: int, info: ProgramInfo) -> int:
    try:
        aval = typeof(leaf)
    except TypeError:
        raise TypeError(f"{info.transformation}: argument {info.path(position)} of {info.name} is {leaf!r:.200} of type {type(leaf).__name__}, "
                        "which has no axis to map over; give it in_axes None, or leave it out of the arguments") from None
    if not -aval.ndim <= axis < aval.ndim:
        raise ValueError(f"{info.transformation} was requested to map over axis {axis} of argument {info.path(position)} of {info.name}, which has type "
                         f"{aval} and so {aval.ndim} axes" + ("; give it in_axes None to pass it whole" if aval.ndim == 0 else ""))
    return axis % aval.ndim


def mapped_size(leaves, dims, info: ProgramInfo, axis_size: int | None) -> int:
    """The size of the mapped axis. ValueError where arguments differ in it, naming them."""
    sizes = {typeof(leaf).shape[d] for leaf, d in zip(leaves, dims) if d is not None}
    if axis_size is not None:
        sizes.add(axis_size)
    if len(sizes) == 1:
        return sizes.pop()
    if not sizes:
        raise ValueError(f"{info.transformation} of {info.name} maps no argument: at least one in_axes entry must not be None, or axis_size be given")
    found = [f"  {info.path(i)} has size {typeof(leaf).shape[d]} along axis {d} (type {typeof(leaf)})"
             for i, (leaf, d) in enumerate(zip(leaves, dims)) if d is not None]
    if axis_size is not None:
        found.append(f"  axis_size is {axis_size}")
    raise ValueError(f"{info.transformation} got inconsistent sizes for array axes to be mapped in the arguments of {info.name}:\n" + "\n".join(found))


def result_axis(ndim: int, differs: bool, want: int | None, position: int, out_tree, info: ProgramInfo) -> int | None:
    """Where out_axes puts the mapped axis of a result, of `ndim` dimensions without it, that differs along it or not. ValueError if it can't."""
    if want is None:
        if differs:
            path = keystr(tree_flatten_with_path(out_tree.unflatten(range(out_tree.num_leaves)))[0][position][0])
            raise ValueError(f"{info.transformation} has out_axes None for a result of {info.name}{f' at {path}' if path else ''}, which differs along the "
                             "mapped axis: only results that don't depend on mapped arguments, or that a collective such as psum or pmean "
                             "has made equal, can be left unmapped")
        return None
    if not -ndim - 1 <= want <= ndim:
        raise ValueError(f"{info.transformation} out_axes {want} is out of bounds for a result of {info.name} with {ndim + 1} axes, the mapped one included")
    return want % (ndim + 1)


def _placed(out, size: int, have: int | None, want: int | None, position: int, out_tree, info: ProgramInfo):
    """A result with its mapped axis where out_axes wants it."""
    want = result_axis(typeof(out).ndim - (have is not None), have is not None, want, position, out_tree, info)
    return out if want is None else move_batch(out, size, have, want)
