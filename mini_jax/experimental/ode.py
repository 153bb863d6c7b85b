"""Initial value problems of ordinary differential equations: odeint, by adaptive steps, differentiable by its adjoint equation."""
from __future__ import annotations

import functools
from typing import Any, Callable, NamedTuple

import numpy as np

import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from mini_jax.core.trace import typeof
from mini_jax.flatten_util import ravel_pytree
from mini_jax.transforms.api import eval_shape
from mini_jax.transforms.autodiff import vjp
from mini_jax.transforms.custom_derivatives import closure_convert, custom_vjp
from mini_jax.transforms.jit import jit
from mini_jax.transforms.vmap import vmap

__all__ = ["odeint"]


def odeint(func: Callable, y0: Any, t, *args, rtol: float = 1.4e-8, atol: float = 1.4e-8, mxstep: float = np.inf, hmax: float = np.inf) -> Any:
    """The solution of dy/dt = func(y, t, *args) with y(t[0]) = y0, at the times t.

    func: of the state, a pytree of arrays, the time and args, returns the state's derivative, a pytree of the same shapes. t: a vector of
    ascending times. args: pytrees of arrays. rtol, atol: each step's error of each entry is kept to about atol + rtol |y|. mxstep: steps between
    two times of t; what these do not reach is NaN. hmax: the longest step. Returns y0's pytree with a leading axis for t.

    Steps are those of Dormand & Prince's pair of order 5 (4) (doi:10.1016/0771-050X(80)90013-3), and between them its continuous extension of
    order 4 (Hairer, Nørsett & Wanner, Solving Ordinary Differential Equations I, II.6). Reverse mode solves the adjoint equation backwards in
    time, with the same tolerances and without keeping steps, with respect to y0, t, args and what func captures; there is no forward mode.
    Raises TypeError for arguments that are no arrays and for a derivative that does not fit the state, ValueError unless t is a vector.

    >>> odeint(lambda y, t, rate: -rate * y, 1.0, jnp.array([0.0, 1.0]), 2.0)
    Array([1.        , 0.13533525], dtype=float32)
    """
    for leaf in tree_leaves((y0, args)):
        typeof(leaf)                                  # TypeError for what is no array
    t, y0 = jnp.asarray(t), tree_map(lambda x: jnp.asarray(x) if dtypes.is_inexact(jnp.asarray(x).dtype) else jnp.asarray(x, float), y0)
    if t.ndim != 1 or not t.size:
        raise ValueError(f"odeint: the times t must be a vector, got {t.aval}")
    if not dtypes.is_floating(t.dtype):
        t = t.astype(float)
    converted, captured = closure_convert(func, y0, t[0], *args)
    _check_derivative(func, y0, t, args)
    # func itself, where it captures nothing that is traced: it is the same object at the next call, and so is the program
    return _odeint(converted if captured else func, float(rtol), float(atol), float(mxstep), float(hmax), y0, t, *args, *captured)


def _check_derivative(func, y0, t, args) -> None:
    found = eval_shape(func, y0, t[0], *args)
    if tree_flatten(found)[1] != tree_flatten(y0)[1] or [x.shape for x in tree_leaves(found)] != [x.shape for x in tree_leaves(y0)]:
        shown = lambda tree: tree_map(lambda x: str(x.aval), tree)
        raise TypeError(f"odeint: func must return a derivative like the state y0, {shown(y0)}, but returns {shown(found)}")


# --- the method -------------------------------------------------------------------------------------------------------------------------

