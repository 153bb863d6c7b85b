"""jet: Taylor mode, a function of truncated power series, and so its derivatives of all orders up to some K at once.

A value is a series x(s) = x₀ + x₁ s + … + x_K sᴷ. Linear operations act on each coefficient, a product is Cauchy's, a quotient undoes
one. All other operations follow from their jvp rules: where y = f(x), ẏ = jvp(x, ẋ), and so

    y₀ = f(x₀),    y_k = ẏ_{k-1} / k.

Coefficient k - 1 of ẏ needs of y no more than y₀ … y_{k-1}. A rule that speaks of its own result (exp: t * y; tanh: t * (1 - y) *
(1 + y)) is thus the differential equation that the function satisfies, and is solved coefficient by coefficient. For this, a
series is lazy while a rule is at work: it knows how to find a coefficient when asked (McIlroy, Power Series, Power Serious, 1999;
Griewank & Walther, Evaluating Derivatives, 2008, chapter 13).
"""
from __future__ import annotations

import functools
import math
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from mini_jax.core import dtypes, source
from mini_jax.core.linear import Zero
from mini_jax.core.primitive import table
from mini_jax.core.program import Jaxpr, ProgramInfo, memoized
from mini_jax.core.refs import ABSENT, addupdate_p, in_transformation, set_p
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.state import current_trace, state
from mini_jax.core.trace import Trace, Tracer, typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.lax import elementwise, shapes, special
from mini_jax.lax.rows import spread
from mini_jax.runtime import xla
from mini_jax.transforms.arguments import argument_paths, checked_outputs
from mini_jax.transforms.control.branches import cond_p
from mini_jax.transforms.control.loops import while_p
from mini_jax.transforms.control.pieces import in_common, joined, widened, with_outputs
from mini_jax.transforms.control.scan import in_three, scan_p
from mini_jax.transforms.custom_derivatives import custom_vjp_call_p, run_call
from mini_jax.transforms.checkpoint import remat_p
from mini_jax.transforms.jit import jit_p
from mini_jax.transforms.jvp import DifferentiatedWriteError, zero_value

_flatten = xla.registry.flatten


# --- series ---------------------------------------------------------------------------------------------------------------------

class JetTracer(Tracer):
    """A series: the coefficients that are known (None: zero) and the rule that finds the next, or no rule where all are."""
    __slots__ = ("known", "rule", "dot")

    def __init__(self, trace, aval, known: list, rule: Callable[[int], Any] | None = None):
        self._trace, self.aval, self.known, self.rule, self.dot = trace, aval, known, rule, None

    def coefficient(self, k: int):
        """x_k, a value of the trace around; None where it is zero."""
        while len(self.known) <= k:
            with current_trace(self._trace.parent):
                self.known.append(self.rule(len(self.known)))
        return self.known[k]

    def derivative(self):
        """ẋ, with ẋ_k = (k + 1) x_{k+1}."""
        if self.dot is None:
            rule = lambda k: _times(self.coefficient(k + 1), k + 1)
            aval = self.aval.tangent()
            if self.rule is not None:
                self.dot = JetTracer(self._trace, aval, [], rule)
            else:
                with current_trace(self._trace.parent):
                    self.dot = _series(self._trace, aval, [rule(k) for k in range(len(self.known) - 1)])
        return self.dot


def _series(trace, aval, known: list):
    """A series of known coefficients as a tracer; one that doesn't vary as its value, or as a Zero."""
    if any([c is not None for c in known[1:]]):
        return JetTracer(trace, aval, known)
    return Zero(aval.tangent()) if not known or known[0] is None else known[0]


def _times(x, factor: float):
    return x if x is None or factor == 1 else elementwise.mul(x, float(factor))


def _over(x, divisor: float):
    return x if x is None or divisor == 1 else elementwise.div(x, float(divisor))


