"""cond and switch: one of several functions runs, chosen by a value.

    cond_p   index, operands -> results     with branches (operands) -> results; a boolean index chooses between two

In reverse mode every branch is linearized; the residuals of all of them, those of one type sharing their places, go from
the cond of the forward pass to that of the backward pass.
"""
from __future__ import annotations

from typing import Callable, NamedTuple, Sequence

import numpy as np

from lowering.emit import lowers
from mini_jax.core import dtypes
from mini_jax.core.effects import of_call
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import NO_EFFECTS, Jaxpr, ProgramInfo, Var, dce, memoized
from mini_jax.core.pytree import prefix_errors
from mini_jax.core.refs import is_ref
from mini_jax.core.staging import eval_jaxpr, for_types, stage
from mini_jax.core.state import current_trace, reduced_axes, state
from mini_jax.core.trace import Tracer, typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.core.types import array_type
from mini_jax.lax import elementwise, selection, shapes, totals
from mini_jax.runtime import dispatch, xla
from mini_jax.transforms.arguments import keyable
from mini_jax.transforms.control.bodies import Body, body_info, check_callable, flat_result, flatten, record, same_type, tree_paths, value_types
from mini_jax.transforms.control.loops import while_p
from mini_jax.transforms.control.masks import maskable, where
from mini_jax.transforms.control.pieces import adapted, chosen, copied, dependent, given, joined, unfolded, widened, with_outputs
from mini_jax.transforms.control.running import run, run_compiled
from mini_jax.transforms.jit import jit_p
from mini_jax.transforms.jvp import jvp_jaxpr, zero_value
from mini_jax.transforms.linearize import argument_types, linearize_jaxpr, marks, memoized_backward, transpose_jaxpr
from mini_jax.transforms.refs import check_aliases
from mini_jax.transforms.vmap import batch_jaxpr

__all__ = ["cond", "switch", "cond_p"]

cond_p = Primitive("cond", multiple_results=True, memoize=False, facts={"family": "higher_order", "parts": True})


# --- the functions ----------------------------------------------------------------------------------------------------------------

_nothing = object()


@boundary
def cond(pred, true_fun: Callable, false_fun: Callable, *operands, operand=_nothing):
    """true_fun(*operands) where pred holds, else false_fun(*operands).

    pred: a boolean scalar, or a number, which holds unless it is 0. operands: pytrees of arrays. Both functions are recorded, and their
    results must have one structure, shapes and dtypes; one of them runs. Under vmap over pred both run, and results are selected.
    operand: one operand by keyword. cond(pred, true_operand, true_fun, false_operand, false_fun) gives each function its own.
    Raises TypeError for a predicate that is no scalar and where the results differ in type.
    """
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]) and not callable(true_fun):
        return _cond(pred, false_fun, operands[1], (true_fun, operands[0]), _apply_to_second, _apply_to_first)
    return _cond(pred, true_fun, false_fun, _operands("cond", operands, operand))


def _operands(what: str, operands: tuple, operand) -> tuple:
    if operand is _nothing:
        return operands
    if operands:
        raise TypeError(f"{what}: give operands by position or as operand=, not both")
    return (operand,)


def _cond(pred, true_fun: Callable, false_fun: Callable, operands: tuple, *applied: Callable):
    check_callable(true_fun, "cond: true_fun")
    check_callable(false_fun, "cond: false_fun")
    pred = _predicate(pred)
    applied = applied or (_apply, _apply)
    return choose("cond", pred, (false_fun, true_fun), ("false_fun", "true_fun"), operands, applied)


def _predicate(pred):
    """The predicate as a boolean scalar; one that is no tracer as a Python bool."""
    if pred is None:
        raise TypeError("cond predicate is None")
    try:
        aval = typeof(pred)
    except TypeError:
        raise TypeError(f"cond: the predicate is a boolean or a number, got {pred!r:.200} of type {type(pred).__name__}") from None
    if aval.shape:
        raise TypeError(f"cond: the predicate is a scalar, got {aval}; reduce it with .all() or .any(), or choose element by "
                        "element with jnp.where")
    if dtypes.is_extended(aval.dtype):
        raise TypeError(f"cond: the predicate is a boolean or a number, got {aval}")
    if not dtypes.is_bool(aval.dtype):
        pred = elementwise.ne(pred, aval.dtype.type(0)) if isinstance(pred, Tracer) else np.asarray(pred) != 0
    return pred if isinstance(pred, Tracer) else bool(pred)


