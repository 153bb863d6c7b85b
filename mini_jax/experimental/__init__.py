"""Experimental parts of the interface: io_callback."""
from mini_jax.transforms.callbacks import io_callback      # noqa: F401
