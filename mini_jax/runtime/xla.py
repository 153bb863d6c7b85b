"""jaxlib, the one door to it: everything of ours that touches jaxlib's private modules, and all differences between its releases.

jaxlib gives XLA (a compiler and its devices) and, in C++, the parts of a frontend that must be fast: the array class, the
call dispatcher, pytrees, thread-local settings. Those C++ classes are shared by the whole process; their Python half (what
`repr(array)` shows, what a sharding answers when asked) is set on them as attributes by the other files of `runtime/`.

This file is the ground floor: it imports nothing of ours.
"""
from __future__ import annotations

import ctypes
import functools
import os
import re
import sys
import threading
import time
import weakref
from typing import Any, Callable, NamedTuple, Sequence

LOADED = time.time()                                    # when the package was: this is one of its first files

ONE_FRONTEND = (
    "mini_jax and jax cannot share a process: both are frontends of jaxlib and both own its C++ array, sharding and dispatcher "
    "classes, of which there is one set per process. Run them in separate processes, or in separate environments; code "
    "written for jax runs on mini_jax with `import mini_jax as jax`.")
if "jax" in sys.modules:
    raise ImportError(ONE_FRONTEND)

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")      # XLA reports every device on stderr otherwise

import ml_dtypes
import numpy as np

import jaxlib
from jaxlib import _hlo, _jax