@boundary
def switch(index, branches: Sequence[Callable], *operands, operand=_nothing):
    """branches[index](*operands), the index brought into the range of branches first.

    index: an integer scalar; below 0 it takes the first branch, beyond the last one the last. operands: pytrees of arrays. All branches
    are recorded, and their results must have one structure, shapes and dtypes; one of them runs. Under vmap over index all run, and results
    are selected. Raises TypeError for an index that is no integer scalar and where results differ in type, ValueError without branches.
    """
    if not isinstance(branches, (tuple, list)) and not hasattr(branches, "__iter__"):
        raise TypeError(f"switch: branches is a sequence of functions, got {branches!r:.200} of type {type(branches).__name__}")
    branches = tuple(branches)
    if not branches:
        raise ValueError("switch: there must be at least one branch, got an empty sequence")
    for position, branch in enumerate(branches):
        check_callable(branch, f"switch: branch {position}")
    operands = _operands("switch", operands, operand)
    try:
        aval = typeof(index)
    except TypeError:
        raise TypeError(f"switch: the index is an integer, got {index!r:.200} of type {type(index).__name__}") from None
    if aval.shape or not dtypes.is_integer(aval.dtype):
        raise TypeError(f"switch: the index is an integer scalar, got {aval}" + ("; for a boolean use cond" if dtypes.is_bool(aval.dtype) else ""))
    last = len(branches) - 1
    if not isinstance(index, Tracer):
        index = min(max(int(index), 0), last)
    if not last:
        return branches[0](*operands)
    if isinstance(index, Tracer):
        if aval.dtype != dtypes.int32:               # a wide index must not wrap on its way to int32
            high = min(last, dtypes.iinfo(aval.dtype).max)
            index = shapes.convert_element_type(selection.clamp(aval.dtype.type(0), index, aval.dtype.type(high)), dtypes.int32)
        else:
            index = selection.clamp(np.int32(0), index, np.int32(last))
    return choose("switch", index, branches, [f"branch {i}" for i in range(len(branches))], operands)


def choose(what: str, index, branches: Sequence[Callable], names: Sequence[str], operands: tuple, applied: Sequence[Callable] | None = None):
    """Record all branches, and run one (a Python index, nothing being recorded) or bind the primitive. index: in the range of branches.
    applied: how each is called, if not with all operands."""
    applied = applied or [_apply] * len(branches)
    branches = [keyable(branch) for branch in branches]
    if dispatch.disabled() and not isinstance(index, Tracer):
        leaves, out_tree = applied[index](branches[index], ProgramInfo(what, branches[index]), *operands)
        return out_tree.unflatten(leaves)
    leaves, tree = flatten(operands)
    infos = [body_info(what, branch, tree) for branch in branches]
    types = value_types(leaves, infos[0])
    bodies = [record(branch, what, apply, tree, types, info) for branch, apply, info in zip(branches, applied, infos)]
    _check_results(what, bodies, names, infos)
    if any(map(is_ref, leaves)):
        check_aliases(infos[0], [c for body in bodies for c in body.consts], leaves)
    out_tree = bodies[0].structure
    programs = _of_equal_weakness([body.jaxpr for body in bodies])
    if not isinstance(index, Tracer) and not xla.staging.value:
        body = bodies[int(index)]
        return out_tree.unflatten(jit_p.bind(*body.consts, *leaves, jaxpr=programs[int(index)], name=what))
    programs, consts = _with_all_consts(programs, [body.consts for body in bodies])
    index = index if isinstance(index, Tracer) or isinstance(index, bool) else np.int32(index)
    return out_tree.unflatten(cond_p.bind(index, *consts, *leaves, branches=programs))


def _apply(branch: Callable, info: ProgramInfo, *operands):
    return flat_result(branch(*operands), info)


