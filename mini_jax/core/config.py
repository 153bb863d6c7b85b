"""Options: what may be set, where each value comes from, and which of them change a compiled program."""
from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Callable

from mini_jax.runtime import xla

unset = xla.unset
trace_key = xla.trace_context
"""trace_key() -> tuple: the values, in this thread, of all options that change what is traced or compiled.

Hashable and comparable: the part of a cache's key that stands for the configuration. Computed and kept by C++.
"""

_PROMOTIONS = ("standard", "strict")
_RANKS = ("allow", "warn", "raise")
_GUARDS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
_PRECISIONS = (
    "default", "high", "highest", "bfloat16", "tensorfloat32", "float32", "bfloat16_3x", "bfloat16_6x", "bfloat16_9x",
    "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY", "ANY_F8_ANY_F8_ANY_FAST_ACCUM",
    "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6",
    "BF16_BF16_F32_X9", "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64")

# name, kind (a type, or the words allowed; None is allowed where it is the default), default, in compile keys, meaning
_TABLE = [
    ("enable_x64", bool, False, True, "64-bit dtypes exist; when off they become their 32-bit counterparts"),
    ("disable_jit", bool, False, True, "jit runs its function directly, operation by operation"),
    ("default_matmul_precision", _PRECISIONS, None, True, "precision of products that name none"),
    ("numpy_rank_promotion", _RANKS, "allow", True, "what to do when operands of different rank are broadcast"),
    ("numpy_dtype_promotion", _PROMOTIONS, "standard", True, "'strict' refuses to mix dtypes implicitly"),
    ("default_device", object, None, True, "device (or platform name) of uncommitted values and computations"),
    ("default_prng_impl", ("threefry2x32", "rbg", "unsafe_rbg"), "threefry2x32", True, "generator of new random keys"),
    ("threefry_partitionable", bool, True, True, "random bits do not depend on how the array is sharded"),
    ("enable_custom_prng", bool, False, True, "PRNGKey returns typed keys, as key does"),
    ("debug_nans", bool, False, True, "raise FloatingPointError where a NaN is first produced"),
    ("debug_infs", bool, False, True, "raise FloatingPointError where an infinity is first produced"),
    ("debug_index_bounds", bool, False, True, "raise where an index lies outside of its array, naming it, the size and the line"),
    ("debug_key_reuse", bool, False, True, "raise KeyReuseError when a random key is used twice"),
    ("check_tracer_leaks", bool, False, True, "raise when a traced value outlives its transformation"),
    ("enable_checks", bool, False, True, "check the types of every program that is built (slow)"),
    ("outline", ("auto", "off", "eager"), "auto", True, "compile repeated stretches of a program once, as functions; eager: whatever repeats"),
    ("softmax_custom_jvp", bool, True, True, "derive softmax by its own rule"),
    ("high_dynamic_range_gumbel", bool, False, True, "sample Gumbel variables accurately in their far tail"),
    ("log_compiles", bool, False, False, "log every compilation: function, place, times, equations"),
    ("compile_progress", bool, True, False, "show what compiles for more than two seconds, on terminals"),
    ("explain_cache_misses", bool, False, False, "log why a jitted function is traced again"),
    ("traceback_filtering", ("off", "tracebackhide", "remove_frames", "quiet_remove_frames", "auto"), "auto", False,
     "how frames of this package are hidden in tracebacks"),
    ("traceback_in_locations_limit", int, 10, False, "frames kept in an operation's location; -1: all"),
    ("include_full_tracebacks_in_locations", bool, True, False, "locations carry call stacks, not one frame"),
    ("tracer_error_num_traceback_frames", int, 5, False, "user frames shown in an error about a traced value"),
    ("pprint_use_color", bool, True, False, "print programs in colour on terminals"),
    ("captured_constants_warn_bytes", int, 2_000_000_000, False, "warn when a program closes over more bytes; -1: never"),
    ("jit_cache_size", int, 4096, False, "how many recorded programs, and how many compiled ones, are kept: those used last of all functions"),
    ("platforms", str, None, False, "comma-separated platforms to start, the first being the default"),
    ("platform_name", str, None, False, "default platform: the older way to say `platforms`"),
    ("num_cpu_devices", int, -1, False, "CPU devices to create; -1: as XLA_FLAGS says, or one"),
    ("cpu_collectives_implementation", ("gloo", "mpi", "none"), "gloo", False, "collectives between CPU processes"),
    ("cpu_enable_async_dispatch", bool, True, False, "CPU programs run while Python goes on"),
    ("cuda_visible_devices", str, "all", False, "comma-separated ids of the CUDA devices to use"),
    ("rocm_visible_devices", str, "all", False, "comma-separated ids of the ROCm devices to use"),
    ("enable_compilation_cache", bool, True, False, "use the cache on disk, where a directory is set"),
    ("compilation_cache_dir", str, None, False, "directory of the cache of compiled programs; None: there is none"),
    ("compilation_cache_max_size", int, 4 << 30, False, "bytes that cache may take, what was used last staying; -1: no limit"),
    ("persistent_cache_min_compile_time_secs", float, 0.0, False, "programs that compile faster are not stored"),
    ("persistent_cache_min_entry_size_bytes", int, 0, False, "smaller programs are not stored"),
    ("persistent_cache_enable_xla_caches", str, "xla_gpu_per_fusion_autotune_cache_dir", False,
     "XLA's own caches kept in the same directory"),
    ("raise_persistent_cache_errors", bool, False, False, "a failing cache on disk raises RuntimeError instead of warning"),
    ("optimization_level", str, "UNKNOWN", False, "XLA's effort: UNKNOWN, O0, O1, O2 or O3"),
    ("disable_most_optimizations", bool, False, False, "compile fast, run slowly"),
    ("dump_ir_to", str, None, False, "directory that receives every lowered program"),
    ("transfer_guard", _GUARDS, None, False, "what to do on any implicit transfer"),
    ("transfer_guard_host_to_device", _GUARDS, None, False, "what to do on a transfer to a device"),
    ("transfer_guard_device_to_device", _GUARDS, None, False, "what to do on a transfer between devices"),
    ("transfer_guard_device_to_host", _GUARDS, None, False, "what to do on a transfer from a device"),
    ("logging_level", str, "NOTSET", False, "level of the package's logger"),
    ("debug_log_modules", str, "", False, "comma-separated modules whose debug messages are shown"),
    ("random_seed_offset", int, 0, True, "added to every seed"),
]