class _KeepOut:
    """Finder that lets nobody import jax in this process, least of all jaxlib itself: some of its C++ does, silently,
    where jax is installed, and jax would then set its own methods on the classes that are ours by now."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "jax":
            from importlib.machinery import PathFinder
            spec = PathFinder.find_spec(name, path)
            if spec is not None:
                spec.loader = _KeepOut
            return spec
        return None

    @staticmethod
    def create_module(spec):
        raise ImportError(ONE_FRONTEND)

    exec_module = create_module


sys.meta_path.insert(0, _KeepOut)


class _SparedSearch:
    """`with spared_search:` around what makes jaxlib's C++ import a module of jax, to no purpose, for each shard it makes an array
    of and each array it reads: the import fails in 2 us instead of 30 (200 where much is on sys.path)."""
    __slots__ = ()

    def __enter__(self):
        sys.modules["jax._src.sharding_impls"] = None

    def __exit__(self, *_):
        sys.modules.pop("jax._src.sharding_impls", None)


spared_search = _SparedSearch()

jaxlib_version: tuple[int, ...] = tuple(int(part) for part in jaxlib.__version__.split(".") if part.isdigit())

# Programs for several replicas, in jaxlib 0.10: given a deleted array, one ends the process instead of raising; and they wait for
# each other for ever if two threads start them at once, or if more than 32, XLA's limit, are unfinished. So whoever starts one looks at
# its arguments first, and holds `replicas_start`. (More threads for XLA help only with the last, and make every call slower.)
# Of programs over a mesh, those whose partitions communicate wait for each other so.
FRAGILE_REPLICAS = jaxlib_version < (0, 11)

# ---- the C++ classes and functions, by the names the rest of mini_jax uses -------------------------------------------
ArrayImpl = _jax.ArrayImpl
Sharding = _jax.Sharding
SingleDeviceSharding = _jax.SingleDeviceSharding
GSPMDSharding = _jax.GSPMDSharding
HloSharding = _hlo.HloSharding
REPLICATED = _hlo.OpSharding.Type.REPLICATED       # in HloSharding.iota_tile: the last tile dimension holds copies
DeviceList = _jax.DeviceList
Device = _jax.Device
LoadedExecutable = _jax.LoadedExecutable
Dispatcher = _jax.PjitFunction
XlaRuntimeError = _jax.JaxRuntimeError

pytree = _jax.pytree
registry = pytree.default_registry()
call_registry = pytree.PyTreeRegistry()              # how dispatchers that know refs see arguments: a ref is a node, its array a leaf
guards = _jax.guard_lib                              # of transfers: thread_local_state(), global_state(), TransferGuardLevel
batched_block_until_ready = _jax.batched_block_until_ready


# ---- settings that are part of every dispatch key ----------------------------------------------------------------------
# A C++ Config has a global value and one per thread that overrides it; `.value` reads (0.1 us), `.set_local(v)` writes
# (0.1 us), `.swap_local(v)` writes and returns what was there, and `unset` as a local value means "the global one".
# With in_key=True the value, which must be hashable, is part of every dispatcher's key.
unset = _jax.config.unset
trace_context = _jax.config.trace_context       # () -> tuple of the values of all states made with in_key=True


def config_state(name: str, default, *, in_key: bool, in_trace: bool | None = None) -> Any:
    """A setting of the C++ dispatcher: a thread-local value over a global one, part of every dispatch key if `in_key`, and of
    `trace_context()` if `in_trace` (default: as in_key)."""
    return _jax.config.Config(name, default, include_in_jit_key=in_key, include_in_trace_context=in_key if in_trace is None else in_trace)


class Config:
    """The settings that C++ itself reads, or that must make its dispatcher miss when they change."""
    enable_x64 = config_state("enable_x64", False, in_key=True)
    disable_jit = config_state("disable_jit", False, in_key=True)
    default_device = config_state("default_device", None, in_key=True)
    # True while a staging trace is current: every dispatcher then calls into Python, which records instead of running
    # (it is not part of trace_context, so that what is cached under that is shared between traces).
    staging = _jax.config.Config("staging", None, include_in_jit_key=True, include_in_trace_context=False)
    # Called by C++ after a fast call as hook(function, jitted, args, kwargs, result), unless None.
    post_hook = _jax.config.Config("post_hook", None, include_in_jit_key=False, include_in_trace_context=False)


staging = Config.staging

_jax.jax_jit.set_enable_x64_state(Config.enable_x64)
_jax.jax_jit.set_disable_jit_state(Config.disable_jit)
_jax.jax_jit.set_post_hook_state(Config.post_hook)

# ---- what the dispatcher takes as an array -----------------------------------------------------------------------------
VALID_DTYPES = frozenset(
    [np.dtype(t) for t in "? i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16".split()]
    + [np.dtype(getattr(ml_dtypes, name)) for name in (
        "bfloat16 int2 uint2 int4 uint4 float4_e2m1fn float8_e3m4 float8_e4m3 float8_e4m3b11fnuz float8_e4m3fn "
        "float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu").split() if hasattr(ml_dtypes, name)])
_jax.set_valid_dtypes(set(VALID_DTYPES))

set_tracer_class: Callable[[type], None] = _jax.set_tracer_class
register_canonicalize: Callable[[type, Callable | None], None] = _jax.register_canonicalize_value_handler


class _NoTracer:
    """Stands for the tracer class until core names the real one: the dispatcher crashes without any."""


set_tracer_class(_NoTracer)
register_canonicalize(ArrayImpl, None)          # None: as it is


# ---- the dispatcher ----------------------------------------------------------------------------------------------------
class Fastpath(NamedTuple):
    """What the dispatcher needs to answer a later call of the same signature without Python. C++ reads the fields by name.

    The executable's inputs are const_args, then the arguments that it keeps. kept_var_bitvec has an entry for each constant
    and each flat argument; in_shardings and in_device_local_layouts (None: the default) one for each input.
    C++ does not check these lengths.
    """
    xla_executable: Any
    out_pytree_def: Any
    in_shardings: list
    out_shardings: list
    out_avals: list
    out_committed: list[bool]
    kept_var_bitvec: list[bool]
    in_device_local_layouts: list
    const_args: list


def fastpath(executable, out_tree, in_shardings, out_shardings, out_types, out_committed, kept=None, const_args=()) -> Fastpath:
    """Fastpath data. in_shardings: one for each input (const_args, then kept arguments). kept[i] False: flat argument i
    is no input; None: all are.
    """
    inputs, consts = len(in_shardings), len(const_args)
    kept = [True] * inputs if kept is None else [True] * consts + list(kept)
    if sum(kept) != inputs:
        raise ValueError(f"{inputs} input shardings for {consts} constants and {sum(kept) - consts} kept arguments")
    return Fastpath(executable, out_tree, list(in_shardings), list(out_shardings), list(out_types), list(out_committed),
                    kept, [None] * inputs, list(const_args))


calls = _jax.PjitFunctionCache(capacity=1 << 14)
"""What all dispatchers remember of the signatures with which they were called; a function's entries go with it. calls.clear() forgets all."""

