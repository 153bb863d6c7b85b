"""checkify: run-time checks in compiled programs, as values.

A check inside a program can't raise: the program runs where there is no Python. `checkify` makes of a function one that returns, beside
its result, an `Error`, which says whether a check failed, the first one that did, and with what values.

What is threaded through a program is (code, payload): code is 0, or says which of the program's `sites` failed; the payload is the values
that the message shows, in slots that all sites of a program share. Every program returns the first error of its own; who calls it puts
these one after the other. Only loops carry an error from step to step.
"""
from __future__ import annotations

import functools
from collections import Counter
from typing import Any, Callable, NamedTuple, Sequence

import numpy as np

from lowering.emit import lowers
from mini_jax.core import dtypes, source
from mini_jax.core.effects import CheckEffect, host_effects
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import NO_EFFECTS, Jaxpr, Literal, Var, dce, function_name, memoized
from mini_jax.core.pytree import PyTreeDef, flatten, register_pytree_node_class
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.state import named_axes, state
from mini_jax.core.trace import Tracer, is_value, leaked, typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.core.types import array_type
from mini_jax.debug import Fields
from mini_jax.lax import elementwise, reductions, selection, shapes, slicing
from mini_jax.lax.identities import stop_gradient
from mini_jax.transforms.arguments import keyable
from mini_jax.transforms.jit import Options, jit_p, record, take_apart
from mini_jax.transforms.vmap import move_batch

__all__ = ["checkify", "check", "debug_check", "check_error", "Error", "ErrorCategory", "JaxRuntimeError", "init_error",
           "user_checks", "nan_checks", "index_checks", "div_checks", "float_checks", "automatic_checks", "all_checks"]


# --- kinds of errors --------------------------------------------------------------------------------------------------------------

class JaxRuntimeError(ValueError):
    """What `Error.throw` raises."""


class JaxException(Exception):
    """A failed check. The sets of checks hold its subclasses."""


class FailedCheckError(JaxException):
    """The predicate of a `check` was false."""


class NaNError(JaxException):
    """An operation on floating-point numbers made a NaN."""


class OOBError(JaxException):
    """An index, or a slice, did not lie within its array."""


class DivisionByZeroError(JaxException):
    """A divisor was zero."""


ErrorCategory = type[JaxException]

user_checks = frozenset([FailedCheckError])
nan_checks = frozenset([NaNError])
index_checks = frozenset([OOBError])
div_checks = frozenset([DivisionByZeroError])
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


class Site(NamedTuple):
    """One place in a program where a check can fail.

    kind: of error. message: a format string. tree: the structure of the arguments that it takes, (args, kwargs); types: of these, which are
    the payload. where: the user's line, undecoded.
    """
    kind: type
    message: str
    tree: PyTreeDef
    types: tuple
    where: Any

    def text(self, payload: Sequence) -> str:
        """The message, shown with the values of a payload."""
        args, kwargs = self.tree.unflatten(payload)
        place = "" if self.where is None else f" at {source.describe(self.where)}"
        return self.message.format(*args, **kwargs) + (f" (`check` failed){place}" if self.kind is FailedCheckError else f"{place}.")


def _site(kind: type, message: str, payload: Sequence, where) -> Site:
    """The site of a check that an operation brings with it; the message has a field for each value of the payload."""
    return Site(kind, message, flatten((tuple(payload), {}))[1], tuple([typeof(x).strong for x in payload]), where)


# --- errors as values ----------------------------------------------------------------------------------------------------------------

def _places(types: Sequence, slots: Sequence) -> list[int]:
    """Which slot each value of these types takes: the k-th of a type the k-th slot of that type."""
    seen: Counter = Counter()
    found = []
    for t in types:
        found.append([i for i, slot in enumerate(slots) if slot is t][seen[t]])
        seen[t] += 1
    return found


def _joined_slots(one: tuple, other: tuple) -> tuple:
    """The slots that serve both."""
    more = Counter(other) - Counter(one)
    return one + tuple(more.elements())