class JetTrace(Trace):
    """Every operation on its tracers becomes operations on their coefficients, in the parent trace.

    found: while an operation is at work, the results of those that it consists of, by operation and operands; so a rule that asks for
    the result that it is the rule of gets the series that is being found.
    """
    __slots__ = ("order", "found")

    def __init__(self, parent, order: int, info: ProgramInfo | None = None):
        super().__init__(parent, info)
        self.order, self.found = order, None

    def process(self, primitive, args, params):
        if primitive.effects_rule is not None and (out := in_transformation(self, primitive, args, params)) is not ABSENT:
            return out
        if not any([self.owns(a) for a in args]):
            return self.parent.process(primitive, args, params)
        if primitive is set_p or primitive is addupdate_p:
            raise DifferentiatedWriteError(args[0])
        rule = rules.get(primitive, _by_derivative)
        if rule is _inlined:
            return _inlined(args, **params)
        if self.found is not None:
            return self._looked_up(rule, primitive, args, params)
        saved, self.found = state.source, {}
        if primitive.memoize:                           # it holds no function of the user's: all that its rule does is of one line
            state.source = saved or source.capture(2, state.scope)
        try:
            out = self._looked_up(rule, primitive, args, params)
            return [self._all(y) for y in out] if primitive.multiple_results else self._all(out)
        finally:
            state.source, self.found = saved, None

    def _looked_up(self, rule, primitive, args, params):
        key = (primitive, *[(type(a), a) if isinstance(a, _scalars) else id(a) for a in args], *params.items())
        if key not in self.found:
            self.found[key] = rule(self, primitive, args, params), args          # with args, whose ids must not be given to others
        return self.found[key][0]

    def _all(self, y):
        """A result with all its coefficients found."""
        if not self.owns(y) or y.rule is None:
            return y
        for k in range(self.order + 1):
            y.coefficient(k)
        y.rule = None
        return _series(self, y.aval, y.known)

    def check_write(self, ref, value) -> None:
        """Raise ValueError for a series written to a ref from outside."""
        if self.owns(value):
            raise DifferentiatedWriteError(ref)

    def owns(self, value) -> bool:
        return type(value) is JetTracer and value._trace is self

    def coefficient(self, value, k: int):
        """x_k of any value; None where it is zero."""
        if self.owns(value):
            return value.coefficient(k)
        return None if k or type(value) is Zero else value

    def first(self, value):
        """x₀ of any value, as an array of zeros where it is zero."""
        found = self.coefficient(value, 0)
        return zero_value(typeof(value)) if found is None else found

    def outside(self, primitive, args, params):
        """The operation on the first coefficients, in the trace around."""
        with current_trace(self.parent):
            return primitive.bind(*[self.first(a) for a in args], **params)

    def concrete(self, tracer):
        first = tracer.coefficient(0)
        return first._trace.concrete(first) if isinstance(first, Tracer) else first


_scalars = (bool, int, float, complex, np.generic)


def jet_flat(fun: Callable, series: Sequence[Sequence], order: int, info: ProgramInfo | None = None) -> list[list]:
    """The coefficients 0 … order of the results of `fun` on inputs of these coefficients. None stands for a coefficient that is zero."""
    trace = JetTrace(state.trace, order, info)
    try:
        inputs = [_series(trace, typeof(terms[0]), list(terms)) for terms in series]
        with current_trace(trace):
            outs = fun(*inputs)
        return [[trace.coefficient(out, k) for k in range(order + 1)] for out in outs]
    finally:
        trace.end()


# --- rules of operations ----------------------------------------------------------------------------------------------------------
# rule(trace, primitive, args, params) -> the result, a tracer with a rule for each coefficient (or a list of them).

def _by_derivative(trace, primitive, args, params):
    """y₀ = f(x₀), y_k = ẏ_{k-1} / k with ẏ = jvp(x, ẋ)."""
    several = primitive.multiple_results

    @functools.cache
    def values():
        out = trace.outside(primitive, args, params)
        return out if several else [out]

    @functools.cache
    def tangents():
        if primitive.jvp is None:
            raise NotImplementedError(f"the derivative of {primitive.name} is not defined, and so neither is its Taylor series; custom_jvp "
                                      "can define it for the function around it, stop_gradient leaves it out")
        dots = [a.derivative() if trace.owns(a) else Zero(typeof(a).tangent()) for a in args]
        with current_trace(trace):
            out = primitive.jvp(list(args), dots, **params)[1]
        return out if several else [out]

    def coefficient(i: int, k: int):
        return _over(trace.coefficient(tangents()[i], k - 1), k) if k else values()[i]

    def result(i: int, aval):
        return JetTracer(trace, aval, [], functools.partial(coefficient, i)) if dtypes.is_inexact(aval.dtype) else values()[i]

    if primitive.effects_rule is not None:               # it runs for its effects; and only so are the types of a user's function known
        types = [typeof(y) for y in values()]
    else:
        types = primitive.types(tuple([typeof(a) for a in args]), params)
        types = types if several else [types]
    outs = [result(i, t) for i, t in enumerate(types)]
    return outs if several else outs[0]