_place_argument: Callable | None = None


def set_argument_placer(place: Callable[[Any, Any], Any]) -> None:
    """Name the function that C++ calls for an argument it cannot put itself: place(value, sharding) -> array so sharded."""
    global _place_argument
    _place_argument = place


def _shard_arg_fallback(value, sharding, _layout):
    return _place_argument(value, sharding)


def dispatcher(name: str, fun: Callable | None, cache_miss: Callable, *, static_argnums: Sequence[int] = (),
               static_argnames: Sequence[str] = (), key: Any = None, tree_registry=None):
    """A C++ callable that answers repeated calls without Python.

    cache_miss(*args, **kwargs) -> (outputs, Fastpath or None, False) runs on the first call of each signature; the
    signature is the tree of the arguments, each leaf's shape, dtype, weak type, sharding and committedness, the static
    arguments (by `==` and `hash`), and the in-key states of `Config`. Without Fastpath every such call is a miss.
    A leaf that C++ does not know (a tracer, an object) makes the call a miss too, and the answer is not remembered.
    A signature whose first miss gave no Fastpath, or raised, stays with Python until `_clear_cache()`: a cache_miss that
    fails should call that, so that the signature may be fast another time.

    fun: the user's function: identity of the cache entries; when it is collected, its entries go.
    key: hashable; dispatchers of one `fun` with equal keys share entries. None: shares with nobody.
    """
    return _jax.pjit(name, fun, cache_miss, list(static_argnums), list(static_argnames),
                     object() if key is None else key, registry if tree_registry is None else tree_registry,
                     _shard_arg_fallback, calls)


def _pickle_dispatcher(self):
    target = sys.modules.get(getattr(self, "__module__", None))
    name = getattr(self, "__qualname__", None)
    for part in (name or "").split("."):
        target = getattr(target, part, None)
    if target is self:
        return name
    remake = self.__dict__.get("remake")
    if remake is None:
        from pickle import PicklingError
        raise PicklingError(f"can't pickle {self!r}: it is not what {name!r} means in its module")
    return remake


# Copied like a function: not at all, or what it has compiled would be lost. Pickled like one, by its name, or where it
# has none, by the attribute `remake`, a pair (callable, arguments) that makes the like of it.
Dispatcher.__copy__ = lambda self: self
Dispatcher.__deepcopy__ = lambda self, memo: self
Dispatcher.__reduce__ = _pickle_dispatcher


# ---- where the user was --------------------------------------------------------------------------------------------------
class Traceback:
    """User source locations, cheap to take (0.1 us for a shallow stack) and decoded only when shown."""

    capture: Callable[[], Any] = staticmethod(_jax.Traceback.get_traceback)

    @staticmethod
    def frames(raw) -> list[tuple[str, str, int, int]]:
        """The (file, function, line, column) of each frame of what `capture` returned, innermost first."""
        if raw is None:
            return []
        out = []
        for code, instruction in zip(*raw.raw_frames()):
            line, column, _, _ = _jax.Traceback.code_addr2location(code, instruction)
            out.append((code.co_filename, code.co_qualname, line, column))
        return out


def profiler():
    """jaxlib's profiler: ProfilerSession, ProfileOptions, TraceMe, start_server. Imported by who profiles."""
    from jaxlib import _profiler
    return _profiler


class Event(NamedTuple):
    """Something that the profiler saw. operation: the HLO operation that ran; None for what else XLA does."""
    name: str
    seconds: float
    operation: str | None