@register_pytree_node_class
class Error:
    """Whether a check failed, and which: a pytree, so that it can go through jit, vmap and loops.

    get(): None, or the message of the first check that failed. throw(): raises JaxRuntimeError with it. Under vmap there is an error for
    each example.
    """
    __slots__ = ("code", "payload", "sites", "slots")

    def __init__(self, code=None, payload: Sequence = (), sites: tuple = (), slots: tuple = ()):
        """code: int32, 0 or one more than the position in `sites` of the check that failed. payload: values of the types `slots`."""
        self.code, self.payload, self.sites, self.slots = np.int32(0) if code is None else code, list(payload), sites, slots

    def tree_flatten(self):
        return (self.code, self.payload), (self.sites, self.slots)

    @classmethod
    def tree_unflatten(cls, aux, children):
        code, payload = children
        return cls(code, payload, *aux)

    def get(self) -> str | None:
        """The message of the check that failed, of a batch a line for each example that has one; None where all went well."""
        if isinstance(self.code, Tracer):
            raise TypeError("Error.get() needs to know whether a check failed, and inside a traced function nothing has run yet: return the error, "
                            "and look at it outside; or hand it to check_error")
        codes = np.asarray(self.code)
        if not codes.ndim:
            return self._text(()) if codes else None
        lines = [f"at mapped index {', '.join(map(str, index))}: {self._text(tuple(index))}" for index in np.argwhere(codes).tolist()]
        return "\n".join(lines) or None

    def _text(self, index: tuple) -> str:
        site = self.sites[int(np.asarray(self.code)[index]) - 1]
        return site.text([np.asarray(self.payload[i])[index] for i in _places(site.types, self.slots)])

    def get_exception(self) -> JaxException | None:
        """The failed check as an exception that is not raised; of a batch the first one's."""
        codes = np.asarray(self.code)
        if not codes.any():
            return None
        first = tuple(np.argwhere(codes)[0].tolist()) if codes.ndim else ()
        return self.sites[int(codes[first]) - 1].kind(self._text(first))

    def throw(self) -> None:
        """Raise JaxRuntimeError (a ValueError) if a check failed."""
        text = self.get()
        if text is not None:
            raise JaxRuntimeError(text)

    def __str__(self):
        return f"Error({'traced' if isinstance(self.code, Tracer) else self.get()})"

    __repr__ = __str__


init_error = Error()


def _zeros(aval):
    return shapes.broadcast_in_dim(np.zeros((), aval.dtype)[()], aval.shape, ())


def _into(payload: Sequence, places: Sequence[int], slots: Sequence, otherwise: Sequence | None = None) -> list:
    """A payload in more slots; what is in the others: `otherwise`, or zeros."""
    found = dict(zip(places, payload))
    return [found[i] if i in found else _zeros(slot) if otherwise is None else otherwise[i] for i, slot in enumerate(slots)]


def _widened(error: Error, slots: tuple) -> list:
    return _into(error.payload, _places(error.slots, slots), slots)


def _chosen(pred, x, y):
    return selection.select(shapes.broadcast_in_dim(pred, typeof(x).shape, ()), x, y)


def _then(first: Error, second: Error) -> Error:
    """The first of two errors, one after the other."""
    if not second.sites:
        return first
    if not first.sites:
        return second
    slots = _joined_slots(first.slots, second.slots)
    good = elementwise.eq(first.code, np.int32(0))
    moved = _chosen(elementwise.eq(second.code, np.int32(0)), second.code, elementwise.add(second.code, np.int32(len(first.sites))))
    payload = [_chosen(good, b, a) for a, b in zip(_widened(first, slots), _widened(second, slots))]
    return Error(_chosen(good, moved, first.code), payload, first.sites + second.sites, slots)


def _first_of_batch(code, payload: Sequence, sites: tuple, slots: tuple) -> Error:
    """The error of the first example that has one, of errors with leading dimensions."""
    shape = typeof(code).shape
    if not shape:
        return Error(code, payload, sites, slots)
    if 0 in shape:
        return Error()
    flat = shapes.reshape(code, (typeof(code).size,))
    index = reductions.argmax(elementwise.ne(flat, np.int32(0)), 0, dtypes.int32)
    pick = lambda x, rest: slicing.dynamic_index_in_dim(shapes.reshape(x, (typeof(code).size, *rest)), index, 0, keepdims=False)
    return Error(pick(flat, ()), [pick(x, t.shape) for x, t in zip(payload, slots)], sites, slots)


# --- checks --------------------------------------------------------------------------------------------------------------------------

check_p = Primitive("check", multiple_results=True, memoize=False, facts={"family": "checks"})


