"""Geometry in space."""
from mini_jax.scipy.spatial import transform                # noqa: F401