def _by_coefficient(rule: Callable) -> Callable:
    """A rule given as rule(trace, k, primitive, args, params) -> coefficient k."""
    def series(trace, primitive, args, params):
        aval = primitive.types(tuple([typeof(a) for a in args]), params)
        if not dtypes.is_inexact(aval.dtype):
            return trace.outside(primitive, args, params)
        return JetTracer(trace, aval, [], lambda k: rule(trace, k, primitive, args, params))
    return series


@_by_coefficient
def _linear(trace, k, primitive, args, params):
    """(L x)_k = L x_k, for what is linear in all its floating operands together."""
    terms = [trace.coefficient(a, k) if dtypes.is_inexact(typeof(a).dtype) else a for a in args]
    if all([t is None for t, a in zip(terms, args) if dtypes.is_inexact(typeof(a).dtype)]):
        return None
    return primitive.bind(*[zero_value(typeof(a).tangent()) if t is None else t for t, a in zip(terms, args)], **params)


@_by_coefficient
def _sum(trace, k, primitive, args, params):
    """(a ± b)_k = a_k ± b_k."""
    a, b = [trace.coefficient(x, k) for x in args]
    if a is not None and b is not None:
        return primitive.bind(a, b)
    if a is None:
        a = b if b is None or primitive is not elementwise.sub_p else elementwise.neg(b)
    shape = max([typeof(x).shape for x in args], key=len)
    return a if a is None or typeof(a).shape == shape else shapes.broadcast(a, shape)


@_by_coefficient
def _product(trace, k, primitive, args, params):
    """(a · b)_k = Σ a_j · b_{k-j}, for a product that is linear in both."""
    a, b = args
    return _cauchy(lambda a, b: primitive.bind(a, b, **params),
                   [(trace.coefficient(a, j), trace.coefficient(b, k - j)) for j in range(k + 1)])


def _cauchy(product: Callable, pairs: Sequence[tuple]):
    terms = [product(a, b) for a, b in pairs if a is not None and b is not None]
    return functools.reduce(shapes.add_any, terms) if terms else None


def _quotient(trace, primitive, args, params):
    """y = a / b is what b y = a: y_k = (a_k - Σ b_j y_{k-j}) / b₀, the sum over j = 1 … k."""
    a, b = args

    def coefficient(k: int):
        rest = _cauchy(elementwise.mul, [(trace.coefficient(b, j), y.coefficient(k - j)) for j in range(1, k + 1)])
        top, bottom = trace.coefficient(a, k), trace.first(b)
        if rest is not None:
            top = elementwise.neg(rest) if top is None else elementwise.sub(top, rest)
        return None if top is None else spread(elementwise.div(top, bottom), y)
    y = JetTracer(trace, primitive.types(tuple([typeof(x) for x in args]), params), [], coefficient)
    return y


def _integer_power(trace, primitive, args, params):
    """xⁿ by repeated squaring; x⁻ⁿ = 1 / xⁿ."""
    (x,), n = args, params["y"]
    power, square, left = None, x, abs(n)
    with current_trace(trace):
        while left:
            if left % 2:
                power = square if power is None else elementwise.mul(power, square)
            left //= 2
            square = elementwise.mul(square, square) if left else None
        if power is None:
            return trace.outside(primitive, args, params)
        return elementwise.div(1.0, power) if n < 0 else power


# --- rules of what holds programs ----------------------------------------------------------------------------------------------------

class _Expanded(NamedTuple):
    """A program on coefficients: each input and each result replaced by itself and by its coefficients 1 … K that are there.

    consts: the values of its leading inputs. present: which coefficients each result has.
    """
    jaxpr: Jaxpr
    consts: list
    present: tuple[tuple[bool, ...], ...]


