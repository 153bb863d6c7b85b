"""scan: a loop of known length that carries a state, reads one row of `xs` at each step and writes one row of `ys`.

    scan_p   consts, carry, xs -> carry, ys     with the body (consts, carry, x) -> (carry, y)

Its derivatives stand in scan_derivatives.py.
"""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from lowering.emit import lowers
from mini_jax.core import dtypes, errors
from mini_jax.core.effects import of_call
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo, Var, dce, memoized
from mini_jax.core.pytree import PyTreeDef
from mini_jax.core.staging import settled
from mini_jax.core.trace import Tracer, typeof, whence
from mini_jax.core.tracebacks import boundary
from mini_jax.core.types import array_type
from mini_jax.lax import shapes, slicing
from mini_jax.runtime import dispatch
from mini_jax.transforms.arguments import keyable
from mini_jax.transforms.control.bodies import Body, body_info, check_arrays, check_callable, flat_result, flatten, record_carrying, tree_paths, value_types
from mini_jax.transforms.control.pieces import chosen, given, joined
from mini_jax.transforms.control.running import run_compiled
from mini_jax.transforms.vmap import batch_jaxpr, move_batch

__all__ = ["scan", "scan_p"]

scan_p = Primitive("scan", multiple_results=True, memoize=False, facts={"family": "higher_order", "parts": True})


# --- the function ---------------------------------------------------------------------------------------------------------------

@boundary
def scan(f: Callable, init, xs=None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1, _split_transpose: bool = False):
    """A loop over the leading axis of `xs`, carrying a state from step to step, as one operation that is compiled once.

        carry = init
        for i in range(length):
            carry, ys[i] = f(carry, xs[i])
        return carry, ys

    f: (carry, x) -> (carry, y), on pytrees of arrays; None stands for no arrays. It keeps the carry's structure, shapes and dtypes
        (a Python scalar in `init` takes the dtype that the body gives it).
    xs: a pytree of arrays of one leading size, or None. length: the number of steps, needed where xs has no arrays.
    reverse: from the last step to the first; ys[i] still belongs to xs[i].
    unroll: how many steps are written out in one turn of the loop; True: all of them.
    _split_transpose: accepted, and changes nothing: what the backward pass can compute outside of its loop, it does (docs/control_flow.md).
    Returns (carry, ys), ys with the leading axis added. All transformations go through it, in both modes of differentiation.
    Raises TypeError where the body doesn't return such a pair or its carry changes type, ValueError where leading sizes disagree.
    """
    check_callable(f, "scan: f")
    init_leaves, init_tree = flatten(init)
    leaves, tree = flatten((init, xs))
    xs_leaves, xs_tree = leaves[len(init_leaves):], flatten(xs)[1]
    length = steps("scan", xs_leaves, xs_tree, length)
    if dispatch.disabled():
        return in_python(f, init, xs_leaves, xs_tree, length, bool(reverse))
    outs, (_, y_tree) = scan_flat(f, "scan", _apply, tree, init_leaves, init_tree, xs_leaves, length, bool(reverse), turns(unroll, length))
    count = len(init_leaves)
    return init_tree.unflatten(outs[:count]), y_tree.unflatten(outs[count:])


def _apply(f: Callable, info: ProgramInfo, carry, x):
    out = f(carry, x)
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(f"scan: {info.name} must return a pair (carry, y), got {out!r:.200} of type {type(out).__name__}; "
                        "y may be None")
    carry_leaves, carry_tree = flat_result(out[0], info)
    y_leaves, y_tree = flat_result(out[1], info)
    return [*carry_leaves, *y_leaves], (carry_tree, y_tree)


def scan_flat(fun: Callable, what: str, apply: Callable, tree: PyTreeDef, init: Sequence, carry_tree: PyTreeDef, xs: Sequence, length: int,
              reverse: bool, unroll: int, counters: int = 0) -> tuple[list, Any]:
    """A scan on flat values, of a body given as for `record_carrying`. Returns the flat results and the structure that apply gave."""
    fun = keyable(fun)
    info = body_info(what, fun, tree)
    check_arrays([*init, *xs], info)
    x_types = tuple([t.update(shape=t.shape[1:]) for t in value_types(xs, info)])
    body, init = record_carrying(fun, what, apply, tree, init, x_types, carry_tree, counters)
    return _bind(body, init, xs, length, reverse, unroll), body.structure


