"""Elementwise functions of floating operands, as special functions and densities are: promotion, broadcasting, derivatives by formula."""
from __future__ import annotations

import functools
import inspect
from typing import Callable, Sequence

import numpy as np

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.linear import Zero
from mini_jax.core.trace import typeof
from mini_jax.lax.rows import spread
from mini_jax.numpy.promotion import as_array, broadcast_operands, promote_args_inexact
from mini_jax.runtime.dispatch import library
from mini_jax.transforms.custom_derivatives import custom_jvp
from mini_jax.transforms.autodiff import jvp


def elementwise(fun: Callable | None = None, *, widen: bool = False, complex_too: bool = False, static_argnames: Sequence[str] = ()) -> Callable:
    """Decorator: the body gets its operands as arrays of one floating dtype and of one shape (or scalars).

    widen: half precision computes in float32. complex_too: complex operands are welcome, which otherwise raise TypeError. static_argnames:
    arguments that are no operands; they are to be passed by name.
    """
    if fun is None:
        return lambda fun: elementwise(fun, widen=widen, complex_too=complex_too, static_argnames=static_argnames)
    signature = inspect.signature(fun)
    parameters = list(signature.parameters.values())
    names = [p.name for p in parameters if p.name not in static_argnames]
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}

    @functools.wraps(fun)
    def promoted(*args, **kwargs):
        if kwargs or len(args) != len(names):
            bound = signature.bind(*args, **kwargs).arguments
            args = [bound[name] if name in bound else defaults[name] for name in names]
            kwargs = {name: bound.get(name, defaults.get(name)) for name in static_argnames}
        args = [as_array(x) for x in promote_args_inexact(fun.__name__, *args)]
        dtype = args[0].dtype
        if dtypes.is_complex(dtype) and not complex_too:
            raise TypeError(f"{fun.__name__} takes real operands, got {', '.join([str(typeof(x)) for x in args])}")
        narrow = widen and dtypes.itemsize_bits(dtype) < 32
        if narrow:
            args = [lax.convert_element_type(x, np.dtype(np.float32)) for x in args]
        out = fun(*args, **kwargs)
        if narrow:
            out = tuple([x.astype(dtype) for x in out]) if isinstance(out, tuple) else out.astype(dtype)
        return out
    return library(promoted, static_argnames=tuple(static_argnames)) if static_argnames else library(promoted)


def derivatives(*partials: Callable | None) -> Callable:
    """Decorator: the function's derivatives by its operands are partial(y, *operands), y its value. None: it has none known."""
    def decorate(fun: Callable) -> Callable:
        names = list(inspect.signature(fun).parameters)
        out = custom_jvp(fun)

        def rule(operands, tangents):
            operands = [as_array(x) for x in operands]
            y = out(*operands)
            total = None
            for name, partial, t in zip(names, partials, tangents):
                if type(t) is Zero:
                    continue
                if partial is None:
                    raise NotImplementedError(f"{fun.__name__.strip('_')} has no derivative with respect to {name}; lax.stop_gradient holds it "
                                              "constant")
                term = spread(t * partial(y, *operands), y)
                total = term if total is None else total + term
            return y, Zero(typeof(y).tangent()) if total is None else total
        out.defjvp(rule, symbolic_zeros=True)
        return functools.wraps(fun)(lambda *operands: out(*broadcast_operands(fun.__name__, *operands)))
    return decorate


def slope(fun: Callable, position: int) -> Callable:
    """The partial derivative of fun by one operand, for `derivatives`: forward mode through its body."""
    def partial(_, *operands):
        x = operands[position]
        moved = lambda x: fun(*operands[:position], x, *operands[position + 1:])
        return jvp(moved, (x,), (lax.full_like(x, 1),))[1]
    return partial


def steps(x, half: int, double: int) -> int:
    """How many steps an approximation needs for float32, or for float64, whichever x is."""
    return double if dtypes.itemsize_bits(dtypes.to_real(typeof(x).dtype)) == 64 else half
