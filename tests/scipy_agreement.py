"""Agreement with SciPy: functions of a table, evaluated on grids with edges by SciPy in float64 and by mini_jax in float32 and float64."""
from __future__ import annotations

from typing import Callable, NamedTuple

import numpy as np

import mini_jax as jax
from tests.folded import folded


class Case(NamedTuple):
    """A function, SciPy's function of the same name, its operands (which broadcast), and the errors allowed: relative to the value,
    and absolute, in units of the dtype's eps."""
    name: str
    fun: Callable
    reference: Callable
    operands: tuple
    relative: float = 100
    absolute: float = 8


def _leaves(x) -> list:
    return list(x) if isinstance(x, tuple) else [x]


def check(cases: list[Case], dtype) -> None:
    """All cases at once, in one program."""
    operands = {c.name: [np.asarray(x, dtype) if np.asarray(x).dtype.kind == "f" else np.asarray(x) for x in c.operands] for c in cases}
    with jax.enable_x64(dtype == np.float64):
        got = folded(lambda xs: {c.name: c.fun(*xs[c.name]) for c in cases})(operands)
    eps, problems = np.finfo(dtype).eps, []
    for c in cases:
        with np.errstate(all="ignore"):
            wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in operands[c.name]]
            expected = c.reference(*wide)
            for g, w in zip(_leaves(got[c.name]), _leaves(expected), strict=True):
                g, w = np.asarray(g), np.asarray(w)
                assert g.shape == w.shape and g.dtype == (dtype if w.dtype.kind == "f" else np.result_type(dtype, np.complex64)), (c.name, g.dtype, w.dtype)
                w = np.where(np.abs(w) > np.finfo(dtype).max, w * np.inf, np.where(np.abs(w) < np.finfo(dtype).tiny, 0, w))
                same = (g == w) | (np.isnan(g) & np.isnan(w)) | (np.abs(g - w) <= eps * (c.relative * np.abs(w) + c.absolute)) & np.isfinite(w)
                for place in list(zip(*np.nonzero(~same))) if same.ndim else [()] * (not same):
                    where = [float(np.broadcast_to(x, same.shape)[place]) for x in wide]
                    problems.append(f"{c.name}{tuple(where)}: {g[place]}, SciPy {w[place]}")
    assert not problems, "\n".join(problems[:30])


def check_slopes(functions: dict[str, tuple[Callable, list]], tolerance: float = 2e-6) -> None:
    """Derivatives of elementwise functions in float64 at points, along all floating operands at once, each by a factor of its own, against
    central differences; all in one program."""
    h = 1e-5

    def both(points):
        out = {}
        for name, (fun, _) in functions.items():
            xs = points[name]
            ts = [1.0 - 0.3 * i if x.dtype.kind == "f" else 0 for i, x in enumerate(xs)]
            floats = [i for i, t in enumerate(ts) if t]
            moved = lambda *ys: jax.tree.leaves(fun(*[ys[floats.index(i)] if i in floats else x for i, x in enumerate(xs)]))
            slopes = jax.jvp(moved, tuple([xs[i] for i in floats]), tuple([jax.numpy.full_like(xs[i], ts[i]) for i in floats]))[1]
            ends = moved(*[jax.numpy.stack([xs[i] + h * ts[i], xs[i] - h * ts[i]]) for i in floats])
            out[name] = slopes, [(e[0] - e[1]) / (2 * h) for e in ends]
        return out
    with jax.enable_x64(True):
        points = {name: [np.array(x) for x in zip(*ps)] for name, (_, ps) in functions.items()}
        for name, (slopes, differences) in folded(both)(points).items():
            for s, d in zip(slopes, differences):
                np.testing.assert_allclose(s, d, rtol=tolerance, atol=tolerance * max(1, np.abs(d).max()), err_msg=name)
