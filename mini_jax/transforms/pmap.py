"""pmap: one program, replicated over devices, each with its own part of the arguments; XLA runs the replicas in parallel.

The function of one replica is recorded as a program, inside which the mapped axis has a name. A call is the primitive pmap:

    outs = pmap[jaxpr axis_name axis_size in_dims out_dims] args

in_dims and out_dims say for each flat value at which dimension the replicas' parts lie side by side; None: all share it.
At the top level the parts are on their devices and stay there. A pmap inside a pmap multiplies the replicas
(lowering/replicas.py): each takes its part of what its outer replica has, and its results are gathered there.
Where several processes work together, a pmap at the top level spans the devices of all (parameter processes: of how many): axis_size counts
all replicas, but arguments and results are those of the local ones.
"""
from __future__ import annotations

import threading
import weakref
from typing import Any, Callable, NamedTuple, Sequence

from lowering.emit import lowers
from lowering.grids import spread
from lowering.program import Lowered, lower, with_inputs
from lowering.replicas import Replicas, demand
from lowering.rules.collectives import collective, replica_index
from lowering.rules.slicing import whole_bytes
from mini_jax.core import config, dtypes
from mini_jax.core.effects import RefEffect, of_call
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, JaxprEqn, Var, axes_used_in, function_name
from mini_jax.core.pytree import broadcast_prefix, tree_flatten
from mini_jax.core.refs import described, discharged, is_ref, load, store
from mini_jax.core.staging import eval_jaxpr, for_types, stage
from mini_jax.core.state import named_axes, state
from mini_jax.core.trace import Tracer, eval_trace, leaked, typeof
from mini_jax.core.types import array_type
from mini_jax.lax import collectives, elementwise
from mini_jax.runtime import dispatch, nonfinite, processes, xla
from mini_jax.runtime.devices import current_device, devices as all_devices
from mini_jax.runtime.caches import executables
from mini_jax.runtime.executable import Executable
from mini_jax.runtime.guarded import asked_again, guarded_dispatcher
from mini_jax.transforms import jit, stages
from mini_jax.transforms.arguments import argument_types, keyable, resolve_positions
from mini_jax.transforms.jit import Call, Traced, call_info, put_together, take_apart
from mini_jax.transforms.jvp import jvp_jaxpr
from mini_jax.transforms.linearize import linearize_jaxpr, memoized_backward, transpose_jaxpr
from mini_jax.transforms.vmap import Axis, batch_jaxpr, check_axes, flat_in_axes, is_none, mapped_size, result_axis, vmap

_flatten = xla.registry.flatten


class UnnamedAxis:
    """Stands for the name of the axis of a pmap that was given none. It equals itself only."""
    __slots__ = ("fun_name",)

    def __init__(self, fun_name: str):
        self.fun_name = fun_name

    def __repr__(self):
        return f"<axis of {self.fun_name}>"


# --- types: of one replica, and of all together --------------------------------------------------------------------------------------

def part_type(aval, dim: int | None, name):
    """The type of one replica's part of a value that is cut along `dim`, or of the value that all share."""
    if dim is None:
        return aval
    return aval.update(shape=(*aval.shape[:dim], *aval.shape[dim + 1:]), varying=aval.varying | {name})


def whole_type(part, dim: int | None, name, size: int):
    """The type of a value of which each replica has a part of type `part`, stacked along `dim`."""
    shape = part.shape if dim is None else (*part.shape[:dim], size, *part.shape[dim:])
    return part.update(shape=shape, varying=part.varying - {name})


# --- the primitive -----------------------------------------------------------------------------------------------------------------

pmap_p = Primitive("pmap", multiple_results=True, memoize=False, facts={
    "family": "higher_order", "named_axes": True, "replicates": True, "binds": lambda params: (params["axis_name"],)})


def local_size(params: dict) -> int:
    """How many of the replicas along its axis a pmap has in this process."""
    return params["axis_size"] // (params.get("processes") or 1)


