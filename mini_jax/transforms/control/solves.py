"""custom_root and custom_linear_solve: solutions of equations, with the derivatives that follow from the equation, not from the solver.

    custom_linear_solve_p   constants, b -> x, aux     where A x = b; with the programs of A and Aᵀ, and of a solver for each

Where A x = b and all of it moves, A ẋ = ḃ - Ȧ x: another system with the same A. The solution is linear in b; its transpose solves
with Aᵀ. Where f(x) = 0 and f moves, ∂f ẋ = -ḟ (the implicit function theorem).
"""
from __future__ import annotations

from typing import Callable, Sequence

from lowering.emit import lowers
from mini_jax.core import config, dtypes
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.program import Jaxpr, ProgramInfo
from mini_jax.core.pytree import PyTreeDef
from mini_jax.core.staging import eval_jaxpr, stage
from mini_jax.core.trace import typeof
from mini_jax.core.tracebacks import boundary
from mini_jax.lax import elementwise
from mini_jax.transforms.autodiff import instantiate, linearize
from mini_jax.transforms.control.bodies import (
    Body, body_info, check_callable, flat_result, flatten, record, same_type, tree_paths, value_types)
from mini_jax.transforms.control.pieces import given, in_common, with_outputs
from mini_jax.transforms.control.running import run, run_compiled
from mini_jax.transforms.custom_derivatives import custom_jvp_call_p
from mini_jax.transforms.jvp import jvp_flat
from mini_jax.transforms.linearize import transpose_jaxpr
from mini_jax.transforms.vmap import batch_jaxpr, move_batch

__all__ = ["custom_root", "custom_linear_solve", "custom_linear_solve_p"]

custom_linear_solve_p = Primitive("custom_linear_solve", multiple_results=True, memoize=False, facts={"family": "higher_order"})


# --- custom_linear_solve --------------------------------------------------------------------------------------------------------

@boundary
def custom_linear_solve(matvec: Callable, b, solve: Callable, transpose_solve: Callable | None = None, symmetric: bool = False,
                        has_aux: bool = False):
    """The solution x of matvec(x) = b that solve(matvec, b) finds, with the derivatives of a solution.

    matvec: a linear function from pytrees of the structure, shapes and dtypes of b to such; derivatives in values that it
    captures count. solve: (matvec, b) -> x. It is not differentiated, and may be a while_loop. transpose_solve: (vecmat, b) -> x,
    the same for the transpose of matvec, which is derived; needed in reverse mode, unless symmetric: matvec is its own transpose,
    and solve serves for both. has_aux: both solvers return (x, aux), and so does this function. That matvec(x) = b, and that it
    is linear, is not checked. Raises TypeError where matvec or a solver returns another structure or dtypes than b has and in
    reverse mode without transpose_solve, ValueError where shapes differ.
    """
    what = "custom_linear_solve"
    for fun, name in ((matvec, "matvec"), (solve, "solve"), *([] if transpose_solve is None else [(transpose_solve, "transpose_solve")])):
        check_callable(fun, f"{what}: {name}")
    leaves, tree = flatten(b)
    types = value_types(leaves, ProgramInfo(what, matvec, tree_paths(tree, "b")))
    for path, t in zip(tree_paths(tree, "b"), types):
        if not dtypes.is_inexact(t.dtype):
            raise TypeError(f"{what}: {path} is {t}; a linear system is solved in floating-point numbers: convert it, as in "
                            ".astype('float32')")
    with config.disable_jit(False):                  # the solvers are recorded, whatever runs around them
        product = _recorded(what, "matvec", matvec, tree, types, "b")
        count = len(product.consts)
        solvers = [_solver(what, "solve", "b", solve, product.jaxpr, count, tree, types, has_aux)]
        programs, consts = [product.jaxpr, solvers[0].jaxpr], [[], solvers[0].consts]
        if symmetric:
            solvers.append(solvers[0] if transpose_solve is None else
                           _solver(what, "transpose_solve", "b", transpose_solve, product.jaxpr, count, tree, types, has_aux))
            programs += [product.jaxpr, solvers[1].jaxpr]
            consts += [[], solvers[1].consts]
        elif transpose_solve is not None:
            back, back_consts = _transposed(product.jaxpr, count)
            solvers.append(_solver(what, "transpose_solve", "b", transpose_solve, back, len(back_consts) + count, tree, types, has_aux))
            programs += [back, solvers[1].jaxpr]
            consts += [back_consts, [*solvers[1].consts, *back_consts]]
        else:
            programs += [None, None]
            consts += [[], []]
    programs, values = in_common(programs, consts, product.jaxpr.in_types)
    outs = custom_linear_solve_p.bind(*values, *product.consts, *leaves, num_consts=len(values) + count,
                                      **dict(zip(("matvec", "solve", "vecmat", "transpose_solve"), programs)))
    x = tree.unflatten(outs[:len(leaves)])
    return (x, solvers[0].structure.unflatten(outs[len(leaves):])) if has_aux else x


def _apply(fun: Callable, info: ProgramInfo, x):
    return flat_result(fun(x), info)


