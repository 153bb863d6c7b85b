"""Minimisation of functions of vectors: the quasi-Newton method BFGS with a line search for the strong Wolfe conditions."""
from __future__ import annotations

from typing import Any, Callable, NamedTuple

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core.types import AbstractValue
from mini_jax.numpy.promotion import array_argument, arraylike, promote_dtypes_inexact
from mini_jax.transforms.autodiff import value_and_grad

__all__ = ["minimize", "OptimizeResults"]


class OptimizeResults(NamedTuple):
    """What `minimize` returns: the place x of the minimum, whether it was found, why it ended (0: found, 1: maxiter steps, 3: the line search
    failed), the value, the gradient and an estimate of the inverse Hessian there, and how many values, gradients and steps it took."""
    x: AbstractValue
    success: Any
    status: Any
    fun: AbstractValue
    jac: AbstractValue
    hess_inv: AbstractValue | None
    nfev: Any
    njev: Any
    nit: Any


def minimize(fun: Callable, x0, args: tuple = (), *, method: str, tol: float | None = None, options: dict | None = None) -> OptimizeResults:
    """A local minimum of fun(x, *args), a number, near the vector x0.

    method: 'BFGS'. tol: ends where the gradient's norm is below, default 1e-5. options: 'gtol', the same; 'norm', which norm, default inf; 'maxiter',
    default 200 times the size; 'line_search_maxiter', default 10. Works inside jit and vmap; not differentiable in reverse mode (it is a loop of
    unknown length). Raises ValueError for another method, and TypeError for args that are no tuple. (Nocedal, Wright 2006, chapters 3 and 6)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to jax.scipy.optimize.minimize must be a tuple, got {args!r:.100}")
    if method.lower() != "bfgs":
        raise ValueError(f"Method {method} not recognized; it is 'BFGS'")
    options = {} if options is None else dict(options)
    gtol = options.pop("gtol", 1e-5 if tol is None else tol)
    norm, maxiter, search = options.pop("norm", jnp.inf), options.pop("maxiter", None), options.pop("line_search_maxiter", 10)
    if options:
        raise TypeError(f"minimize: unknown options {', '.join(map(repr, options))}; BFGS has 'gtol', 'norm', 'maxiter' and 'line_search_maxiter'")
    x0 = array_argument("minimize", *promote_dtypes_inexact(*arraylike("minimize", x0)))
    if x0.ndim != 1:
        raise ValueError(f"minimize: x0 must be a vector, got {x0.aval}; flatten_util.ravel_pytree makes one of a pytree")
    return _bfgs(lambda x: fun(x, *args), x0, gtol, norm, x0.size * 200 if maxiter is None else maxiter, search)


class _Search(NamedTuple):
    """A line search under way: the trial step a, the best step so far `low` and the other end of the interval `high` (inf: none yet)."""
    a: Any
    low: Any
    high: Any
    low_value: Any
    low_slope: Any
    high_value: Any
    value: Any
    gradient: Any
    step: Any
    done: Any
    count: Any


def _line_search(both: Callable, x, p, value, gradient, first, limit: int, c1: float = 1e-4, c2: float = 0.9) -> _Search:
    """A step a along p with φ(a) ≤ φ(0) + c₁ a φ'(0) and |φ'(a)| ≤ c₂ |φ'(0)|: the interval doubles, then shrinks by parabolas."""
    slope0 = gradient @ p

    def unfinished(s):
        return ~s.done & (s.count < limit)

    def trial(s):
        new_value, new_gradient = both(x + s.a * p)
        slope = new_gradient @ p
        high_now = ~(new_value <= value + c1 * s.a * slope0) | (new_value >= s.low_value) & (s.count > 0)
        done = ~high_now & (jnp.abs(slope) <= -c2 * slope0)
        turned = ~high_now & (slope * (s.high - s.low) >= 0)
        high = jnp.where(high_now, s.a, jnp.where(turned, s.low, s.high))
        high_value = jnp.where(high_now, new_value, jnp.where(turned, s.low_value, s.high_value))
        low, low_value, low_slope = [jnp.where(high_now, old, new) for old, new in ((s.low, s.a), (s.low_value, new_value), (s.low_slope, slope))]
        width = jnp.where(jnp.isinf(high), 1, high - low)
        bend = 2 * (high_value - low_value - low_slope * width)
        share = jnp.where(jnp.isfinite(bend) & (bend > 0), -low_slope * width / jnp.where(bend == 0, 1, bend), 0.5)
        inside = low + width * jnp.clip(share, 0.1, 0.9)
        keep = lambda new, old: jnp.where(high_now, old, new)
        return _Search(jnp.where(jnp.isinf(high), 2 * s.a, inside), low, high, low_value, low_slope, high_value, keep(new_value, s.value),
                       keep(new_gradient, s.gradient), keep(s.a, s.step), done, s.count + 1)
    zero = jnp.zeros((), x.dtype)
    start = _Search(jnp.asarray(first, x.dtype), zero, zero + jnp.inf, value, slope0, value, value, gradient, zero, jnp.asarray(False), 0)
    return lax.while_loop(unfinished, trial, start)


def _bfgs(fun, x0, gtol, norm, maxiter, search_limit) -> OptimizeResults:
    both = value_and_grad(fun)
    value, gradient = both(x0)
    if value.shape != ():
        raise TypeError(f"minimize: fun must return a number, got {value.aval}")
    one = jnp.eye(x0.shape[0], dtype=x0.dtype)
    small = lambda g: jnp.linalg.norm(g, norm) < gtol

    def unfinished(state):
        found, _ = state
        return ~found.success & (found.nit < maxiter) & (found.status == 0)

    def step(state):
        found, before = state
        h, g = found.hess_inv, found.jac
        p = -(h @ g)
        guess = 1.01 * 2 * (found.fun - before) / (g @ p)                       # as far as the last step's decrease suggests
        first = jnp.where((guess > 0) & (guess < 1), guess, 1)
        search = _line_search(both, found.x, p, found.fun, g, first, 2 * search_limit)
        s, y = search.step * p, search.gradient - g
        curvature = s @ y
        rho = jnp.where(curvature > 0, 1 / jnp.where(curvature > 0, curvature, 1), 0)
        left = one - rho * jnp.outer(s, y)
        h = jnp.where(curvature > 0, left @ h @ left.T + rho * jnp.outer(s, s), h)
        stuck = search.step == 0
        flat = small(search.gradient)
        found = OptimizeResults(found.x + s, flat, jnp.where(stuck & ~flat, 3, 0), search.value, search.gradient, h, found.nfev + search.count, found.njev + search.count, found.nit + 1)
        return found, state[0].fun

    start = OptimizeResults(x0, small(gradient), jnp.asarray(0), value, gradient, one, jnp.asarray(1), jnp.asarray(1), jnp.asarray(0))
    found, _ = lax.while_loop(unfinished, step, (start, value + jnp.linalg.norm(gradient) / 2))
    return found._replace(status=jnp.where(found.success, 0, jnp.where(found.status == 0, 1, found.status)))