def _type_rule(*types, jaxpr, axis_name, out_dims, **params):
    return [whole_type(t, d, axis_name, local_size(params)) for t, d in zip(jaxpr.out_types, out_dims)]


def _fitting(args, params: dict) -> dict:
    """The parameters with the program for what its arguments vary along here. ValueError for a result that should be the same for all."""
    name = params["axis_name"]
    types = [part_type(typeof(arg), d, name) for arg, d in zip(args, params["in_dims"])]
    with named_axes({name: params["axis_size"]}, spread=True):
        jaxpr = for_types(params["jaxpr"], types)
    for t, d in zip(jaxpr.out_types, params["out_dims"]):
        if d is None and name in t.varying:
            raise ValueError(f"pmap of {params['name']} has out_axes None for a result of type {t}, which differs along the axis {name!r}")
    return {**params, "jaxpr": jaxpr}


def _stage(trace, args, params):
    if params["axis_name"] in state.axes:
        raise ValueError(f"pmap of {params['name']}: the axis name {params['axis_name']!r} is that of a map around it; "
                         "each must have its own")
    return trace.record(pmap_p, args, _fitting(args, params))


def _impl(*args, **params):
    """Run now, over devices."""
    for arg in args:
        if isinstance(arg, Tracer):
            raise leaked(arg)
    if any(map(is_ref, args)):
        return _discharge(eval_trace, args, params)
    params = _fitting(args, params)
    jaxpr = params["jaxpr"]
    key = (_impl, *[params[name] for name in ("axis_name", "axis_size", "processes", "in_dims", "out_dims", "devices")], config.trace_key())
    executable = executables.once(jaxpr.memo, key, lambda: _load(jaxpr, _lowered(jaxpr, (), params), params))
    return dispatch.wrapped(executable.out_types, executable(dispatch.opened(args)))


def _check_written(recorded: Mapped, leaves: Sequence) -> None:
    """ValueError where a ref is written of which there is one for all devices."""
    jaxpr = recorded.traced.jaxpr
    one = {**dict(zip(jaxpr.constvars, recorded.traced.consts)),
           **{v: leaf for v, leaf, dim in zip(jaxpr.invars, leaves, recorded.params["in_dims"]) if dim is None}}
    for effect in jaxpr.effects:
        if type(effect) is RefEffect and effect.kind != "read" and effect.ref in one:
            raise ValueError(f"pmap of a function that writes to {described(one[effect.ref])}, which it captures or takes with in_axes None: every device "
                             "would write to the same place. Pass it as an argument with an axis to map over, each device having its own entry")


def _discharge(trace, args, params):
    """pmap of the values of refs. A mapped ref has an entry on each device; one that is not mapped is only read."""
    jaxpr, in_dims, count = params["jaxpr"], params["in_dims"], len(params["out_dims"])
    pure = discharged(jaxpr)
    outs = pmap_p.bind(*[load(trace, a) if is_ref(a) else a for a in args],
                       **{**params, "jaxpr": pure.jaxpr, "out_dims": (*params["out_dims"], *[in_dims[i] for i in pure.written])})
    for i, value in zip(pure.written, outs[count:]):
        store(trace, args[i], value)
    return outs[:count]


def _jvp(primals, tangents, *, jaxpr, in_dims, out_dims, **params):
    nonzero = tuple([type(t) is not Zero for t in tangents])
    with named_axes({params["axis_name"]: params["axis_size"]}, spread=True):
        program, consts, out_nonzero = jvp_jaxpr(jaxpr, nonzero)
    live = lambda dims, marks: tuple([d for d, mark in zip(dims, marks) if mark])
    results = pmap_p.bind(*consts, *primals, *live(tangents, nonzero), jaxpr=program, **params,
                          in_dims=(None,) * len(consts) + in_dims + live(in_dims, nonzero),
                          out_dims=out_dims + live(out_dims, out_nonzero))
    outs, outs_dot = results[:len(out_dims)], iter(results[len(out_dims):])
    return outs, [next(outs_dot) if mark else Zero(typeof(y).tangent()) for mark, y in zip(out_nonzero, outs)]


