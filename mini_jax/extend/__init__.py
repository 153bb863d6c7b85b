"""`jax.extend`: for those who add operations of their own."""
from mini_jax.extend import core as core  # noqa: F401
