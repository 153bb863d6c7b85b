"""xmap: functions of arrays with named axes, and, apart from the function, where these axes live.

    f = xmap(loss, in_axes=({}, {0: "batch"}), out_axes={}, axis_resources={"batch": "data"})

Inside, an array lacks the dimensions that were given names; collectives name them. An axis without resources is a batch (vmap). One with
axes of the mesh as resources is cut over them (shard_map), and what each device then has of it is a batch there.
"""
from __future__ import annotations

import math
from typing import Any, Callable, NamedTuple, Sequence

from mini_jax.core.program import ProgramInfo, function_name
from mini_jax.core.pytree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path
from mini_jax.core.state import joint_axes, state
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary_of
from mini_jax.lax import shapes
from mini_jax.runtime.meshes import Mesh, PartitionSpec, current_mesh
from mini_jax.transforms.arguments import argument_paths, keyable
from mini_jax.transforms.jit import jit
from mini_jax.transforms.shard_map import on_mesh
from mini_jax.transforms.vmap import Axis, batch_flat, move_batch

__all__ = ["xmap"]


class _Axis(NamedTuple):
    """A named axis, the axes of the mesh over which it is cut (as they are called inside), and what is left of it on a device: a batch of this
    size, with a name unless that is all."""
    name: Any
    inner: tuple
    batch: Any
    batch_size: int

    @property
    def parts(self) -> tuple:
        return self.inner + (() if self.batch is None else (self.batch,))