def _linearize(primals, nonzero, *, jaxpr, in_dims, out_dims, **params):
    """Both the primal and the linear program are pmaps; residuals stay where they were computed."""
    name = params["axis_name"]
    with named_axes({name: params["axis_size"]}, spread=True):
        parts = linearize_jaxpr(jaxpr, tuple(nonzero))
    new = parts.primal.out_types[len(out_dims):]
    primal_in, primal_out = (None,) * len(parts.consts) + in_dims, out_dims + tuple([0 if name in t.varying else None for t in new])
    results = pmap_p.bind(*parts.consts, *primals, jaxpr=parts.primal, in_dims=primal_in, out_dims=primal_out, **params)
    residuals, residual_dims = parts.residuals(primals, results), parts.residuals(in_dims, primal_out)

    def linear(*tangents):
        if not parts.linear.outvars:
            return []
        return pmap_p.bind(*residuals, *tangents, jaxpr=parts.linear, **params,
                           in_dims=(*residual_dims, *[d for d, live in zip(in_dims, nonzero) if live]),
                           out_dims=tuple([d for d, live in zip(out_dims, parts.out_nonzero) if live]))
    return results[:len(out_dims)], parts.out_nonzero, linear


def _transpose(cts, *args, jaxpr, in_dims, out_dims, **params):
    kinds = tuple([(True if a.wanted else None) if isinstance(a, Accumulator) else False for a in args])
    live = tuple([type(ct) is not Zero for ct in cts])
    back = _backward(jaxpr, params["axis_name"], params["axis_size"], in_dims, out_dims, kinds, live)
    values = [a for a in args if not isinstance(a, Accumulator)]
    outs = iter(pmap_p.bind(*back.consts, *values, *[ct for ct in cts if type(ct) is not Zero], jaxpr=back.jaxpr,
                            in_dims=back.in_dims, out_dims=back.out_dims, **params))
    for arg, live in zip([a for a in args if isinstance(a, Accumulator)], back.nonzero):
        if live:
            arg.add(next(outs))


class Backward(NamedTuple):
    """The program of one replica that a transposed pmap runs, its constants, and how its values are cut.

    nonzero: which of the linear inputs get a cotangent.
    """
    jaxpr: Jaxpr
    consts: list
    in_dims: tuple
    out_dims: tuple
    nonzero: tuple


@memoized_backward
def _backward(jaxpr: Jaxpr, name, size: int, in_dims: tuple, out_dims: tuple, kinds: tuple, live: tuple) -> Backward:
    """The transpose of the program of one replica, within its axis.

    A result that all share is the mean of the replicas' copies: each copy gets its part of the cotangent. What an input that
    all share gets is the sum over replicas, of all such inputs in one communication.
    """
    with named_axes({name: size}, spread=True):
        back = transpose_jaxpr(jaxpr, kinds, live)
        value_dims = [d for d, kind in zip(in_dims, kinds) if kind is False]
        ct_dims = [d for d, mark in zip(out_dims, live) if mark]
        result_dims = [d for d, mark in zip([d for d, kind in zip(in_dims, kinds) if kind is not False], back.nonzero) if mark]
        places = [i for i, d in enumerate(result_dims) if d is None]
        first_ct = len(back.consts) + len(value_dims)

        def fun(*args):
            cts = [_scaled(ct, 1 / size) if d is None else ct for ct, d in zip(args[first_ct:], ct_dims)]
            outs = eval_jaxpr(back.jaxpr, (), *args[:first_ct], *cts)
            sums = collectives.psum_p.bind(*[outs[i] for i in places], axes=(name,), groups=None) if places else ()
            for i, total in zip(places, sums):
                outs[i] = total
            return outs

        known = [t for t, kind in zip(jaxpr.in_types, kinds) if kind is False]
        cts = [t.update(varying=t.varying | {name} if d is not None else t.varying - {name})
               for t, d in zip([t for t, mark in zip(jaxpr.out_types, live) if mark], ct_dims)]
        program, consts = stage(fun, [*map(typeof, back.consts), *known, *cts], jaxpr.info)
    consts = [*consts, *back.consts]
    return Backward(program.hoisted(), consts, (*[None] * len(consts), *value_dims, *ct_dims), tuple(result_dims), back.nonzero)