@boundary
def check(pred, msg: str, *fmt_args, debug: bool = False, **fmt_kwargs) -> None:
    """An error with the message msg.format(*fmt_args, **fmt_kwargs) unless pred holds.

        check(x > 0, "x must be positive, got {x}", x=x)

    pred: a boolean scalar. fmt_args, fmt_kwargs: pytrees of arrays, whose values the message shows. Called on values, it raises
    JaxRuntimeError (a ValueError) at once. In a function that is compiled, or part of a loop or a branch, it needs `checkify` around it,
    which makes the error a value; without it, ValueError. debug: without checkify the check is left out, on values too.
    Raises TypeError for a predicate that is no boolean scalar and for arguments that are no arrays, KeyError or IndexError for a field of
    the message without an argument.
    """
    try:
        aval = typeof(pred)
    except TypeError:
        aval = None
    if aval is None or not dtypes.is_bool(aval.dtype) or aval.shape:
        raise TypeError(f"check takes a boolean scalar first, got {repr(pred)[:200] if aval is None else aval}" + (
            "; reduce it with .all()" if aval is not None and aval.shape else ""))
    if not isinstance(msg, str):
        raise TypeError(f"check takes a message, a format string, got {msg!r:.200} of type {type(msg).__name__}")
    if "Tracer<" in msg:
        raise ValueError(f"check was given the text of a traced value: {msg!r:.200}. Leave the f before the string away and pass the values "
                         "as arguments: check(x > 0, 'x = {x}', x=x)")
    Fields("check", all_used=False).vformat(msg, fmt_args, fmt_kwargs)
    leaves, tree = flatten((fmt_args, fmt_kwargs))
    for leaf in leaves:
        if not is_value(leaf):
            raise TypeError(f"check: arguments of the message are pytrees of arrays, got {leaf!r:.200} of type {type(leaf).__name__}; write what is no "
                            "array into the message itself")
    site = Site(FailedCheckError, msg, tree, tuple([typeof(leaf).strong for leaf in leaves]), source.capture(2))
    _bind_error(Error(selection.select(pred, np.int32(0), np.int32(1)), leaves, (site,), site.types), debug)


def debug_check(pred, msg: str, *fmt_args, **fmt_kwargs) -> None:
    """`check`, which is left out where there is no `checkify` around it."""
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


@boundary
def check_error(error: Error) -> None:
    """Raise what `error` says failed, as a `check` there would: at once on values, and as an error of the `checkify` around it in a
    function that is compiled. Raises TypeError for what is no Error."""
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error, as a checkified function returns it, got {error!r:.200} of type {type(error).__name__}")
    if error.sites:
        _bind_error(error, False)


def _bind_error(error: Error, debug: bool) -> None:
    check_p.bind(error.code, *error.payload, sites=error.sites, slots=error.slots, debug=debug)


def _impl(code, *payload, sites, slots, debug):
    for arg in (code, *payload):
        if isinstance(arg, Tracer):
            raise leaked(arg)
    if not debug and np.any(np.asarray(code)):
        codes = np.asarray(code)
        first = tuple(np.argwhere(codes)[0]) if codes.ndim else ()
        raise JaxRuntimeError(Error(codes[first], [np.asarray(x)[first] for x in payload], sites, slots).get())
    return []


def _batch(axis, args, dims, **params):
    return check_p.bind(*[move_batch(a, axis.size, d, 0) for a, d in zip(args, dims)], **params), []


def _where(primitive, mask, args, params):
    code, *payload = args
    return check_p.bind(selection.select(shapes.broadcast_in_dim(mask, typeof(code).shape, ()), code, _zeros(typeof(code))), *payload, **params)


def _no_transpose(cts, *args, **params):
    raise ValueError("a check of cotangents, which reverse mode makes, has no values yet while it is recorded; put it in the backward rule of a custom_vjp")


check_p.type_rule, check_p.impl, check_p.batch = lambda *types, **_: [], _impl, _batch
check_p.effects_rule = lambda types, params: frozenset([CheckEffect(params["debug"])])
check_p.jvp, check_p.transpose = lambda primals, tangents, **params: (check_p.bind(*primals, **params), []), _no_transpose
check_p.facts["where"] = _where