def _bind(body: Body, init: Sequence, xs: Sequence, length: int, reverse: bool, unroll: int) -> list:
    """Apply the primitive to what of the body is a loop: a carry that never changes is a constant, a y that is an x is that x."""
    count, num_consts = len(init), len(body.consts)
    simpler, fixed, sources = _simplified(body.jaxpr, num_consts, count)
    jaxpr = simpler or body.jaxpr
    if jaxpr.outvars or jaxpr.effects:
        if any(fixed):
            consts, carry = [*body.consts, *chosen(init, fixed)], [v for v, same in zip(init, fixed) if not same]
        else:
            consts, carry = body.consts, init
        outs = scan_p.bind(*consts, *carry, *xs, jaxpr=jaxpr, length=length, reverse=reverse, unroll=unroll,
                           num_consts=len(consts), num_carry=len(carry))
    else:
        outs, carry = [], ()
    if simpler is None:
        return outs
    ys = iter(outs[len(carry):])
    return [*given(outs[:len(carry)], [not same for same in fixed], init),
            *[next(ys) if source is None else _as_array(xs[source]) for source in sources]]


def _as_array(x):
    return x if hasattr(x, "aval") else dispatch.device_put(x)


@memoized
def _simplified(jaxpr: Jaxpr, num_consts: int, num_carry: int) -> tuple[Jaxpr | None, tuple[bool, ...], tuple]:
    """The body without carries that it hands on as they are, which become constants, and without outputs that are an input x; None where
    there are none of either.

    Returns with it which carries those are and, for each y, the x that it is or None.
    """
    inputs = jaxpr.invars[num_consts:num_consts + num_carry]
    fixed = tuple([a is b for a, b in zip(inputs, jaxpr.outvars)])
    places = {var: i for i, var in enumerate(jaxpr.invars[num_consts + num_carry:])}
    sources = tuple([places.get(atom) if type(atom) is Var else None for atom in jaxpr.outvars[num_carry:]])
    if not any(fixed) and all([s is None for s in sources]):
        return None, fixed, sources
    free = [not same for same in fixed]
    invars = [*jaxpr.invars[:num_consts], *chosen(inputs, fixed), *chosen(inputs, free), *jaxpr.invars[num_consts + num_carry:]]
    outvars = [*chosen(jaxpr.outvars, free), *chosen(jaxpr.outvars[num_carry:], [s is None for s in sources])]
    return jaxpr.replace(invars=invars, outvars=outvars), fixed, sources


# --- arguments --------------------------------------------------------------------------------------------------------------------

def steps(what: str, xs: Sequence, tree: PyTreeDef, length=None) -> int:
    """The number of steps; ValueError where sizes disagree or nothing says it."""
    sizes = set()
    for position, x in enumerate(xs):
        try:
            shape = typeof(x).shape
        except TypeError:
            raise TypeError(f"{what}: {tree_paths(tree, 'xs')[position]} is {x!r:.200} of type {type(x).__name__}, which is not an array") from None
        if not shape:
            raise ValueError(f"{what}: {tree_paths(tree, 'xs')[position]} has type {typeof(x)}, which has no leading axis to go along; "
                             "let the function use it without passing it in xs")
        sizes.add(shape[0])
    if length is not None:
        length = _whole(length)
        if length < 0:
            raise ValueError(f"{what}: length is a number of steps, at least 0, got {length}")
        if sizes and sizes != {length}:
            raise ValueError(f"{what}: length is {length}, but\n" + _sizes(xs, tree))
        return length
    if len(sizes) == 1:
        return sizes.pop()
    if not sizes:
        raise ValueError(f"{what}: xs holds no arrays" + (", so give the number of steps with length=" if what == "scan" else ""))
    raise ValueError(f"{what}: the arrays of xs must have one leading size, but\n" + _sizes(xs, tree))


def _whole(length) -> int:
    if isinstance(length, Tracer):
        raise errors.concretization(str(length.aval), whence(length), needed="The length of a scan", instead=(
            "A scan has a length that is known while tracing. For a number of steps that is not, use while_loop or fori_loop."))
    try:
        whole = int(length)
    except (TypeError, ValueError):
        whole = None
    if whole is None or whole != length:
        raise TypeError(f"scan: length is an int, got {length!r:.200} of type {type(length).__name__}")
    return whole


