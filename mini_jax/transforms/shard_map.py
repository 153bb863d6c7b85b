"""shard_map: a function of the parts of arrays, run on every device of a mesh, with collectives over the mesh's axes.

    shard_map_p   the body is the program of one device; in_specs and out_specs say how whole arrays are cut into its inputs and outputs

As with pmap, a derivative sees each device's copy of a value as a variable of its own: a result that is the same on all is their mean, and
what an input that all share gets is the sum.
"""
from __future__ import annotations

import functools
import math
from typing import Any, Callable, NamedTuple, Sequence

from lowering.emit import lowers
from lowering.replicas import Replicas
from lowering.shards import quoted, sharding_text
from mini_jax.core import config
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo, memoized
from mini_jax.core.pytree import broadcast_prefix, keystr, tree_flatten_with_path
from mini_jax.core.effects import of_call
from mini_jax.core.refs import is_ref, uses_refs, without_refs
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.state import named_axes, state
from mini_jax.core.trace import Tracer, leaked, typeof
from mini_jax.core.tracebacks import boundary_of
from mini_jax.lax import collectives, elementwise, shapes
from mini_jax.runtime import dispatch, xla
from mini_jax.runtime.caches import ByFunction, executables, recorded
from mini_jax.runtime.meshes import Mesh, NamedSharding, PartitionSpec as P, current_mesh
from mini_jax.transforms.arguments import argument_paths, argument_types, checked_outputs, keyable, weakly
from mini_jax.transforms.jvp import jvp_jaxpr
from mini_jax.transforms.linearize import linearize_jaxpr, memoized_backward, transpose_jaxpr
from mini_jax.transforms.vmap import batch_jaxpr

__all__ = ["shard_map"]

_flatten = xla.registry.flatten

shard_map_p = Primitive("shard_map", multiple_results=True, memoize=False, facts={
    "family": "higher_order", "named_axes": True, "binds": lambda params: params["manual"], "mesh": lambda params: params["mesh"]})


# --- parts and wholes -----------------------------------------------------------------------------------------------------------

def _axes_of(spec: P) -> frozenset:
    return frozenset(spec.names())


def _part(whole, mesh: Mesh, spec: P):
    """The type of a device's part of a value."""
    return whole.update(shape=NamedSharding(mesh, spec).shard_shape(whole.shape), varying=whole.varying | _axes_of(spec))


def _whole(part, mesh: Mesh, spec: P, manual: frozenset):
    """The type of the value whose parts these are."""
    counts = NamedSharding(mesh, spec).counts(part.ndim)
    return part.update(shape=tuple([n * c for n, c in zip(part.shape, counts)]), varying=part.varying - manual)


def _sizes(mesh: Mesh, manual: Sequence) -> dict:
    return {name: mesh.shape[name] for name in manual}


def _everywhere(varying: frozenset, mesh: Mesh) -> P:
    """The spec of values with a new leading dimension of size 1 on each device, that differ along these axes."""
    return P(tuple([name for name in mesh.axis_names if name in varying]))


# --- rules ------------------------------------------------------------------------------------------------------------------------

def _type_rule(*types, jaxpr, mesh, out_specs, manual, **_):
    return [_whole(t, mesh, spec, frozenset(manual)) for t, spec in zip(jaxpr.out_types, out_specs)]


def _impl(*args, **params):
    """Run now, on the devices of the mesh."""
    for arg in args:
        if isinstance(arg, Tracer):
            raise leaked(arg)
    values = dispatch.opened(args)
    wanted = [NamedSharding(params["mesh"], spec) for spec in params["in_specs"]]
    at = dispatch.placement(values, params["mesh"], wanted)
    outputs = tuple([NamedSharding(params["mesh"], spec) for spec in params["out_specs"]])

    def build():
        jaxpr, consts = stage(lambda *xs: shard_map_p.bind(*xs, **params), [typeof(arg) for arg in args])
        return dispatch.load(jaxpr, consts, at, name=params["name"], out_shardings=outputs)
    key = (_impl, at, params["in_specs"], params["out_specs"], params["manual"], config.trace_key())
    executable = executables.once(params["jaxpr"].memo, key, build)
    return dispatch.wrapped(executable.out_types, executable(values))


def _chosen(values: Sequence, marks: Sequence) -> tuple:
    return tuple([v for v, mark in zip(values, marks) if mark])