def _recorded(what: str, name: str, fun: Callable, tree: PyTreeDef, types: tuple, like: str) -> Body:
    """A function from values of one structure to such values, as a program."""
    arguments = flatten((tree.unflatten(types),))[1]
    info = body_info(what, fun, arguments)
    body = record(fun, what, _apply, arguments, types, info)
    _check(what, name, like, tree, types, body.structure, body.jaxpr.out_types)
    return body


def _check(what: str, name: str, like: str, tree: PyTreeDef, types: Sequence, found: PyTreeDef, found_types: Sequence) -> None:
    """Does what the function `name` returned have the structure and types of `like`?"""
    if found != tree:
        raise TypeError(f"{what}: {name} must return the structure of {like}, {tree}, but returns {found}")
    for path, want, have in zip(tree_paths(tree, like), types, found_types):
        if not same_type(want, have):
            raise (ValueError if want.shape != have.shape else TypeError)(
                f"{what}: {name} must return values of the shapes and dtypes of {like}, but where {path} is {want} it returns {have}")


def _solver(what: str, name: str, like: str, solve: Callable, product: Jaxpr, count: int, tree: PyTreeDef, types: tuple, has_aux: bool) -> Body:
    """The program (own constants, constants of the product, b) -> (x, aux), the values of its own constants, the structure of aux."""
    aux_tree, info = None, ProgramInfo(what, solve)

    def flat(*args):
        nonlocal aux_tree
        consts, b = args[:count], args[count:]

        def multiply(v):
            values, found = flatten(v)
            if found != tree or not all([same_type(_like(x, t), t) for x, t in zip(values, types)]):
                raise TypeError(f"{what}: {name} must apply the function that it is given to values like {like}, of types "
                                f"{list(map(str, types))} in the structure {tree}, but applies it to {[str(typeof(x)) for x in values]} "
                                f"in the structure {found}")
            return tree.unflatten(eval_jaxpr(product, (), *consts, *values))
        x, aux, aux_tree = _solution(what, name, like, solve(multiply, tree.unflatten(b)), tree, types, has_aux, info)
        return [*x, *aux]
    jaxpr, consts = stage(flat, [*product.in_types[:count], *types], info)
    return Body(jaxpr.hoisted(), consts, aux_tree)


def _like(value, type_):
    """The type of a value, a Python number counting as one of the dtype that is wanted."""
    aval = typeof(value)
    return aval.update(dtype=type_.dtype) if aval.weak_type else aval


def _solution(what: str, name: str, like: str, result, tree: PyTreeDef, types: Sequence, has_aux: bool, info: ProgramInfo) -> tuple:
    """A solver's result as flat values of the solution, of aux, and the structure of aux."""
    if has_aux and (not isinstance(result, (tuple, list)) or len(result) != 2):
        raise TypeError(f"{what}: with has_aux=True, {name} must return a pair (solution, aux), got {result!r:.200}")
    x, aux = result if has_aux else (result, ())
    leaves, found = flat_result(x, info)
    _check(what, name, like, tree, types, found, [typeof(leaf) for leaf in leaves])
    return leaves, *flat_result(aux, info)


def _transposed(product: Jaxpr, count: int) -> tuple[Jaxpr, list]:
    """The transpose of a program (constants, v) -> A v, and the values of its own leading constants."""
    size = len(product.outvars)
    try:
        back = transpose_jaxpr(product, (*[False] * count, *[True] * size), (True,) * size)
    except (NotImplementedError, TypeError) as problem:           # what a rule says of an operand that it is not linear in
        raise TypeError("custom_linear_solve: matvec has no transpose, so it is not linear in its argument") from problem
    outs = given(back.jaxpr.outvars, back.nonzero, product.in_types[count:])
    return with_outputs(back.jaxpr, outs), back.consts


# --- rules --------------------------------------------------------------------------------------------------------------------------

def _jvp(primals, tangents, *, num_consts, matvec, **programs):
    """A ẋ = ḃ - Ȧ x."""
    solve_again = lambda b: custom_linear_solve_p.bind(*primals[:num_consts], *b, num_consts=num_consts, matvec=matvec, **programs)
    outs, size = solve_again(primals[num_consts:]), len(primals) - num_consts
    x = outs[:size]
    moved = jvp_flat(lambda *consts: eval_jaxpr(matvec, (), *consts, *x), primals[:num_consts], tangents[:num_consts])[1]
    rhs = [_difference(t, m) for t, m in zip(tangents[num_consts:], moved)]
    zeros = [Zero(typeof(out).tangent()) for out in outs]
    if all([type(r) is Zero for r in rhs]):
        return outs, zeros
    return outs, [*solve_again([instantiate(r) for r in rhs])[:size], *zeros[size:]]


def _difference(a, b):
    if type(b) is Zero:
        return a
    return elementwise.neg(b) if type(a) is Zero else elementwise.sub(a, b)