def _scaled(x, factor: float):
    return elementwise.mul(x, typeof(x).dtype.type(factor))


def _batch(axis, args, dims, *, jaxpr, axis_name, axis_size, in_dims, out_dims, **params):
    """pmap of the batched program. Where a batch dimension and the dimension that pmap cuts meet, both shift accordingly."""
    inner = tuple([b if b is None or d is None else b - (b > d + (b <= d)) for b, d in zip(dims, in_dims)])
    cut = tuple([d if b is None or d is None else d + (b <= d) for b, d in zip(dims, in_dims)])
    with named_axes({axis_name: axis_size}, spread=True):
        batched = batch_jaxpr(jaxpr, axis, inner)
    out_cut = tuple([d if b is None or d is None else d + (b <= d) for b, d in zip(batched.out_dims, out_dims)])
    outs = pmap_p.bind(*batched.consts, *args, jaxpr=batched.jaxpr, axis_name=axis_name, axis_size=axis_size,
                       in_dims=(None,) * len(batched.consts) + cut, out_dims=out_cut, **params)
    return outs, [b if b is None or d is None else b + (b > d) for b, d in zip(batched.out_dims, out_dims)]


pmap_p.type_rule, pmap_p.stage, pmap_p.impl = _type_rule, _stage, _impl
pmap_p.facts["discharge"] = _discharge
pmap_p.effects_rule = lambda types, params: of_call(params["jaxpr"])
pmap_p.jvp, pmap_p.linearize, pmap_p.transpose, pmap_p.batch = _jvp, _linearize, _transpose, _batch


@lowers(pmap_p)
def _lower_inside(e, eqn, *operands):
    """Inside a replicated program: each replica takes its part, and gathers the results of those around it along the axis."""
    params, name = eqn.params, eqn.params["axis_name"]
    inner, jaxpr = e.axes.inside(name, params["axis_size"]), params["jaxpr"]
    parts = [operand if d is None else _take(e, inner, name, operand, whole, part, d)
             for operand, whole, part, d in zip(operands, eqn.in_types, jaxpr.in_types, params["in_dims"])]
    outs = e.call(jaxpr, parts, params["name"], inner)
    return [out if d is None else _gather(e, inner, name, out, part, whole, d)
            for out, part, whole, d in zip(outs, jaxpr.out_types, eqn.out_types, params["out_dims"])]


def _take(e, axes: Replicas, name, operand: str, whole, part, d: int) -> str:
    """The replica's own part of a value."""
    index, zero = replica_index(e, axes, name), e.constant(0, array_type((), dtypes.uint32))
    starts = ", ".join([index if i == d else zero for i in range(whole.ndim)])
    whole = whole.update(dtype=whole_bytes(whole.dtype))
    piece = whole.update(shape=(*whole.shape[:d], 1, *whole.shape[d + 1:]))
    operand = e.convert(operand, part.update(shape=whole.shape), whole.dtype)
    found = e.emit(f"stablehlo.dynamic_slice {operand}, {starts}, sizes = {list(piece.shape)} : "
                   f"({', '.join([whole.mlir, *['tensor<ui32>'] * whole.ndim])}) -> {piece.mlir}")
    return e.reshape(e.convert(found, piece, part.dtype), piece.update(dtype=part.dtype), part.shape)


def _gather(e, axes: Replicas, name, own: str, part, whole, d: int) -> str:
    """The parts of all replicas along the axis, put together."""
    piece = part.update(shape=(*whole.shape[:d], 1, *whole.shape[d + 1:]))
    own = e.reshape(own, part, piece.shape)
    return collective(e, axes, (name,), "all_gather", f"all_gather_dim = {d} : i64", own, piece, whole.shape)


# --- at the top level: parts on their devices ----------------------------------------------------------------------------------------

