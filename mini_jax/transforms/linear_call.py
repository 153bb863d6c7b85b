"""linear_call: a linear function together with its transpose, both written by the user.

    linear_call_p   residuals, linear inputs -> outputs     with the function, and the function (residuals, outputs) -> linear inputs
"""
from __future__ import annotations

from typing import Callable, Sequence

from lowering.emit import lowers
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import function_name
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.lax import shapes
from mini_jax.runtime import xla
from mini_jax.transforms.custom_derivatives import recorded_call, run_call, zeros
from mini_jax.transforms.jvp import jvp_flat
from mini_jax.transforms.vmap import batch_flat, move_batch

_flatten = xla.registry.flatten

linear_call_p = Primitive("linear_call", multiple_results=True, memoize=False, facts={"family": "higher_order"})


@boundary
def linear_call(fun: Callable, fun_transpose: Callable, residual_args, linear_args):
    """fun(residual_args, linear_args), whose transpose in linear_args is fun_transpose.

    fun: (r, x) -> y, linear in x. fun_transpose: (r, y) -> x, linear in y, of the structure, shapes and dtypes of linear_args; it
    takes the place of what transposing fun would give, and fun is in turn its transpose. All are pytrees of arrays. That the two
    are transposes of each other is not checked. In forward mode the derivative in linear_args is fun itself, that in
    residual_args fun's own. Raises TypeError where fun_transpose returns another structure than linear_args has, ValueError where
    shapes differ.
    """
    residuals, residual_tree = _flatten(residual_args)
    linear, linear_tree = _flatten(linear_args)
    types, out_tree = [typeof(x) for x in linear], None

    def call(*args):
        nonlocal out_tree
        outs, out_tree = _flatten(fun(residual_tree.unflatten(args[:len(residuals)]), linear_tree.unflatten(args[len(residuals):])))
        return outs

    def transpose(*args):
        result = fun_transpose(residual_tree.unflatten(args[:len(residuals)]), out_tree.unflatten(args[len(residuals):]))
        outs, tree = _flatten(result)
        if tree != linear_tree:
            raise TypeError(f"linear_call: {function_name(fun_transpose)}, the transpose of {function_name(fun)}, must return the structure of "
                            f"the linear arguments, {linear_tree}, but returns {tree}")
        return [_fitting(out, aval, fun, fun_transpose) for out, aval in zip(outs, types)]
    outs = linear_call_p.bind(*residuals, *linear, call=call, transpose=transpose, count=len(residuals))
    return out_tree.unflatten(outs)


def _fitting(out, aval, fun: Callable, fun_transpose: Callable):
    have, want = typeof(out), aval.tangent()
    if have.shape != want.shape:
        raise ValueError(f"linear_call: {function_name(fun_transpose)}, the transpose of {function_name(fun)}, returned {have} for a linear "
                         f"argument of type {aval}")
    return out if have.dtype == want.dtype else shapes.convert_element_type(out, want.dtype)


# --- rules ------------------------------------------------------------------------------------------------------------------------

def _instantiated(values: Sequence) -> list:
    return [zeros(x.aval) if type(x) is Zero else x for x in values]


def _jvp(primals, tangents, *, call, transpose, count):
    """fun(ṙ, x) + fun(r, ẋ): in r its own derivative, in x itself."""
    bind = lambda linear: linear_call_p.bind(*primals[:count], *linear, call=call, transpose=transpose, count=count)
    outs, parts = bind(primals[count:]), []
    if any([type(t) is not Zero for t in tangents[count:]]):
        parts.append(bind(_instantiated(tangents[count:])))
    if any([type(t) is not Zero for t in tangents[:count]]):
        of_residuals = lambda *residuals: run_call(call, [*residuals, *primals[count:]])
        parts.append(jvp_flat(of_residuals, primals[:count], tangents[:count])[1])
    dots = [Zero(typeof(out).tangent()) for out in outs]
    for part in parts:
        dots = [b if type(a) is Zero else a if type(b) is Zero else shapes.add_any(a, b) for a, b in zip(dots, part)]
    return outs, dots


def _transpose(cts, *args, call, transpose, count):
    residuals, linear = args[:count], args[count:]
    if any([isinstance(r, Accumulator) for r in residuals]):
        raise NotImplementedError("linear_call can be transposed in its linear arguments, not in its residual arguments")
    outs = linear_call_p.bind(*residuals, *_instantiated(cts), call=transpose, transpose=call, count=count)
    for arg, ct in zip(linear, outs):
        if isinstance(arg, Accumulator):
            arg.add(ct)


def _batch(axis, args, dims, *, call, transpose, count):
    """Linear inputs and outputs are all batched, at dimension 0, so that the transpose takes and gives the same."""
    linear = [move_batch(x, axis.size, d, 0) for x, d in zip(args[count:], dims[count:])]
    dims = (*dims[:count], *[0] * len(linear))

    def batched(fun):
        def run(*args):
            outs, out_dims = batch_flat(lambda *xs: run_call(fun, xs), axis, args, (*dims[:count], *[0] * (len(args) - count)))
            return [move_batch(out, axis.size, d, 0) for out, d in zip(outs, out_dims)]
        return run
    outs = linear_call_p.bind(*args[:count], *linear, call=batched(call), transpose=batched(transpose), count=count)
    return outs, [0] * len(outs)


def _stage(trace, args, params):
    jaxpr, consts = recorded_call(params["call"], args, [trace.atom(a).aval for a in args])
    extra, transpose = len(consts), params["transpose"]
    skipping = transpose if not extra else lambda *xs: run_call(transpose, xs[extra:])
    return trace.record(linear_call_p, (*consts, *args), {"call": jaxpr, "transpose": skipping, "count": params["count"] + extra})


linear_call_p.impl = lambda *args, call, **_: run_call(call, args)
linear_call_p.type_rule = lambda *types, call, **_: call.out_types
linear_call_p.jvp, linear_call_p.transpose, linear_call_p.batch, linear_call_p.stage = _jvp, _transpose, _batch, _stage
linear_call_p.effects_rule = lambda types, params: params["call"].effects


@lowers(linear_call_p)
def _lower(e, eqn, *operands):
    return e.inline(eqn.params["call"], operands)
