"""jit: a function becomes a program, recorded once for each combination of types, compiled by XLA, dispatched by C++."""
from __future__ import annotations

import weakref
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from lowering.emit import lowers
from lowering.program import lower
from mini_jax.core import config, logs
from mini_jax.core.collector import paused
from mini_jax.core.effects import of_call
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo, axes_used_in, function_name
from mini_jax.core.pytree import PyTreeDef
from mini_jax.core.refs import discharge_call, is_ref
from mini_jax.core.staging import eval_jaxpr, for_types, stage
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, eval_trace, leaked, typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.runtime import dispatch, nonfinite, xla
from mini_jax.runtime.caches import ByFunction, executables, recorded
from mini_jax.runtime.executable import Executable, in_replica
from mini_jax.runtime.guarded import asked_again, guarded_dispatcher
from mini_jax.runtime.memories import elsewhere
from mini_jax.runtime.meshes import NamedSharding
from mini_jax.transforms import stages
from mini_jax.transforms.arguments import argument_name, argument_paths, argument_types, checked_outputs, keyable, resolve_positions, weakly
from mini_jax.transforms.cache_misses import Signature, explain
from mini_jax.transforms.jvp import jvp_call
from mini_jax.transforms.refs import check_aliases, in_place, run, run_call, takes_refs
from mini_jax.transforms.linearize import linearize_call, transpose_call
from mini_jax.transforms.shards import Prefix, constrained, mesh_in
from mini_jax.transforms.vmap import batch_call

_flatten = xla.registry.flatten

# --- the primitive: a call that stays a call ------------------------------------------------------------------------------------

jit_p = Primitive("jit", multiple_results=True, memoize=False, facts={"family": "higher_order", "call": True, "parts": True, "named_axes": True})


def run_program(jaxpr: Jaxpr, args: Sequence, name: str) -> list:
    """Run a closed program now, compiled once for each device."""
    for arg in args:
        if isinstance(arg, Tracer):
            raise leaked(arg)
    if takes_refs(jaxpr):
        return run_call(jaxpr, args, name)
    values = dispatch.opened(args)
    at = dispatch.placement(values, mesh_in(jaxpr))
    executable = executables.once(jaxpr.memo, (run_program, at, config.trace_key()), lambda: dispatch.load(jaxpr, (), at, name=name))
    return dispatch.wrapped(executable.out_types, executable(values))


def _stage_call(trace, args, params):
    """Within named axes, the program recorded is that for what its arguments vary along here."""
    if state.axes:
        params = {**params, "jaxpr": for_types(params["jaxpr"], [typeof(arg) for arg in args])}
    return trace.record(jit_p, args, params)


@lowers(jit_p)
def _lower_call(e, eqn, *operands):
    return e.call(eqn.params["jaxpr"], operands, eqn.params["name"])


jit_p.impl = lambda *args, jaxpr, name, **_: run_program(jaxpr, args, name)
jit_p.type_rule = lambda *types, jaxpr, **_: jaxpr.out_types
jit_p.effects_rule = lambda types, params: of_call(params["jaxpr"])
jit_p.facts["discharge"] = discharge_call(jit_p)
jit_p.stage = _stage_call
jit_p.jvp = lambda primals, tangents, *, jaxpr, **params: jvp_call(jit_p, primals, tangents, jaxpr, params)
jit_p.linearize = lambda primals, nonzero, *, jaxpr, **params: linearize_call(jit_p, primals, nonzero, jaxpr, params)
jit_p.transpose = lambda cts, *args, jaxpr, **params: transpose_call(jit_p, cts, args, jaxpr, params)
jit_p.batch = lambda axis, args, dims, *, jaxpr, **params: batch_call(jit_p, axis, args, dims, jaxpr, params)


# --- arguments ---------------------------------------------------------------------------------------------------------------

class Options(NamedTuple):
    """What `jit` was asked for; equal options of one function share its programs."""
    static_argnums: tuple[int, ...] = ()
    static_argnames: tuple[str, ...] = ()
    donate_argnums: tuple[int, ...] = ()
    donate_argnames: tuple[str, ...] = ()
    inline: bool = False
    keep_unused: bool = False
    device: Any = None
    compiler_options: tuple = ()
    in_shardings: Any = None
    out_shardings: Any = None


