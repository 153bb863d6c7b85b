"""custom_jvp and custom_vjp: functions whose derivatives the user writes.

Both are primitives that hold functions: `fun` runs when nothing is differentiated, and the user's rule takes its place when
something is. Staging records `fun` as a program; the rules stay Python functions, run when a derivative is asked for.
"""
from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Sequence

import numpy as np

from lowering.emit import lowers
from mini_jax.core import dtypes, errors
from mini_jax.core.effects import of_call
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo, function_name
from mini_jax.core.pytree import Partial, tree_leaves, tree_map
from mini_jax.core.refs import Cell, described, discharge_call
from mini_jax.core.staging import eval_jaxpr, for_types, stage
from mini_jax.core.state import state
from mini_jax.core.trace import Tracer, typeof
from mini_jax.lax import shapes, totals
from mini_jax.runtime import xla
from mini_jax.transforms.arguments import signature_of
from mini_jax.transforms.remat_opt import forward_call
from mini_jax.transforms.vmap import batch_flat, move_batch

_flatten = xla.registry.flatten


def zeros(aval):
    """The zero tangent of this type as a value."""
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    return shapes.broadcast_in_dim(np.zeros((), aval.dtype)[()], aval.shape, ())


def run_call(call, args: Sequence) -> list:
    """Run what is either a function of flat values or a program."""
    return eval_jaxpr(call, (), *args) if type(call) is Jaxpr else list(call(*args))


def recorded_call(call, args: Sequence, types: Sequence) -> tuple[Jaxpr, list]:
    """A call as a program, with the values of its constants, which become leading arguments."""
    if type(call) is Jaxpr:
        return call, []
    jaxpr, consts = stage(lambda *xs: run_call(call, xs), types, ProgramInfo("custom derivative", call))
    return jaxpr.hoisted(), consts


def _skip(count: int, rule: Callable, groups: int) -> Callable:
    """`rule`, which takes `groups` equally long groups of arguments, given groups with `count` more in front (constants)."""
    if count == 0:
        return rule

    def skipping(*args):
        size = len(args) // groups
        return rule(*[a for g in range(groups) for a in args[g * size + count:(g + 1) * size]])
    return skipping


def _batched(call, axis, dims: Sequence) -> Callable:
    """A call on a batch, every result batched at dimension 0."""
    def batched(*args):
        outs, out_dims = batch_flat(lambda *xs: run_call(call, xs), axis, args, dims)
        return [out if type(out) is Zero else move_batch(out, axis.size, d, 0) for out, d in zip(outs, out_dims)]
    return batched


# --- custom_jvp ---------------------------------------------------------------------------------------------------------------------

custom_jvp_call_p = Primitive("custom_jvp_call", multiple_results=True, memoize=False, facts={"family": "higher_order"})


def _jvp_call_jvp(primals, tangents, *, call, jvp):
    outs = jvp(*primals, *tangents)
    half = len(outs) // 2
    _check_values(call, outs[:half], "jvp")
    return outs[:half], outs[half:]


def _check_values(call, outs: Sequence, rule: str) -> None:
    """TypeError where a rule's values are not of the number and types of the function's, as far as these are known."""
    if type(call) is not Jaxpr:
        return
    have = [typeof(out) for out in outs]
    if len(have) != len(call.outvars) or any([a.shape != b.shape or a.dtype != b.dtype for a, b in zip(have, call.out_types)]):
        raise TypeError(f"the {rule} rule of {call.info.name} must return the values that {call.info.name} returns, of types "
                        f"{', '.join(map(str, call.out_types))}, but returns {', '.join(map(str, have))}")


def _jvp_call_batch(axis, args, dims, *, call, jvp):
    def batched_jvp(*flat):
        tangents = flat[len(args):]
        live = [i for i, t in enumerate(tangents) if type(t) is not Zero]

        def run(*xs):
            given = dict(zip(live, xs[len(args):]))
            return jvp(*xs[:len(args)], *[given[i] if i in given else Zero(_example(t.aval, d)) for i, (t, d) in enumerate(zip(tangents, dims))])
        outs, out_dims = _collect_zeros(run, axis, [*flat[:len(args)], *[tangents[i] for i in live]], [*dims, *[dims[i] for i in live]])
        return [out if type(out) is Zero else move_batch(out, axis.size, d, 0) for out, d in zip(outs, out_dims)]
    outs = custom_jvp_call_p.bind(*args, call=_batched(call, axis, dims), jvp=batched_jvp)
    return outs, [0] * len(outs)


