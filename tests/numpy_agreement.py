"""Agreement with NumPy: the same expression, written once, evaluated by numpy and by mini_jax.numpy in float64."""
from __future__ import annotations

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp


def _leaves(value) -> list:
    return [leaf for item in value for leaf in _leaves(item)] if isinstance(value, (list, tuple)) else [value]


def compare(got, wanted, what: str, tolerance: float = 1e-12) -> None:
    """The same structure, shapes, kinds of dtypes and, within the tolerance, values."""
    got, wanted = _leaves(got), _leaves(wanted)
    assert len(got) == len(wanted), what
    for g, w in zip(got, wanted):
        w = np.asarray(w)
        assert g.shape == w.shape, (what, g.shape, w.shape)
        assert np.asarray(g).dtype.kind == w.dtype.kind or {np.asarray(g).dtype.kind, w.dtype.kind} <= set("iu"), (what, g.dtype, w.dtype)
        np.testing.assert_allclose(np.asarray(g), w, rtol=tolerance, atol=tolerance, err_msg=what)


def agree(expressions: str, traced: bool = True, tolerance: float = 1e-12, **names) -> None:
    """Each line is an expression in `np` and `names` (arrays), evaluated by NumPy and by mini_jax; all of them in one compiled program, if
    traced, else one by one."""
    lines = [line.strip() for line in expressions.strip().splitlines() if line.strip()]
    code = [compile(line, line, "eval") for line in lines]
    with np.errstate(all="ignore"):
        wanted = [eval(c, {"np": np, **names}) for c in code]
    with jax.enable_x64(True):
        run = lambda arrays: [eval(c, {"np": jnp, **arrays}) for c in code]
        got = jax.jit(run)(names) if traced else run({name: jnp.asarray(value) for name, value in names.items()})
        for line, g, w in zip(lines, got, wanted):
            compare(g, w, line, tolerance)
