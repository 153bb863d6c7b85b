"""Dispatch of eager operations: each primitive and each library function is a C++ dispatcher over its compiled programs."""
from __future__ import annotations

import functools
import math
import time
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from lowering.grids import Cut
from lowering.physical import physical_type
from lowering.program import Lowered, lower
from lowering.shards import Partitions
from mini_jax.core import config, dtypes, logs, staging, trace
from mini_jax.core.program import Kept, ProgramInfo
from mini_jax.core.refs import refuse_refs
from mini_jax.core.replay import replayed
from mini_jax.core.trace import Tracer, leaked, typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.runtime import caches, large, nonfinite, processes, quick, warmup, xla
from mini_jax.runtime.aliased import without_kept_calls
from mini_jax.runtime.array import device_put
from mini_jax.runtime.devices import current_device, devices as devices_of, local_devices  # noqa: F401
from mini_jax.runtime.executable import Executable, place, whole
from mini_jax.runtime.meshes import Mesh, NamedSharding, over, replicated_over, sharding_of
from mini_jax.runtime.progress import compiling
from mini_jax.runtime.sharding import pmap_sharding

_flatten = xla.registry.flatten

# --- loading ----------------------------------------------------------------------------------------------------------------

def load_program(lowered: Lowered, device: xla.Device, *, committed: bool = False, options: dict | None = None) -> Executable:
    """Compile a program for one device. One that holds pmaps runs on as many of that kind as they need."""
    devices = [device] if lowered.num_replicas == 1 else replica_devices(lowered.num_replicas, lowered.devices, device.client)
    in_shardings = [grid_sharding(devices, cuts, t) for cuts, t in zip(lowered.in_cuts, lowered.in_types)]
    out_shardings = [grid_sharding(devices, cuts, t) for cuts, t in zip(lowered.out_cuts, lowered.out_types)]
    return load_replicas(lowered, devices, lowered.in_types, in_shardings, lowered.out_types, out_shardings, committed=committed, options=options)


def load_replicas(lowered: Lowered, devices: Sequence[xla.Device], in_types: Sequence, in_shardings: Sequence, out_types: Sequence,
                  out_shardings: Sequence, *, committed: bool, options: dict | None = None) -> Executable:
    """Compile a program for one replica on each of `devices`, with the types and shardings of whole inputs and outputs."""
    loaded, shown = code(lowered, devices, num_replicas=len(devices), options=options)
    return Executable(loaded, in_types, out_types, in_shardings, out_shardings, devices=devices, kept=lowered.kept,
                      const_args=[(device_put if committed else place)(c, whole(devices, np.ndim(c))) for c in lowered.consts], committed=committed,
                      host_functions=lowered.callbacks, name=lowered.name, jaxpr=lowered.again, agreement=processes.agreement(lowered, devices), shown=shown)


def code(lowered: Lowered, devices: Sequence[xla.Device], *, options: dict | None,
         **counts: int) -> tuple[xla.LoadedExecutable, Callable[[], xla.LoadedExecutable] | None]:
    """What XLA makes of a program; and what loads the like of it to be shown, where it is not whole itself (`disk_cache.Code`). Programs of equal
    text share it, so that one recorded anew, from a function made anew, is not compiled anew; but for those that call Python's functions, which
    are each its own."""
    if devices[0].platform == "cpu" and type(lowered) is Lowered:          # what was recalled comes with them
        options = {**large.options(lowered.text), **(options or {})}

    def compile():
        if devices[0].platform == "cpu":
            warmup.products(lowered.text, options or {}, devices[0])
        with compiling(lambda: logs.described(lowered)):
            build = functools.partial(xla.compile, devices=devices, host_callbacks=tuple(lowered.callbacks), **counts)
            made = build(lowered.located_text, options=options)
            plain = without_kept_calls(lowered.located_text, made)
            if plain is not None:
                made = build(plain, options={name: value for name, value in (options or {}).items() if name != xla.EXTRA_OPTIONS})
            return made

    def make():
        start, disk = time.perf_counter(), None if lowered.callbacks else _disk_cache()
        made, stored = ((compile(), None), None) if disk is None else disk.load(lowered.digest, lowered.name, devices, options, counts, compile)
        if logs.compiles.value:
            logs.compiled(lowered, time.perf_counter() - start, stored)
        return made
    if lowered.callbacks:
        return make()
    return caches.code(lowered.digest, (tuple(devices), tuple(sorted((options or {}).items())), *counts.items()), make)