def _sizes(xs: Sequence, tree: PyTreeDef) -> str:
    return "\n".join([f"  {path} has leading size {typeof(x).shape[0]} (type {typeof(x)})" for path, x in zip(tree_paths(tree, "xs"), xs)])


def turns(unroll, length: int) -> int:
    """unroll as a positive number of steps."""
    if unroll is True:
        return max(length, 1)
    if isinstance(unroll, (bool, int, np.integer)) and unroll >= 0:
        return max(int(unroll), 1)
    raise ValueError(f"scan: unroll is a number of steps, at least 1, or True for all, got {unroll!r:.200}")


def in_python(f: Callable, init, xs: Sequence, tree: PyTreeDef, length: int, reverse: bool):
    """The loop as Python runs it, for disable_jit."""
    carry, rows = init, [None] * length
    for i in (range(length - 1, -1, -1) if reverse else range(length)):
        x = tree.unflatten([slicing.index_in_dim(leaf, i, 0, keepdims=False) for leaf in xs])
        info = ProgramInfo("scan", f)
        leaves, (carry_tree, y_tree) = _apply(f, info, carry, x)
        carry, rows[i] = carry_tree.unflatten(leaves[:carry_tree.num_leaves]), leaves[carry_tree.num_leaves:]
    if not length:                                   # the types of ys are known by recording the body
        init_leaves, init_tree = flatten(init)
        full, whole = flatten((init, tree.unflatten(xs)))
        outs, (_, y_tree) = scan_flat(f, "scan", _apply, whole, init_leaves, init_tree, full[len(init_leaves):], 0, reverse, 1)
        return init, y_tree.unflatten(outs[len(init_leaves):])
    return carry, y_tree.unflatten([slicing.concatenate([shapes.expand_dims(y, (0,)) for y in ys], 0) for ys in zip(*rows)])


# --- rules ------------------------------------------------------------------------------------------------------------------------

def types_of(*types, jaxpr: Jaxpr, length: int, num_carry: int, **_):
    outs = jaxpr.out_types
    return [*outs[:num_carry], *[t.update(shape=(length, *t.shape)) for t in outs[num_carry:]]]


def _varying(types: tuple, params: dict) -> list:
    num_carry = params["num_carry"]
    outs = settled(params["jaxpr"], body_types(types, params["num_consts"], num_carry), slice(params["num_consts"], params["num_consts"] + num_carry))
    return [*outs[:num_carry], *[t.update(shape=(params["length"], *t.shape)) for t in outs[num_carry:]]]


def body_types(types: Sequence, num_consts: int, num_carry: int) -> tuple:
    """The types of the body's inputs, at the first step, from those of the scan's."""
    consts, carry, xs = in_three(types, num_consts, num_carry)
    return (*consts, *carry, *[t.update(shape=t.shape[1:]) for t in xs])


def in_three(values: Sequence, num_consts: int, num_carry: int) -> tuple:
    """Values that go with the inputs, in three: of the constants, the carry and xs."""
    return values[:num_consts], values[num_consts:num_consts + num_carry], values[num_consts + num_carry:]


@memoized
def _batched_body(jaxpr: Jaxpr, num_consts: int, num_carry: int, axis, dims: tuple) -> tuple:
    """The batched body, its constants, the batch dimensions of its outputs, and which carries are batched, at dimension 0: those that
    are before the first step or after any."""
    consts, carry, xs = in_three(dims, num_consts, num_carry)
    ys = (None,) * (len(jaxpr.outvars) - num_carry)
    while True:
        body = batch_jaxpr(jaxpr, axis, (*consts, *carry, *xs), (*carry, *ys))
        grown = tuple([0 if d is not None else None for d in body.out_dims[:num_carry]])
        if grown == carry:
            return *body, carry
        carry = grown