@lowers(check_p)
def _lower(e, eqn, *operands):
    if eqn.params["debug"]:
        return []
    where = eqn.params["sites"][0].where
    raise ValueError("Cannot abstractly evaluate a checkify.check which was not functionalized"
                     + (f" ({source.describe(where)})" if where is not None else "")
                     + ": a compiled program can't raise. Put checkify around the function that is compiled, as in jit(checkify(f)), and look at the "
                       "error that it returns; or use debug_check, which is left out here.")


# --- programs that return their first error ---------------------------------------------------------------------------------------------

class Checked(NamedTuple):
    """A program (inputs) -> (code, payload, outputs), without code and payload where it has no sites."""
    jaxpr: Jaxpr
    sites: tuple
    slots: tuple

    @property
    def count(self) -> int:
        """How many results are those of the error."""
        return 1 + len(self.slots) if self.sites else 0

    def split(self, outs: Sequence) -> tuple[Error, list]:
        """The results as the error and the outputs."""
        return self.error(outs), list(outs[self.count:])

    def error(self, outs: Sequence) -> Error:
        return Error(outs[0], outs[1:self.count], self.sites, self.slots) if self.sites else Error()


def _flat(error: Error, sites: tuple, slots: tuple, offset: int = 0) -> list:
    """An error as results for these sites, among which its own begin at `offset`, and slots."""
    if not sites:
        return []
    code = error.code
    if error.sites and offset:
        code = _chosen(elementwise.eq(code, np.int32(0)), code, elementwise.add(code, np.int32(offset)))
    return [code, *_widened(error, slots)]


@memoized
def checked(jaxpr: Jaxpr, errors: frozenset, silent: bool = False) -> Checked:
    """The program that also returns its first error of the kinds `errors`. silent: without its prints and other debug callbacks."""
    found = Error()

    def fun(*args):
        nonlocal found
        found, outs = _interpret(jaxpr, errors, silent, args)
        return [*_flat(found, found.sites, found.slots), *outs]
    program, consts = stage(fun, jaxpr.in_types, jaxpr.info)
    assert not consts, "a closed program has no constants"
    return Checked(program, found.sites, found.slots)


def _interpret(jaxpr: Jaxpr, errors: frozenset, silent: bool, args: Sequence) -> tuple[Error, list]:
    env: dict[Var, Any] = dict(zip(jaxpr.invars, args, strict=True))
    value = lambda atom: atom.val if type(atom) is Literal else env[atom]
    error, saved = Error(), state.source
    try:
        for eqn in jaxpr.eqns:
            state.source = eqn.source
            if silent and eqn.primitive.name == "debug_callback":
                continue
            values = [value(v) for v in eqn.invars]
            rule = _rules.get(eqn.primitive.name)
            if rule is not None:
                new, outs = rule(eqn, values, errors, silent)
            else:
                if any([type(effect) is CheckEffect for effect in eqn.effects]):
                    raise NotImplementedError(f"checkify: there is no rule for checks inside of {eqn.primitive.name}")
                out = eqn.primitive.bind(*values, **eqn.params)
                outs = out if eqn.primitive.multiple_results else [out]
                new = Error()
                for kind, rule in _automatic:
                    if kind in errors:
                        new = _then(new, rule(eqn, values, outs))
            error = _then(error, new)
            env.update(zip(eqn.outvars, outs, strict=True))
    finally:
        state.source = saved
    return error, [value(v) for v in jaxpr.outvars]


# --- checks that operations bring with them -----------------------------------------------------------------------------------------------

def _failing(bad, site: Site, payload: Sequence = ()) -> Error:
    """An error at this site if any of `bad` holds."""
    return Error(selection.select(reductions.reduce_or(bad, tuple(range(typeof(bad).ndim))), np.int32(1), np.int32(0)), payload, (site,), site.types)


_MAKE_NUMBERS = frozenset(["elementwise", "reductions", "cumulative", "dot", "convolution", "windows", "fft", "linalg"])


def _nans(eqn, values, outs) -> Error:
    """Of an operation that computes: a NaN among its results."""
    error = Error()
    if eqn.primitive.facts.get("family") not in _MAKE_NUMBERS:
        return error
    for out in outs:
        if dtypes.is_inexact(typeof(out).dtype):
            out = stop_gradient(out)
            error = _then(error, _failing(elementwise.ne(out, out), _site(NaNError, f"nan generated by primitive: {eqn.primitive.name}", (), eqn.source)))
    return error


