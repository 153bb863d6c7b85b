"""Products as matrices: what `rules/dot.py` does to the operands of a product where it writes it, done in a program's equations.

So the outliner sees the forms in which products take what they multiply, hands these over, and nothing is brought into them twice.
Transposed operands are taken as they are, contracted over the other dimension, and a transposed result is the product the other way round.
"""
from __future__ import annotations

from math import prod
from typing import Sequence

from lowering.rules.dot import arrangement, contracted
from mini_jax.core.program import NO_EFFECTS, Jaxpr, JaxprEqn, Var
from mini_jax.lax.dot import dot_general_p, free_dims
from mini_jax.lax.shapes import reshape_p, transpose_p


def matrices(program: Jaxpr) -> Jaxpr:
    """The program with products of matrices, or of stacks of them, in place of all others that are sums."""
    if not any([eqn.primitive is dot_general_p for eqn in program.eqns]):
        return program
    made = {eqn.outvars[0]: eqn for eqn in program.eqns if eqn.primitive in (dot_general_p, transpose_p)}
    readers: dict[Var, list] = {}
    for eqn in program.eqns:
        for v in eqn.invars:
            if v in made:
                readers.setdefault(v, []).append(eqn)
    for v in program.outvars:
        if v in made:
            readers.setdefault(v, []).append(None)
    eqns: list[JaxprEqn] = []
    done: set[Var] = set()                                     # results that stand in `eqns` already
    for eqn in program.eqns:
        if eqn.outvars[0] in done if eqn.outvars else False:
            continue
        if eqn.primitive is not dot_general_p:
            eqns.append(eqn)
            continue
        out, turned = eqn.outvars[0], None
        if len(readers.get(out, ())) == 1 and (reader := readers[out][0]) is not None and reader.primitive is transpose_p:
            turned = _turned(eqn, reader)
        if turned is not None:
            done.add(turned.outvars[0])
            del made[turned.outvars[0]]                        # there is nothing any more of which it is the transpose
        eqns += _as_matrices(turned or eqn, made)
    return program.replace(eqns=eqns)


def _turned(eqn: JaxprEqn, reader: JaxprEqn) -> JaxprEqn | None:
    """A product whose result is only transposed, the other way round, if that is what it then is."""
    contract, batch = eqn.params["dimension_numbers"]
    precision = eqn.params["precision"]
    rows, columns = [len(free_dims(v.aval.ndim, batch[i], contract[i])) for i, v in enumerate(eqn.invars)]
    n = len(batch[0])
    if reader.params["permutation"] != (*range(n), *range(n + rows, n + rows + columns), *range(n, n + rows)) \
            or not (precision is None or type(precision) is tuple):
        return None
    params = {**eqn.params, "dimension_numbers": (contract[::-1], batch[::-1]), "precision": precision and precision[::-1]}
    return JaxprEqn(dot_general_p, eqn.invars[::-1], reader.outvars, params, NO_EFFECTS, eqn.source)


def _as_matrices(eqn: JaxprEqn, made: dict[Var, JaxprEqn]) -> list[JaxprEqn]:
    """The equations of one product."""
    contract, batch = eqn.params["dimension_numbers"]
    if prod([eqn.invars[0].aval.shape[d] for d in contract[0]]) == 1:
        return [eqn]                                           # nothing is added: it is written as a multiplication
    sides = [_plain(v, batch[i], contract[i], made) for i, v in enumerate(eqn.invars)]
    contract = contracted(*[(v.aval, b, c) for v, b, c in sides])
    eqns: list[JaxprEqn] = []
    operands, places, sizes = [], [], []
    for (v, batch, _), over in zip(sides, contract):
        x, place, size = _matrix(v, batch, over, eqns, eqn.source)
        operands.append(x)
        places.append(place)
        sizes.append(size)
    out, (many, rows), (_, columns) = eqn.outvars[0], *sizes
    stack = tuple(range(len(many)))
    shape = (*many, *[n for n in (rows, columns) if n != 1])
    result = out if shape == out.aval.shape else Var(out.aval.update(shape=shape))
    params = {**eqn.params, "dimension_numbers": (((places[0],), (places[1],)), (stack, stack))}
    eqns.append(JaxprEqn(dot_general_p, operands, [result], params, NO_EFFECTS, eqn.source))
    if result is not out:
        eqns.append(_reshaped(result, out, eqn.source))
    return eqns


def _plain(v, batch: Sequence[int], contract: Sequence[int], made: dict[Var, JaxprEqn]):
    """An operand, its batch dimensions and its contracted ones; of a transposed one what was transposed, where a product can take that."""
    while (eqn := made.get(v) if type(v) is Var else None) is not None and eqn.primitive is transpose_p:
        order = eqn.params["permutation"]
        free = [order[d] for d in free_dims(v.aval.ndim, batch, contract)]
        before, other, over = eqn.invars[0], tuple([order[d] for d in batch]), tuple([order[d] for d in contract])
        if type(before) is not Var or free != sorted(free) or arrangement(before.aval.shape, other, over)[2]:
            break
        v, batch, contract = before, other, over
    return v, batch, contract


def _matrix(v, batch, contract, eqns: list[JaxprEqn], where):
    """The operand with one dimension contracted and at most one free, after those of the batch; which is contracted; (batch, rows): their sizes."""
    shape = v.aval.shape
    order, contract_first, moves = arrangement(shape, batch, contract)
    if moves:
        moved = Var(v.aval.update(shape=tuple([shape[d] for d in order])))
        eqns.append(JaxprEqn(transpose_p, [v], [moved], {"permutation": tuple(order)}, NO_EFFECTS, where))
        v = moved
    many = [n for d in batch if (n := shape[d]) != 1]
    rows, terms = [prod([shape[d] for d in dims]) for dims in (free_dims(len(shape), batch, contract), contract)]
    sizes = [n for n in (*many, rows) if n != 1]
    place = len(sizes) - (contract_first and rows != 1)
    sizes.insert(place, terms)
    if tuple(sizes) != v.aval.shape:
        matrix = Var(v.aval.update(shape=tuple(sizes)))
        eqns.append(_reshaped(v, matrix, where))
        v = matrix
    return v, place, (many, rows)


def _reshaped(v: Var, result: Var, where) -> JaxprEqn:
    return JaxprEqn(reshape_p, [v], [result], {"new_sizes": result.aval.shape}, NO_EFFECTS, where)