def _batch(axis, args, dims, *, jaxpr, num_consts, num_carry, **params):
    consts, init, xs = in_three(args, num_consts, num_carry)
    const_dims, init_dims, x_dims = in_three(dims, num_consts, num_carry)
    xs = [shapes.moveaxis(x, 0, 1) if d == 0 else x for x, d in zip(xs, x_dims)]        # the leading axis stays that of the steps
    x_dims = [None if d is None else max(d - 1, 0) for d in x_dims]
    carry = [None if d is None else 0 for d in init_dims]
    body, new, out_dims, carry = _batched_body(jaxpr, num_consts, num_carry, axis, (*const_dims, *carry, *x_dims))
    init = [v if want is None else move_batch(v, axis.size, have, 0) for v, have, want in zip(init, init_dims, carry)]
    outs = scan_p.bind(*new, *consts, *init, *xs, jaxpr=body, num_consts=len(new) + num_consts, num_carry=num_carry, **params)
    return outs, [*carry, *[None if d is None else d + 1 for d in out_dims[num_carry:]]]


@memoized
def _live(jaxpr: Jaxpr, num_consts: int, num_carry: int, used: tuple[bool, ...]) -> tuple[Jaxpr, tuple[bool, ...], tuple[bool, ...]]:
    """The body without what the used results don't depend on, at this step or a later one; which inputs and which outputs are left."""
    carry, ys = used[:num_carry], used[num_carry:]
    while True:
        body, read = dce(jaxpr, (*carry, *ys), keep_inputs=False)
        of_consts, of_carry, of_xs = in_three(read, num_consts, num_carry)
        if joined(carry, of_carry) == carry:
            break
        carry = joined(carry, of_carry)
    inputs = (*of_consts, *carry, *of_xs)
    return body.replace(invars=chosen(jaxpr.invars, inputs)), inputs, (*carry, *ys)


def _dce(eqn, used):
    num_consts, num_carry = eqn.params["num_consts"], eqn.params["num_carry"]
    jaxpr, inputs, outputs = _live(eqn.params["jaxpr"], num_consts, num_carry, tuple(used))
    counts = {"num_consts": sum(inputs[:num_consts]), "num_carry": sum(outputs[:num_carry])}
    return eqn.replace(invars=chosen(eqn.invars, inputs), outvars=chosen(eqn.outvars, outputs), params=eqn.params | {"jaxpr": jaxpr} | counts)


scan_p.type_rule, scan_p.batch = types_of, _batch
scan_p.facts["dce"], scan_p.facts["varying"] = _dce, _varying
scan_p.effects_rule = lambda types, params: of_call(params["jaxpr"])
scan_p.impl = lambda *args, **params: run_compiled(scan_p, args, params, params["jaxpr"])


# --- lowering -----------------------------------------------------------------------------------------------------------------------