def _zero_divisors(eqn, values, outs) -> Error:
    if eqn.primitive.name != "div":
        return Error()
    divisor = stop_gradient(values[1])
    return _failing(elementwise.eq(divisor, _zeros(typeof(divisor))), _site(DivisionByZeroError, "division by zero", (), eqn.source))


def _outside(eqn, values, outs) -> Error:
    """Of gathers, scatters and dynamic slices: where a window does not lie within the operand."""
    name = eqn.primitive.name
    if name in ("dynamic_slice", "dynamic_update_slice"):
        operand = typeof(values[0])
        sizes = eqn.params["slice_sizes"] if name == "dynamic_slice" else typeof(values[1]).shape
        starts, dims = [_int32(i) for i in values[1 + (name != "dynamic_slice"):]], range(operand.ndim)
    elif name == "gather" or name.startswith("scatter"):
        operand, indices = typeof(values[0]), values[1]
        numbers = eqn.params["dimension_numbers"]
        dims, rank = numbers[2], typeof(indices).ndim
        if name == "gather":
            sizes = eqn.params["slice_sizes"]
        else:                                            # the window's sizes are those of the updates' window dimensions
            windows = iter([typeof(values[2]).shape[d] for d in numbers[0]])
            inserted = {*numbers[1], *numbers[3]}
            sizes = [1 if d in inserted else next(windows) for d in range(operand.ndim)]
        starts = [_int32(slicing.index_in_dim(indices, k, rank - 1, keepdims=False)) for k in range(len(dims))]
    else:
        return Error()
    error = Error()
    for start, d in zip(starts, dims):
        if typeof(start).size == 0:
            continue
        last = np.int32(operand.shape[d] - sizes[d])
        start = shapes.reshape(start, (typeof(start).size,))
        spread = lambda x: shapes.broadcast_in_dim(x, typeof(start).shape, ())
        bad = elementwise.bitwise_or(elementwise.lt(start, spread(np.int32(0))), elementwise.gt(start, spread(last)))
        first = slicing.dynamic_index_in_dim(start, reductions.argmax(bad, 0, dtypes.int32), 0, keepdims=False)
        window = "" if sizes[d] == 1 else f" for a window of size {sizes[d]}"
        site = _site(OOBError, f"out-of-bounds indexing for array of shape {operand.shape}: index {{}} is out of bounds for axis {d} "
                               f"with size {operand.shape[d]}{window}", (first,), eqn.source)
        error = _then(error, _failing(bad, site, (first,)))
    return error


def _int32(index):
    """An index as int32; one that is too large for it as the largest."""
    aval = typeof(index)
    limits = dtypes.iinfo(dtypes.int32)
    if dtypes.iinfo(aval.dtype).max > limits.max:
        low = 0 if dtypes.is_unsigned(aval.dtype) else limits.min
        index = selection.clamp(aval.dtype.type(low), index, aval.dtype.type(limits.max))
    return shapes.convert_element_type(index, dtypes.int32)


_automatic = [(DivisionByZeroError, _zero_divisors), (NaNError, _nans), (OOBError, _outside)]


# --- rules -----------------------------------------------------------------------------------------------------------------------------

def _check(eqn, values, errors, silent):
    sites, slots = eqn.params["sites"], eqn.params["slots"]
    if not errors & {site.kind for site in sites}:
        return Error(), []
    return _first_of_batch(stop_gradient(values[0]), [stop_gradient(x) for x in values[1:]], sites, slots), []


def _call(eqn, values, errors, silent):
    inner = checked(eqn.params["jaxpr"], errors, silent)
    return inner.split(eqn.primitive.bind(*values, **eqn.params | {"jaxpr": inner.jaxpr}))


def _custom(eqn, values, errors, silent):
    """A function with rules of the user's keeps them: its error comes from a second run of it, for the error alone, which the compiler
    finds to be the first. Where it does input and output, which must not be twice, it runs as if it had no rules."""
    call = eqn.params["call"]
    inner = checked(call, errors, silent)
    if not inner.sites:
        return Error(), eqn.primitive.bind(*values, **eqn.params | {"call": inner.jaxpr})
    if any([effect.kind == "io" for effect in host_effects(call.effects)]):
        return inner.split(eval_jaxpr(inner.jaxpr, (), *values))
    quiet = checked(call, errors, True)
    alone = dce(quiet.jaxpr.replace(outvars=quiet.jaxpr.outvars[:quiet.count], effects=NO_EFFECTS))
    error = quiet.error(eval_jaxpr(alone, (), *[stop_gradient(v) for v in values]))
    return error, eqn.primitive.bind(*values, **eqn.params | {"call": checked(call, frozenset(), silent).jaxpr})