_C = np.array([1 / 5, 3 / 10, 4 / 5, 8 / 9, 1, 1])
_A = [np.array(row) for row in (
    [1 / 5], [3 / 40, 9 / 40], [44 / 45, -56 / 15, 32 / 9], [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
    [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656], [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84])]
_ERROR = np.array([71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40])                      # fifth order less fourth
_DENSE = np.array([-12715105075 / 11282082432, 0, 87487479700 / 32700410799, -10690763975 / 1880347072, 701980252875 / 199316789632,
                   -1453857185 / 822651844, 69997945 / 29380423])


class _Step(NamedTuple):
    """Where the solution is, how it came there from the time `before`, and how far the next step goes. dense: the coefficients of the continuous
    extension over the last step."""
    y: Any
    slope: Any
    t: Any
    size: Any
    before: Any
    dense: Any


def _weighted(weights: np.ndarray, slopes):
    """Σ weights[i] slopes[i] of the rows of slopes."""
    return jnp.tensordot(jnp.asarray(weights, slopes.dtype), slopes[:len(weights)], 1, precision=lax.Precision.HIGHEST)


def _rms(x):
    """The root of the mean square, of absolute values."""
    return jnp.sqrt(jnp.mean(jnp.abs(x) ** 2))


def _stepped(f: Callable, at: _Step, rtol: float, atol: float, hmax: float) -> _Step:
    """One attempt: the next step if its error is small enough, or the same place; in any case with the size to try next."""
    h, slopes = at.size, [at.slope]
    for c, row in zip(_C, _A):
        y = at.y + h.astype(at.y.dtype) * _weighted(row, jnp.stack(slopes))
        slopes.append(f(y, at.t + h * c))
    k = jnp.stack(slopes)                             # the last stage's y is the result of order 5, its slope that of the next step
    scale = atol + rtol * jnp.maximum(jnp.abs(at.y), jnp.abs(y))
    ratio = _rms(h.astype(y.dtype) * _weighted(_ERROR, k) / scale)
    factor = jnp.clip(0.9 * jnp.where(ratio == 0, 1e-6, ratio) ** -0.2, 0.2, 10.0)
    size = jnp.minimum(h * factor, hmax).astype(h.dtype)
    wide = h.astype(y.dtype)
    rise = y - at.y
    bend = wide * k[0] - rise
    dense = jnp.stack([at.y, rise, bend, rise - wide * k[-1] - bend, wide * _weighted(_DENSE, k)])
    good = ratio <= 1
    new = _Step(y, k[-1], at.t + h, size, at.t, dense)
    return _Step(*[jnp.where(good, a, b) for a, b in zip(new, at._replace(size=size))])


def _between(at: _Step, t):
    """The solution at a time within the last step."""
    whole = at.t - at.before
    x = jnp.where(whole == 0, 1.0, (t - at.before) / jnp.where(whole == 0, 1, whole)).astype(at.dense.dtype)
    start, rise, bend, more, fifth = at.dense
    return start + x * (rise + (1 - x) * (bend + x * (more + (1 - x) * fifth)))


def _first_size(f: Callable, t, y, slope, rtol: float, atol: float):
    """A step that is not too long (Hairer, Nørsett & Wanner, II.4)."""
    scale = atol + rtol * jnp.abs(y)
    d0, d1 = _rms(y / scale), _rms(slope / scale)
    h = jnp.where((d0 < 1e-5) | (d1 < 1e-5), 1e-6, 0.01 * d0 / jnp.where(d1 == 0, 1, d1))
    second = _rms((f(y + h.astype(y.dtype) * slope, t + h) - slope) / scale) / h
    most = jnp.maximum(d1, second)
    return jnp.minimum(100 * h, jnp.where(most <= 1e-15, jnp.maximum(1e-6, h * 1e-3), (0.01 / jnp.where(most == 0, 1, most)) ** 0.2)).astype(t.dtype)


@functools.partial(jit, static_argnums=(0, 1, 2, 3, 4))
def _solve(func, rtol, atol, mxstep, hmax, y0, ts, *args):
    start, unravel = ravel_pytree(y0)
    f = lambda y, t: ravel_pytree(func(unravel(y), t, *args))[0].astype(start.dtype)
    slope = f(start, ts[0])
    size = jnp.minimum(_first_size(f, ts[0], start, slope, rtol, atol), hmax).astype(ts.dtype)
    here = _Step(start, slope, ts[0], size, ts[0], jnp.stack([start, *[jnp.zeros_like(start)] * 4]))

    def until(at: _Step, goal):
        def going(state):
            at, steps = state
            return (at.t < goal) & (steps < mxstep) & (at.size > 0) & (at.t + at.size > at.t)
        at, _ = lax.while_loop(going, lambda state: (_stepped(f, state[0], rtol, atol, hmax), state[1] + 1), (at, jnp.asarray(0.0)))
        return at, jnp.where(at.t >= goal, _between(at, goal), jnp.nan)
    _, ys = lax.scan(until, here, ts[1:])
    return vmap(unravel)(jnp.concatenate([start[None], ys]))


# --- the adjoint --------------------------------------------------------------------------------------------------------------------------

@functools.partial(custom_vjp, nondiff_argnums=(0, 1, 2, 3, 4))
def _odeint(func, rtol, atol, mxstep, hmax, y0, ts, *args):
    return _solve(func, rtol, atol, mxstep, hmax, y0, ts, *args)


def _forward(func, rtol, atol, mxstep, hmax, y0, ts, *args):
    ys = _odeint(func, rtol, atol, mxstep, hmax, y0, ts, *args)                  # not _solve: it may be differentiated once more
    return ys, (ys, ts, args)


def _backward(func, rtol, atol, mxstep, hmax, residuals, ct):
    """With a(t) the cotangent of y(t): da/dt = −aᵀ ∂f/∂y, and the cotangents of args grow by aᵀ ∂f/∂args, backwards in time; at each time of t the
    cotangent of the result there is added. That of t[i] is the product of the result's and f. (Pontryagin; Chen et al. 2018, arXiv:1806.07366)"""
    ys, ts, args = residuals
    leaves, tree = tree_flatten(args)
    smooth = [dtypes.is_inexact(typeof(x).dtype) for x in leaves]
    moving = [x for x, s in zip(leaves, smooth) if s]

    def joined(moving):
        given = iter(moving)
        return tree_unflatten(tree, [next(given) if s else x for x, s in zip(leaves, smooth)])
    f = lambda y, t, *moving: func(y, t, *joined(moving))

    def backwards(state, minus_t, *moving):
        y, y_bar, _, _ = state
        slope, pull = vjp(f, y, -minus_t, *moving)
        y_dot, t_dot, *args_dot = pull(tree_map(lambda b, s: b.astype(s.dtype), y_bar, slope))
        return tree_map(lambda x: -x, slope), y_dot, t_dot, args_dot

    at = lambda tree, i: tree_map(lambda x: x[i], tree)
    inner = lambda y, b: sum([jnp.sum(jnp.real(u * v)) for u, v in zip(tree_leaves(y), tree_leaves(b))])

    def interval(carry, i):
        y_bar, t0_bar, args_bar = carry
        y, t = at(ys, i), ts[i]
        t_bar = inner(f(y, t, *moving), at(ct, i)).astype(ts.dtype)
        state = (y, y_bar, t0_bar - t_bar, args_bar)
        _, y_bar, t0_bar, args_bar = at(odeint(backwards, state, jnp.stack([-t, -ts[i - 1]]), *moving, rtol=rtol, atol=atol, mxstep=mxstep, hmax=hmax), 1)
        return (tree_map(lambda a, b: a + b, y_bar, at(ct, i - 1)), t0_bar, args_bar), t_bar

    start = (at(ct, -1), jnp.zeros((), ts.dtype), [jnp.zeros_like(x) for x in moving])
    (y_bar, t0_bar, args_bar), t_bars = lax.scan(interval, start, jnp.arange(len(ts) - 1, 0, -1))
    given = iter(args_bar)
    bars = [next(given) if s else np.zeros(np.shape(x), dtypes.float0) for x, s in zip(leaves, smooth)]
    return y_bar, jnp.concatenate([t0_bar[None], t_bars[::-1]]), *tree_unflatten(tree, bars)


_odeint.defvjp(_forward, _backward)