@memoized
def jet_jaxpr(jaxpr: Jaxpr, order: int, present: tuple[tuple[bool, ...], ...]) -> _Expanded:
    """The program on coefficients; present: which of the coefficients 1 … order each input has."""
    found: tuple = ()

    def fun(*flat):
        nonlocal found
        outs = jet_flat(lambda *xs: eval_jaxpr(jaxpr, (), *xs), _grouped(flat, present), order, jaxpr.info)
        found = tuple([tuple([c is not None for c in terms[1:]]) for terms in outs])
        outs = [[zero_value(t) if y is None else y, *terms] for (y, *terms), t in zip(outs, jaxpr.out_types)]
        return _flat(outs, found)
    program, consts = stage(fun, _types(jaxpr.in_types, present), jaxpr.info)
    return _Expanded(program.hoisted(), consts, found)


def _types(types: Sequence, present: Sequence) -> list:
    return [t for aval, row in zip(types, present) for t in (aval, *[aval.tangent()] * sum(row))]


def _grouped(flat: Sequence, present: Sequence) -> list[list]:
    """Flat values and coefficients by value, None for those that are not there."""
    given = iter(flat)
    return [[next(given), *[next(given) if live else None for live in row]] for row in present]


def _flat(series: Sequence[Sequence], present: Sequence) -> list:
    """The other way: each value and its coefficients that are to be there, as zeros where they are not."""
    return [c for (value, *terms), row in zip(series, present)
            for c in (value, *[zero_value(typeof(value).tangent()) if c is None else c for c, live in zip(terms, row) if live])]


def _giving(program: _Expanded, present: Sequence, types: Sequence) -> Jaxpr:
    """The program with these coefficients of its results, as zeros where it has none."""
    rows = _grouped(program.jaxpr.outvars, program.present)
    return with_outputs(program.jaxpr, [out for (value, *terms), row, aval in zip(rows, present, types)
                                        for out in (value, *[aval.tangent() if c is None else c for c, live in zip(terms, row) if live])])


def _joined(a: Sequence, b: Sequence) -> tuple:
    return tuple([joined(x, y) for x, y in zip(a, b)])


def _call(primitive, order, series, present, *, jaxpr, **params):
    """A call of a program is a call of the program on coefficients."""
    program = jet_jaxpr(jaxpr, order, present)
    return _grouped(primitive.bind(*program.consts, *_flat(series, present), jaxpr=program.jaxpr, **params), program.present)


def _scan(primitive, order, series, present, *, jaxpr, num_consts, num_carry, **params):
    """A scan of the body on coefficients: a carry has a coefficient where it has it before the first step or after any."""
    consts, carry, xs = in_three(present, num_consts, num_carry)
    while True:
        body = jet_jaxpr(jaxpr, order, (*consts, *carry, *xs))
        if _joined(carry, body.present[:num_carry]) == carry:
            break
        carry = _joined(carry, body.present[:num_carry])
    present, outputs = (*consts, *carry, *xs), (*carry, *body.present[num_carry:])
    width = lambda rows: len(rows) + sum(map(sum, rows))
    outs = primitive.bind(*body.consts, *_flat(series, present), jaxpr=_giving(body, outputs, jaxpr.out_types),
                          num_consts=len(body.consts) + width(consts), num_carry=width(carry), **params)
    return _grouped(outs, outputs)


def _while(primitive, order, series, present, *, cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts):
    """A loop of the body on coefficients, as long as the condition holds for the values."""
    consts, carry = present[cond_nconsts:cond_nconsts + body_nconsts], present[cond_nconsts + body_nconsts:]
    while True:
        body = jet_jaxpr(body_jaxpr, order, (*consts, *carry))
        if _joined(carry, body.present) == carry:
            break
        carry = _joined(carry, body.present)
    types, places = list(cond_jaxpr.in_types[:cond_nconsts]), list(range(cond_nconsts))
    for aval, row in zip(body_jaxpr.out_types, carry):
        places.append(len(types))
        types += _types([aval], [row])
    of_condition, args = [terms[0] for terms in series[:cond_nconsts]], _flat(series[cond_nconsts:], (*consts, *carry))
    outs = primitive.bind(*of_condition, *body.consts, *args, cond_jaxpr=widened(cond_jaxpr, tuple(types), tuple(places)), body_jaxpr=_giving(body, carry, body_jaxpr.out_types), cond_nconsts=cond_nconsts,
                          body_nconsts=len(body.consts) + len(consts) + sum(map(sum, consts)))
    return _grouped(outs, carry)