def _collect_zeros(run, axis, args, dims):
    """batch_flat of a function that may return Zeros, whose types are then those of the batch."""
    zeros: dict[int, Zero] = {}

    def without(*xs):
        zeros.clear()
        outs = run(*xs)
        zeros.update({i: out for i, out in enumerate(outs) if type(out) is Zero})
        count.append(len(outs))
        return [out for out in outs if type(out) is not Zero]
    count: list[int] = []
    outs, out_dims = batch_flat(without, axis, args, dims)
    outs, out_dims = iter(outs), iter(out_dims)
    pairs = [(Zero(zeros[i].aval.update(shape=(axis.size, *zeros[i].aval.shape))), 0) if i in zeros else (next(outs), next(out_dims))
             for i in range(count[-1])]
    return [out for out, _ in pairs], [d for _, d in pairs]


def _jvp_call_stage(trace, args, params):
    types = [trace.atom(a).aval for a in args]
    jaxpr, consts = recorded_call(params["call"], args, types)
    return trace.record(custom_jvp_call_p, (*consts, *args), {"call": jaxpr, "jvp": _skip(len(consts), params["jvp"], 2)})


custom_jvp_call_p.impl = lambda *args, call, jvp: run_call(call, args)
custom_jvp_call_p.type_rule = lambda *types, call, jvp: call.out_types
custom_jvp_call_p.jvp, custom_jvp_call_p.batch, custom_jvp_call_p.stage = _jvp_call_jvp, _jvp_call_batch, _jvp_call_stage
custom_jvp_call_p.facts["discharge"] = discharge_call(custom_jvp_call_p, "call", True)
custom_jvp_call_p.effects_rule = lambda types, params: of_call(params["call"])


@lowers(custom_jvp_call_p)
def _lower_custom_jvp(e, eqn, *operands):
    return e.inline(eqn.params["call"], operands)


def _bound(fun: Callable, args: tuple, kwargs: dict) -> tuple:
    """All arguments as positional ones, defaults filled in."""
    if not kwargs and (code := getattr(fun, "__code__", None)) is not None and code.co_argcount == len(args) and not code.co_kwonlyargcount:
        return args
    signature = signature_of(fun)
    if signature is None:
        return args
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"{function_name(fun)}: keyword-only arguments {sorted(bound.kwargs)} can't be given to a function with custom derivatives")
    return bound.args


def _nondiff(fun: Callable, argnums, argnames) -> tuple[int, ...]:
    numbers = list((argnums,) if isinstance(argnums, int) else argnums)
    names = list(inspect.signature(fun).parameters) if argnames else []
    for name in (argnames,) if isinstance(argnames, str) else argnames:
        if name not in names:
            raise ValueError(f"nondiff_argnames: {function_name(fun)} has no argument {name!r}")
        numbers.append(names.index(name))
    return tuple(sorted(set(numbers)))


class _Custom:
    """What both kinds share: the function, which arguments are not differentiated, and how a call is taken apart."""

    def __init__(self, fun: Callable, nondiff_argnums: Sequence[int] | int = (), nondiff_argnames: Sequence[str] | str = ()):
        if not callable(fun):
            raise TypeError(f"{type(self).__name__} takes a function, got {fun!r:.200}")
        self.fun = fun
        self.nondiff_argnums = _nondiff(fun, nondiff_argnums, nondiff_argnames)
        functools.update_wrapper(self, fun, updated=())

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def _split(self, args: tuple):
        """(non-differentiated arguments, leaves of the others, their structure, function to put both together)."""
        nondiff = self.nondiff_argnums
        leaves, tree = _flatten([a for i, a in enumerate(args) if i not in nondiff])
        fixed, count = {i: args[i] for i in nondiff if i < len(args)}, len(args)         # a program holds it, so it must hold no argument

        def together(flat):
            free = iter(tree.unflatten(flat))
            return [fixed[i] if i in fixed else next(free) for i in range(count)]
        return [args[i] for i in nondiff if i < len(args)], leaves, tree, together

    def _missing(self, method: str):
        return AttributeError(f"no derivative rule is defined for {type(self).__name__} function {function_name(self.fun)}: define one with {method}")


