"""check_grads: derivatives against finite differences, for people who write functions with derivatives of their own."""
from __future__ import annotations

from functools import partial
from typing import Callable, Sequence

import numpy as np

from mini_jax.core import dtypes
from mini_jax.core.pytree import flatten, tree_map
from mini_jax.core.trace import typeof
from mini_jax.transforms.autodiff import jvp, vjp

_TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 2e-2, "complex64": 2e-2, "float64": 1e-5, "complex128": 1e-5}
_STEP = {"float64": 1e-6, "complex128": 1e-6}


def check_grads(f: Callable, args: Sequence, order: int, modes: Sequence[str] | str = ("fwd", "rev"), atol: float | None = None,
                rtol: float | None = None, eps: float | None = None) -> None:
    """Check the derivatives of f at args, up to `order`, in the modes "fwd" and "rev", against central differences along a random
    direction. Raises AssertionError where they differ by more than atol + rtol · |value| (by default what the dtype allows).
    """
    if isinstance(modes, str):
        modes = (modes,)
    unknown = [m for m in modes if m not in ("fwd", "rev")]
    if unknown:
        raise ValueError(f"check_grads: modes are 'fwd' and 'rev', got {unknown}")
    args = tuple(args)
    if "fwd" in modes:
        check_jvp(f, partial(jvp, f), args, atol, rtol, eps)
        if order > 1:
            check_grads(lambda *xs: jvp(f, xs, _direction(args, 1)), args, order - 1, modes, atol, rtol, eps)
    if "rev" in modes:
        check_vjp(f, partial(vjp, f), args, atol, rtol, eps)
        if order > 1:
            def gradient(*xs):
                out, f_vjp = vjp(f, *xs)
                return f_vjp(_direction(out, 2))
            check_grads(gradient, args, order - 1, modes, atol, rtol, eps)


def check_jvp(f: Callable, f_jvp: Callable, args: tuple, atol=None, rtol=None, eps=None, err_msg: str = "") -> None:
    """Check f_jvp(args, tangents) -> (value, tangent) against f and its central differences. err_msg: what the error says besides."""
    tangents = _direction(args, 3)
    value, tangent = f_jvp(args, tangents)
    _compare("value", value, f(*args), atol, rtol, err_msg)
    _compare("tangent", tangent, _difference(f, args, tangents, eps), atol, rtol, err_msg)


def check_vjp(f: Callable, f_vjp: Callable, args: tuple, atol=None, rtol=None, eps=None, err_msg: str = "") -> None:
    """Check f_vjp(*args) -> (value, vjp) against f: ⟨cotangent, difference along t⟩ = ⟨vjp(cotangent), t⟩. err_msg: what the error says besides."""
    value, pull = f_vjp(*args)
    _compare("value", value, f(*args), atol, rtol, err_msg)
    tangents, cotangent = _direction(args, 4), _direction(value, 5)
    _compare("cotangent", _inner(pull(cotangent), tangents), _inner(cotangent, _difference(f, args, tangents, eps)), atol, rtol, err_msg)


def _direction(tree, seed: int):
    """Random tangents of the values in a tree; float0 for those that have none."""
    rng = np.random.default_rng(seed)

    def draw(x):
        aval = typeof(x).tangent()
        if aval.dtype == dtypes.float0:
            return np.zeros(aval.shape, dtypes.float0)
        values = rng.standard_normal(aval.shape)
        if dtypes.is_complex(aval.dtype):
            values = values + 1j * rng.standard_normal(aval.shape)
        return np.asarray(values).astype(aval.dtype)
    return tree_map(draw, tree)


def _difference(f, args, tangents, eps):
    """(f(args + eps t) - f(args - eps t)) / 2 eps."""
    eps = eps or max([_STEP.get(typeof(x).dtype.name, 1e-3) for x in flatten(args)[0]], default=1e-3)
    moved = lambda sign: tree_map(lambda x, t: x if t.dtype == dtypes.float0 else np.asarray(np.asarray(x) + sign * eps * t).astype(t.dtype), args, tangents)
    return tree_map(lambda a, b: (np.asarray(a, _wide(a)) - np.asarray(b, _wide(b))) / (2 * eps), f(*moved(1)), f(*moved(-1)))


def _wide(x):
    return np.complex128 if dtypes.is_complex(typeof(x).dtype) else np.float64


def _inner(a, b):
    return sum([np.sum(np.asarray(x, _wide(x)) * np.asarray(y, _wide(y))) for x, y in zip(flatten(a)[0], flatten(b)[0])
                if typeof(x).dtype != dtypes.float0])


def _compare(what: str, got, want, atol, rtol, err_msg: str) -> None:
    for x, y in zip(flatten(got)[0], flatten(want)[0], strict=True):
        if typeof(x).dtype == dtypes.float0:
            continue
        tolerance = _TOLERANCE.get(typeof(x).dtype.name, 2e-2)
        np.testing.assert_allclose(np.asarray(x, _wide(x)), np.asarray(y, _wide(y)), atol=tolerance if atol is None else atol,
                                   rtol=tolerance if rtol is None else rtol, err_msg=f"{err_msg}\nthe {what} differs from finite differences".lstrip())