def _jvp(primals, tangents, *, jaxpr, in_specs, out_specs, **params):
    nonzero = tuple([type(t) is not Zero for t in tangents])
    with named_axes(_sizes(params["mesh"], params["manual"]), spread=True):
        program, consts, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
    results = shard_map_p.bind(*consts, *primals, *_chosen(tangents, nonzero), jaxpr=program, **params,
                               in_specs=(P(),) * len(consts) + in_specs + _chosen(in_specs, nonzero),
                               out_specs=out_specs + _chosen(out_specs, out_nonzero))
    outs, dots = results[:len(out_specs)], iter(results[len(out_specs):])
    return outs, [next(dots) if mark else Zero(typeof(y).tangent()) for mark, y in zip(out_nonzero, outs)]


class _Parts(NamedTuple):
    """The two programs of a linearization, constants, and how residuals are cut: those that the primal program returns differ from device
    to device, and are stacked along a new leading dimension."""
    primal: Jaxpr
    linear: Jaxpr
    consts: list
    new_specs: tuple
    sources: list
    out_nonzero: tuple


@memoized
def _in_parts(jaxpr: Jaxpr, mesh: Mesh, manual: tuple, nonzero: tuple) -> _Parts:
    with named_axes(_sizes(mesh, manual), spread=True):
        found = linearize_jaxpr(jaxpr, nonzero)
        count = len(jaxpr.outvars)
        new = found.primal.out_types[count:]

        def primal(*args):
            outs = eval_jaxpr(found.primal, (), *args)
            return [*outs[:count], *[shapes.expand_dims(r, (0,)) for r in outs[count:]]]
        stacked = [where == "out" and i >= count for where, i in found.sources]

        def linear(*args):
            given = [shapes.squeeze(x, (0,)) if s else x for x, s in zip(args, stacked)]
            return eval_jaxpr(found.linear, (), *given, *args[len(stacked):])
        types = found.linear.in_types
        types = [t.update(shape=(1, *t.shape)) if s else t for t, s in zip(types, stacked)] + list(types[len(stacked):])
        primal_jaxpr, linear_jaxpr = stage(primal, found.primal.in_types, jaxpr.info)[0], stage(linear, types, jaxpr.info)[0]
    return _Parts(primal_jaxpr, linear_jaxpr, found.consts, tuple([_everywhere(t.varying, mesh) for t in new]), found.sources, found.out_nonzero)


def _linearize(primals, nonzero, *, jaxpr, mesh, manual, in_specs, out_specs, **params):
    """Both the primal and the linear program are shard_maps; residuals stay where they were computed."""
    parts = _in_parts(jaxpr, mesh, manual, tuple(nonzero))
    params |= {"mesh": mesh, "manual": manual}
    all_outs = out_specs + parts.new_specs
    results = shard_map_p.bind(*parts.consts, *primals, jaxpr=parts.primal, in_specs=(P(),) * len(parts.consts) + in_specs, out_specs=all_outs, **params)
    residuals = [primals[i] if where == "in" else results[i] for where, i in parts.sources]
    residual_specs = tuple([in_specs[i] if where == "in" else all_outs[i] for where, i in parts.sources])

    def linear(*tangents):
        if not parts.linear.outvars:
            return []
        return shard_map_p.bind(*residuals, *tangents, jaxpr=parts.linear, in_specs=residual_specs + _chosen(in_specs, nonzero),
                                out_specs=_chosen(out_specs, parts.out_nonzero), **params)
    return results[:len(out_specs)], parts.out_nonzero, linear