class custom_jvp(_Custom):
    """A function with a jvp rule of the user's: `f.defjvp(rule)`, where rule(primals, tangents) -> (value, tangent).

    nondiff_argnums: arguments that are passed to the rule first, as they are, and have no tangents.
    Both modes of differentiation use the rule; in reverse mode it is transposed, so it must be linear in the tangents.
    """

    def __init__(self, fun, nondiff_argnums=(), nondiff_argnames=()):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.jvp, self.symbolic_zeros = None, False

    def defjvp(self, jvp: Callable, symbolic_zeros: bool = False) -> Callable:
        """Set the rule (usable as a decorator). symbolic_zeros: tangents that are zero come as objects with shape and dtype."""
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable | None) -> None:
        """One rule for each argument: jvp(tangent, value, *args); None for an argument whose tangents don't count."""
        if self.nondiff_argnums:
            raise TypeError("defjvps does not go with nondiff_argnums; use defjvp")

        def rule(primals, tangents):
            value = self(*primals)
            terms = [jvp(t, value, *primals) for t, jvp in zip(tangents, jvps) if jvp is not None]
            if not terms:
                return value, xla.registry.flatten(value)[1].unflatten([zeros(typeof(v).tangent()) for v in tree_leaves(value)])
            total, tree = _flatten(terms[0])
            for term in terms[1:]:
                total = [shapes.add_any(a, b) for a, b in zip(total, _flatten(term)[0])]
            return value, tree.unflatten(total)
        self.defjvp(rule)

    def __call__(self, *args, **kwargs):
        if self.jvp is None:
            raise self._missing("defjvp")
        nondiff, leaves, tree, together = self._split(_bound(self.fun, args, kwargs))
        name, count, out_tree = function_name(self.fun), len(leaves), None

        def call(*flat):
            nonlocal out_tree
            outs, out_tree = _flatten(self.fun(*together(flat)))
            return outs
        call.__name__, call.__wrapped__ = name, self.fun

        def jvp(*flat):
            nonlocal out_tree
            primals, tangents = flat[:count], flat[count:]
            if not self.symbolic_zeros:
                tangents = [zeros(t.aval) if type(t) is Zero else t for t in tangents]
            for argument in nondiff:
                _check_captured(argument, name)
            result = self.jvp(*nondiff, tuple(tree.unflatten(primals)), tuple(tree.unflatten(tangents)))
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(f"the jvp rule of {name} must return a pair (value, tangent), got {result!r:.200}")
            outs, value_tree = _flatten(result[0])
            outs_dot, tangent_tree = _flatten(result[1])
            if value_tree != tangent_tree:
                raise TypeError(f"the jvp rule of {name} returned a value and a tangent of different structure: {value_tree} and {tangent_tree}")
            if out_tree is None:
                out_tree = value_tree
            return [*outs, *[_checked_tangent(t, out, name) for out, t in zip(outs, outs_dot)]]
        outs = custom_jvp_call_p.bind(*leaves, call=call, jvp=jvp)
        return out_tree.unflatten(outs)


def _check_captured(argument, name: str) -> None:
    """UnexpectedTracerError for a function, given as an argument that is not differentiated, that captures a value of a trace further in."""
    for cell, variable in zip(getattr(argument, "__closure__", None) or (), getattr(getattr(argument, "__code__", None), "co_freevars", ())):
        try:
            value = cell.cell_contents
        except ValueError:                               # not assigned yet
            continue
        if isinstance(value, Tracer) and value._trace.alive and not any([t is value._trace for t in _around(state.trace)]):
            raise errors.UnexpectedTracerError(
                f"{function_name(argument)}, an argument of the custom_jvp function {name} that is not differentiated (nondiff_argnums), captures the variable "
                f"{variable!r}, a value of type {value.aval} that is being differentiated, of which the rule of {name} knows nothing. Make it an argument "
                f"of {name}: g, values = jax.closure_convert({function_name(argument)}, *example_args) gives the captured values as explicit arguments.")