def _lowered(jaxpr: Jaxpr, consts: Sequence, params: dict, donated: Sequence[bool] = (), platform: str | None = None) -> Lowered:
    """The program that each replica runs, as text."""
    name, size = params["axis_name"], params["axis_size"]
    platform = platform or (params["devices"][0] if params["devices"] else current_device()).platform
    program = spread(jaxpr, local_size(params), params["in_dims"], params["out_dims"]).jaxpr
    lowered = lower(program, consts, name=f"pmap_{params['name']}", donated=donated, platform=platform,
                    axes=Replicas(((name, size),), size * demand(jaxpr).count))
    lowered.again = _on_whole_values(with_inputs(jaxpr, lowered.kept_consts, lowered.kept), params, lowered.kept_consts, lowered.kept)
    return lowered


def _on_whole_values(jaxpr: Jaxpr, params: dict, kept_consts: Sequence[bool], kept: Sequence[bool]) -> Jaxpr:
    """The program that calls the pmap, given the program of one replica, with the constants and inputs that it keeps."""
    name, size = params["axis_name"], local_size(params)
    in_dims = (*[None for k in kept_consts if k], *[d for d, k in zip(params["in_dims"], kept) if k])
    ins = [Var(whole_type(t, d, name, size)) for t, d in zip(jaxpr.in_types, in_dims)]
    outs = [Var(whole_type(t, d, name, size)) for t, d in zip(jaxpr.out_types, params["out_dims"])]
    return Jaxpr((), ins, [JaxprEqn(pmap_p, ins, outs, params | {"jaxpr": jaxpr, "in_dims": in_dims}, jaxpr.effects, None)], outs, jaxpr.effects)


def _run_again(params: dict, values: Sequence, kind: str) -> list:
    """How debug_nans finds the operation that made a NaN: all replicas together, as a batch, one operation after the other."""
    name, size = params["axis_name"], params["axis_size"]
    if params.get("processes"):
        raise FloatingPointError(f"there is a {kind} in what pmap of {params['name']} returns; which operation made it can't be found, since other processes have replicas of it")
    with named_axes({name: size}, spread=True):
        batched = batch_jaxpr(params["jaxpr"], Axis(size, name), params["in_dims"], params["out_dims"])
    return nonfinite.run(batched.jaxpr, [*batched.consts, *values], kind)


nonfinite.inside["pmap"] = _run_again