def _axis(name, size: int, resources: tuple, mesh: Mesh | None) -> _Axis:
    for r in resources:
        if mesh is None or r not in mesh.shape:
            raise ValueError(f"xmap: axis_resources puts {name!r} on the mesh axis {r!r}, but " + (
                "there is no mesh: call it within `with Mesh(devices, names):`" if mesh is None else f"the mesh is {mesh}"))
    count = math.prod([mesh.shape[r] for r in resources]) if resources else 1
    if size % count:
        raise ValueError(f"xmap: the axis {name!r} of size {size} can't be cut into {count} equal parts, over the mesh axes "
                         f"{', '.join(map(repr, resources))}")
    if not resources:
        return _Axis(name, (), name, size)
    if size == count and len(resources) == 1:
        return _Axis(name, (name,), None, 1)
    return _Axis(name, tuple([f"{name}.{r}" for r in resources]), f"{name}.batch" if size > count else None, size // count)


# --- which dimensions have which names ---------------------------------------------------------------------------------------------

def _is_entry(x) -> bool:
    """Is this the names of one array's dimensions, not a container of such?"""
    if isinstance(x, dict):
        return all([isinstance(k, int) for k in x])
    return isinstance(x, (list, tuple)) and len(x) > 0 and x[-1] is ...


def _entries(axes, tree, where: str, whose: str) -> list:
    """The entry for each leaf of a structure; TypeError for what is none."""
    entries = broadcast_prefix(axes, tree, _is_entry, where, whose)
    for entry in entries:
        if not _is_entry(entry):
            raise TypeError(f"{where}: the dimensions with names are given as {{dimension: name}} or as a list of names that ends with ..., got {entry!r:.100}")
    return entries


def _dimensions(entry, ndim: int, where: str) -> dict[Any, int]:
    """name -> dimension, of an array of `ndim` dimensions, named ones included."""
    pairs = entry.items() if isinstance(entry, dict) else enumerate(entry[:-1])
    found: dict[Any, int] = {}
    for d, name in pairs:
        if not -ndim <= d < ndim:
            raise ValueError(f"{where} names dimension {d} {name!r}, but the array has {ndim} dimensions")
        if name in found or d % ndim in found.values():
            raise ValueError(f"{where} = {entry!r} names a dimension twice, or uses a name twice")
        found[name] = d % ndim
    return found


def _remaining(dims: dict[Any, int], names: Sequence) -> list[int | None]:
    """For each name in turn, which dimension it is when those of the names before it are gone; None where it is not one."""
    out, gone = [], []
    for name in names:
        d = dims.get(name)
        out.append(None if d is None else d - sum([g < d for g in gone]))
        gone += [] if d is None else [d]
    return out


# --- the transformation --------------------------------------------------------------------------------------------------------------

def xmap(fun: Callable, in_axes: Any, out_axes: Any, *, axis_sizes: dict | None = None, axis_resources: dict | None = None,
         donate_argnums: int | Sequence[int] = ()) -> Callable:
    """`fun` on arrays some of whose dimensions have names, compiled.

    in_axes: for each array argument, in a structure that is a prefix of the arguments', {dimension: name} ({}: none), or a list of names of the
        leading dimensions that ends with `...`. Named dimensions are not there in what `fun` sees, but collectives, and reduce_axes, take their names.
    out_axes: likewise of the results, dimensions counted with the named ones. A name that stands in no entry for a result that varies along it
        is an error.
    axis_sizes: name -> size, of axes that no argument has.
    axis_resources: name -> an axis, or a tuple of axes, of the mesh that is set (`with Mesh(...)`) where the call is: the named axis is cut over them.
        Without: the axis is a batch on each device.
    donate_argnums: as for jit.

    Raises ValueError where sizes differ or can't be cut, an axis of the mesh is missing or used for two names, or a name for two dimensions, and
    for axis_resources within a map over devices; TypeError for entries of in_axes or out_axes that name no dimensions.

    >>> xmap(lambda x, y: lax.pdot(x, y, "i"), in_axes=({0: "i"}, {0: "i"}), out_axes={})(x, y)        # x · y
    """
    if not callable(fun):
        raise TypeError(f"xmap takes a function, got {fun!r:.200} of type {type(fun).__name__}")
    fun = keyable(fun)
    resources = {name: (r if isinstance(r, tuple) else (r,)) for name, r in (axis_resources or {}).items()}
    used = [r for rs in resources.values() for r in rs]
    if len(set(used)) != len(used):
        raise ValueError(f"xmap: axis_resources {axis_resources} uses an axis of the mesh for two names")

    programs: dict = {}

    def program():
        mesh = current_mesh() if used else None
        if mesh not in programs:
            programs[mesh] = jit(_compiled(fun, in_axes, out_axes, axis_sizes or {}, resources, mesh), donate_argnums=donate_argnums)
        return programs[mesh]

    def mapped(*args):
        return program()(*args)
    mapped.__name__, mapped.__doc__, mapped.__wrapped__ = function_name(fun), fun.__doc__, fun
    mapped.lower = lambda *args: program().lower(*args)
    return mapped


def _compiled(fun: Callable, in_axes, out_axes, axis_sizes: dict, resources: dict, mesh: Mesh | None) -> Callable:
    """The function on whole arrays."""
    @boundary_of(fun)
    def mapped(*args):
        leaves, tree = tree_flatten(args)
        info = ProgramInfo("xmap", fun, lambda: argument_paths(fun, tree_flatten((args, {}))[1]))
        given = (in_axes,) * len(args) if _is_entry(in_axes) else tuple(in_axes) if isinstance(in_axes, list) else in_axes
        entries = _entries(given, tree, "xmap in_axes", "the tuple of arguments")
        dims = [_dimensions(entry, typeof(leaf).ndim, f"xmap in_axes of {info.path(i)}") for i, (entry, leaf) in enumerate(zip(entries, leaves))]
        sizes = _sizes(leaves, dims, axis_sizes, info)
        unknown = [name for name in resources if name not in sizes]
        if unknown:
            raise ValueError(f"xmap of {info.name}: axis_resources has the axis {unknown[0]!r}, but no argument has it, nor axis_sizes; the axes are "
                             f"{', '.join(map(repr, sizes)) or 'none'}")
        bound = [name for name in sizes if name in state.axes]
        if bound:
            raise ValueError(f"xmap of {info.name}: the axis {bound[0]!r} is that of a map around it; each must have its own")
        around = [name for name, axis in state.axes.items() if axis.spread] if mesh is not None else []
        if around:
            raise ValueError(f"xmap of {info.name}: its axis_resources cut over {mesh}, but it is called in a function that is mapped over devices, along "
                             f"{around[0]!r}: leave them out here, or name its axes in the xmap around it")
        body = _Body(fun, [_axis(name, size, resources.get(name, ()), mesh) for name, size in sizes.items()], tree, dims, out_axes, info)
        if mesh is None:
            outs = body(*leaves)
        else:
            inner = {r: name for axis in body.axes for r, name in zip(resources.get(axis.name, ()), axis.inner)}
            named = Mesh(mesh.devices, [inner.get(r, f"mesh.{r}") for r in mesh.axis_names])
            outs = on_mesh(body, tuple(leaves), named, named.axis_names, tuple(body.specs(dims)), body.out_specs, check=True, total=False)
        return body.out_tree.unflatten(outs)
    mapped.__name__ = function_name(fun)
    return mapped


def _sizes(leaves: Sequence, dims: Sequence[dict], axis_sizes: dict, info: ProgramInfo) -> dict:
    """name -> size, of all named axes, in the order in which they come up."""
    sizes, places = {}, {}
    for i, (leaf, named) in enumerate(zip(leaves, dims)):
        for name, d in named.items():
            size = typeof(leaf).shape[d]
            if sizes.setdefault(name, size) != size:
                raise ValueError(f"xmap of {info.name}: the axis {name!r} has size {sizes[name]} in {info.path(places[name])} and {size} in {info.path(i)}")
            places.setdefault(name, i)
    for name, size in axis_sizes.items():
        if sizes.setdefault(name, size) != size:
            raise ValueError(f"xmap of {info.name}: axis_sizes gives the axis {name!r} the size {size}, but in {info.path(places[name])} it has {sizes[name]}")
    return sizes


class _Body:
    """What one device does, with its parts of flat arguments: the function, mapped over what is left there of each axis."""

    def __init__(self, fun: Callable, axes: Sequence[_Axis], tree, dims: Sequence[dict], out_axes, info: ProgramInfo):
        self.fun, self.axes, self.tree, self.out_axes, self.info = fun, axes, tree, out_axes, info
        names = [axis.name for axis in axes]
        self.names, self.positions = names, [_remaining(named, names) for named in dims]
        self.out_tree, self.out_dims, self.out_positions = None, [], []

    def __call__(self, *parts) -> list:
        return self._over(0, parts)

    def _over(self, level: int, xs: Sequence) -> list:
        """The function mapped over the axes from this one on."""
        if level == len(self.axes):
            return self._innermost(xs)
        axis, dims = self.axes[level], [p[level] for p in self.positions]
        if axis.batch is None:                           # one index of it is on each device
            outs = self._over(level + 1, [x if d is None else shapes.squeeze(x, (d,)) for x, d in zip(xs, dims)])
            return [out if p[level] is None else shapes.expand_dims(out, (p[level],)) for out, p in zip(outs, self.out_positions)]
        outs, found = batch_flat(lambda *ys: self._over(level + 1, ys), Axis(axis.batch_size, axis.batch), xs, dims, self.info)
        return [self._placed(out, axis, have, p[level], i) for i, (out, have, p) in enumerate(zip(outs, found, self.out_positions))]

    def _innermost(self, xs: Sequence) -> list:
        with joint_axes({axis.name: axis.parts for axis in self.axes if axis.parts != (axis.name,)}):
            outs, self.out_tree = tree_flatten(self.fun(*self.tree.unflatten(xs)))
        entries = _entries(self.out_axes, self.out_tree, "xmap out_axes", "the result")
        counts = [len(entry) if isinstance(entry, dict) else len(entry) - 1 for entry in entries]
        self.out_dims = [_dimensions(entry, typeof(out).ndim + n, "xmap out_axes") for entry, out, n in zip(entries, outs, counts)]
        unknown = [name for named in self.out_dims for name in named if name not in self.names]
        if unknown:
            raise ValueError(f"xmap of {self.info.name}: out_axes has the axis {unknown[0]!r}, which no argument has; axis_sizes can say how large it is")
        self.out_positions = [_remaining(named, self.names) for named in self.out_dims]
        return outs

    def _placed(self, out, axis: _Axis, have: int | None, want: int | None, position: int):
        if want is not None:
            return move_batch(out, axis.batch_size, have, want)
        if have is not None:
            path = keystr(tree_flatten_with_path(self.out_tree.unflatten(range(self.out_tree.num_leaves)))[0][position][0])
            raise ValueError(f"xmap of {self.info.name}: the result{f' at {path}' if path else ''} varies along the axis {axis.name!r}, which out_axes "
                             "doesn't name for it: name it, or make the result the same along it with a collective such as psum")
        return out

    def specs(self, dims: Sequence[dict]) -> list:
        """How values with such named dimensions are cut over the mesh."""
        inner = {axis.name: axis.inner for axis in self.axes}
        by_dim = [{d: inner[name] for name, d in named.items()} for named in dims]
        return [PartitionSpec(*[cut.get(d) or None for d in range(max(cut, default=-1) + 1)]) for cut in by_dim]

    def out_specs(self) -> list:
        return self.specs(self.out_dims)