def _around(trace):
    while trace is not None:
        yield trace
        trace = trace.parent


def _checked_tangent(tangent, primal, name: str):
    want = typeof(primal).tangent()
    if type(tangent) is Zero or want.dtype == dtypes.float0:
        return Zero(want)
    have = typeof(tangent)
    if have.shape != want.shape or have.dtype != want.dtype:
        if have.shape == want.shape and have.weak_type:
            return shapes.convert_element_type(tangent, want.dtype)
        raise TypeError(f"the jvp rule of {name} must return tangents of the types of its values: got {have} for a value of type {typeof(primal)}")
    return tangent


# --- custom_vjp ----------------------------------------------------------------------------------------------------------------------

custom_vjp_call_p = Primitive("custom_vjp_call", multiple_results=True, memoize=False, facts={"family": "higher_order"})
custom_lin_p = Primitive("custom_lin", multiple_results=True, memoize=False, facts={"family": "higher_order"})


def _vjp_call_jvp(primals, tangents, *, call, fwd, bwd, name):
    raise TypeError(f"{name} has a custom_vjp rule, which gives its derivative in reverse mode only: jvp, jacfwd and linearize's forward "
                    "evaluation are not possible. Use grad, vjp or jacrev, or define the derivative with custom_jvp.")


def _vjp_call_linearize(primals, nonzero, *, call, fwd, bwd, name):
    """The forward rule runs now; the backward rule waits in the linear program."""
    outs, residuals, _ = fwd(nonzero, *primals)
    _check_values(call, outs, "forward")
    out_types = [typeof(out).tangent() for out in outs]
    live = tuple([t.dtype != dtypes.float0 for t in out_types])
    in_types = [typeof(p) for p in primals]

    def linear(*tangents):
        results = custom_lin_p.bind(*residuals, *tangents, bwd=bwd, count=len(residuals), nonzero=tuple(nonzero),
                                    in_types=tuple(in_types), out_types=tuple(out_types), name=name)
        return [r for r, t in zip(results, live) if t]
    return outs, live, linear


def _lin_transpose(cts, *args, bwd, count, nonzero, in_types, out_types, name):
    residuals, linear = args[:count], iter(args[count:])
    results = bwd(*residuals, *[Zero(t) if type(ct) is Zero else ct for ct, t in zip(cts, out_types)])
    copies = frozenset().union(*[t.varying for t in out_types])
    for ct, live in zip(results, nonzero):
        if live and isinstance(arg := next(linear), Accumulator):
            arg.add(totals.of_copies(ct, arg.aval.update(varying=copies)))       # each copy's, even if the rule gives all the same


def _lin_forward(*args, name, **_):
    raise TypeError(f"{name} has a custom_vjp rule, so its linearization can only be transposed (vjp, grad), not applied to tangents")


custom_lin_p.facts["discharge"] = lambda trace, args, params: _lin_forward(**params)     # residuals may be refs
custom_lin_p.impl = _lin_forward
custom_lin_p.type_rule = lambda *types, out_types, **_: list(out_types)
custom_lin_p.transpose = _lin_transpose


@lowers(custom_lin_p)
def _lower_lin(e, eqn, *operands):
    _lin_forward(**eqn.params)