def _apply_to_first(branch: Callable, info: ProgramInfo, first, second):
    return flat_result(branch(first), info)


def _apply_to_second(branch: Callable, info: ProgramInfo, first, second):
    return flat_result(branch(second), info)


def _check_results(what: str, bodies: Sequence[Body], names: Sequence[str], infos: Sequence[ProgramInfo]) -> None:
    """TypeError where the results of two branches differ in structure or type."""
    first = len(bodies) - 1 if what == "cond" else 0          # cond's branches are (false_fun, true_fun); people read them the other way
    for other in range(len(bodies)):
        if other == first:
            continue
        trees = bodies[first].structure, bodies[other].structure
        who = "\n".join([f"  {names[i]} is {infos[i].name}" + (f" at {infos[i].location}" if infos[i].location else "") for i in (first, other)])
        if trees[0] != trees[1]:
            where = next(prefix_errors(trees[1].unflatten([0] * trees[1].num_leaves), trees[0].unflatten([0] * trees[0].num_leaves), None,
                                       f"the result of {names[other]}", f"the result of {names[first]}"), f"they are {trees[0]} and {trees[1]}")
            raise TypeError(f"{what}: the branches must return results of one structure, but {where}, where\n{who}\n"
                            "Return the same containers, with the same keys and lengths, from each.")
        pairs = list(zip(bodies[first].jaxpr.out_types, bodies[other].jaxpr.out_types))
        if not all([same_type(a, b) for a, b in pairs]):
            lines = [f"  {path} is {a} from {names[first]} and {b} from {names[other]}"
                     for path, (a, b) in zip(tree_paths(trees[0], "result"), pairs) if not same_type(a, b)]
            raise TypeError(f"{what}: the branches must return results of equal types, but\n" + "\n".join(lines) + f"\nwhere\n{who}\n"
                            "Convert one of them (.astype), or give them one shape.")


def _of_equal_weakness(programs: list[Jaxpr]) -> list[Jaxpr]:
    """The programs with a result weakly typed only where it is in all of them."""
    weak = [all(t.weak_type for t in types) for types in zip(*[p.out_types for p in programs])]
    return [p if all(t.weak_type == w for t, w in zip(p.out_types, weak)) else _strengthened(p, tuple(weak)) for p in programs]


@memoized
def _strengthened(jaxpr: Jaxpr, weak: tuple[bool, ...]) -> Jaxpr:
    def fun(*args):
        outs = eval_jaxpr(jaxpr, (), *args)
        return [out if t.weak_type == w else shapes.convert_element_type_p.bind(out, new_dtype=t.dtype, weak_type=w)
                for out, t, w in zip(outs, jaxpr.out_types, weak)]
    return stage(fun, jaxpr.in_types, jaxpr.info)[0]


def _with_all_consts(programs: Sequence[Jaxpr], consts: Sequence[Sequence]) -> tuple[tuple[Jaxpr, ...], list]:
    """Programs (own constants, common inputs) as programs (the constants of all, common inputs), and those constants."""
    if not any(consts):
        return tuple(programs), []
    values: list = []
    index: dict[int, int] = {}
    for part in consts:
        for c in part:
            if id(c) not in index:
                index[id(c)] = len(values)
                values.append(c)
    place = [[index[id(c)] for c in part] for part in consts]
    const_types: list = [None] * len(values)
    for program, part in zip(programs, place):
        for var, i in zip(program.invars, part):
            const_types[i] = var.aval
    out = []
    for program, part in zip(programs, place):
        inputs = program.in_types[len(part):]
        out.append(widened(program, (*const_types, *inputs), (*part, *range(len(values), len(values) + len(inputs)))))
    return tuple(out), values


# --- rules ------------------------------------------------------------------------------------------------------------------------

class _Branches(NamedTuple):
    """Derived branches, the values of the constants that all of them take first, and which results they have."""
    branches: tuple[Jaxpr, ...]
    consts: list
    live: tuple[bool, ...]