def _disk_cache():
    """The cache on disk (`runtime.disk_cache`) if there is one; only who has one needs to load the file."""
    if not _disk_directory.value:
        return None
    from mini_jax.runtime import disk_cache
    return disk_cache if disk_cache.in_use() else None


_disk_directory = config.options["compilation_cache_dir"]


def grid_sharding(devices: Sequence[xla.Device], cuts: Sequence[Cut], type_):
    """Which device has what of a value of a type that is cut so. Devices beyond the grid's axes have the same."""
    ndim = physical_type(type_).ndim
    if all([cut.dim is None for cut in cuts]):
        return whole(devices, ndim)
    grid, dims = [cut.size for cut in cuts], [cut.dim for cut in cuts]
    rest = len(devices) // math.prod(grid)
    return pmap_sharding(devices, grid if rest == 1 else [*grid, rest], dims if rest == 1 else [*dims, None], ndim)


def replica_devices(count: int, wanted: Sequence[xla.Device] | None, client=None) -> list[xla.Device]:
    """The devices for `count` replicas: the first of those that pmap was given, or of this process. ValueError if there are too few."""
    found = list(wanted) if wanted else local_devices(backend=client)
    if len(found) < count:
        raise ValueError(
            f"pmap needs {count} devices, one for each replica (nested pmaps multiply; sizes of pmaps side by side in one program must "
            f"divide that number), but {'was given' if wanted else 'there are'} "
            f"{len(found)}: {', '.join(map(str, found[:8]))}{', …' if len(found) > 8 else ''}. " + (
                "Pass more in devices=." if wanted else "Map over a smaller axis, or use vmap inside for the rest."
                + (f" To try it on CPU, set XLA_FLAGS=--xla_force_host_platform_device_count={count} before the first use of a device."
                   if found[0].platform == "cpu" else "")))
    return found[:count]


def device_of(leaves: Sequence) -> tuple[xla.Device, bool]:
    """The device on which a program of these arguments runs, and whether that is their wish (they are committed to it)."""
    for leaf in leaves:
        if type(leaf) is xla.ArrayImpl and leaf._committed and type(leaf._sharding) is xla.SingleDeviceSharding:
            return leaf._sharding._device, True
    return current_device(), False


# --- meshes -------------------------------------------------------------------------------------------------------------------------


class Placement(NamedTuple):
    """Where a program runs: on one device; or on all of a mesh, its arguments spread over that as `shardings` say."""
    device: xla.Device
    committed: bool
    mesh: Mesh | None = None
    shardings: tuple | None = None


def placement(leaves: Sequence, mesh: Mesh | None = None, wanted: Sequence | None = None, captured: Sequence = ()) -> Placement:
    """The placement of a program of these arguments and captured arrays. mesh: one that the program itself asks for; wanted: shardings asked
    for arguments, None where an argument may stay as it is."""
    if mesh is None:
        for leaf in (*leaves, *captured):
            have = leaf._sharding if type(leaf) is xla.ArrayImpl else getattr(leaf, "sharding", None)       # of a ShapeDtypeStruct
            if type(have) is NamedSharding:
                mesh = have.mesh
                break
        else:
            return Placement(*device_of((*leaves, *captured) if captured else leaves))
    asked = wanted or [None] * len(leaves)
    return Placement(mesh.devices.flat[0], True, mesh, tuple([spread_over(mesh, leaf, want) for leaf, want in zip(leaves, asked)]))