def _vjp_call_batch(axis, args, dims, *, call, fwd, bwd, name):
    in_types = [typeof(a) for a in args]

    def batched_fwd(nonzero, *xs):
        count = 0

        def run(*examples):
            nonlocal count
            outs, residuals, _ = fwd(nonzero, *examples)
            count = len(outs)
            return [*outs, *residuals]
        flat = _batched(run, axis, dims)(*xs)
        return flat[:count], flat[count:], None

    def batched_bwd(*flat):
        live = [i for i, x in enumerate(flat) if type(x) is not Zero]

        def run(*xs):
            given = dict(zip(live, xs))
            return bwd(*[given[i] if i in given else Zero(_example(x.aval)) for i, x in enumerate(flat)])
        outs, out_dims = _collect_zeros(run, axis, [flat[i] for i in live], [0] * len(live))
        return [_to_input(ct, d, dim, axis, t) for ct, d, dim, t in zip(outs, out_dims, dims, in_types)]
    outs = custom_vjp_call_p.bind(*args, call=_batched(call, axis, dims), fwd=batched_fwd, bwd=batched_bwd, name=name)
    return outs, [0] * len(outs)


def _example(aval, dim: int | None = 0):
    return aval if dim is None else aval.update(shape=(*aval.shape[:dim], *aval.shape[dim + 1:]))


def _to_input(ct, have, dim, axis, type_):
    """The cotangent of a batched input at its batch dimension; of one that all examples share, the sum."""
    if type(ct) is Zero:
        return Zero(type_.tangent())
    if typeof(ct).dtype == dtypes.float0:
        return Zero(type_.tangent())
    if dim is not None:
        return move_batch(ct, axis.size, have, dim)
    return shapes.reduce_sum(move_batch(ct, axis.size, have, 0), (0,))


def _vjp_call_stage(trace, args, params):
    types = [trace.atom(a).aval for a in args]
    jaxpr, consts = recorded_call(params["call"], args, types)
    fwd, bwd, count = params["fwd"], params["bwd"], len(consts)
    if count:
        const_types = [typeof(c).tangent() for c in consts]
        inner_fwd, inner_bwd = fwd, bwd
        fwd = lambda nonzero, *xs: inner_fwd(nonzero[count:], *xs[count:])
        bwd = lambda *xs: [*map(Zero, const_types), *inner_bwd(*xs)]
    return trace.record(custom_vjp_call_p, (*consts, *args), {"call": jaxpr, "fwd": fwd, "bwd": bwd, "name": params["name"]})


custom_vjp_call_p.impl = lambda *args, call, **_: run_call(call, args)
custom_vjp_call_p.type_rule = lambda *types, call, **_: call.out_types
custom_jvp_call_p.facts["varying"] = custom_vjp_call_p.facts["varying"] = lambda types, params: for_types(params["call"], types).out_types
custom_vjp_call_p.jvp, custom_vjp_call_p.linearize = _vjp_call_jvp, _vjp_call_linearize
custom_vjp_call_p.batch, custom_vjp_call_p.stage = _vjp_call_batch, _vjp_call_stage
custom_vjp_call_p.facts["discharge"] = discharge_call(custom_vjp_call_p, "call", True)
custom_vjp_call_p.effects_rule = lambda types, params: of_call(params["call"])


@lowers(custom_vjp_call_p)
def _lower_custom_vjp(e, eqn, *operands):
    return e.inline(eqn.params["call"], operands)


class CustomVJPPrimal:
    """With symbolic_zeros, what a forward rule receives for each argument: its value and whether it is differentiated."""
    __slots__ = ("value", "perturbed")

    def __init__(self, value, perturbed: bool):
        self.value, self.perturbed = value, perturbed