def _together(programs: Sequence[Jaxpr], consts: Sequence[Sequence], lives: Sequence[tuple[bool, ...]], types: Sequence,
              always: int = 0) -> _Branches:
    """Programs whose results beyond the first `always` are those of `types` that are marked in its `lives`, as branches with all results
    that any of them has: zeros elsewhere."""
    live = lives[0]
    for other in lives[1:]:
        live = joined(live, other)
    out = []
    for program, own in zip(programs, lives):
        if own != live:
            results = given(program.outvars[always:], own, types)
            program = with_outputs(program, [*program.outvars[:always], *[r for r, l in zip(results, live) if l]])
        out.append(program)
    branches, values = _with_all_consts(out, consts)
    return _Branches(branches, values, live)


@memoized
def _jvp_branches(first: Jaxpr, rest: tuple[Jaxpr, ...], nonzero: tuple[bool, ...]) -> _Branches:
    parts = [jvp_jaxpr(branch, nonzero) for branch in (first, *rest)]
    return _together([p for p, _, _ in parts], [c for _, c, _ in parts], [live for _, _, live in parts],
                     [t.tangent() for t in first.out_types], len(first.outvars))


def _jvp(primals, tangents, *, branches):
    index, *operands = primals
    derived = _jvp_branches(branches[0], branches[1:], tuple([type(t) is not Zero for t in tangents[1:]]))
    outs = cond_p.bind(index, *derived.consts, *operands, *[t for t in tangents[1:] if type(t) is not Zero], branches=derived.branches)
    count = len(derived.live)
    return outs[:count], given(outs[count:], derived.live, [Zero(t.tangent()) for t in branches[0].out_types])


class _Plan(NamedTuple):
    """A cond's linearization. primal: branches (consts, operands) -> (results, saved values); linear: branches (residuals, tangents) ->
    tangents. residuals: where each is: an operand (after the constants) or a result of the primal cond, by its position."""
    primal: tuple[Jaxpr, ...]
    linear: tuple[Jaxpr, ...]
    consts: list
    residuals: tuple[tuple[str, int], ...]
    live: tuple[bool, ...]


@memoized
def _linear_plan(first: Jaxpr, rest: tuple[Jaxpr, ...], nonzero: tuple[bool, ...]) -> _Plan:
    branches, count = (first, *rest), len(first.outvars)
    parts = [linearize_jaxpr(branch, nonzero) for branch in branches]
    primals, consts = _with_all_consts([p.primal for p in parts], [p.consts for p in parts])
    linears = [unfolded(p) for p in parts]
    slots: list = []                                  # the types of the places that saved values take, shared by the branches
    places: list[dict[Var, tuple[str, int]]] = []     # of each branch: where its residuals are
    saved: list[dict[int, Var]] = []                  # of each branch: what it writes into which slot
    for primal, linear in zip(primals, linears):
        at = {v: ("in", i) for i, v in enumerate(primal.invars)}
        for i, atom in enumerate(primal.outvars[:count]):
            if type(atom) is Var:
                at.setdefault(atom, ("out", i))
        taken: dict[int, Var] = {}
        for v in linear.residuals:
            if v not in at:
                slot = next((i for i, t in enumerate(slots) if i not in taken and same_type(t, v.aval)), None)
                if slot is None:
                    slot = len(slots)
                    slots.append(v.aval)
                taken[slot], at[v] = v, ("out", count + slot)
        places.append(at)
        saved.append(taken)
    residuals = sorted({at[v] for at, linear in zip(places, linears) for v in linear.residuals})
    primal_branches = [dce(with_outputs(primal, [*primal.outvars[:count], *[taken.get(i, t) for i, t in enumerate(slots)]]))
                       for primal, taken in zip(primals, saved)]
    types = [first.in_types[i - len(consts)] if kind == "in" and i >= len(consts) else primals[0].in_types[i] if kind == "in" else
             first.out_types[i] if i < count else slots[i - count] for kind, i in residuals]
    programs = []
    for at, linear in zip(places, linears):
        found = {at[v]: v for v in linear.residuals}
        invars = [found[place] if place in found else Var(t) for place, t in zip(residuals, types)]
        programs.append(Jaxpr((), [*invars, *linear.tangents], linear.eqns, linear.outvars,
                              NO_EFFECTS.union(*[eqn.effects for eqn in linear.eqns]), first.info))
    derived = _together(programs, [()] * len(programs), [p.out_nonzero for p in parts], [t.tangent() for t in first.out_types])
    return _Plan(tuple(primal_branches), derived.branches, consts, tuple(residuals), derived.live)


