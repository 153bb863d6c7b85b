"""Solvers of linear systems that are given as functions, not as matrices."""
from mini_jax.scipy.sparse import linalg                    # noqa: F401
