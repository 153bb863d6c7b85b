"""`jax.experimental.pjit`: jit, under the name that jit over meshes had first."""
from mini_jax.transforms.jit import jit

__all__ = ["pjit"]

pjit = jit
