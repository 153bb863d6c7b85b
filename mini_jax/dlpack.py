"""`jax.dlpack`: arrays of other libraries, shared by the DLPack protocol. The other way: other.from_dlpack(array)."""
from mini_jax.numpy import from_dlpack as from_dlpack  # noqa: F401

__all__ = ["from_dlpack"]