class custom_vjp(_Custom):
    """A function with a reverse-mode rule of the user's: `f.defvjp(fwd, bwd)`.

    fwd(*args) -> (value, residuals); bwd(residuals, cotangent of the value) -> tuple of cotangents, one for each argument
    (None for zero). nondiff_argnums: arguments that have no cotangents; bwd receives them first, fwd in their places.
    """

    def __init__(self, fun, nondiff_argnums=(), nondiff_argnames=()):
        super().__init__(fun, nondiff_argnums, nondiff_argnames)
        self.fwd = self.bwd = None
        self.symbolic_zeros = self.optimize_remat = False

    def defvjp(self, fwd: Callable, bwd: Callable, symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set the rules. symbolic_zeros: fwd gets CustomVJPPrimal objects and bwd zero cotangents as objects with shape and dtype.

        optimize_remat: where the residuals are dropped, as in the forward pass of `checkpoint`, the function runs instead of fwd. Useful where
        fwd is one opaque operation (a kernel, a callback), of which nothing could be left out. It does not go with symbolic_zeros.
        """
        if symbolic_zeros and optimize_remat:
            raise NotImplementedError("custom_vjp: optimize_remat does not go with symbolic_zeros")
        self.fwd, self.bwd, self.symbolic_zeros, self.optimize_remat = fwd, bwd, symbolic_zeros, optimize_remat

    def __call__(self, *args, **kwargs):
        if self.fwd is None:
            raise self._missing("defvjp")
        args = _bound(self.fun, args, kwargs)
        nondiff, leaves, tree, together = self._split(args)
        name, out_tree, residual_tree = function_name(self.fun), None, None

        def call(*flat):
            nonlocal out_tree
            outs, out_tree = _flatten(self.fun(*together(flat)))
            return outs
        call.__name__, call.__wrapped__ = name, self.fun

        def fwd(nonzero, *flat):
            nonlocal out_tree, residual_tree
            given = [CustomVJPPrimal(x, live) for x, live in zip(flat, nonzero)] if self.symbolic_zeros else flat
            result = self.fwd(*together(given))
            if not isinstance(result, (tuple, list)) or len(result) != 2:
                raise TypeError(f"the forward rule of {name} must return a pair (value, residuals), got {result!r:.200}")
            outs, value_tree = _flatten(result[0])
            if out_tree is None:
                out_tree = value_tree
            elif out_tree != value_tree:
                raise TypeError(f"the forward rule of {name} must return a value of the structure that {name} returns, {out_tree}, got {value_tree}")
            residuals, residual_tree = _flatten(result[1])
            for residual in residuals:
                if isinstance(residual, Cell) and residual.made_here and residual._trace is state.trace:
                    raise ValueError(f"the forward rule of {name} returned, to be kept for the backward rule, {described(residual)}, which lives as long as "
                                     "the forward rule runs: return ref[...] or freeze(ref); or make the ref outside, and pass it as an argument")
            return outs, residuals, residual_tree

        def optimized_fwd(nonzero, *flat):
            count = 0

            def forward(*flat):
                nonlocal count
                outs, residuals, _ = fwd(nonzero, *flat)
                count = len(outs)
                return [*outs, *residuals]
            outs = forward_call(forward, call, flat, ProgramInfo("custom_vjp", self.fun))
            return outs[:count], outs[count:], residual_tree

        def bwd(*flat):
            residuals, cts = flat[:residual_tree.num_leaves], flat[residual_tree.num_leaves:]
            if not self.symbolic_zeros:
                cts = [zeros(ct.aval) if type(ct) is Zero else ct for ct in cts]
            result = self.bwd(*nondiff, residual_tree.unflatten(residuals), out_tree.unflatten(cts))
            return _checked_cotangents(result, tree, leaves_types, name)
        leaves_types = [typeof(leaf) for leaf in leaves]
        outs = custom_vjp_call_p.bind(*leaves, call=call, fwd=optimized_fwd if self.optimize_remat else fwd, bwd=bwd, name=name)
        return out_tree.unflatten(outs)


def _checked_cotangents(result, tree, types: Sequence, name: str) -> list:
    """The backward rule's results, flat; None stands for zero of a whole argument or leaf."""
    children = tree.children()
    if not isinstance(result, (tuple, list)) or len(result) != len(children):
        raise TypeError(f"the backward rule of {name} must return a tuple of {len(children)} cotangents, one for each differentiated argument, "
                        f"got {result!r:.200}")
    flat: list[Any] = []
    for position, (ct, child) in enumerate(zip(result, children)):
        if ct is None:
            flat += [None] * child.num_leaves
            continue
        leaves, found = xla.registry.flatten(ct, lambda x: x is None)
        if found != child and len(leaves) == child.num_leaves and all(x is not None for x in leaves) or len(leaves) != child.num_leaves:
            raise TypeError(f"the backward rule of {name} returned a cotangent of structure {found} for argument {position}, of structure {child}")
        flat += leaves
    return [_checked_cotangent(ct, t, i, name) for i, (ct, t) in enumerate(zip(flat, types))]


def _checked_cotangent(ct, type_, position: int, name: str):
    want = type_.tangent()
    if ct is None or type(ct) is Zero or want.dtype == dtypes.float0:
        return Zero(want)
    have = typeof(ct)
    if have.dtype == dtypes.float0:
        return Zero(want)
    if have.shape != want.shape:
        raise ValueError(f"the backward rule of {name} returned a cotangent of type {have} for an input of type {type_} (input leaf {position})")
    if have.dtype != want.dtype:
        return shapes.convert_element_type(ct, want.dtype)
    return ct


def closure_convert(fun: Callable, *example_args):
    """(g, hoisted): g(*args, *hoisted) is fun(*args), with the traced values that fun captured as explicit arguments."""
    leaves, tree = _flatten(example_args)
    out_tree = None

    def flat(*xs):
        nonlocal out_tree
        outs, out_tree = _flatten(fun(*tree.unflatten(xs)))
        return outs
    jaxpr, consts = stage(flat, [typeof(leaf) for leaf in leaves], ProgramInfo("closure_convert", fun))
    moved = [i for i, c in enumerate(consts) if hasattr(c, "_trace") and dtypes.is_inexact(typeof(c).dtype)]

    def converted(*args):
        given, hoisted = args[:len(args) - len(moved)], args[len(args) - len(moved):]
        values = list(consts)
        for i, value in zip(moved, hoisted):
            values[i] = value
        return out_tree.unflatten(eval_jaxpr(jaxpr, values, *_flatten(given)[0]))
    return converted, [consts[i] for i in moved]


# --- what helps to write rules ---------------------------------------------------------------------------------------------------------

def custom_gradient(fun: Callable) -> custom_vjp:
    """A function given together with its backward rule: fun(*args) -> (value, rule), rule(cotangent of the value) -> tuple of cotangents.

    One cotangent for each argument; the rule of a function of one argument may return it by itself. What the rule reads of the computation of
    the value is saved for it. In forward mode, as for custom_vjp, there is no derivative.
    """
    def pair(*args):
        result = fun(*args)
        if not isinstance(result, (tuple, list)) or len(result) != 2 or not callable(result[1]):
            raise TypeError(f"custom_gradient: {function_name(fun)} must return a pair (value, function of its cotangent), got {result!r:.200}")
        return result

    def value(*args):
        return pair(*args)[0]

    def forward(*args):
        out, rule = pair(*args)
        leaves, tree = _flatten(out)
        rule_tree = None

        def flat(*cts):
            nonlocal rule_tree
            outs, rule_tree = _flatten(rule(tree.unflatten(cts)))
            return outs
        jaxpr, consts = stage(flat, [typeof(leaf).tangent() for leaf in leaves], ProgramInfo("custom_gradient", rule))
        return out, Partial(lambda consts, ct: rule_tree.unflatten(eval_jaxpr(jaxpr, consts, *_flatten(ct)[0])), consts)

    def backward(rule, ct):
        cts = rule(ct)
        return cts if isinstance(cts, (tuple, list)) else (cts,)
    value.__signature__ = signature_of(fun)
    wrapped = custom_vjp(functools.wraps(fun)(value))
    wrapped.defvjp(forward, backward)
    return wrapped


def zero_from_primal(val, symbolic_zeros: bool = False):
    """The zero tangent of a value: zeros of its shape (of dtype float0 for integers), or, with symbolic_zeros, an object with shape and dtype."""
    tangent = typeof(val).tangent()
    return Zero(tangent) if symbolic_zeros else zeros(tangent)


def custom_vjp_primal_tree_values(tree):
    """The values in a pytree of what forward rules receive with symbolic_zeros."""
    return tree_map(lambda x: x.value, tree, is_leaf=lambda x: type(x) is CustomVJPPrimal)