@memoized_backward
def _backward(jaxpr: Jaxpr, mesh: Mesh, manual: tuple, in_specs: tuple, out_specs: tuple, kinds: tuple, live: tuple):
    """The transpose of the program of one device: (program, constants, which linear inputs get a cotangent).

    A result that is the same along an axis gives each copy its part of the cotangent; what an input that is the same along one gets is
    summed over it, of all such inputs in one communication for each set of axes."""
    sizes = _sizes(mesh, manual)
    with named_axes(sizes, spread=True):
        back = transpose_jaxpr(jaxpr, kinds, live)
        count = len(back.consts) + sum([k is False for k in kinds])
        ct_specs = _chosen(out_specs, live)
        in_linear = _chosen([s for s, k in zip(in_specs, kinds) if k is not False], back.nonzero)

        def fun(*args):
            cts = []
            for ct, spec in zip(args[count:], ct_specs):
                copies = math.prod([n for name, n in sizes.items() if name not in _axes_of(spec)])
                cts.append(ct if copies == 1 else elementwise.mul(ct, typeof(ct).dtype.type(1 / copies)))
            outs = eval_jaxpr(back.jaxpr, (), *args[:count], *cts)
            groups: dict[tuple, list[int]] = {}
            for i, spec in enumerate(in_linear):
                axes = tuple([name for name in manual if name not in _axes_of(spec)])
                if axes:
                    groups.setdefault(axes, []).append(i)
            for axes, places in groups.items():
                for i, total in zip(places, collectives.psum_p.bind(*[outs[i] for i in places], axes=axes, groups=None)):
                    outs[i] = total
            return outs
        types = back.jaxpr.in_types
        program, consts = stage(fun, types, jaxpr.info)
    return program.hoisted(), [*consts, *back.consts], back.nonzero


def _transpose(cts, *args, jaxpr, mesh, manual, in_specs, out_specs, **params):
    kinds = tuple([(True if a.wanted else None) if isinstance(a, Accumulator) else False for a in args])
    live = tuple([type(ct) is not Zero for ct in cts])
    program, consts, nonzero = _backward(jaxpr, mesh, manual, in_specs, out_specs, kinds, live)
    values = [a for a in args if not isinstance(a, Accumulator)]
    value_specs = tuple([s for s, k in zip(in_specs, kinds) if k is False])
    linear_specs = _chosen([s for s, k in zip(in_specs, kinds) if k is not False], nonzero)
    outs = iter(shard_map_p.bind(*consts, *values, *_chosen(cts, live), jaxpr=program, mesh=mesh, manual=manual,
                                 in_specs=(P(),) * len(consts) + value_specs + _chosen(out_specs, live), out_specs=linear_specs, **params))
    for arg, mark in zip([a for a in args if isinstance(a, Accumulator)], nonzero):
        if mark:
            arg.add(next(outs))


def _inserted(spec: P, d: int | None, cut: tuple) -> P:
    """The spec of a batch, its new dimension cut over these axes."""
    if d is None or not cut and d >= len(spec):
        return spec
    entries = [*spec, *[None] * (d - len(spec))]
    return P(*entries[:d], cut or None, *entries[d:])


