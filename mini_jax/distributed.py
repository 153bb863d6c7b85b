"""`jax.distributed`: whether this process is one of several that work together."""
from mini_jax.runtime.devices import process_count

__all__ = ["is_initialized"]


def is_initialized() -> bool:
    """Has this process joined others?"""
    return process_count() > 1