def _linearize(primals, nonzero, *, branches):
    index, *operands = primals
    plan = _linear_plan(branches[0], branches[1:], tuple(nonzero[1:]))
    operands = [*plan.consts, *operands]
    outs = cond_p.bind(index, *operands, branches=plan.primal)
    residuals = [operands[i] if kind == "in" else outs[i] for kind, i in plan.residuals]

    def linear(*tangents):
        return cond_p.bind(index, *residuals, *tangents, branches=plan.linear) if any(plan.live) else []
    return outs[:len(plan.live)], plan.live, linear


@memoized
def _known_results(first: Jaxpr, rest: tuple[Jaxpr, ...], linear: tuple[bool, ...]) -> tuple[tuple[Jaxpr, ...], tuple[bool, ...]]:
    """The branches with those results alone that in no branch depend on the inputs marked linear, and which these are."""
    branches = (first, *rest)
    known = (True,) * len(first.outvars)
    for branch in branches:
        known = tuple([k and not live for k, live in zip(known, dependent(branch, linear)[1])])
    return tuple([dce(b.replace(invars=[v for v, f in zip(b.invars, linear) if not f], outvars=[v for v, k in zip(b.outvars, known) if k],
                                eqns=[eqn for eqn in b.eqns if eqn not in set(dependent(b, linear)[0])])) for b in branches]), known


def _split_known(trace, args, linear, params):
    """How a linear program records a cond: results that don't depend on its inputs come from a cond of their own, outside of it."""
    outs = trace.record(cond_p, args, params)
    if linear[0]:
        return outs
    branches, known = _known_results(params["branches"][0], params["branches"][1:], tuple(linear[1:]))
    if not any(known):
        return outs
    with current_trace(trace.parent):
        found = iter(cond_p.bind(*[a for a, f in zip(args, linear) if not f], branches=branches))
    return [next(found) if k else out for k, out in zip(known, outs)]


@memoized_backward
def _backward_branches(first: Jaxpr, rest: tuple[Jaxpr, ...], kinds: tuple, ct_live: tuple[bool, ...]) -> _Branches:
    parts = [transpose_jaxpr(branch, kinds, ct_live) for branch in (first, *rest)]
    types = [t.tangent() for t, kind in zip(first.in_types, kinds) if kind is not False]
    in_parts = [frozenset().union(*axes) for axes in zip(*[p.parts for p in parts])]       # where one branch's is, all are
    return _together([adapted(p.jaxpr, tuple(chosen(in_parts, p.nonzero)), totals.as_part) for p in parts], [p.consts for p in parts], [p.nonzero for p in parts], types)


def _of_equal_variance(branches: Sequence[Jaxpr], types: Sequence, apart: frozenset) -> tuple[Jaxpr, ...]:
    """The branches for arguments of these types, each of their results varying as that of the cond does.
    apart: axes along which not all take the same branch: what each gets there is summed afterwards, not inside."""
    branches = [for_types(branch, [t.update(varying=t.varying | apart) for t in types]) for branch in branches]
    axes = tuple([frozenset().union(*[t.varying for t in each]) for each in zip(*[branch.out_types for branch in branches])])
    return tuple([adapted(branch, axes, copied) for branch in branches])


def _transpose(cts, index, *args, branches):
    kinds = tuple([(True if a.wanted else None) if isinstance(a, Accumulator) else False for a in args])
    if state.reduced is not None:
        branches = _of_equal_variance(branches, argument_types(args), typeof(index).varying & reduced_axes())
    back = _backward_branches(branches[0], branches[1:], kinds, marks(cts, branches[0].out_types))
    values = [a for a in args if not isinstance(a, Accumulator)]
    outs = iter(cond_p.bind(index, *back.consts, *values, *[ct for ct in cts if type(ct) is not Zero], branches=back.branches)
                if any(back.live) else ())
    for arg, live in zip([a for a in args if isinstance(a, Accumulator)], back.live):
        if live:
            arg.add(next(outs))