def spread_over(mesh: Mesh, value, asked=None) -> NamedSharding:
    """How a value enters a program over a mesh: as asked, or as it lies on its devices, or whole on each."""
    have = asked or (value._sharding if type(value) is xla.ArrayImpl else getattr(value, "sharding", None))
    if type(have) is NamedSharding and have.device_set == set(mesh.devices.flat):
        have = over(have, mesh, np.ndim(value))
        if have is not None:
            return have
    return replicated_over(mesh)


def result_over(mesh: Mesh, asked: NamedSharding, ndim: int) -> NamedSharding:
    """How a program over a mesh returns a value of which `asked` is asked. ValueError where the orders of their devices don't go together."""
    found = over(asked, mesh, ndim)
    if found is None:
        raise ValueError(f"a result can't be spread by {asked} in a program over {mesh}, whose devices have another order: use meshes with one order")
    return found


def lower_at(jaxpr, consts: Sequence, at: Placement, *, out_shardings: Sequence | None = None, **options) -> Lowered:
    """A program's text for its placement. out_shardings: of each result, None where XLA decides. options: those of `lower`."""
    if at.mesh is None:
        return lower(jaxpr, consts, platform=at.device.platform, **options)
    outputs = tuple(out_shardings or [None] * len(jaxpr.outvars))
    info = jaxpr.info or ProgramInfo("jit", name="a program")
    for i, (sharding, type_) in enumerate(zip(at.shardings, jaxpr.in_types)):
        _check_parts(sharding, type_, info, lambda: f"argument {info.path(i) or i}")
    for i, (sharding, type_) in enumerate(zip(outputs, jaxpr.out_types)):
        _check_parts(sharding, type_, info, lambda: f"result {i}")
    constants = tuple([spread_over(at.mesh, c) for c in consts])
    return lower(jaxpr, consts, platform=at.device.platform, partitions=Partitions(tuple(at.mesh.devices.flat), constants, at.shardings, outputs), **options)


def _check_parts(sharding, type_, info: ProgramInfo, what: Callable[[], str]) -> None:
    """ValueError, that names it, for an argument or a result that can't be cut so."""
    try:
        if sharding is not None:
            sharding.shard_shape(type_.shape)
    except ValueError as error:
        raise ValueError(f"{info.transformation} of {info.name}: {what()} of type {type_} can't be spread so: {error}") from None


def load_at(lowered: Lowered, at: Placement, *, options: dict | None = None, out_shardings: Sequence | None = None) -> Executable:
    """Compile what `lower_at` wrote."""
    if at.mesh is None:
        return load_program(lowered, at.device, committed=at.committed, options=options)
    devices = tuple(at.mesh.devices.flat)
    loaded, shown = code(lowered, devices, num_partitions=len(devices), options=options)
    others = dict.fromkeys([s.mesh for s in at.shardings if s.mesh != at.mesh and tuple(s.mesh.devices.flat) == devices])
    found, decided = iter(xla.output_shardings(loaded) if len(devices) > 1 else ()), []
    for type_, wanted in zip(lowered.out_types, out_shardings or [None] * len(lowered.out_types)):
        hlo = next(found, None)
        decided.append(wanted or sharding_of(at.mesh, hlo, physical_type(type_).ndim, tuple(others)))
    return Executable(loaded, lowered.in_types, lowered.out_types, at.shardings, decided, devices=devices, kept=lowered.kept,
                      const_args=[device_put(c, spread_over(at.mesh, c)) for c in lowered.consts], committed=True,
                      host_functions=lowered.callbacks, name=lowered.name, jaxpr=lowered.again, fragile=xla.communicates(loaded),
                      agreement=processes.agreement(lowered, devices), shown=shown)


def _options_alone(text: str) -> dict:
    return {**large.options(text), **quick.options(text)}