class Call(NamedTuple):
    """The arguments of one call, taken apart: static ones as a key, the others flat."""
    leaves: list
    tree: PyTreeDef
    fixed: tuple                     # (position, value) of static positional arguments
    fixed_names: tuple               # (name, value) of static keyword arguments
    count: int                       # of positional arguments
    donated: tuple[bool, ...]


class _Static:
    """A static argument as part of a key: equal when type and value are."""
    __slots__ = ("value", "hash")

    def __init__(self, value, name, fun):
        try:
            self.hash = hash(value)
        except TypeError:
            raise ValueError(f"Non-hashable static arguments are not possible: argument {name} of {function_name(fun)} is {value!r:.200} of "
                             f"type {type(value).__name__}. Programs are kept by their static arguments; pass a hashable "
                             "value (a tuple instead of a list), or make the argument a traced one.") from None
        self.value = value

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        return type(self.value) is type(other.value) and self.value == other.value


def take_apart(fun: Callable, options: Options, args: tuple, kwargs: dict) -> Call:
    numbers, names = options.static_argnums, options.static_argnames
    if numbers or names:
        fixed = tuple([(i, _Static(args[i], argument_name(fun, i), fun)) for i in numbers if i < len(args)])
        fixed_names = tuple([(k, _Static(kwargs[k], k, fun)) for k in sorted(kwargs) if k in names])
        free = tuple([a for i, a in enumerate(args) if i not in numbers])
        named = {k: v for k, v in kwargs.items() if k not in names}
    else:
        fixed, fixed_names, free, named = (), (), args, kwargs
    leaves, tree = _flatten((free, named))
    donated = ()
    if options.donate_argnums or options.donate_argnames:
        positions = [i for i in range(len(args)) if i not in numbers]
        donated = tuple([i in options.donate_argnums for i, a in zip(positions, free) for _ in _flatten(a)[0]]
                        + [k in options.donate_argnames for k in sorted(named) for _ in _flatten(named[k])[0]])
    return Call(leaves, tree, fixed, fixed_names, len(args), donated)


def put_together(call: Call, flat: Sequence) -> tuple[list, dict]:
    """The arguments and keyword arguments of the user's function."""
    free, named = call.tree.unflatten(flat)
    if call.fixed:
        fixed, free = dict(call.fixed), iter(free)
        free = [fixed[i].value if i in fixed else next(free) for i in range(call.count)]
    return free, {**named, **{k: v.value for k, v in call.fixed_names}}


def call_info(transformation: str, fun: Callable, call: Call) -> ProgramInfo:
    fixed = {i for i, _ in call.fixed}
    positions = [i for i in range(call.count) if i not in fixed]
    tree, fun_ref = call.tree, weakly(fun)
    return ProgramInfo(transformation, fun, lambda: argument_paths(fun_ref(), tree, positions))


# --- recording ------------------------------------------------------------------------------------------------------------------

class Traced(NamedTuple):
    """A recorded function: the program, the values of its constants, the structure of its result."""
    jaxpr: Jaxpr
    consts: list
    out_tree: PyTreeDef
    callee: Jaxpr                    # the program with its constants as leading inputs, as calls of it take them


programs = ByFunction()


def record(fun: Callable, options: Options, call: Call, transformation: str = "jit") -> Traced:
    """The program of `fun` for arguments of these types; recorded once, unless it holds values of an outer trace."""
    info = call_info(transformation, fun, call)
    return record_as(fun, call, argument_types(call.leaves, info), info)