@memoized
def _batched_branches(first: Jaxpr, rest: tuple[Jaxpr, ...], axis, dims: tuple, all_outs: bool) -> _Branches:
    """The batched branches, each result batched (at dimension 0) in all of them or in none."""
    branches = (first, *rest)
    out = (0,) * len(first.outvars) if all_outs else tuple(
        [0 if any(d is not None for d in found) else None
         for found in zip(*[batch_jaxpr(branch, axis, dims).out_dims for branch in branches])])
    parts = [batch_jaxpr(branch, axis, dims, out) for branch in branches]
    programs, consts = _with_all_consts([p.jaxpr for p in parts], [p.consts for p in parts])
    return _Branches(programs, consts, out)


@memoized
def _selecting(first: Jaxpr, rest: tuple[Jaxpr, ...], index_type, mask_at: int | None) -> Jaxpr:
    """The program (a batch of indices, operands) -> results, that runs all batched branches and selects.

    mask_at: where among their inputs branches with effects take for which examples they are chosen.
    """
    types = list(first.in_types)
    if mask_at is not None:
        del types[mask_at]

    def fun(index, *operands):
        results = []
        for i, branch in enumerate((first, *rest)):
            inputs = operands if mask_at is None else (*operands[:mask_at], _taken(index, i), *operands[mask_at:])
            results.append(eval_jaxpr(branch, (), *inputs))
        return [selection.select_n(shapes.broadcast_in_dim(index, typeof(cases[0]).shape, (0,)), *cases) for cases in zip(*results)]
    return stage(fun, [index_type, *types], first.info)[0]


def _taken(index, position: int):
    """For which of a batch of indices the branch at this position is chosen."""
    if dtypes.is_bool(typeof(index).dtype):
        return index if position else elementwise.bitwise_not(index)
    return elementwise.eq(index, typeof(index).dtype.type(position))


def _batch(axis, args, dims, *, branches):
    index, *operands = args
    if dims[0] is None:
        derived = _batched_branches(branches[0], branches[1:], axis, tuple(dims[1:]), False)
        return cond_p.bind(index, *derived.consts, *operands, branches=derived.branches), list(derived.live)
    effects = NO_EFFECTS.union(*[branch.effects for branch in branches])
    if not maskable(effects):
        raise NotImplementedError("vmap over the predicate or index of a cond runs all of its branches for all examples, which must then not "
                                  "write to refs; select what is written instead")
    masked = bool(effects)
    if masked:
        branches = [where(branch) for branch in branches]
    derived = _batched_branches(branches[0], tuple(branches[1:]), axis, (*[0] * masked, *dims[1:]), True)
    program = _selecting(derived.branches[0], derived.branches[1:], typeof(index), len(derived.consts) if masked else None)
    return run(program, [index, *derived.consts, *operands], "cond"), list(derived.live)


@memoized
def _live(first: Jaxpr, rest: tuple[Jaxpr, ...], used: tuple[bool, ...]) -> tuple[tuple[Jaxpr, ...], tuple[bool, ...]]:
    """The branches with the used results alone, and which inputs one of them reads."""
    inputs, branches = (False,) * len(first.invars), []
    for branch in (first, *rest):
        live, read = dce(branch, used, keep_inputs=False)
        inputs = joined(inputs, read)
        branches.append((branch.invars, live))
    return tuple([live.replace(invars=chosen(invars, inputs)) for invars, live in branches]), inputs


def _dce(eqn, used):
    branches = eqn.params["branches"]
    branches, inputs = _live(branches[0], branches[1:], tuple(used))
    return eqn.replace(invars=[eqn.invars[0], *chosen(eqn.invars[1:], inputs)], outvars=chosen(eqn.outvars, used), params={"branches": branches})