# Options of JAX that have no meaning here. They may be set and read, and change nothing.
_ACCEPTED = """
    allow_f16_reductions array_garbage_collection_guard auto_pcast backend_target bcoo_cusparse_lowering check_proxy_envs
    check_static_indices compilation_cache_check_contents compilation_cache_expect_pgle
    compilation_cache_include_metadata_in_key compiler_detailed_logging_min_ops compiler_enable_remat_pass
    cpu_get_global_topology_timeout_minutes cpu_get_local_topology_timeout_minutes cross_host_transfer_socket_address
    cross_host_transfer_timeout_seconds cross_host_transfer_transfer_size cross_host_transport_addresses custom_vjp3
    debug_leaked_clients_on_clear_backends disable_bwd_checks disable_vmap_shmap_error disallow_mesh_context_manager
    distributed_debug dump_ir_modes eager_constant_folding embedded_constants_max_bytes enable_pgle
    enable_preemption_service enable_recoverability error_checking_behavior_divide error_checking_behavior_nan
    error_checking_behavior_oob exec_time_optimization_effort experimental_unsafe_xla_runtime_errors explicit_x64_dtypes
    export_calling_convention_version export_ignore_forward_compatibility force_dcn_cross_host_transfers
    captured_constants_report_frames hlo_source_file_canonicalization_regex include_debug_info_in_dumps legacy_prng_key
    log_checkpoint_residuals memory_fitting_effort memory_fitting_level mock_gpu_topology mosaic_allow_hlo
    mutable_array_checks no_execution no_tracing oneapi_visible_devices pallas_enable_debug_checks pallas_poison_buffers
    pallas_use_mosaic_gpu pallas_verbose_errors pgle_aggregation_percentile pgle_profiling_runs
    pjrt_client_create_options ragged_dot_use_ragged_dot_instruction refs_to_pins remat3
    remove_custom_partitioning_ptr_from_cache_key remove_size_one_mesh_axis_from_type scan3 send_traceback_to_runtime
    serialization_version share_binary_between_hosts share_binary_between_hosts_timeout_ms sort_devices_by_process_index
    source_url_schema thread_guard threefry_gpu_kernel_lowering use_direct_linearize use_emit_pipeline_primitive
    use_magma use_shardy_partitioner use_simplified_jaxpr_constants xla_backend xla_profile_version check_vma
    default_dtype_bits dynamic_shapes spmd_mode
""".split()