def record_as(fun: Callable, call: Call, types: tuple, info: ProgramInfo) -> Traced:
    """`record`, for types of the flat arguments that need not be those of the call."""
    key = Signature(types, call.tree, call.fixed, call.fixed_names, call.count, config.trace_key(), tuple(state.axes.items()))
    kept, out_tree = programs.of(fun), None

    def flat_fun(*flat):
        nonlocal out_tree
        args, kwargs = put_together(call, flat)
        outs, out_tree = _flatten(fun(*args, **kwargs))
        return checked_outputs(outs, out_tree, info)

    def build():
        if logs.cache_misses.value:
            explain(fun, info, key, programs)
        info.refs = {i: leaf.created for i, leaf in enumerate(call.leaves) if is_ref(leaf)}
        with paused():
            jaxpr, consts = stage(flat_fun, types, info)
        info.refs = {}                               # a later call may have others
        return Traced(jaxpr, consts, out_tree, jaxpr.hoisted())

    traced = recorded.once(kept, key, build)
    if any([isinstance(c, Tracer) for c in traced.consts]):
        kept.pop(key, None)
    return traced


# --- the transformation -------------------------------------------------------------------------------------------------------------

def jit(fun: Callable | None = None, *, static_argnums=None, static_argnames=None, donate_argnums=None, donate_argnames=None,
        inline: bool = False, keep_unused: bool = False, device=None, backend: str | None = None, compiler_options: dict | None = None,
        in_shardings=None, out_shardings=None, abstracted_axes=None) -> Callable:
    """Compile `fun` with XLA.

    The function runs once, in Python, for each combination of argument types, to record it as a program; later calls run
    the compiled program. Arguments are arrays, numbers and pytrees of them.

    static_argnums, static_argnames: arguments that are ordinary Python values while recording; each value has its own program.
    donate_argnums, donate_argnames: arguments whose buffers the results may take over; they are deleted by the call.
    inline: inside other recorded functions, write the equations out instead of a call.
    keep_unused: keep arguments that the program does not read among its inputs.
    device, backend: where to run; otherwise where committed arguments are, or the default device.
    compiler_options: XLA options for this program.
    in_shardings, out_shardings: how arguments and results are spread over a mesh: NamedShardings (or PartitionSpecs, of the mesh that is set),
        in a structure that is a prefix of the arguments' or of the result's; None leaves it to where an argument is, and to XLA.

    Raises ValueError for positions or names that `fun` does not have and for unhashable static arguments, TypeError for
    arguments that are no arrays. Use as `jit(f)`, `@jit`, or `@jit(static_argnames="n")`.
    """
    if fun is None:
        settings = dict(locals())
        del settings["fun"]
        return lambda fun: jit(fun, **settings)
    if not callable(fun):
        raise TypeError(f"jit takes a function, got {fun!r:.200} of type {type(fun).__name__}")
    fun = keyable(fun)
    statics = resolve_positions(fun, static_argnums, static_argnames, "static")
    donations = resolve_positions(fun, donate_argnums, donate_argnames, "donate")
    both = set(statics[0]) & set(donations[0])
    if both:
        raise ValueError(f"arguments {sorted(both)} are both static and donated: a static argument has no buffer to give")
    if backend is not None:
        if device is not None:
            raise ValueError("jit takes a device or a backend, not both")
        device = dispatch.devices_of(backend)[0]
    shardings = [Prefix(s) if s is not None else None for s in (in_shardings, out_shardings)]
    options = Options(*statics, *donations, inline, keep_unused, device, tuple(sorted((compiler_options or {}).items())), *shardings)

    guarded = None                       # calls this function once it has a program that is fragile
    fragile: list = []                   # such programs were met

    def cache_miss(*args, **kwargs):
        nonlocal guarded
        if guarded is not None and not in_replica.value:
            return guarded(*args, **kwargs), None, False
        with asked_again(itself):
            result = answer(args, kwargs, False)
            if fragile and guarded is None:
                guarded = guarded_dispatcher(function_name(fun), fun, lambda args, kwargs: answer(args, kwargs, True), static_argnums=statics[0],
                                             static_argnames=statics[1], key=("guarded", options), tree_registry=xla.call_registry)[0]
            return result

    def answer(args, kwargs, is_guarded):
        if dispatch.disabled():
            return fun(*args, **kwargs), None, False
        call = take_apart(fun, options, args, kwargs)
        traced = record(fun, options, call)
        refs = takes_refs(traced.jaxpr)
        if refs:
            check_aliases(call_info("jit", fun, call), traced.consts, call.leaves)
        if state.trace is eval_trace or not _needs_trace(call.leaves, traced):
            if refs:
                return *run(traced.jaxpr, traced.consts, call.leaves, traced.out_tree, name=f"jit_{function_name(fun)}", donated=call.donated,
                            device=options.device, keep_unused=options.keep_unused, options=options.compiler_options, dispatcher=itself()), False
            executable = compiled(traced, options, call, function_name(fun))
            outs = dispatch.wrapped(executable.out_types, executable(dispatch.opened(call.leaves)))
            nonfinite.give_away(call.leaves, call.donated, executable.in_shardings)
            slow = traced.jaxpr.effects or dispatch.for_python(call.leaves, executable)
            fast = None if slow else executable.fastpath(traced.out_tree, is_guarded)
            if executable.fragile and not slow and not fragile:
                fragile.append(True)
            return traced.out_tree.unflatten(outs), fast, False
        leaves = call.leaves
        if options.in_shardings is not None:
            leaves = constrained(leaves, options.in_shardings.over(call.tree.children()[0], "jit in_shardings", "the tuple of arguments"))
        if inline:
            outs = eval_jaxpr(traced.callee, (), *traced.consts, *leaves)
        else:
            outs = jit_p.bind(*traced.consts, *leaves, jaxpr=traced.callee, name=function_name(fun))
        if options.out_shardings is not None:
            outs = constrained(outs, options.out_shardings.over(traced.out_tree, "jit out_shardings", "the result"))
        return traced.out_tree.unflatten(outs), None, False

    jitted = xla.dispatcher(function_name(fun), fun, cache_miss, static_argnums=statics[0], static_argnames=statics[1],
                            key=options, tree_registry=xla.call_registry)
    itself = weakref.ref(jitted)         # which goes when its user lets go of it, and with it the function

    def forget():
        nonlocal guarded
        guarded = None
        fragile.clear()
    return dressed(jitted, fun, lambda args, kwargs: _traced(fun, options, take_apart(fun, options, args, kwargs)), forget)