def _varying(types: tuple, params: dict) -> list:
    """A result varies along what the choice does, and along what that of any branch does."""
    index, *types = types
    outs = zip(*[for_types(branch, types).out_types for branch in params["branches"]])
    return [first.update(varying=index.varying.union(first.varying, *[t.varying for t in rest])) for first, *rest in outs]


cond_p.type_rule = lambda index, *types, branches: branches[0].out_types
cond_p.jvp, cond_p.linearize, cond_p.transpose, cond_p.batch = _jvp, _linearize, _transpose, _batch
cond_p.facts["split"], cond_p.facts["dce"], cond_p.facts["varying"] = _split_known, _dce, _varying
cond_p.effects_rule = lambda types, params: NO_EFFECTS.union(*[of_call(branch, 1) for branch in params["branches"]])
cond_p.impl = lambda *args, branches: run_compiled(cond_p, args, {"branches": branches}, branches[0])


# --- lowering -----------------------------------------------------------------------------------------------------------------------

_LARGE = 1 << 14                                     # elements: to copy fewer costs less than a loop


def _kept(branches: Sequence[Jaxpr]) -> list[int | None]:
    """For each result the operand that a branch, but not every branch, returns as it is; None where there is none."""
    out = []
    for results in zip(*[branch.outvars for branch in branches]):
        given = [branch.invars.index(v) if type(v) is Var and v in branch.invars else None for branch, v in zip(branches, results)]
        kept = {i for i in given if i is not None and same_type(branches[0].in_types[i], results[0].aval)}
        out.append(min(kept) if kept and len(set(given)) > 1 else None)
    return out


def _in_turn(kept: Sequence[int | None], branches: Sequence[Jaxpr], index, *operands) -> list:
    """A cond as one loop for each branch, of one step or none, that carries the results: these begin as the operands that are kept.

    XLA copies what one branch of a conditional changes in place and another hands on. What loops carry it changes in place.
    """
    results = [zero_value(v.aval) if i is None else operands[i] for i, v in zip(kept, branches[0].outvars)]
    at = {i: place for place, i in enumerate(kept) if i is not None}
    others = [x for i, x in enumerate(operands) if i not in at]
    for position, branch in enumerate(branches):
        if all([i is not None and v is branch.invars[i] for i, v in zip(kept, branch.outvars)]):
            continue

        def step(*xs):
            rest, now = iter(xs[:len(others)]), xs[len(others) + 1:]
            return [np.False_, *eval_jaxpr(branch, (), *[now[at[i]] if i in at else next(rest) for i in range(len(operands))])]
        carried = [array_type((), dtypes.bool_), *map(typeof, results)]
        body, _ = stage(step, [*map(typeof, others), *carried], branch.info)
        going, _ = stage(lambda taken, *_: [taken], carried, branch.info)
        _, *results = while_p.bind(*others, _taken(index, position), *results, cond_jaxpr=going, body_jaxpr=body, cond_nconsts=0, body_nconsts=len(others))
    return results


@lowers(cond_p)
def _lower(e, eqn, index, *operands):
    branches, aval = eqn.params["branches"], eqn.invars[0].aval
    known = next((i for i in range(len(branches)) if e.found(e.constant_text(i, aval)) == index), None)
    if known is not None:                             # on this platform, for instance: the others need not have a lowering
        return e.inline(branches[known], operands)
    kept = _kept(branches)
    large = [i for i, v in zip(kept, eqn.outvars) if v.aval.size >= _LARGE]
    if large and None not in large and not eqn.effects:
        return e.via(lambda *args: _in_turn(kept, branches, *args), eqn.in_types, (index, *operands))
    types = [v.aval.mlir for v in eqn.outvars]

    def written(branch: Jaxpr):
        return e.region([], lambda inner: list(zip(inner.inline(branch, operands), types)))
    if dtypes.is_bool(aval.dtype):                    # stablehlo.if names the true region first
        regions, name = (written(branches[1]), written(branches[0])), "if"
    else:
        regions, name = [written(branch) for branch in branches], "case"
    return e.emit_many(f'"stablehlo.{name}"({index}) ({", ".join(regions)}) : ({aval.mlir}) -> ({", ".join(types)})', len(types),
                       pure=not eqn.effects)