class Option:
    """One option: a value for the process, which a thread may override for the length of a `with` block.

    `option.value` reads it; `option(new)` is a context manager and a decorator that overrides it in this thread
    (`option()` means `option(True)` for yes/no options); `option.update(new)` sets it for the process.
    """
    __slots__ = ("name", "kind", "default", "traced", "doc", "state", "watchers")

    def __init__(self, name: str, kind, default, traced: bool, doc: str):
        self.name, self.kind, self.default, self.traced, self.doc = name, kind, default, traced, doc
        # The cell is C++'s: a value for the process, and one for each thread that overrides it. C++ reads some itself.
        self.state = getattr(xla.Config, name, None) or xla.config_state(name, default, in_key=traced)
        self.watchers: list[Callable[[], None]] = []
        self._read_environment()

    @property
    def value(self):
        """The value that holds in this thread."""
        return self.state.value

    def check(self, value):
        """`value` as this option keeps it. Raises ValueError, or TypeError, saying what is allowed."""
        kind = self.kind
        if kind is object or value is None and self.default is None:
            return value
        if type(kind) is tuple:
            value = getattr(value, "value", value)          # an enumeration's member stands for its word
            if value in kind:
                return value
            words = ", ".join(map(repr, kind)) + (" or None" if self.default is None else "")
            raise ValueError(f"{self.name} cannot be {value!r}; it may be {words}")
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        if kind is bool and type(value) is int and value in (0, 1):
            return bool(value)
        raise TypeError(f"{self.name} takes a {kind.__name__}, not {value!r}")

    def update(self, value) -> None:
        """Set the value for the whole process. Threads inside a `with` block of this option keep theirs."""
        self.state.set_global(self.check(value))
        self._changed()

    def watch(self, function: Callable[[], None]) -> None:
        """Call `function()` after every change, in the thread that made it; it reads `option.value` itself."""
        self.watchers.append(function)

    def __call__(self, value: Any = unset, **named) -> "Override":
        if named:                                       # JAX calls the value of disable_jit `disable`
            if set(named) != {"disable"} or self.name != "disable_jit" or value is not unset:
                raise TypeError(f"{self.name} takes one value, got {', '.join([f'{k}={v!r}' for k, v in named.items()])}")
            value = named["disable"]
        if value is unset:
            if self.kind is not bool:
                raise TypeError(f"{self.name}(value): say which value")
            value = True
        return Override(self, self.check(value))

    def __bool__(self):
        raise TypeError(f"{self.name} is an option; its value is config.{self.name}")

    def __repr__(self):
        return f"<option {self.name} = {self.value!r}: {self.doc}>"

    def _changed(self):
        for function in self.watchers:
            function()

    def _read_environment(self):
        for variable in (f"MINI_JAX_{self.name.upper()}", f"JAX_{self.name.upper()}"):
            text = os.environ.get(variable)
            if text is not None:
                try:
                    return self.state.set_global(self.check(_parse(self.kind, text)))
                except (ValueError, TypeError) as error:
                    raise ValueError(f"environment variable {variable}={text!r}: {error}") from None


def _parse(kind, text: str):
    if kind is bool:
        word = text.strip().lower()
        if word in ("1", "true", "t", "yes", "y", "on"):
            return True
        if word in ("0", "false", "f", "no", "n", "off", ""):
            return False
        raise ValueError("say 1 or 0, true or false")
    if kind in (int, float):
        return kind(text)
    return text if text or kind is str else None


class Override(contextlib.ContextDecorator):
    """An option's value within a `with` block or a decorated function; what held before returns, also on exceptions."""
    __slots__ = ("option", "new", "before")

    def __init__(self, option: Option, new):
        self.option, self.new, self.before = option, new, []

    def _recreate_cm(self):                             # each call of a decorated function enters a fresh one
        return Override(self.option, self.new)

    def __enter__(self):
        self.before.append(self.option.state.swap_local(self.new))
        self.option._changed()

    def __exit__(self, *exception):
        self.option.state.set_local(self.before.pop())
        self.option._changed()


