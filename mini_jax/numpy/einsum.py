"""einsum: sums of products in Einstein's notation, as a sequence of products of two operands, each one dot_general.

`parse` reads the notation, `plan` chooses the order of the pairs, `contract_all` writes the products.
"""
from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Sequence

from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.numpy.promotion import arraylike, as_array, promote_dtypes
from mini_jax.numpy.ufuncs import multiply, unsupported_out
from mini_jax.runtime.dispatch import library

__all__ = ["einsum", "einsum_path"]


# --- the notation ---------------------------------------------------------------------------------------------------------------

def _from_lists(args: Sequence) -> tuple[str, list]:
    """einsum(a, [0, 1], b, [1, 2], [0, 2]) in letters."""
    letter = lambda label: "..." if label is Ellipsis else chr(ord("A") + label) if label < 26 else chr(ord("a") + label - 26)
    word = lambda labels: "".join([letter(label if label is Ellipsis else operator.index(label)) for label in labels])
    operands, terms = list(args[0:len(args) // 2 * 2:2]), [word(labels) for labels in args[1::2]]
    return ",".join(terms) + ("->" + word(args[-1]) if len(args) % 2 else ""), operands


@functools.lru_cache(maxsize=1024)
def parse(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[tuple, ...], tuple, dict]:
    """The labels of each operand's axes and of the result's, and each label's size. Axes of an ellipsis are labelled -1, -2, … from the last.

    Raises ValueError for notation that does not fit the operands.
    """
    text = subscripts.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(shapes):
        raise ValueError(f"einsum: {subscripts!r} names {len(terms)} operands, but {len(shapes)} are given")
    labels, widest = [], 0
    for position, (term, shape) in enumerate(zip(terms, shapes)):
        head, dots, tail = term.partition("...")
        if not (head + tail).isalpha() and head + tail:
            raise ValueError(f"einsum: subscripts are letters, '...', ',' and '->'; got {subscripts!r}")
        extra = len(shape) - len(head) - len(tail)
        if extra < 0 or extra and not dots:
            raise ValueError(f"einsum: {term!r} does not fit operand {position}, which has {len(shape)} dimensions")
        widest = max(widest, extra if dots else 0)
        labels.append((*head, *range(-extra, 0), *tail))
    if arrow:
        head, dots, tail = output.partition("...")
        result = (*head, *(range(-widest, 0) if dots else ()), *tail)
    else:
        count = {}
        for label in itertools.chain(*labels):
            count[label] = count.get(label, 0) + 1
        result = (*range(-widest, 0), *sorted([c for c, n in count.items() if n == 1 and isinstance(c, str)]))
    known = set(itertools.chain(*labels))
    for label in result:
        if label not in known:
            raise ValueError(f"einsum: output character {label!r} did not appear in the input {inputs!r}")
    if len(set(result)) != len(result):
        raise ValueError(f"einsum: a character appears twice in the output {output!r}")
    sizes: dict = {}
    for position, (term, shape) in enumerate(zip(labels, shapes)):
        for label, n in zip(term, shape):
            if sizes.setdefault(label, n) != n and 1 not in (sizes[label], n):
                raise ValueError(f"einsum: size of label {label!r} for operand {position} ({n}) does not match previous terms ({sizes[label]})")
            sizes[label] = n if sizes[label] == 1 else sizes[label]
    return tuple(labels), result, sizes


# --- the order ------------------------------------------------------------------------------------------------------------------------

def _result_of(pair, others: Sequence[frozenset], result: frozenset) -> frozenset:
    """The labels that are still needed after a pair was multiplied."""
    return (pair[0] | pair[1]) & frozenset().union(result, *others)


def _volume(labels, sizes) -> int:
    return math.prod([sizes[label] for label in labels])


def _exhaustive(terms: tuple, result, sizes, memo) -> tuple[int, list]:
    """The cheapest order (multiplications, path) for few operands, by trying all."""
    if len(terms) == 1:
        return 0, []
    found = memo.get(terms)
    if found is None:
        best = None
        for i, j in itertools.combinations(range(len(terms)), 2):
            others = [t for k, t in enumerate(terms) if k not in (i, j)]
            made = _result_of((terms[i], terms[j]), others, result)
            cost, path = _exhaustive((*others, made), result, sizes, memo)
            cost += _volume(terms[i] | terms[j], sizes)
            if best is None or cost < best[0]:
                best = cost, [(i, j), *path]
        found = memo[terms] = best
    return found


def _greedy(terms: list, result, sizes) -> list:
    """Again and again the pair whose product takes least memory more than its factors, then the one with fewest multiplications."""
    path = []
    while len(terms) > 1:
        def cost(pair):
            i, j = pair
            others = [t for k, t in enumerate(terms) if k not in pair]
            made = _result_of((terms[i], terms[j]), others, result)
            return (_volume(made, sizes) - _volume(terms[i], sizes) - _volume(terms[j], sizes), _volume(terms[i] | terms[j], sizes))
        touching = [p for p in itertools.combinations(range(len(terms)), 2) if terms[p[0]] & terms[p[1]]]
        i, j = min(touching or itertools.combinations(range(len(terms)), 2), key=cost)
        others = [t for k, t in enumerate(terms) if k not in (i, j)]
        terms = [*others, _result_of((terms[i], terms[j]), others, result)]
        path.append((i, j))
    return path


def plan(labels: Sequence[tuple], result: tuple, sizes: dict, optimize) -> list[tuple[int, ...]]:
    """The pairs to multiply, as positions in the list of operands; a product is put at its end."""
    if not isinstance(optimize, (bool, str)):
        return [tuple(step) for step in optimize if not isinstance(step, str)]
    terms = [frozenset(term) for term in labels]
    if optimize is False or optimize == "left" or len(terms) <= 2:
        return [(0, len(terms) - 1 - i) if i else (0, 1) for i in range(len(terms) - 1)]
    if len(terms) <= 5 or optimize == "optimal" and len(terms) <= 8:
        return _exhaustive(tuple(terms), frozenset(result), sizes, {})[1]
    return _greedy(terms, frozenset(result), sizes)


# --- the products ----------------------------------------------------------------------------------------------------------------------

def _simplified(x, labels: tuple, needed: set, sizes: dict):
    """An operand without repeated labels (diagonals), without axes of size 1 that broadcast, and summed over what nothing else has."""
    different = set(labels)
    if len(different) == len(labels) and different <= needed and 1 not in x.shape:
        return x, labels
    for label in [c for c in dict.fromkeys(labels) if labels.count(c) > 1]:
        while labels.count(label) > 1:
            from mini_jax.numpy.diagonals import diagonal
            first = labels.index(label)
            second = labels.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ValueError(f"einsum: dimensions of the repeated label {label!r} differ: {x.shape[first]} and {x.shape[second]}")
            x = diagonal(x, 0, first, second)
            labels = (*[c for i, c in enumerate(labels) if i not in (first, second)], label)
    gone = tuple([i for i, label in enumerate(labels) if x.shape[i] == 1 and sizes[label] != 1])
    x, labels = lax.squeeze(x, gone), tuple([c for i, c in enumerate(labels) if i not in gone])
    summed = tuple([i for i, label in enumerate(labels) if label not in needed])
    if summed:
        x = _reduced(x, summed)
        labels = tuple([c for i, c in enumerate(labels) if i not in summed])
    return x, labels


def _reduced(x, axes):
    return lax.reduce_or(x, axes) if dtypes.is_bool(x.dtype) else lax.reduce_sum(x, axes)


def _product(a, left: tuple, b, right: tuple, needed: set, wanted: tuple, precision, preferred):
    """The product of two operands, summed over what is not needed any more; and its labels, in the order `wanted` where it can be had."""
    batch = [c for c in wanted if c in left and c in right] + [c for c in left if c in right and c in needed and c not in wanted]
    summed = [c for c in left if c in right and c not in needed]
    if not summed and (len(batch) == len(left) or len(batch) == len(right)):                  # nothing is summed: elementwise
        labels = left if len(left) >= len(right) else right
        out = multiply(*[lax.broadcast_in_dim(lax.transpose(x, sorted(range(x.ndim), key=lambda i: labels.index(have[i]))),
                                              [n if c in have else 1 for c, n in zip(labels, (a if labels is left else b).shape)],
                                              sorted([labels.index(c) for c in have])) for x, have in ((a, left), (b, right))])
        return out if preferred is None else lax.convert_element_type(out, preferred), labels
    free = [c for c in left if c not in batch and c not in summed], [c for c in right if c not in batch and c not in summed]
    if wanted[len(batch):] == (*free[1], *free[0]) != (*free[0], *free[1]):
        a, left, b, right, free = b, right, a, left, free[::-1]
        if isinstance(precision, tuple):
            precision = precision[::-1]
    dims = tuple([left.index(c) for c in summed]), tuple([right.index(c) for c in summed])
    batches = tuple([left.index(c) for c in batch]), tuple([right.index(c) for c in batch])
    return lax.dot_general(a, b, (dims, batches), precision, preferred), (*batch, *free[0], *free[1])


def contract_all(operands: list, labels: list[tuple], result: tuple, sizes: dict, path, precision, preferred):
    """The sum of products, pair by pair along `path`."""
    def needed(without: Sequence[int]) -> set:
        return set(result).union(*[labels[k] for k in range(len(labels)) if k not in without])
    for position in range(len(operands)):
        operands[position], labels[position] = _simplified(operands[position], labels[position], needed([position]), sizes)
    for step in path:
        chosen = sorted(step)
        x, have = operands[chosen[0]], labels[chosen[0]]
        for taken, other in enumerate(chosen[1:], 2):
            still = needed(chosen[:taken]) | set(itertools.chain(*[labels[k] for k in chosen[taken:]]))
            y, names = operands[other], labels[other]
            wanted = result if len(operands) == 2 else ()
            x, have = _product(x, have, y, names, still, wanted, precision, preferred)
        operands = [o for k, o in enumerate(operands) if k not in chosen] + [x]
        labels = [names for k, names in enumerate(labels) if k not in chosen] + [have]
        last = len(operands) - 1
        operands[last], labels[last] = _simplified(x, have, needed([last]), {c: n for c, n in zip(have, x.shape)})
    (x,), (have,) = operands, labels
    x = lax.transpose(x, [have.index(c) for c in result if c in have])
    shape = tuple([sizes[c] for c in result])
    if x.shape != shape:                                       # labels that only axes of size 1 carried
        x = lax.broadcast_in_dim(x, shape, tuple([i for i, c in enumerate(result) if c in have]))
    return x if preferred is None else lax.convert_element_type(x, preferred)


@library(static_argnames=("subscripts", "optimize", "precision", "preferred"))
def _einsum(operands, subscripts, optimize, precision, preferred):
    arrays = [as_array(x) for x in promote_dtypes(*arraylike("einsum", *operands))]
    labels, result, sizes = parse(subscripts, tuple([x.shape for x in arrays]))
    path = plan(labels, result, sizes, optimize)
    return contract_all(arrays, list(labels), result, sizes, path, precision, preferred)


def _static_path(optimize):
    return optimize if isinstance(optimize, (bool, str)) else tuple([step if isinstance(step, str) else tuple(step) for step in optimize])


def einsum(subscripts, /, *operands, out=None, optimize="auto", precision=None, preferred_element_type=None, _dot_general=None, out_sharding=None):
    """The sum of products that Einstein's notation describes: einsum('ij,jk->ik', a, b)[i, k] = Σ_j a[i, j] b[j, k].

    subscripts: for each operand a letter per axis, joined by ','; after '->' the letters of the result's axes, in order; letters not
    there are summed over. Without '->': the letters that appear once, sorted. '...' stands for axes that broadcast; a letter that
    an operand has twice means its diagonal. Or, as operands: einsum(a, [0, 1], b, [1, 2], [0, 2]).
    optimize: 'auto' tries all orders of few operands and proceeds greedily with many; False: from left to right; or a path
    [(0, 1), …] as einsum_path returns it. precision: see lax.Precision. preferred_element_type: the dtype in which products are added.
    Raises ValueError for notation that does not fit, TypeError for operands that are no arrays.
    """
    unsupported_out("einsum", out)
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    if not operands:
        raise ValueError("einsum needs at least one operand")
    preferred = None if preferred_element_type is None else dtypes.requested(preferred_element_type, "einsum")
    return _einsum(list(operands), subscripts, _static_path(optimize), precision, preferred)


def einsum_path(subscripts, /, *operands, optimize="auto") -> tuple[list, str]:
    """The order in which `einsum` multiplies: (the pairs, as positions in the list of operands, a table of the products)."""
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    labels, result, sizes = parse(subscripts, tuple([typeof(x).shape for x in operands]))
    path = plan(labels, result, sizes, optimize)
    terms, lines = [frozenset(t) for t in labels], []
    naive = _volume(set(itertools.chain(*labels)), sizes) * max(1, len(terms))
    total = 0
    for pair in path:
        others = [t for k, t in enumerate(terms) if k not in pair]
        union = frozenset().union(*[terms[k] for k in pair])
        made = union & frozenset().union(result, *others)
        total += 2 * _volume(union, sizes)
        word = lambda labels: "".join(map(str, sorted(labels, key=str)))
        lines.append(f"  {','.join([word(terms[k]) for k in pair])}->{word(made)}: {2 * _volume(union, sizes):.3e} operations, "
                     f"{_volume(made, sizes):.3e} elements")
        terms = [*others, made]
    report = f"  Complete contraction: {subscripts}\n  Naive operations: {naive:.3e}\n  Operations along the path: {total:.3e}\n" + "\n".join(lines)
    return path, report