def _batch(axis, args, dims, *, jaxpr, in_specs, out_specs, **params):
    sizes = _sizes(params["mesh"], params["manual"])
    cut = axis.cut if axis.name is None and all([name in sizes for name in axis.cut]) else ()
    parts = math.prod([sizes[name] for name in cut])
    if axis.size % parts:
        raise ValueError(f"vmap: a batch of {axis.size} can't be cut into {parts} equal parts by spmd_axis_name {cut}")
    with named_axes(sizes, spread=True):
        batched = batch_jaxpr(jaxpr, axis._replace(size=axis.size // parts, cut=()) if cut else axis, tuple(dims))
    specs = tuple([_inserted(spec, d, cut) for spec, d in zip(in_specs, dims)])
    outs = shard_map_p.bind(*batched.consts, *args, jaxpr=batched.jaxpr, in_specs=(P(),) * len(batched.consts) + specs,
                            out_specs=tuple([_inserted(spec, d, cut) for spec, d in zip(out_specs, batched.out_dims)]), **params)
    return outs, list(batched.out_dims)


shard_map_p.type_rule, shard_map_p.impl, shard_map_p.batch = _type_rule, _impl, _batch
shard_map_p.jvp, shard_map_p.linearize, shard_map_p.transpose = _jvp, _linearize, _transpose
shard_map_p.effects_rule = lambda types, params: of_call(params["jaxpr"])


@lowers(shard_map_p)
def _lower(e, eqn, *operands):
    params, jaxpr, mesh = eqn.params, eqn.params["jaxpr"], eqn.params["mesh"]
    place = {d: i for i, d in enumerate(e.module.devices or mesh.devices.flat)}
    order = tuple([place[d] for d in mesh.devices.flat])
    axes = Replicas(tuple(zip(mesh.axis_names, mesh.devices.shape)), mesh.size, True, () if order == tuple(range(mesh.size)) else order)
    if e.module.devices is None or mesh.size == 1:
        return e.call(jaxpr, operands, params["name"], axes)
    place = lambda spec, t: sharding_text(e.module, NamedSharding(mesh, spec), t.ndim)
    ins = ", ".join([place(spec, v.aval) for spec, v in zip(params["in_specs"], eqn.invars)])
    outs = ", ".join([place(spec, v.aval) for spec, v in zip(params["out_specs"], eqn.outvars)])
    inner = type(e)(e.module, axes, e)
    inner.written = {}
    arguments = [inner.fresh() for _ in operands]
    inner.outer = None                                  # a part is not the whole: nothing from outside may be used inside
    results = inner.inline(jaxpr, arguments)
    header = ", ".join([f"{a}: {t.mlir}" for a, t in zip(arguments, jaxpr.in_types)])
    end = f"{inner.indent}sdy.return {', '.join(results)} : {', '.join([t.mlir for t in jaxpr.out_types])}" if results else f"{inner.indent}sdy.return"
    body = "\n".join([*inner.lines, end])
    manual = ", ".join([quoted(name) for name in params["manual"]])
    return e.emit_many(f"sdy.manual_computation({', '.join(operands)}) in_shardings=[{ins}] out_shardings=[{outs}] manual_axes={{{manual}}} "
                       f"({header}) {{\n{body}\n{e.indent}}} : ({', '.join([t.mlir for t in eqn.in_types])}) -> "
                       f"({', '.join([t.mlir for t in eqn.out_types])})", len(eqn.outvars), pure=False)


# --- the transformation -------------------------------------------------------------------------------------------------------------

def shard_map(f: Callable | None = None, /, *, out_specs, in_specs=None, mesh: Mesh | None = None, axis_names=frozenset(), check_vma: bool = True,
              check_rep: bool | None = None) -> Callable:
    """Run `f` on every device of a mesh, each with its part of the arguments (single program, multiple data).

    in_specs, out_specs: PartitionSpecs, in structures that are prefixes of the arguments' and of the result's: how whole arrays are cut into
        what a device gets, and how what it returns makes a whole one. An axis that a spec doesn't name has the same on all devices along it.
    mesh: default: the one that is set (set_mesh). axis_names: the axes that `f` sees and its collectives may name; default: all.
    check_vma: check that a result with an out_spec that doesn't name an axis is the same along it. check_rep: its older name.
    Inside, lax.psum and the other collectives work over the mesh's axes. All transformations go through. A gradient that `f` takes in a value
    that all devices share along an axis is the total, as if the axis stood in reduce_axes (with check_vma=False, or lax.pvary of the value, it
    is each device's own).
    Raises ValueError for dimensions that can't be cut so and for results that differ where they must not.
    """
    if check_rep is not None:
        check_vma = check_rep
    if f is None:
        return lambda f: shard_map(f, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names, check_vma=check_vma)
    if not callable(f):
        raise TypeError(f"shard_map takes a function, got {f!r:.200} of type {type(f).__name__}")
    f = keyable(f)
    given_mesh = mesh

    @boundary_of(f)
    def mapped(*args):
        mesh = given_mesh if given_mesh is not None else current_mesh()
        if not isinstance(mesh, Mesh):
            raise ValueError("shard_map needs a mesh: pass mesh=, or call it within `with set_mesh(mesh):`" if mesh is None
                             else f"shard_map: mesh must be a Mesh with devices, got {mesh!r:.100}")
        unknown = [name for name in axis_names if name not in mesh.axis_names]
        if unknown:
            raise ValueError(f"shard_map: axis_names has {unknown[0]!r}, but the axes of {mesh} are {mesh.axis_names}")
        manual = tuple([name for name in mesh.axis_names if not axis_names or name in axis_names])
        bound = [name for name in manual if name in state.axes]
        if bound:
            raise ValueError(f"shard_map: the axis {bound[0]!r} is that of a vmap, pmap or shard_map around already: name the axes that this one "
                             "is about in axis_names, or give the mesh's axes other names")
        return on_mesh(f, args, mesh, manual, in_specs, lambda: out_specs, check=check_vma, total=check_vma)
    return functools.update_wrapper(mapped, f, updated=())


def on_mesh(f: Callable, args: tuple, mesh: Mesh, manual: tuple, in_specs, out_specs: Callable, *, check: bool, total: bool):
    """shard_map of f, called. out_specs(): asked for when f has been recorded. check: that results are the same where their specs say so.
    total: gradients taken inside are sums over the mesh's axes."""
    leaves, tree = _flatten((args, {}))
    fun_ref = weakly(f)
    info = ProgramInfo("shard_map", f, lambda: argument_paths(fun_ref(), tree))
    specs = tuple(broadcast_prefix(_as_prefix(in_specs, args), tree.children()[0], _is_spec, "shard_map in_specs", "the tuple of arguments"))
    _check_specs(specs, mesh, manual, "in_specs", info)
    types = argument_types(leaves, info)
    parts = [_checked_part(t, mesh, spec, info, i) for i, (t, spec) in enumerate(zip(types, specs))]
    jaxpr, consts, out_tree = _recorded_body(f, tree, tuple(parts), mesh, manual, total, info)
    results = tuple(broadcast_prefix(out_specs(), out_tree, _is_spec, "shard_map out_specs", "the result"))
    _check_specs(results, mesh, manual, "out_specs", info)
    for i, (t, spec) in enumerate(zip(jaxpr.out_types, results, strict=True)):
        _check_result(t, spec, frozenset(manual), i, out_tree, info, check)
    outs = shard_map_p.bind(*consts, *leaves, jaxpr=jaxpr, mesh=mesh, manual=manual, in_specs=(P(),) * len(consts) + specs,
                            out_specs=results, name=info.name)
    return out_tree.unflatten(outs)


_bodies = ByFunction()


def _recorded_body(f: Callable, tree, parts: tuple, mesh: Mesh, manual: tuple, total: bool, info: ProgramInfo) -> tuple[Jaxpr, list, Any]:
    """The program of one device (constants first), the constants' values and the structure of its result; recorded once for each function."""
    kept, key = _bodies.of(f), (tree, parts, mesh, manual, total, config.trace_key(), tuple(state.axes.items()))
    out_tree = None

    def flat(*xs):
        nonlocal out_tree
        outs, out_tree = _flatten(f(*tree.unflatten(xs)[0]))
        return checked_outputs(outs, out_tree, info)

    def build():
        with named_axes(_sizes(mesh, manual), spread=True, total=total):
            jaxpr, consts = stage(flat, parts, info)
            jaxpr = jaxpr.hoisted()
            if uses_refs(jaxpr) and not any(map(is_ref, consts)):    # refs made inside are each device's own
                jaxpr = without_refs(jaxpr)
        return jaxpr, consts, out_tree
    found = recorded.once(kept, key, build)
    if any([isinstance(c, Tracer) for c in found[1]]):
        kept.pop(key, None)
    return found


def _is_spec(x) -> bool:
    return x is None or isinstance(x, P)


def _as_prefix(specs, args: tuple):
    if specs is None:
        raise TypeError("shard_map: in_specs must say how the arguments are cut; P() is an argument that all devices share")
    return specs if isinstance(specs, P) or not isinstance(specs, list) else tuple(specs)


def _check_specs(specs: Sequence, mesh: Mesh, manual: Sequence, what: str, info: ProgramInfo) -> None:
    for spec in specs:
        if not isinstance(spec, P):
            raise TypeError(f"shard_map {what} of {info.name}: expected a PartitionSpec, got {spec!r:.100}")
        for name in spec.names():
            if name not in manual:
                raise ValueError(f"shard_map {what} of {info.name}: {spec} names the axis {name!r}; the axes are {tuple(manual)} of {mesh}")


def _checked_part(t, mesh: Mesh, spec: P, info: ProgramInfo, position: int):
    try:
        return _part(t, mesh, spec)
    except ValueError as error:
        raise ValueError(f"shard_map of {info.name}: argument {info.path(position)} of type {t} can't be cut by its in_spec: {error}") from None


def _check_result(t, spec: P, manual: frozenset, position: int, out_tree, info: ProgramInfo, check_vma: bool) -> None:
    path = lambda: keystr(tree_flatten_with_path(out_tree.unflatten(range(out_tree.num_leaves)))[0][position][0])
    if len(spec.trimmed()) > t.ndim:
        raise ValueError(f"shard_map of {info.name}: out_spec {spec} for result{path()} of type {t}, which has {t.ndim} dimensions")
    differs = t.varying & manual - _axes_of(spec)
    if check_vma and differs:
        raise ValueError(f"shard_map of {info.name}: result{path()} of type {t} differs along {', '.join(sorted(map(repr, differs)))}, which its out_spec "
                         f"{spec} doesn't name: name the axis, make it the same with a collective such as psum, or pass check_vma=False")
