"""mini_jax: JAX's names on a small compiler frontend of its own. `import mini_jax as jax` is the migration."""
from mini_jax.core.config import (                                                                              # noqa: F401
    checking_leaks, config, debug_index_bounds, debug_infs, debug_nans, default_matmul_precision, default_prng_impl, disable_jit, enable_x64,
    explain_cache_misses, log_compiles, numpy_dtype_promotion, numpy_rank_promotion, threefry_partitionable)
from mini_jax.core import tracebacks as _tracebacks
from mini_jax.core.state import named_scope                                                                     # noqa: F401
from mini_jax.core.trace import Tracer, typeof                                                                  # noqa: F401
from mini_jax.runtime.array import Array                                                                         # noqa: F401
from mini_jax.runtime.devices import (                                                                           # noqa: F401
    default_backend, default_device, device_count, devices, local_device_count, local_devices, process_count, process_index)
from mini_jax.transforms.api import (                                                                            # noqa: F401
    block_until_ready, clear_caches, device_get, device_put, effects_barrier, ensure_compile_time_eval, eval_shape, live_arrays,
    make_jaxpr, named_call)
from mini_jax.transforms.autodiff import (                                                                       # noqa: F401
    grad, hessian, jacfwd, jacobian, jacrev, jvp, linear_transpose, linearize, value_and_grad, vjp)
from mini_jax.transforms.jit import jit                                                                          # noqa: F401
from mini_jax.transforms.stages import ShapeDtypeStruct                                                          # noqa: F401
from mini_jax.transforms.vmap import vmap                                                                        # noqa: F401
from mini_jax.version import __version__, __version_info__                                                    # noqa: F401
from mini_jax import dtypes, lax, numpy, tree, tree_util                                                         # noqa: F401

_tracebacks.install()
Array.register(Tracer)

# What is imported when it is first asked for, so that `import mini_jax` stays quick: modules, and names with where they are.
_MODULES = ("ad", "ad_checkpoint", "custom_batching", "custom_derivatives", "debug", "distributed", "dlpack", "errors", "example_libraries", "experimental", "export", "extend", "ffi", "flatten_util", "image",
            "memory", "monitoring", "nn", "ops", "profiler", "random", "ref", "scipy", "sharding", "stages", "test_util", "typing", "version")
_NAMES = {name: module for module, names in {
    "ref": ("Ref", "new_ref", "empty_ref", "free_ref", "freeze"),
    "runtime.array": ("Shard",),
    "runtime.xla": ("Device",),
    "runtime.devices": ("process_indices", "host_id", "host_count", "host_ids"),
    "core.config": ("check_tracer_leaks", "transfer_guard", "transfer_guard_host_to_device", "transfer_guard_device_to_device",
                    "transfer_guard_device_to_host"),
    "transforms.api": ("copy_to_host_async",),
    "core.dtypes": ("float0",),
    "runtime.meshes": ("NamedSharding", "make_mesh", "set_mesh"),
    "runtime.making": ("make_array_from_callback", "make_array_from_process_local_data", "make_array_from_single_device_arrays"),
    "transforms.callbacks": ("pure_callback",),
    "transforms.checkpoint": ("checkpoint", "checkpoint_policies", "remat"),
    "transforms.custom_derivatives": ("closure_convert", "custom_gradient", "custom_jvp", "custom_vjp"),
    "transforms.pmap": ("pmap",),
    "transforms.shard_map": ("shard_map",),
    "transforms.shards": ("reshard",),
}.items() for name in names}


def __getattr__(name: str):
    import importlib
    if name in _MODULES:
        return importlib.import_module(f"mini_jax.{name}")
    if name in _NAMES:
        value = globals()[name] = getattr(importlib.import_module(f"mini_jax.{_NAMES[name]}"), name)
        return value
    if name == "P":
        from mini_jax.sharding import PartitionSpec
        return PartitionSpec
    raise AttributeError(f"module 'mini_jax' has no attribute {name!r}")


def __dir__():
    return [*globals(), *_MODULES, *_NAMES, "P"]