def _load(jaxpr: Jaxpr, lowered: Lowered, params: dict, options: dict | None = None) -> Executable:
    """Compile it for the devices it is to run on."""
    name, size = params["axis_name"], local_size(params)
    if params["processes"]:
        devices = _spanned_devices(params["devices"] or all_devices(), lowered.num_replicas // params["processes"], params["processes"])
        inner = lowered.num_replicas // params["axis_size"]
        if any([len({d.process_index for d in devices[i:i + inner]}) > 1 for i in range(0, len(devices), inner)]):
            raise ValueError(f"pmap of {params['name']}: pmaps inside of it take {inner} devices side by side, which must be of one process; order devices= by process")
    else:
        devices = dispatch.replica_devices(lowered.num_replicas, params["devices"] or lowered.devices)
    own = [d for d in devices if d.process_index == d.client.process_index()]
    grids = spread(jaxpr, size, params["in_dims"], params["out_dims"])
    in_types = [whole_type(t, d, name, size) for t, d in zip(jaxpr.in_types, params["in_dims"])]
    out_types = [whole_type(t, d, name, size) for t, d in zip(jaxpr.out_types, params["out_dims"])]
    shardings = lambda all_cuts, types: [dispatch.grid_sharding(own, cuts, t) for cuts, t in zip(all_cuts, types)]
    return dispatch.load_replicas(lowered, devices, in_types, shardings(grids.ins, in_types), out_types, shardings(grids.outs, out_types),
                                  committed=True, options=options)


def _spanned_devices(devices: Sequence, count: int, numbers: int) -> list:
    """The first `count` devices of each of so many processes, in order. ValueError where one has too few."""
    taken: dict[int, int] = {}
    found = []
    for device in devices:
        taken[device.process_index] = taken.get(device.process_index, 0) + 1
        if taken[device.process_index] <= count:
            found.append(device)
    if len(found) < count * numbers:
        few = min(taken, key=taken.__getitem__)
        raise ValueError(f"pmap over {numbers} processes needs {count} devices in each, one for each index of its axis (nested pmaps multiply), but process {few} has "
                         f"{taken[few]}. Each process maps over its own devices: map over a smaller axis, or use vmap inside for the rest")
    return found


class _Around(threading.local):
    """Is a pmap over several processes being recorded? Those inside of it are this process's own."""
    spanning = False


_around = _Around()


def _span(devices: tuple | None, name: str) -> int | None:
    """Over how many processes a pmap goes that is called here; None: it is this process's own. ValueError for devices that don't allow it."""
    if processes.joined is None or _around.spanning:
        return None
    counts: dict[int, int] = {}
    for device in devices or all_devices():
        counts[device.process_index] = counts.get(device.process_index, 0) + 1
    here = processes.joined.place.process
    if here not in counts:
        raise ValueError(f"pmap of {name}: none of devices= is one of this process's, {here}; a process that has none must not call it")
    if devices is not None and len(set(counts.values())) > 1:
        raise ValueError(f"pmap of {name}: devices= must have as many of each process that has some, got {counts} (process: devices)")
    return len(counts) if len(counts) > 1 else None


# --- recording ------------------------------------------------------------------------------------------------------------------------

class Options(NamedTuple):
    """What `pmap` was asked for, hashable: equal options of one function share its programs."""
    axis_name: Any
    in_axes: tuple                   # (leaves, structure)
    out_axes: tuple
    call: jit.Options                # which arguments are static, and which donated
    devices: tuple | None
    axis_size: int | None


class Mapped(NamedTuple):
    """A recorded function: the program of one replica, and the parameters of a call of it (without its constants)."""
    traced: Traced
    params: dict


def record(fun: Callable, options: Options, call: Call) -> Mapped:
    """The program of one replica, for arguments of these types, and how arguments and results are cut."""
    info = call_info("pmap", fun, call)
    types = argument_types(call.leaves, info)
    args, kwargs = call.tree.unflatten(call.leaves)
    in_axes = _unflatten(options.in_axes)
    if isinstance(in_axes, tuple):
        if len(in_axes) != call.count:
            raise ValueError(f"pmap in_axes has {len(in_axes)} entries, but {info.name} was called with {call.count} positional "
                             "arguments")
        fixed = {i for i, _ in call.fixed}
        in_axes = tuple([axis for i, axis in enumerate(in_axes) if i not in fixed])
    in_dims = tuple(flat_in_axes(in_axes, tuple(args), kwargs, call.leaves, info))
    size = mapped_size(call.leaves, in_dims, info, options.axis_size)
    if size < 1:
        raise ValueError(f"pmap of {info.name}: the mapped axis has size {size}; there must be a replica at least")
    numbers = _span(options.devices, info.name)
    if numbers:
        size *= numbers
    name, outer = options.axis_name, _around.spanning
    if name is None:
        name = jit.programs.of(fun).setdefault((UnnamedAxis, options, tuple(state.axes.items())), UnnamedAxis(info.name))
    with named_axes({name: size}, spread=True):
        try:
            _around.spanning = outer or bool(numbers)
            traced = jit.record_as(fun, call, tuple([part_type(t, d, name) for t, d in zip(types, in_dims)]), info)
        finally:
            _around.spanning = outer
    out_axes = broadcast_prefix(_unflatten(options.out_axes), traced.out_tree, is_none, "pmap out_axes", "the result")
    out_dims = tuple([result_axis(t.ndim, name in t.varying, axis, i, traced.out_tree, info)
                      for i, (t, axis) in enumerate(zip(traced.jaxpr.out_types, out_axes))])
    return Mapped(traced, {"axis_name": name, "axis_size": size, "in_dims": in_dims, "out_dims": out_dims, "name": info.name,
                           "devices": options.devices, "processes": numbers})


def _hashable(axes) -> tuple:
    leaves, tree = tree_flatten(axes, is_none)
    return tuple(leaves), tree


def _unflatten(axes: tuple):
    return axes[1].unflatten(axes[0])


def _bind(mapped: Mapped, leaves: Sequence) -> list:
    """The call as an equation."""
    consts = mapped.traced.consts
    params = {**mapped.params, "in_dims": (None,) * len(consts) + mapped.params["in_dims"]}
    return pmap_p.bind(*consts, *leaves, jaxpr=mapped.traced.callee, **params)


def _compiled(mapped: Mapped, donated: tuple) -> Executable:
    jaxpr, params = mapped.traced.jaxpr, mapped.params
    key = (_compiled, *[params[name] for name in ("processes", "in_dims", "out_dims", "devices")], donated)
    return executables.once(jaxpr.memo, key, lambda: _load(jaxpr, _lowered(jaxpr, mapped.traced.consts, params, donated), params))


def _as_stage(fun: Callable, options: Options, call: Call) -> stages.Traced:
    """A recorded call as the first of the stages: the program that calls pmap."""
    mapped = record(fun, options, call)
    info = mapped.traced.jaxpr.info
    jaxpr, consts = stage(lambda *leaves: _bind(mapped, leaves), argument_types(call.leaves, info), info)

    def lowering(platform: str | None):
        lowered = _lowered(mapped.traced.jaxpr, mapped.traced.consts, mapped.params, call.donated, platform)
        return lowered, lambda more: _load(mapped.traced.jaxpr, lowered, mapped.params, more)
    return stages.Traced(mapped.traced._replace(jaxpr=jaxpr, consts=consts), call, mapped.params["name"], lowering)


def _one_by_one(fun: Callable, options: Options, call: Call):
    """What pmap means while jit is disabled: the operations of all replicas together, one after the other."""
    if _span(options.devices, function_name(fun)):
        raise NotImplementedError("pmap over several processes while jit is disabled: other processes have replicas of it")
    args, kwargs = call.tree.unflatten(call.leaves)
    in_axes = _unflatten(options.in_axes)
    if isinstance(in_axes, tuple):
        in_axes = tuple([axis for i, axis in enumerate(in_axes) if i not in {i for i, _ in call.fixed}])

    def free(*args, **kwargs):
        args, kwargs = put_together(call, _flatten((args, kwargs))[0])
        return fun(*args, **kwargs)
    name = UnnamedAxis(function_name(fun)) if options.axis_name is None else options.axis_name
    return vmap(free, in_axes, _unflatten(options.out_axes), axis_name=name, axis_size=options.axis_size)(*args, **kwargs)


# --- the transformation ---------------------------------------------------------------------------------------------------------------

def pmap(fun: Callable, axis_name=None, *, in_axes: Any = 0, out_axes: Any = 0, static_broadcasted_argnums: int | Sequence[int] = (),
         devices: Sequence | None = None, backend: str | None = None, axis_size: int | None = None,
         donate_argnums: int | Sequence[int] = ()) -> Callable:
    """Run `fun` in parallel on several devices, each on its own part of the arguments (single program, multiple data).

    As vmap it maps over axes of arrays, but it replicates the program instead of batching it: each index along the mapped axis
    has a device of its own. Results stay on the devices that computed them; passed to another pmap they are not moved.

    axis_name: a name for the axis, for collectives (lax.psum …) inside `fun`. Inside another pmap, axes multiply.
    in_axes, out_axes: as for vmap. A result with out_axes None must be the same on all replicas, as after psum.
    static_broadcasted_argnums: arguments that are ordinary Python values while recording; each value has its own program.
    donate_argnums: arguments whose buffers the results may take over; they are deleted by the call.
    devices: those to use, in order; default: the first. backend: of which platform.
    axis_size: the size of the axis; needed only when nothing is mapped.

    Where several processes work together (distributed.initialize) all of them call it, each with its own part of the arguments: as many
    entries as it maps over devices of its own, and so the results. Inside, the axis has all of them, over which collectives work. devices=
    local_devices() is this process alone.

    Raises ValueError where sizes differ, an axis does not exist or there are too few devices, naming the argument.

    >>> pmap(lambda x: x / lax.psum(x, "i"), axis_name="i")(jnp.arange(4.0))
    Array([0.        , 0.16666667, 0.33333334, 0.5       ], dtype=float32)
    """
    if not callable(fun):
        raise TypeError(f"pmap takes a function, got {fun!r:.200} of type {type(fun).__name__}")
    if isinstance(in_axes, list):
        in_axes = tuple(in_axes)
    check_axes(in_axes, "pmap in_axes", of_arguments=True)
    check_axes(out_axes, "pmap out_axes")
    try:
        hash(axis_name)
    except TypeError:
        raise TypeError(f"pmap axis_name must be hashable, got {axis_name!r}") from None
    if backend is not None:
        if devices is not None:
            raise ValueError("pmap takes devices or a backend, not both")
        devices = all_devices(backend)
    fun = keyable(fun)
    statics = resolve_positions(fun, static_broadcasted_argnums, (), "static_broadcasted")[0]
    donations = resolve_positions(fun, donate_argnums, (), "donate")[0]
    if both := set(statics) & set(donations):
        raise ValueError(f"arguments {sorted(both)} are both static and donated: a static argument has no buffer to give")
    options = Options(axis_name, _hashable(in_axes), _hashable(out_axes), jit.Options(static_argnums=statics, donate_argnums=donations),
                      None if devices is None else tuple(devices), axis_size)

    def answer(args, kwargs):
        call = take_apart(fun, options.call, args, kwargs)
        recorded = record(fun, options, call)
        traced = recorded.traced
        refs = jit.takes_refs(traced.jaxpr)
        if refs:
            jit.check_aliases(traced.jaxpr.info, traced.consts, call.leaves)
            _check_written(recorded, call.leaves)
        if refs or state.trace is not eval_trace and _needs_trace(recorded, call.leaves):
            return traced.out_tree.unflatten(_bind(recorded, call.leaves)), None, False
        executable = _compiled(recorded, nonfinite.kept_for_again(call.donated))
        outs = dispatch.wrapped(executable.out_types, executable(dispatch.opened(call.leaves)))
        nonfinite.give_away(call.leaves, call.donated, executable.in_shardings)
        slow = traced.jaxpr.effects or dispatch.for_python(call.leaves, executable)
        return traced.out_tree.unflatten(outs), None if slow else executable.fastpath(traced.out_tree, guarded=True), False

    def one_by_one(*args, **kwargs):     # what C++ calls while jit is disabled
        return _one_by_one(fun, options, take_apart(fun, options.call, args, kwargs))

    trace = lambda args, kwargs: _as_stage(fun, options, take_apart(fun, options.call, args, kwargs))
    how = dict(static_argnums=statics, key=options)
    if xla.FRAGILE_REPLICAS:
        guarded, mapped = guarded_dispatcher(function_name(fun), one_by_one, answer, **how)
        guarded._clear_cache, guarded._cache_size = lambda: mapped._clear_cache(), lambda: mapped._cache_size()   # C++'s are never freed
        return jit.dressed(guarded, fun, trace)

    def cache_miss(*args, **kwargs):
        with asked_again(itself):
            return answer(args, kwargs)
    mapped = xla.dispatcher(function_name(fun), one_by_one, cache_miss, **how)
    itself = weakref.ref(mapped)         # which goes when its user lets go of it, and with it the function
    return jit.dressed(mapped, fun, trace)


def _needs_trace(mapped: Mapped, leaves: Sequence) -> bool:
    """Must a call be bound in the current trace? Not if nothing of it is traced and nothing is being recorded."""
    return (bool(xla.staging.value) or any([isinstance(x, Tracer) for x in (*leaves, *mapped.traced.consts)])
            or bool(axes_used_in(mapped.traced.jaxpr) - {mapped.params["axis_name"]}))