def profiled(run: Callable[[], Any]) -> tuple[Any, list[Event]]:
    """run(), and what happened meanwhile, on the host's threads and on devices. No events where the profiler is at work for somebody else.

    An operation that other threads help with lasts until they have done, which is an event of its own there: `end: name`.
    """
    import warnings

    from jaxlib import _profile_data        # noqa: F401  (the type of what the session returns)
    options = profiler().ProfileOptions()
    options.python_tracer_level = 0
    session, data = profiler().ProfilerSession(options), None
    try:
        result = run()
    finally:
        try:
            data = session.stop_and_get_profile_data()
        except XlaRuntimeError:             # another session was there first
            pass
    if data is None:
        return result, []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)          # Python 3.12 about a class of jaxlib's
        seen = [(event, dict(event.stats)) for plane in data.planes for line in plane.lines for event in line.events]
    ends = {stats["_c"]: event.start_ns + event.duration_ns for event, stats in seen if event.name.startswith("end: ") and "_c" in stats}
    return result, [Event(event.name, (max(ends.get(stats.get("_p"), 0) - event.start_ns, event.duration_ns)) * 1e-9, stats.get("hlo_op"))
                    for event, stats in seen if not event.name.startswith("end: ")]


# ---- clients: one for each platform, made when first needed ---------------------------------------------------------------
_lock = threading.RLock()
_clients: dict[str | None, Any] = {}
_client_options: dict[str, dict[str, Any]] = {}
_find_client: Callable[[str | None], Any] | None = None


def set_client_finder(find: Callable[[str | None], Any]) -> None:
    """Name the function that knows which platforms there are (`runtime/platforms.py`): find(name; None: the default) -> client."""
    global _find_client
    _find_client = find


def set_client_options(platform: str, **options) -> None:
    """Options for the client of `platform`, which must not have been made yet (distributed_client, collectives, …)."""
    with _lock:
        if platform in _clients:
            raise RuntimeError(f"the {platform} client exists already: options must be set before anything is computed, "
                               "put on a device or asked of the devices")
        _client_options.setdefault(platform, {}).update(options)


def client(platform: str | None = None):
    """The PJRT client of a platform (None: the default one), made at the first call."""
    found = _clients.get(platform)          # without the lock: this is on the way of every eager put
    if found is not None:
        return found
    with _lock:
        found = _clients[platform] = _find_client(platform)
        return found


def start(platform: str, make: Callable[..., Any]):
    """The client of a platform, by its own name; if there is none yet, what make(**options) returns."""
    with _lock:
        found = _clients.get(platform)
        if found is None:
            found = _clients[platform] = make(**_client_options.get(platform, {}))
        return found


def make_cpu_client(**options):
    """A client of the CPU: num_devices, distributed_client, node_id, num_nodes, collectives."""
    return _jax.get_tfrt_cpu_client(**{"asynchronous": True, **options})


def started_platforms() -> list[str]:
    """The platforms that have a client already."""
    return [name for name in _clients if name is not None]


# ---- several processes: XLA's own service, over which their clients learn of each other's devices and find each other -------------

def distributed_service(address: str, count: int, *, patience: int, shutdown_timeout: int):
    """The service, which one process of `count` runs. patience: seconds after which it takes a silent one for dead."""
    return _jax.get_distributed_runtime_service(address, count, heartbeat_timeout=patience, shutdown_timeout=shutdown_timeout)


def distributed_client(address: str, process: int, *, timeout: int, patience: int, shutdown_timeout: int):
    """A connection to it, for a process of this number; connect() connects. It aborts the process when the service goes away."""
    return _jax.get_distributed_runtime_client(address, process, init_timeout=timeout, heartbeat_timeout=patience, shutdown_timeout=shutdown_timeout,
                                               shutdown_on_destruction=False, use_compression=True)


def cpu_collectives(kind: str, distributed, host: str):
    """How CPU devices of different processes communicate: "gloo", at the address `host` of this machine, "mpi" or "none"."""
    if kind == "gloo":
        return _jax.make_gloo_tcp_collectives(distributed_client=distributed, hostname=host)
    if kind == "mpi":
        found = _jax.make_mpi_collectives()
        found.Init()
        return found
    return None