def load(jaxpr, consts: Sequence, at: Placement, *, eager: bool = False, options: dict | None = None, out_shardings: Sequence | None = None,
         **how) -> Executable:
    """Lower and compile a program for its placement. eager: it is an operation, or a function of the library, that runs by itself."""
    write = lambda: lower_at(jaxpr, consts, at, out_shardings=out_shardings, **how)
    by_text = None if at.mesh is not None or at.device.platform != "cpu" else _options_alone if eager else large.options
    if at.mesh is None and _disk_cache() is not None:
        from mini_jax.runtime.recall import recall
        lowered, chosen = recall(jaxpr, consts, write, by_text, platform=at.device.platform, **how)
    else:
        lowered = write()
        chosen = {} if by_text is None else by_text(lowered.text)
    return load_at(lowered, at, options={**chosen, **(options or {})}, out_shardings=out_shardings)


# --- values that C++ does not know ---------------------------------------------------------------------------------------------
# Typed random keys are Python objects around an array of bits. mini_jax.random names how to open and wrap them.

_openers: dict[type, Callable[[Any], Any]] = {}
_wrappers: list[Callable[[Any, Any], Any]] = []


def register_extended(cls: type, opener: Callable[[Any], Any], wrapper: Callable[[Any, Any], Any]) -> None:
    """Values of class `cls` enter programs as `opener(value)`; results of an extended dtype leave as `wrapper(type, array)`."""
    _openers[cls] = opener
    _wrappers.append(wrapper)


def opened(leaves: Sequence) -> list:
    """Leaves as a program takes them."""
    if not _openers:
        return list(leaves)
    return [_openers[type(leaf)](leaf) if type(leaf) in _openers else leaf for leaf in leaves]


def wrapped(types: Sequence, outputs: list) -> list:
    """A program's results as users see them."""
    if _wrappers and any([dtypes.is_extended(t.dtype) for t in types]):
        return [_wrappers[0](t, out) if dtypes.is_extended(t.dtype) else out for t, out in zip(types, outputs)]
    return outputs


def for_python(leaves: Sequence, executable: Executable) -> bool:
    """Must calls with such arguments always come through Python?

    Values that C++ does not know; and NumPy arrays: its fast path takes a big-endian one for a native one, and (0.10) lets the
    program read the caller's memory after the call has returned. (For several devices it asks `place` for them.) And arrays that are on
    several devices in another way than the program takes them: C++ would hand it the parts that it finds.
    """
    if len(executable.devices) == 1:
        return any([isinstance(leaf, np.ndarray) or type(leaf) in _openers for leaf in leaves])
    return any([type(leaf) in _openers or type(leaf) is xla.ArrayImpl and leaf._sharding.num_devices > 1 and leaf._sharding != sharding
                or isinstance(leaf, np.ndarray) and not sharding.is_fully_addressable
                for leaf, sharding in zip(leaves, executable.in_shardings[len(executable.in_shardings) - len(leaves):])])


# --- eager primitives ------------------------------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=64)
def list_tree(count: int):
    """The structure of a list of so many arrays."""
    return _flatten([0] * count)[1]


_leaf_tree = _flatten(0)[1]


def _check_arrays(name: str, leaves: Sequence) -> None:
    """Raise TypeError for a ref or a tracer among the arguments of an operation that runs now."""
    refuse_refs(name.lstrip("_"), leaves)
    for leaf in leaves:
        if isinstance(leaf, Tracer):
            raise leaked(leaf)


