"""Values that JAX gives, to be given by mini_jax too. Each file here holds expressions of `jax`, and a JSON file what they are.

    python -m tests.known random        in an environment with jax: evaluates tests/known/random.py and writes random.json

so that a test may evaluate the same expressions with mini_jax and compare, bit by bit or within rounding.

A file defines `groups(jax)`: name -> Group, whose function gives a dictionary of arrays.
"""
from __future__ import annotations

import hashlib
import json
import pathlib
from typing import Callable, NamedTuple

import numpy as np

FOLDER = pathlib.Path(__file__).parent


class Group(NamedTuple):
    """Values that are computed together. jit: as one program; x64: with 64-bit types."""
    fun: Callable[[], dict]
    jit: bool = True
    x64: bool = False

    def values(self, jax) -> dict[str, np.ndarray]:
        """name -> array, computed with JAX or mini_jax."""
        with jax.enable_x64(self.x64):
            found = jax.jit(self.fun)() if self.jit else self.fun()
            return {name: np.asarray(value) for name, value in found.items()}


def _word(dtype: np.dtype) -> str:
    return f"u{dtype.itemsize // (2 if dtype.kind == 'c' else 1)}"


def described(array: np.ndarray) -> list:
    """An array in a few bytes: its dtype, its shape, a digest of its bits, and its first values, exactly."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return [array.dtype.name, list(array.shape), hashlib.sha1(flat.tobytes()).hexdigest()[:12], flat[:6].view(_word(array.dtype)).tolist()]


def first_values(known: list, dtype: np.dtype) -> np.ndarray:
    """The first values of a described array."""
    return np.array(known[3], _word(dtype)).view(dtype)


def load(name: str) -> dict[str, dict[str, list]]:
    """group -> name -> described array."""
    return json.loads((FOLDER / f"{name}.json").read_text())