def add_flag(name: str, value) -> None:
    """Add a flag to XLA_FLAGS, which XLA reads when the first client is made; what the user has set there goes before."""
    os.environ["XLA_FLAGS"] = f"--{name}={value} {os.environ.get('XLA_FLAGS', '')}".strip()


def never_free(thing) -> None:
    """Keep an object to the very end of the process: when C++ destroys some of its own, it waits for other processes."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


_plugins: dict[str, Any] = {}                # name -> its C interface


def _load_plugin(name: str, library: str):
    if name not in _plugins:
        _plugins[name] = _jax.load_pjrt_plugin(name, library, None)
    if not _jax.pjrt_plugin_initialized(name):
        _jax.initialize_pjrt_plugin(name)
    return _plugins[name]


def plugin_client(name: str, library: str, options: dict, extension=None):
    """A client of the PJRT plugin whose library this file is. Raises XlaRuntimeError with the loader's or the plugin's message.

    extension: a module whose register_custom_call_target(api, …) and register_custom_type(api, …) tell the plugin of foreign functions.
    """
    api = _load_plugin(name, library)
    if extension is not None:
        from jaxlib import xla_client
        xla_client.register_custom_type_handler(name.upper(), functools.partial(extension.register_custom_type, api))
        xla_client.register_custom_call_handler(name.upper(), functools.partial(extension.register_custom_call_target, api))
    distributed = options.pop("distributed_client", None)
    return _jax.get_c_api_client(name, options, distributed)


def compiler_without_devices(name: str, library: str, options: dict) -> Callable[[str], Any]:
    """What compiles StableHLO text for a device that isn't there, which the options describe to the plugin, and raises what its compiler does."""
    device = _jax.get_c_api_topology(_load_plugin(name, library), "", options)._make_compile_only_devices()[0]
    return lambda text: device.client.compile(parse_module(text), DeviceList((device,)), compile_options([device]))


def gpu_options() -> dict:
    """The options that jaxlib reads for GPU clients from the environment."""
    from jaxlib import xla_client
    return dict(xla_client.generate_pjrt_gpu_plugin_options())


# ---- compiling ----------------------------------------------------------------------------------------------------------
YNNPACK_RUNS = "xla_cpu_experimental_ynn_fusion_type"    # which kinds of operations, "LIBRARY_FUSION_TYPE_DOT,…": products, sums, convolutions by default
EXTRA_OPTIONS = "xla_backend_extra_options"              # "name,name=value": options of the CPU compiler that are no flags of XLA's own