class Config:
    """All options by name: `config.update("jax_enable_x64", True)`, `config.enable_x64`, `print(config)`.

    Names may be written with `jax_`, with `mini_jax_`, or without a prefix. Each option is also read, at import, from
    the environment (`JAX_ENABLE_X64=1` or `MINI_JAX_ENABLE_X64=1`), and may be overridden in one thread for the length
    of a block: `with jax.enable_x64(True): ...`.
    """
    __slots__ = ()

    def update(self, name: str, value) -> None:
        """Set an option for the process. Raises AttributeError for an unknown name, ValueError or TypeError for the value."""
        find(name).update(value)

    def config_with_absl(self) -> None:
        """Make each option a flag of absl, --jax_enable_x64=1, which counts once absl.app.run has read the command line. ImportError without
        the package absl-py."""
        from absl import app, flags
        for name, option in options.items():
            if f"jax_{name}" not in flags.FLAGS and option.kind is not object:
                define = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float}.get(option.kind, flags.DEFINE_string)
                define(f"jax_{name}", None, option.doc)
        app.call_after_init(self._take_flags)

    def parse_flags_with_absl(self) -> None:
        """config_with_absl, and take the flags that stand on the command line now."""
        from absl import flags
        self.config_with_absl()
        flags.FLAGS(sys.argv, known_only=True)
        self._take_flags()

    def _take_flags(self) -> None:
        from absl import flags
        for name, option in options.items():
            value = getattr(flags.FLAGS, f"jax_{name}", None)
            if value is not None:
                option.update(value)

    def read(self, name: str):
        """The option's value in this thread."""
        return find(name).value

    @property
    def values(self) -> dict[str, Any]:
        """All options, under JAX's names, with the values that hold in this thread."""
        return {"jax_" + name: option.value for name, option in options.items()}

    @property
    def x64_enabled(self) -> bool:
        return enable_x64.value

    def __getattr__(self, name):
        return find(name).value

    def __setattr__(self, name, value):
        find(name).update(value)

    def __dir__(self):
        return [*object.__dir__(self), *options, *("jax_" + name for name in options)]

    def __repr__(self):
        return "\n".join(f"{name} = {o.value!r}  # {o.doc}" for name, o in options.items() if o.doc is not _NO_EFFECT)


_NO_EFFECT = "known to JAX; accepted, and changes nothing here"
options: dict[str, Option] = {row[0]: Option(*row) for row in _TABLE}


def find(name: str) -> Option:
    """The option called `name`, with or without a prefix. Raises AttributeError that names the nearest ones."""
    bare = name.removeprefix("mini_").removeprefix("jax_")
    option = options.get(bare)
    if option is None:
        if bare not in _ACCEPTED:
            import difflib
            near = difflib.get_close_matches(bare, options, n=3, cutoff=0.5)
            hint = f"; did you mean {' or '.join(near)}?" if near else "; print(config) lists them all"
            raise AttributeError(f"there is no option {name!r}{hint}")
        option = options[bare] = Option(bare, object, None, False, _NO_EFFECT)
    return option


config = Config()

enable_x64 = options["enable_x64"]
disable_jit = options["disable_jit"]
default_matmul_precision = options["default_matmul_precision"]
numpy_rank_promotion = options["numpy_rank_promotion"]
numpy_dtype_promotion = options["numpy_dtype_promotion"]
default_device = options["default_device"]
default_prng_impl = options["default_prng_impl"]
threefry_partitionable = options["threefry_partitionable"]
enable_custom_prng = options["enable_custom_prng"]
debug_nans = options["debug_nans"]
debug_index_bounds = options["debug_index_bounds"]
debug_infs = options["debug_infs"]
debug_key_reuse = options["debug_key_reuse"]
check_tracer_leaks = checking_leaks = options["check_tracer_leaks"]
enable_checks = options["enable_checks"]
outline = options["outline"]
softmax_custom_jvp = options["softmax_custom_jvp"]
jit_cache_size = options["jit_cache_size"]
log_compiles = options["log_compiles"]
compile_progress = options["compile_progress"]
explain_cache_misses = options["explain_cache_misses"]
transfer_guard = options["transfer_guard"]
transfer_guard_host_to_device = options["transfer_guard_host_to_device"]
transfer_guard_device_to_device = options["transfer_guard_device_to_device"]
transfer_guard_device_to_host = options["transfer_guard_device_to_host"]