class _Together(NamedTuple):
    """Checked programs that return errors of one form: of all their sites, in all their slots."""
    programs: tuple
    sites: tuple
    slots: tuple


@memoized
def _alike(first: Jaxpr, rest: tuple, errors: frozenset, silent: bool) -> _Together:
    parts = [checked(jaxpr, errors, silent) for jaxpr in (first, *rest)]
    sites, slots, offsets = (), (), []
    for part in parts:
        offsets.append(len(sites))
        sites, slots = sites + part.sites, _joined_slots(slots, part.slots)

    def program(part: Checked, offset: int) -> Jaxpr:
        def fun(*args):
            error, outs = part.split(eval_jaxpr(part.jaxpr, (), *args))
            return [*_flat(error, sites, slots, offset), *outs]
        return stage(fun, part.jaxpr.in_types, part.jaxpr.info)[0]
    return _Together(tuple([program(part, offset) for part, offset in zip(parts, offsets)]), sites, slots)


def _cond(eqn, values, errors, silent):
    first, *rest = eqn.params["branches"]
    inner = _alike(first, tuple(rest), errors, silent)
    outs = eqn.primitive.bind(*values, branches=inner.programs)
    return Checked(inner.programs[0], inner.sites, inner.slots).split(outs)


def _error_types(jaxpr: Jaxpr, slots: tuple) -> list:
    """The types of an error that a loop carries: it varies over the named axes over which anything in it does."""
    varying = NO_EFFECTS.union(*[t.varying for t in [*jaxpr.in_types, *jaxpr.out_types]])
    return [t.update(varying=varying) for t in (array_type((), dtypes.int32), *slots)]


def _no_error_yet(slots: Sequence) -> list:
    return [np.int32(0), *map(_zeros, slots)]


@memoized
def _step(jaxpr: Jaxpr, num_consts: int, errors: frozenset, silent: bool) -> tuple[Jaxpr, Checked]:
    """The body of a scan, (consts; error, carry; x) -> (error, carry, y)."""
    inner = checked(jaxpr, errors, silent)
    if not inner.sites:
        return inner.jaxpr, inner

    def fun(*args):
        consts, error, others = args[:num_consts], args[num_consts:num_consts + inner.count], args[num_consts + inner.count:]
        new, outs = inner.split(eval_jaxpr(inner.jaxpr, (), *consts, *others))
        return [*_carried(inner, error, new), *outs]
    types = jaxpr.in_types
    return stage(fun, [*types[:num_consts], *_error_types(jaxpr, inner.slots), *types[num_consts:]], jaxpr.info)[0], inner


def _carried(inner, before: Sequence, new: Error) -> list:
    """The error after a step: the one before it, or that of the step."""
    good = elementwise.eq(before[0], np.int32(0))
    return [_chosen(good, b, a) for a, b in zip(before, [new.code, *new.payload])]


def _scan(eqn, values, errors, silent):
    params = eqn.params
    num_consts = params["num_consts"]
    body, inner = _step(params["jaxpr"], num_consts, errors, silent)
    start = _no_error_yet(inner.slots) if inner.sites else []
    outs = eqn.primitive.bind(*values[:num_consts], *start, *values[num_consts:],
                              **params | {"jaxpr": body, "num_carry": params["num_carry"] + len(start)})
    return inner.split(outs)


@memoized
def _while_step(body: Jaxpr, condition: Jaxpr, cond_nconsts: int, body_nconsts: int, errors: frozenset, silent: bool):
    """(condition, body, first), whose carry is (error, whether to go on, carry). first: the condition before the first step."""
    inner = _alike(body, (condition,), errors, silent)
    checked_body, checked_condition = inner.programs
    split = Checked(checked_body, inner.sites, inner.slots).split

    def fun(*args):
        cond_consts, body_consts = args[:cond_nconsts], args[cond_nconsts:cond_nconsts + body_nconsts]
        error, carry = args[cond_nconsts + body_nconsts:-len(body.outvars) - 1 or None], args[len(args) - len(body.outvars):]
        stepped, carry = split(eval_jaxpr(checked_body, (), *body_consts, *carry))
        asked, (pred,) = split(eval_jaxpr(checked_condition, (), *cond_consts, *carry))
        error = _carried(inner, _carried(inner, error, stepped), asked)
        return [*error, pred, *carry]
    carried = body.in_types[body_nconsts:]
    state_types = [*_error_types(body, inner.slots), condition.out_types[0], *carried]
    step = stage(fun, [*condition.in_types[:cond_nconsts], *body.in_types[:body_nconsts], *state_types], body.info)[0]
    count = 1 + len(inner.slots)
    going = stage(lambda *args: [args[count]], state_types, condition.info)[0]
    return going, step, inner