class _Steps:
    """Writes the steps of a scan: reading x at an index, the body, writing y."""

    def __init__(self, eqn, operands: Sequence[str]):
        params = eqn.params
        self.jaxpr, self.length, self.reverse = params["jaxpr"], params["length"], params["reverse"]
        self.num_carry = params["num_carry"]
        self.consts, self.init, self.xs = in_three(operands, params["num_consts"], params["num_carry"])
        self.x_types = [v.aval for v in in_three(eqn.invars, params["num_consts"], params["num_carry"])[2]]
        self.y_types = [v.aval for v in eqn.outvars[params["num_carry"]:]]
        self.counter = array_type((), dtypes.int32 if self.length < 2**31 else dtypes.int64)

    def step(self, e, index: str, carry: Sequence[str]) -> tuple[list[str], list[str]]:
        """One turn of the loop at a traced index: the carry and the rows of ys."""
        rows = [self._row(e, x, t, index) for x, t in zip(self.xs, self.x_types)]
        outs = e.inline(self.jaxpr, [*self.consts, *carry, *rows])
        return outs[:self.num_carry], outs[self.num_carry:]

    def _row(self, e, x: str, aval, index: str) -> str:
        sizes = (1, *aval.shape[1:])
        zero = e.constant(0, self.counter)
        where = ", ".join([index, *[zero] * (aval.ndim - 1)])
        part = e.emit(f"stablehlo.dynamic_slice {x}, {where}, sizes = {list(sizes)} : ({', '.join([aval.mlir, *[self.counter.mlir] * aval.ndim])}) "
                      f"-> {aval.update(shape=sizes).mlir}")
        return e.reshape(part, aval.update(shape=sizes), aval.shape[1:])

    def write(self, e, ys: Sequence[str], rows: Sequence[str], index: str) -> list[str]:
        """ys with one row each replaced."""
        zero, out = e.constant(0, self.counter), []
        for y, row, aval in zip(ys, rows, self.y_types):
            one = aval.update(shape=(1, *aval.shape[1:]))
            row = e.reshape(row, aval.update(shape=aval.shape[1:]), one.shape)
            where = ", ".join([index, *[zero] * (aval.ndim - 1)])
            out.append(e.emit(f"stablehlo.dynamic_update_slice {y}, {row}, {where} : "
                              f"({', '.join([aval.mlir, one.mlir, *[self.counter.mlir] * aval.ndim])}) -> {aval.mlir}"))
        return out

    def plain(self, e) -> list[str]:
        """All steps one after the other."""
        carry, rows = self.init, [None] * self.length
        for i in (range(self.length - 1, -1, -1) if self.reverse else range(self.length)):
            xs = []
            for x, t in zip(self.xs, self.x_types):
                one = t.update(shape=(1, *t.shape[1:]))
                cut = ", ".join([f"{i}:{i + 1}", *[f"0:{n}" for n in t.shape[1:]]])
                xs.append(e.reshape(e.emit(f"stablehlo.slice {x} [{cut}] : ({t.mlir}) -> {one.mlir}"), one, t.shape[1:]))
            outs = e.inline(self.jaxpr, [*self.consts, *carry, *xs])
            carry, rows[i] = outs[:self.num_carry], outs[self.num_carry:]
        return [*carry, *[self._stack(e, ys, t) for ys, t in zip(zip(*rows), self.y_types)]]

    def _stack(self, e, rows: Sequence[str], aval) -> str:
        one = aval.update(shape=(1, *aval.shape[1:]))
        rows = [e.reshape(row, aval.update(shape=aval.shape[1:]), one.shape) for row in rows]
        return rows[0] if len(rows) == 1 else e.emit(
            f"stablehlo.concatenate {', '.join(rows)}, dim = 0 : ({', '.join([one.mlir] * len(rows))}) -> {aval.mlir}")

    def loop(self, e, unroll: int) -> list[str]:
        """stablehlo.while over a counter, `unroll` steps in each turn; steps left over follow it."""
        turns, left = divmod(self.length, unroll)
        counter = self.counter.mlir
        carry_types = [v.aval.mlir for v in self.jaxpr.invars[len(self.consts):len(self.consts) + self.num_carry]]
        types = [counter, *carry_types, *[t.mlir for t in self.y_types]]
        limit = turns * unroll

        def index_of(e, i: str) -> str:
            if not self.reverse:
                return i
            last = e.constant(self.length - 1, self.counter)
            return e.emit(f"stablehlo.subtract {last}, {i} : {counter}")

        def go_on(e, i, *_):
            end = e.constant(limit, self.counter)
            return [(e.emit(f"stablehlo.compare LT, {i}, {end}, SIGNED : ({counter}, {counter}) -> tensor<i1>"), "tensor<i1>")]

        def turn(e, i, *state):
            carry, ys = state[:self.num_carry], state[self.num_carry:]
            one = e.constant(1, self.counter)
            for _ in range(unroll):
                index = index_of(e, i)
                carry, rows = self.step(e, index, carry)
                ys = self.write(e, ys, rows, index)
                i = e.emit(f"stablehlo.add {i}, {one} : {counter}")
            return list(zip([i, *carry, *ys], types))
        start = [e.constant(0, self.counter), *self.init, *[e.constant(0, t) for t in self.y_types]]
        outs = e.emit_many(f'"stablehlo.while"({", ".join(start)}) ({e.region(types, go_on)}, {e.region(types, turn)}) : '
                           f"({', '.join(types)}) -> ({', '.join(types)})", len(types), pure=not self.jaxpr.effects)[1:]
        carry, ys = outs[:self.num_carry], outs[self.num_carry:]
        for i in range(limit, self.length):
            index = e.constant(self.length - 1 - i if self.reverse else i, self.counter)
            carry, rows = self.step(e, index, carry)
            ys = self.write(e, ys, rows, index)
        return [*carry, *ys]


@lowers(scan_p)
def _lower(e, eqn, *operands):
    steps, unroll = _Steps(eqn, operands), eqn.params["unroll"]
    if steps.length == 0:
        return [*steps.init, *[e.constant(0, t) for t in steps.y_types]]
    return steps.plain(e) if steps.length <= unroll else steps.loop(e, unroll)
