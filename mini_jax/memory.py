"""`jax.memory`: names of a device's memories."""
from mini_jax.runtime.memories import Space as Space  # noqa: F401