def _transpose(cts, *args, num_consts, matvec, solve, vecmat, transpose_solve):
    """x = A⁻¹ b, so b̄ = A⁻ᵀ x̄."""
    consts, b = args[:num_consts], args[num_consts:]
    if any([isinstance(c, Accumulator) for c in consts]):
        raise NotImplementedError("custom_linear_solve is linear in b, not in what matvec captures, so it can't be transposed there")
    if transpose_solve is None:
        raise TypeError("custom_linear_solve in reverse mode (grad, vjp, jacrev) needs transpose_solve, a function (vecmat, b) -> x that "
                        "solves with the transpose of matvec; where matvec is its own transpose, pass symmetric=True")
    outs = custom_linear_solve_p.bind(*consts, *[instantiate(ct) for ct in cts[:len(b)]], num_consts=num_consts, matvec=vecmat,
                                      solve=transpose_solve, vecmat=matvec, transpose_solve=solve)
    for arg, ct in zip(b, outs):
        if isinstance(arg, Accumulator) and arg.wanted:
            arg.add(ct)


def _batch(axis, args, dims, *, num_consts, **programs):
    consts, b = args[:num_consts], [move_batch(x, axis.size, d, 0) for x, d in zip(args[num_consts:], dims[num_consts:])]
    dims = (*dims[:num_consts], *[0] * len(b))
    batched = [None if p is None else batch_jaxpr(p, axis, dims, (0,) * len(p.outvars)) for p in programs.values()]
    types = next(p.jaxpr.in_types[len(p.consts):] for p in batched if p is not None)
    common, new = in_common([p and p.jaxpr for p in batched], [p.consts if p else [] for p in batched], types)
    outs = custom_linear_solve_p.bind(*new, *consts, *b, num_consts=len(new) + num_consts, **dict(zip(programs, common)))
    return outs, [0] * len(outs)


custom_linear_solve_p.type_rule = lambda *types, solve, **_: solve.out_types
custom_linear_solve_p.jvp, custom_linear_solve_p.transpose, custom_linear_solve_p.batch = _jvp, _transpose, _batch
custom_linear_solve_p.effects_rule = lambda types, params: params["solve"].effects
custom_linear_solve_p.impl = lambda *args, **params: run_compiled(custom_linear_solve_p, args, params, params["solve"])


@lowers(custom_linear_solve_p)
def _lower(e, eqn, *operands):
    return e.inline(eqn.params["solve"], operands)


# --- custom_root ---------------------------------------------------------------------------------------------------------------------

@boundary
def custom_root(f: Callable, initial_guess, solve: Callable, tangent_solve: Callable, has_aux: bool = False):
    """The root x of f that solve(f, initial_guess) finds, with the derivatives of a root in what f captures.

    f: from pytrees of the structure, shapes and dtypes of initial_guess to such. solve: (f, initial_guess) -> x with f(x) = 0. It
    is not differentiated, and may be a while_loop. tangent_solve: (g, y) -> x with g(x) = y, where g is f linearized at the root:
    for scalars lambda g, y: y / g(1.0). It is linear in y, and is transposed in reverse mode; an iterative one calls
    custom_linear_solve. has_aux: solve returns (x, aux), and so does this function. That f(x) = 0 is not checked. Raises
    TypeError where f or a solver returns another structure or dtypes than initial_guess has, ValueError where shapes differ.
    """
    what = "custom_root"
    for fun, name in ((f, "f"), (solve, "solve"), (tangent_solve, "tangent_solve")):
        check_callable(fun, f"{what}: {name}")
    leaves, tree = flatten(initial_guess)
    types = value_types(leaves, ProgramInfo(what, f, tree_paths(tree, "initial_guess")))
    with config.disable_jit(False):
        equation = _recorded(what, "f", f, tree, types, "initial_guess")
        count, size = len(equation.consts), len(leaves)
        solver = _solver(what, "solve", "initial_guess", solve, equation.jaxpr, count, tree, types, has_aux)
    skipped, name = len(solver.consts), ProgramInfo(what, tangent_solve)

    def root(*args):
        return custom_jvp_call_p.bind(*args, call=lambda *args: run(solver.jaxpr, args, what), jvp=rule)

    def rule(*args):
        """∂f ẋ = -ḟ at the root."""
        primals, tangents = args[:len(args) // 2], args[len(args) // 2:]
        outs, consts = root(*primals), primals[skipped:skipped + count]
        x, zeros = outs[:size], [Zero(typeof(out).tangent()) for out in outs]
        of_f = lambda consts, x: eval_jaxpr(equation.jaxpr, (), *consts, *x)
        moved = jvp_flat(lambda *consts: of_f(consts, x), consts, tangents[skipped:skipped + count])[1]
        if all([type(t) is Zero for t in moved]):
            return [*outs, *zeros]
        linear = linearize(lambda *x: of_f(consts, x), *x)[1]
        solved = tangent_solve(lambda v: tree.unflatten(linear(*flatten(v)[0])),
                               tree.unflatten([instantiate(t if type(t) is Zero else elementwise.neg(t)) for t in moved]))
        return [*outs, *_solution(what, "tangent_solve", "initial_guess", solved, tree, types, False, name)[0], *zeros[size:]]
    outs = root(*solver.consts, *equation.consts, *leaves)
    x = tree.unflatten(outs[:size])
    return (x, solver.structure.unflatten(outs[size:])) if has_aux else x