def _needs_trace(leaves: Sequence, traced: Traced) -> bool:
    """Must a call be bound in the current trace? Not if nothing of it is traced and nothing is being recorded."""
    return (bool(xla.staging.value) or any([isinstance(leaf, Tracer) for leaf in leaves])
            or any([isinstance(c, Tracer) for c in traced.consts]) or bool(axes_used_in(traced.jaxpr)))


def compiled(traced: Traced, options: Options, call: Call, name: str) -> Executable:
    """The executable of a recorded function, on the device its arguments ask for."""
    at, out_shardings = placed(traced, options, call)
    donated = nonfinite.kept_for_again(call.donated)
    key = (compiled, at, donated, options.keep_unused, options.compiler_options, out_shardings)
    return executables.once(traced.jaxpr.memo, key, lambda: dispatch.load(
        traced.jaxpr, traced.consts, at, name=f"jit_{name}", donated=donated, keep_unused=options.keep_unused,
        options=dict(options.compiler_options), out_shardings=out_shardings))


def placed(traced: Traced, options: Options, call: Call) -> tuple[dispatch.Placement, tuple | None]:
    """Where a call runs: on the device or over the mesh that its options, its program or its arguments ask for; and the shardings asked
    for its results."""
    if options.device is not None:
        return dispatch.Placement(options.device, True), None
    if options.in_shardings is None and options.out_shardings is None:
        return dispatch.placement(call.leaves, mesh_in(traced.jaxpr), captured=traced.consts), None
    free = call.tree.children()[0]
    wanted = options.in_shardings and options.in_shardings.over(free, "jit in_shardings", "the tuple of arguments")
    wanted = wanted and [*wanted, *[None] * (len(call.leaves) - len(wanted))]
    for leaf, sharding in zip(call.leaves, wanted or ()):
        if isinstance(leaf, np.ndarray) and sharding is not None and not sharding.is_fully_addressable and not sharding.is_fully_replicated:
            raise ValueError(f"jit: in_shardings ask for {sharding}, over devices of several processes, for a NumPy array of shape {leaf.shape}: is that the whole, or this "
                             "process's part of it? Make an array of parts with make_array_from_process_local_data, of a whole that all have with device_put")
    results = options.out_shardings and options.out_shardings.over(traced.out_tree, "jit out_shardings", "the result")
    asked = [s for s in (*(wanted or ()), *(results or ())) if s is not None]
    for sharding in asked:
        if elsewhere(sharding):
            raise NotImplementedError(f"jit: in_shardings and out_shardings can't ask for memory of the kind {sharding.memory_kind!r}: a program's arguments "
                                      "are brought to its devices' own memory, and its results left there; put them elsewhere with device_put")
    mesh = next((s.mesh for s in asked if isinstance(s, NamedSharding)), None) or mesh_in(traced.jaxpr)
    if mesh is None:
        devices = {d for s in asked for d in s.device_set}
        if len(devices) > 1:
            raise ValueError(f"jit: in_shardings and out_shardings ask for different devices, {', '.join(map(str, devices))}, without a mesh")
        return (dispatch.Placement(devices.pop(), True) if devices else dispatch.placement(call.leaves, captured=traced.consts)), None
    for sharding in asked:
        if not isinstance(sharding, NamedSharding) or sharding.device_set != set(mesh.devices.flat):
            raise ValueError(f"jit: in_shardings and out_shardings must be over the same devices, got {sharding} beside {mesh}")
    return dispatch.placement(call.leaves, mesh, wanted), results and tuple(
        [s and dispatch.result_over(mesh, s, t.ndim) for s, t in zip(results, traced.jaxpr.out_types)])