def _proto(field: int, content: bytes) -> bytes:
    """A field of a protocol buffer that holds bytes, or another message."""
    def number(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + number(n >> 7)
    return number(field << 3 | 2) + number(len(content)) + content


def compile_options(devices: Sequence[Device], *, num_replicas: int = 1, num_partitions: int = 1,
                    options: dict | None = None, device_assignment=None):
    """XLA's CompileOptions. `device_assignment`: device ids, shape (replicas, partitions); None: `devices` in order."""
    options, out = dict(options or {}), _jax.CompileOptions()
    extra = options.pop(EXTRA_OPTIONS, None)
    if extra is not None:                               # a map, which overrides can't set: what XLA parses is the options and, after them, it
        entries = b"".join([_proto(500, _proto(1, name.encode()) + _proto(2, value.encode()))
                            for name, _, value in [entry.partition("=") for entry in extra.split(",")]])
        out = _jax.CompileOptions.ParseFromString(out.SerializeAsString() + _proto(3, _proto(3, entries)))
    build = out.executable_build_options
    out.num_replicas, out.num_partitions = num_replicas, num_partitions
    build.num_replicas, build.num_partitions = num_replicas, num_partitions
    if device_assignment is None:
        device_assignment = [device.id for device in devices]
    assignment = _jax.DeviceAssignment.create(np.asarray(device_assignment, np.int64).reshape(num_replicas, num_partitions))
    out.device_assignment = build.device_assignment = assignment
    if num_partitions > 1:
        build.use_spmd_partitioning = build.use_shardy_partitioner = True
    if options:
        out.env_option_overrides = [(flag, value if isinstance(value, (bool, int, float)) else str(value))
                                    for flag, value in options.items()]
    return out


def compile(text: str, devices: Sequence[Device], *, num_replicas: int = 1, num_partitions: int = 1,
            options: dict | None = None, device_assignment=None, host_callbacks: Sequence[Callable] = ()) -> LoadedExecutable:
    """StableHLO text → executable, loaded on `devices`.

    options: XLA flags by name (without `--`), e.g. {"xla_cpu_use_fusion_emitters": False}.
    host_callbacks: the functions that `@xla_ffi_python_cpu_callback` custom calls name by index.
    Raises XlaRuntimeError with XLA's or MLIR's message.
    """
    devices = tuple(devices)
    settings = compile_options(devices, num_replicas=num_replicas, num_partitions=num_partitions, options=options,
                               device_assignment=device_assignment)
    if host_callbacks:
        # only this overload takes callbacks, and it wants the module parsed
        return devices[0].client.compile_and_load(parse_module(text), DeviceList(devices), settings,
                                                  host_callbacks=tuple(host_callbacks))
    return devices[0].client.compile_and_load(text, DeviceList(devices), settings)


_mlir_context = None


def parse_module(text: str):
    """StableHLO text → MLIR module, verified; raises ValueError with MLIR's own message and position."""
    global _mlir_context
    from jaxlib.mlir import ir          # 60 ms to import: only for checks and callbacks
    with _lock:
        if _mlir_context is None:
            from jaxlib.mlir._mlir_libs import _jax_mlir_ext
            from jaxlib.mlir.dialects import chlo, sdy, stablehlo
            context, dialects = ir.Context(), ir.DialectRegistry()
            _jax_mlir_ext.register_dialects(dialects)
            context.append_dialect_registry(dialects)
            context.load_all_available_dialects()
            for dialect in (stablehlo, chlo, sdy):
                dialect.register_dialect(context)
            _mlir_context = context
    with _mlir_context:
        try:
            return ir.Module.parse(text)
        except ir.MLIRError as error:
            raise ValueError(f"not a valid StableHLO module: {error}{_lines_named(str(error), text)}") from None


def _lines_named(message: str, text: str) -> str:
    """The lines of `text` that an MLIR message points at (`"-":line:column`), each with a caret under the place."""
    lines, out = text.splitlines(), ""
    for line, column in re.findall(r'"-":(\d+):(\d+)', message):
        if 0 < int(line) <= len(lines):
            out += f"\n{lines[int(line) - 1]}\n{' ' * (int(column) - 1)}^"
    return out


def hlo_text(executable, *, short: bool = False) -> str:
    """The optimised HLO that XLA made of the program. short: what computes, without places, settings, layouts and entries."""
    if not short:
        return "\n\n".join(module.to_string() for module in executable.hlo_modules())
    options = _hlo.HloPrintOptions.short_parsable()
    options.print_large_constants = options.include_layout_in_shapes = False
    return "\n\n".join(module.to_string(options) for module in executable.hlo_modules())


def output_shardings(executable) -> list[HloSharding]:
    """How the outputs of a partitioned program are spread."""
    return [HloSharding.from_proto(proto) for proto in executable.get_output_shardings() or ()]


_COLLECTIVE = re.compile(r" (?:all-reduce|all-gather|all-to-all|collective-permute|collective-broadcast|reduce-scatter|ragged-all-to-all)\b")


def communicates(executable) -> bool:
    """Do the devices of a program send each other anything? Asked only where it matters (`FRAGILE_REPLICAS`)."""
    return FRAGILE_REPLICAS and _COLLECTIVE.search(hlo_text(executable)) is not None


def cost_analysis(executable) -> dict[str, float]:
    """XLA's own estimate: flops, bytes accessed, transcendentals, …"""
    return dict(executable.cost_analysis())


def memory_analysis(executable):
    """XLA's memory plan: `.temp_size_in_bytes`, `.argument_size_in_bytes`, `.output_size_in_bytes`, …"""
    return executable.get_compiled_memory_stats()


def serialize_executable(executable) -> bytes:
    """The executable as bytes, for a cache on disk."""
    return executable.client.serialize_executable(executable)


def deserialize_executable(blob: bytes, devices: Sequence[Device], **options) -> LoadedExecutable:
    """An executable from `serialize_executable`'s bytes; options as for `compile_options`."""
    devices = tuple(devices)
    return devices[0].client.deserialize_executable(blob, DeviceList(devices), compile_options(devices, **options))


def fingerprint(devices: tuple[Device, ...], counts: tuple[tuple[str, int], ...], options: dict | None = None) -> bytes:
    """All but its text that decides what XLA makes of a program: devices and their surroundings, replicas and partitions, XLA's flags as XLA
    holds them, compiler options, jaxlib. (Not which processor it is: its own code does not say.) counts: num_replicas, num_partitions."""
    return b"\n".join([_surroundings(devices, counts), *[repr(option).encode() for option in sorted((options or {}).items())]])


@functools.lru_cache(maxsize=64)
def _surroundings(devices: tuple[Device, ...], counts: tuple[tuple[str, int], ...]) -> bytes:
    client = devices[0].client
    with os.scandir(os.path.dirname(jaxlib.__file__)) as files:
        libraries = sorted([(file.name, file.stat().st_size) for file in files if file.name.endswith((".so", ".pyd", ".dylib"))])
    facts = (jaxlib.__version__, getattr(jaxlib.version, "_git_hash", ""), libraries, client.platform, client.platform_version, client.runtime_type,
             client.process_index(), sorted([(d.id, d.process_index, d.device_kind) for d in client.devices()]), [d.id for d in devices], counts)
    # the options hold the flags too, those of the environment included
    return repr(facts).encode() + compile_options(devices, **dict(counts)).SerializeAsString()


def register_custom_call(name: str, target, platform: str, api_version: int, **kwargs) -> None:
    """Make a foreign function callable by programs of a platform."""
    if platform == "cpu":
        return _jax.register_custom_call_target(name, target, platform, api_version=api_version, **kwargs)
    from jaxlib import xla_client                # which waits for the platform's plugin
    xla_client.register_custom_call_target(name, target, platform, api_version, **kwargs)


def include_dir() -> str:
    """Where jaxlib's header files are."""
    return os.path.join(os.path.dirname(jaxlib.__file__), "include")


_lapack_done = False


def register_lapack() -> None:
    """Make jaxlib's LAPACK kernels callable (`stablehlo.custom_call @lapack_…`) on CPU. Repeating it does nothing."""
    global _lapack_done
    with _lock:
        if not _lapack_done:
            from jaxlib.cpu import _lapack
            _lapack.initialize()                 # finds the routines in SciPy's BLAS; before it a call would crash
            for name, target in _lapack.registrations().items():
                _jax.register_custom_call_target(name, target, "cpu", api_version=1 if name.endswith("_ffi") else 0)
            _lapack_done = True


# ---- fragile replicas ------------------------------------------------------------------------------------------------------

class _ReplicasStart:
    """`with replicas_start: outputs = …; replicas_start.started(outputs)`: one thread at a time, and not too far ahead. (`runtime/guarded.py`
    does the same without the calls.)

    It keeps small outputs only: large ones, whose time counts, are waited for instead.
    """
    EVERY, SMALL = 12, 1 << 18                   # so at most 24 programs are unfinished

    def __init__(self):
        self.lock = threading.Lock()
        self.thread: int | None = None           # who started the last program, and whether others have started some too
        self._shared = False
        self.last: Callable = lambda: None       # an output of the last program, weakly
        self._earlier = None                     # one of an earlier program
        self.unwatched = 0                       # so many may be started, each to become `last`, before `started` must be told of one

    def __enter__(self):
        self.lock.acquire()
        if self.thread != threading.get_ident():
            self.another_thread()
        return self

    def __exit__(self, *_):
        self.lock.release()

    def another_thread(self) -> None:
        """With the lock: the next program is not started by the thread that started the last one."""
        if self.thread is not None:
            self._shared, self.unwatched = True, 0
            self._wait(self.last())
        self.thread = threading.get_ident()

    def started(self, outputs: Sequence[Any]) -> None:
        """These are the outputs of the program that was started."""
        found = [x for x in outputs if type(x) is ArrayImpl]
        if not found:
            return
        if self._shared:                         # then only one at a time
            return self._wait(found[0])
        self.last = weakref.ref(found[0])
        if self.unwatched:
            self.unwatched -= 1
            return
        smallest = min(found, key=lambda x: x.nbytes)
        if not self._wait(self._earlier) or smallest.nbytes > self.SMALL:
            self._wait(smallest)
        self._earlier = smallest if smallest.nbytes <= self.SMALL else None
        self.unwatched = self.EVERY - 1

    @staticmethod
    def _wait(array) -> bool:
        """Wait for an array. False if it was deleted: nobody can."""
        try:
            if array is not None:
                array.block_until_ready()
            return True
        except (RuntimeError, ValueError):
            return False


replicas_start = _ReplicasStart()


# ---- arrays in and out -----------------------------------------------------------------------------------------------------
_ZERO_COPY = _jax.HostBufferSemantics.ZERO_COPY
_COPY = _jax.HostBufferSemantics.IMMUTABLE_ONLY_DURING_CALL


def put(type_, sharding, shards: Sequence[Any], devices: Sequence[Device], committed: bool, *, copy: bool = True) -> ArrayImpl:
    """Host arrays (or arrays of one device), one for each of `devices`, → one array of type `type_`.

    copy: False lets the array share memory with the host arrays, which then must never change.
    """
    return _jax.batched_device_put(type_, sharding, shards, devices, committed, False, _COPY if copy else _ZERO_COPY, None)


def copy_arrays(arrays: Sequence[ArrayImpl], device_lists: Sequence[DeviceList], shardings: Sequence[Any]) -> list[ArrayImpl]:
    """Copies of device arrays on other devices, layout of shards unchanged."""
    reuse = _jax.ArrayCopySemantics.REUSE_INPUT
    return _jax.batched_copy_array_to_devices_with_sharding(list(arrays), list(device_lists), list(shardings),
                                                            [reuse] * len(arrays))


def always_copy(array: ArrayImpl, device_list: DeviceList, sharding) -> ArrayImpl:
    """A copy that shares no buffer with `array`, even on the same devices."""
    return _jax.batched_copy_array_to_devices_with_sharding([array], [device_list], [sharding],
                                                            [_jax.ArrayCopySemantics.ALWAYS_COPY])[0]


if jaxlib_version < (0, 11):
    def result_handler(type_, sharding, committed: bool):
        """What turns an output's device buffers into an array: pass a list of these to `consume_with_handlers`."""
        return _jax.array_result_handler(type_, sharding, committed, True)      # True: no checks, they cost 1 us
else:
    def result_handler(type_, sharding, committed: bool):
        """What turns an output's device buffers into an array: pass a list of these to `consume_with_handlers`."""
        return _jax.array_result_handler(type_, sharding, committed)


def array_from_shards(type_, sharding, shards: Sequence[ArrayImpl], committed: bool) -> ArrayImpl:
    """One array made of the device arrays `shards` (one for each addressable device, in the sharding's order)."""
    return ArrayImpl(type_, sharding, list(shards), committed, _skip_checks=True)


def to_dlpack(array: ArrayImpl, stream=None, max_version=None):
    """A DLPack capsule of a one-device array; versioned, where jaxlib can (0.11), if `max_version` allows."""
    if jaxlib_version < (0, 11):
        return _jax.buffer_to_dlpack_managed_tensor(array, stream)
    return _jax.buffer_to_dlpack_managed_tensor(array, stream, max_version)


def from_dlpack(capsule, device: Device, stream=None, copy: bool | None = None) -> ArrayImpl:
    """A one-device array sharing a DLPack capsule's memory (copy=None or False), or a copy of it."""
    return _jax.dlpack_managed_tensor_to_buffer(capsule, device, stream, copy)