def _cond(primitive, order, series, present, *, branches):
    """A choice between the branches on coefficients."""
    programs = [jet_jaxpr(branch, order, present[1:]) for branch in branches]
    outputs = functools.reduce(_joined, [p.present for p in programs])
    types = _types(branches[0].in_types, present[1:])
    branches, consts = in_common([_giving(p, outputs, branches[0].out_types) for p in programs], [p.consts for p in programs], types)
    outs = primitive.bind(series[0][0], *consts, *_flat(series[1:], present[1:]), branches=tuple(branches))
    return _grouped(outs, outputs)


def _of_program(rule: Callable) -> Callable:
    """A rule given as rule(primitive, order, series, present, **params) -> series of the results, whose coefficients are found together."""
    def series(trace, primitive, args, params):
        def results(order: int):
            terms = [[trace.first(a), *[trace.coefficient(a, k) for k in range(1, order + 1)]] for a in args]
            return rule(primitive, order, terms, tuple([tuple([c is not None for c in row[1:]]) for row in terms]), **params)
        types = primitive.types(tuple([typeof(a) for a in args]), params)
        owned = [a for a in args if trace.owns(a)]
        if all([a.rule is None for a in owned]):
            with current_trace(trace.parent):
                return [_series(trace, t, terms) for t, terms in zip(types, results(min([len(a.known) for a in owned]) - 1))]
        if "jaxpr" in params and rule is _call:          # in the midst of a rule: what the program does, as far as it is needed
            with current_trace(trace):
                return eval_jaxpr(params["jaxpr"], (), *args)
        upto = functools.cache(results)
        with current_trace(trace.parent):
            return [JetTracer(trace, t, [], lambda k, i=i: upto(k)[i][k]) if dtypes.is_inexact(t.dtype) else upto(0)[i][0]
                    for i, t in enumerate(types)]
    return series


def _inlined(args, *, call, **_):
    """A custom_vjp, whose rules give no forward derivative: the function itself."""
    return run_call(call, args)


_LINEAR = ("neg", "real", "imag", "complex", "conj", "convert_element_type", "reduce_precision", "select_n", "name", "broadcast_in_dim",
           "reshape", "squeeze", "transpose", "reduce_sum", "cumsum", "reduce_window_sum", "concatenate", "dynamic_slice",
           "dynamic_update_slice", "pad", "rev", "scatter-add", "scatter-sub", "slice", "fft", "all_gather", "all_to_all", "ppermute",
           "psum_scatter")
_PRODUCTS = ("mul", "dot_general", "conv_general_dilated")

rules = {
    **{table[name]: _linear for name in _LINEAR},
    **{table[name]: _product for name in _PRODUCTS},
    elementwise.add_p: _sum, elementwise.sub_p: _sum, shapes.add_any_p: _sum,
    elementwise.div_p: _quotient, elementwise.integer_pow_p: _integer_power,
    jit_p: _of_program(_call), remat_p: _of_program(_call),
    scan_p: _of_program(_scan), while_p: _of_program(_while), cond_p: _of_program(_cond),
    custom_vjp_call_p: _inlined,
}


# --- the function --------------------------------------------------------------------------------------------------------------------