def _traced(fun: Callable, options: Options, call: Call) -> stages.Traced:
    """A recorded call as the first of the stages."""
    traced, name = record(fun, options, call), function_name(fun)
    refs = in_place(traced.jaxpr, traced.consts, call.donated) if takes_refs(traced.jaxpr) else None

    def lowering(platform: str | None):
        at, out_shardings = placed(traced, options, call) if refs is None else (refs.placement(call.leaves, options.device), None)
        jaxpr, consts, donated = (traced.jaxpr, traced.consts, call.donated) if refs is None else (refs.program, refs.values, refs.donated)
        how = dict(name=f"jit_{name}", donated=donated, keep_unused=options.keep_unused)
        if platform is not None and platform != at.device.platform:
            program = lower(jaxpr, consts, platform=platform, **how)
        else:
            program = dispatch.lower_at(jaxpr, consts, at, out_shardings=out_shardings, **how)
        return program, lambda more: dispatch.load_at(program, at, options={**dict(options.compiler_options), **more}, out_shardings=out_shardings)
    return stages.Traced(traced, call, name, lowering, refs)


def dressed(jitted, fun: Callable, traced: Callable[[tuple, dict], stages.Traced], forget: Callable = lambda: None):
    """The C++ function with the attributes that users expect of it. traced(args, kwargs): a call as the first of the stages.
    forget(): let go of what else there is of its programs."""
    @boundary
    def trace(*args, **kwargs) -> stages.Traced:
        """Record the function for arguments of these types, which may be ShapeDtypeStructs."""
        return traced(args, kwargs)

    @boundary
    def lower(*args, **kwargs) -> stages.Lowered:
        """The function as StableHLO for arguments of these types, which may be ShapeDtypeStructs."""
        return trace(*args, **kwargs).lower()

    def eval_shape(*args, **kwargs):
        """The structure of the result with a ShapeDtypeStruct for each array."""
        return trace(*args, **kwargs).out_info

    itself = weakref.ref(jitted)

    def clear_cache():
        """Forget all programs of this function."""
        programs.of(fun).clear()
        forget()
        if (dispatcher := itself()) is not None:
            dispatcher._clear_cache()

    jitted.__wrapped__ = fun
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__"):
        value = getattr(fun, attribute, None)
        if value is not None:
            setattr(jitted, attribute, value)
    jitted.trace, jitted.lower, jitted.eval_shape, jitted.clear_cache = trace, lower, eval_shape, clear_cache
    return jitted
