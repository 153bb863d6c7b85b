"""Values that JAX gives, to be given by mini_jax too. Each file here holds expressions of `jax`, and a JSON file what they are.

    python -m tests.known random        in an environment with jax: evaluates tests/known/random.py and writes random.json

so that a test may evaluate the same expressions with mini_jax and compare, bit by bit or within rounding.
"""
from __future__ import annotations

import hashlib
import json
import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).parent


def described(array: np.ndarray) -> dict:
    """An array in a few bytes: its type, a digest of its bits, and its first values, exactly."""
    flat = np.ascontiguousarray(array).reshape(-1)
    word = f"u{array.dtype.itemsize}" if array.dtype.kind != "c" else f"u{array.dtype.itemsize // 2}"
    return {"dtype": array.dtype.name, "shape": list(array.shape), "digest": hashlib.sha1(flat.tobytes()).hexdigest()[:16],
            "first": flat[:6].view(word).tolist()}


def first_values(known: dict, dtype: np.dtype) -> np.ndarray:
    """The first values of a described array."""
    word = f"u{dtype.itemsize}" if dtype.kind != "c" else f"u{dtype.itemsize // 2}"
    return np.array(known["first"], word).view(dtype)


def load(name: str) -> dict[str, dict]:
    return json.loads((FOLDER / f"{name}.json").read_text())