def make_dispatcher(primitive, parameters: tuple[str, ...]) -> Callable:
    """A primitive's implementation: compiled once for each combination of types and parameters."""
    programs = Kept()
    name, many = primitive.name, primitive.multiple_results

    def miss(*args, **params):
        _check_arrays(name, args)
        types = tuple([typeof(arg) for arg in args])
        values = opened(args)
        at = placement(values)

        def build():
            if many:
                fun = lambda *xs: primitive.bind(*xs, **params)
            else:
                fun = lambda *xs: [primitive.bind(*xs, **params)]
            jaxpr, consts = staging.stage(fun, types)
            return load(jaxpr, consts, at, name=name, eager=True)

        executable = caches.executables.once(programs, (types, tuple(params.items()), at, config.trace_key()), build)
        outputs = wrapped(executable.out_types, executable(values))
        tree = list_tree(len(outputs)) if many else _leaf_tree
        return outputs if many else outputs[0], None if for_python(args, executable) else executable.fastpath(tree), False

    run = lambda *args, **params: miss(*args, **params)[0]            # what C++ calls under disable_jit
    return xla.dispatcher(name, run, boundary(miss), static_argnames=parameters)


trace.make_dispatcher = make_dispatcher
staging.capture_numpy = device_put


# --- library functions ---------------------------------------------------------------------------------------------------------------

def library(fun: Callable | None = None, *, static_argnames: Sequence[str] = (), donated: Sequence[bool] = ()) -> Callable:
    """Decorator of library functions: called on values, one compiled program; called on tracers, or while operations are
    being recorded, what its body does, or did before (core/replay.py). Arguments named in static_argnames (hashable) select the program.
    donated: for each of the others, by position, whether its buffer is given to the result."""
    if fun is None:
        return lambda fun: library(fun, static_argnames=static_argnames, donated=donated)
    code = fun.__code__
    positional = code.co_varnames[:code.co_argcount]
    static_argnums = tuple([positional.index(name) for name in static_argnames if name in positional])
    statics, static_positions = frozenset(static_argnames), frozenset(static_argnums)
    programs, recording = Kept(), replayed(fun)
    name = fun.__name__

    def miss(*args, **kwargs):
        if any([isinstance(arg, Tracer) for arg in args]) or xla.staging.value or disabled():
            return recording(*args, **kwargs), None, False
        fixed = tuple([arg if i in static_positions else None for i, arg in enumerate(args)])
        fixed_names = tuple([(key, value) for key, value in kwargs.items() if key in statics])
        free = [arg for i, arg in enumerate(args) if i not in static_positions]
        leaves, tree = _flatten((free, {key: value for key, value in kwargs.items() if key not in statics}))
        for leaf in leaves:
            if isinstance(leaf, Tracer):
                return fun(*args, **kwargs), None, False
        _check_arrays(name, leaves)
        types = tuple([typeof(leaf) for leaf in leaves])
        values = opened(leaves)
        at, gives = placement(values), nonfinite.kept_for_again(donated)

        def build():
            out_tree = None

            def body(*flat):
                nonlocal out_tree
                free, named = tree.unflatten(flat)
                free = iter(free)
                out = fun(*[fixed[i] if i in static_positions else next(free) for i in range(len(args))], **dict(fixed_names), **named)
                flat_out, out_tree = _flatten(out)
                return flat_out
            jaxpr, consts = staging.stage(body, types, ProgramInfo("a library function", fun))
            given = [given for given, arg in zip(gives, free) for _ in _flatten(arg)[0]] if gives else ()
            return load(jaxpr, consts, at, name=name, eager=True, donated=given), out_tree

        executable, out_tree = caches.executables.once(programs, (tree, types, fixed, fixed_names, at, gives, config.trace_key()), build)
        outputs = wrapped(executable.out_types, executable(values))
        return out_tree.unflatten(outputs), None if for_python(leaves, executable) else executable.fastpath(out_tree), False

    dispatcher = xla.dispatcher(name, fun, boundary(miss), static_argnums=static_argnums, static_argnames=static_argnames)
    dispatcher.__wrapped__, dispatcher.__name__, dispatcher.__doc__ = fun, name, fun.__doc__
    dispatcher.__module__, dispatcher.__qualname__ = fun.__module__, fun.__qualname__
    dispatcher.recording = recording                 # for who knows that a tracer is among the arguments
    return dispatcher


def disabled() -> bool:
    """Is jit switched off (`disable_jit`)?"""
    return xla.Config.disable_jit.value