def _while(eqn, values, errors, silent):
    """The error of the condition is one of the body: it is asked before the first step, and after each."""
    params = eqn.params
    first, second = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
    going, step, inner = _while_step(params["body_jaxpr"], params["cond_jaxpr"], first, params["body_nconsts"], errors, silent)
    split = Checked(step, inner.sites, inner.slots).split
    if not inner.sites:
        return Error(), eqn.primitive.bind(*values, **params | {"body_jaxpr": inner.programs[0], "cond_jaxpr": inner.programs[1]})
    error, (pred,) = split(jit_p.bind(*values[:first], *values[second:], jaxpr=inner.programs[1], name="condition"))
    outs = eqn.primitive.bind(*values[:second], error.code, *error.payload, pred, *values[second:], cond_jaxpr=going, body_jaxpr=step,
                              cond_nconsts=0, body_nconsts=second)
    error, (_, *carry) = split(outs)
    return error, carry


def _pmap(eqn, values, errors, silent):
    """Of the replicas' errors, the first one's."""
    params = eqn.params
    with named_axes({params["axis_name"]: params["axis_size"]}, spread=True):
        inner = checked(params["jaxpr"], errors, silent)
    outs = eqn.primitive.bind(*values, **params | {"jaxpr": inner.jaxpr, "out_dims": (0,) * inner.count + params["out_dims"]})
    error, outs = inner.split(outs)
    return (_first_of_batch(error.code, error.payload, inner.sites, inner.slots) if inner.sites else error), outs


_rules = {"check": _check, "cond": _cond, "scan": _scan, "while": _while, "pmap": _pmap,
          **dict.fromkeys(["jit", "checkpoint"], _call), **dict.fromkeys(["custom_jvp_call", "custom_vjp_call", "custom_vmap_call"], _custom)}


# --- the transformation ---------------------------------------------------------------------------------------------------------------

def checkify(f: Callable, errors: frozenset = user_checks) -> Callable:
    """The function (arguments of f) -> (Error, result of f): f with its checks as a value.

    errors: which checks there are. user_checks: those written with `check`. nan_checks: a NaN among the results of an operation.
    div_checks: a divisor that is zero. index_checks: an index, or a slice, that is not within its array. float_checks: nan and div;
    automatic_checks: all but user_checks; all_checks. They are sets, and can be joined with |.
    The error is the first that occurs. The function can be compiled, mapped, differentiated; its checks may stand in jitted functions, loops,
    branches and mapped functions.

    >>> def f(x):
    ...     check(x > 0, "x must be positive, got {x}", x=x)
    ...     return jnp.log(x)
    >>> error, y = jit(checkify(f))(-1.0)
    >>> error.throw()          # JaxRuntimeError: x must be positive, got -1.0

    Raises TypeError for an f that is no function and for errors that are no set of checks.
    """
    if not callable(f):
        raise TypeError(f"checkify takes a function, got {f!r:.200} of type {type(f).__name__}")
    try:
        errors = frozenset(errors)
    except TypeError:
        errors = frozenset([None])
    if not errors <= all_checks:
        raise TypeError("checkify: errors is a set of checks, as checkify.user_checks, or several joined with |")
    fun = keyable(f)

    @boundary
    def checkified(*args, **kwargs):
        call = take_apart(fun, Options(), args, kwargs)
        traced = record(fun, Options(), call, "checkify")
        program = checked(traced.callee, errors)
        error, outs = program.split(jit_p.bind(*traced.consts, *call.leaves, jaxpr=program.jaxpr, name=function_name(fun)))
        return error, traced.out_tree.unflatten(outs)
    return functools.update_wrapper(checkified, f, updated=())