@boundary
def jet(fun: Callable, primals: Sequence, series: Sequence, factorial_scaled: bool = True, **_):
    """The Taylor series of fun(x(s)) at s = 0, up to some order K, given those of the arguments x(s): (value, terms 1 … K).

    primals: the arguments' values x(0), pytrees of floating arrays. series: for each argument the list of its K terms, of the
    structure and types of the argument; for one that doesn't depend on s, K arrays of zeros. Returns (fun(*primals), the list of
    its terms for each leaf of it). factorial_scaled: term k is the k-th derivative by s; otherwise it is the coefficient of sᵏ, a
    k!-th of that. With the terms (v, 0, …, 0), for x + s v, term k of the result is the k-th derivative along v: that of one
    direction costs O(K²) evaluations of fun, where nested jvps take 2ᴷ. A custom_vjp function is differentiated itself, without
    its rules. Raises ValueError for terms of unequal numbers or shapes, TypeError for arguments that are no floating-point
    arrays.
    """
    if not isinstance(primals, (tuple, list)) or not isinstance(series, (tuple, list)) or len(primals) != len(series):
        raise TypeError(f"jet takes the arguments and their series as tuples of one length, got {primals!r:.200} and {series!r:.200}")
    for i, terms in enumerate(series):
        if not isinstance(terms, (tuple, list)):
            raise TypeError(f"jet: the series of argument {i} is a list of terms, one for each order, got {terms!r:.200} "
                            f"of type {type(terms).__name__}")
    if len({len(terms) for terms in series}) > 1:
        raise ValueError("jet terms have inconsistent lengths for different arguments: "
                         + ", ".join([f"{len(terms)} for argument {i}" for i, terms in enumerate(series)]))
    order = len(series[0]) if series else 0
    leaves, tree = _flatten(tuple(primals))
    info = ProgramInfo("jet", fun, lambda: argument_paths(fun, _flatten((tree.unflatten(leaves), {}))[1]))
    types = [_type(leaf, i, info) for i, leaf in enumerate(leaves)]
    scale = [float(math.factorial(k)) if factorial_scaled else 1.0 for k in range(order + 1)]
    rows = [_terms([terms[k] for terms in series], tree, types, k + 1, info) for k in range(order)]
    inputs = [[leaf, *[None if _known_zero(row[i]) else _over(row[i], k) for row, k in zip(rows, scale[1:])]] for i, leaf in enumerate(leaves)]
    out_tree = None

    def flat(*xs):
        nonlocal out_tree
        outs, out_tree = _flatten(fun(*tree.unflatten(xs)))
        return checked_outputs(outs, out_tree, info)
    outs = jet_flat(flat, inputs, order, info)
    value = [zero_value(typeof(terms)) if terms is None else terms for terms, *_ in outs]
    terms = [[zero_value(typeof(y)) if c is None else _times(c, k) for c, k in zip(terms, scale[1:])] for y, (_, *terms) in zip(value, outs)]
    return out_tree.unflatten(value), out_tree.unflatten(terms)


def fact(n):
    """n! = Γ(n + 1) of an array or a number."""
    return elementwise.exp(special.lgamma(elementwise.add(n, 1.0)))


def _known_zero(term) -> bool:
    """Is it a number or a NumPy array that is zero?"""
    return isinstance(term, (*_scalars, np.ndarray)) and not np.any(term)


def _type(leaf, position: int, info: ProgramInfo):
    try:
        aval = typeof(leaf)
    except TypeError:
        raise TypeError(f"jet: {info.path(position)} of {info.name} is {leaf!r:.200} of type {type(leaf).__name__}, which is no array "
                        "or number") from None
    if not dtypes.is_inexact(aval.dtype):
        raise TypeError(f"jet: {info.path(position)} of {info.name} is {aval}; a series has floating-point coefficients: convert it to a "
                        "floating dtype, or let the function use it without passing it")
    return aval


def _terms(terms: Sequence, tree, types: Sequence, k: int, info: ProgramInfo) -> list:
    """The terms of order k of all arguments, flat and checked."""
    leaves, found = _flatten(tuple(terms))
    if found != tree:
        raise ValueError(f"jet: the terms of order {k} must have the structure of the arguments of {info.name}, {tree}, got {found}")
    for i, (term, aval) in enumerate(zip(leaves, types)):
        have = typeof(term)
        if have.shape != aval.shape:
            raise ValueError(f"jet: the term of order {k} for {info.path(i)} of {info.name} is {have}, but the argument is {aval}")
        if have.dtype != aval.dtype:
            if not have.weak_type and dtypes.is_inexact(have.dtype):
                raise TypeError(f"jet: the term of order {k} for {info.path(i)} of {info.name} is {have}, but the argument is {aval}: "
                                "give it that dtype")
            leaves[i] = shapes.convert_element_type(term, aval.dtype)
    return leaves
