"""Vector quantisation: which code is nearest to each observation."""
from __future__ import annotations

from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["vq"]


@library(static_argnames=("check_finite",))
def vq(obs, code_book, check_finite: bool = True):
    """(codes, distances): for each observation the number (int32) of the nearest code, the first where several are, and the distance to it.

    obs: (m, n), or (m) for n = 1. code_book: (k, n), or (k). check_finite: of no effect. Raises ValueError for shapes that don't fit.
    """
    obs, code_book = [as_array(x) for x in promote_dtypes_inexact(*arraylike("vq", obs, code_book))]
    if obs.ndim != code_book.ndim:
        raise ValueError(f"Observation and code_book should have the same rank, got {obs.aval} and {code_book.aval}")
    if obs.ndim == 1:
        obs, code_book = obs[:, None], code_book[:, None]
    if obs.ndim != 2 or obs.shape[1] != code_book.shape[1]:
        raise ValueError(f"ndim different than 1 or 2 are not supported, and sizes must agree: got {obs.aval} and {code_book.aval}")
    difference = obs[:, None] - code_book[None]
    squares = jnp.sum(jnp.real(difference * jnp.conj(difference)), -1)
    codes = jnp.argmin(squares, -1).astype(dtypes.int32)
    nearest = jnp.take_along_axis(squares, codes[:, None], -1)[:, 0]
    return codes, jnp.where(nearest == 0, 0, jnp.sqrt(jnp.where(nearest == 0, 1, nearest)))
