"""Choosing between values, element by element: select_n and clamp."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.core.linear import Accumulator, Zero
from mini_jax.core.primitive import Primitive
from mini_jax.core.trace import typeof
from mini_jax.core.types import array_type
from mini_jax.lax.functions import of_one_dtype
from mini_jax.lax.rows import ANY, BOOL, REALS, gathered, nary, nary_batch, nary_jvp, result_shape, spread, type_error

__all__ = ["select", "select_n", "clamp", "select_n_p", "clamp_p"]

select_n_p = Primitive("select_n", facts={"family": "elementwise", "dtypes": ANY})


def select(pred, on_true, on_false):
    """on_true where pred holds, else on_false.

    pred: booleans of the shape of the others, or a scalar. on_true, on_false: of one dtype and one shape (or scalars, which stand
    for an array of equal entries). Raises TypeError otherwise. (StableHLO: select)
    """
    return select_n(pred, on_false, on_true)


def select_n(which, *cases):
    """cases[which], element by element.

    which: booleans (of two cases, False takes the first) or integers, of the shape of the cases or a scalar; below 0 takes the
    first case, beyond the last one the last. cases: of one dtype and one shape (or scalars, which stand for an array of equal
    entries). Raises TypeError otherwise.
    """
    return select_n_p.bind(which, *of_one_dtype(*cases))


def _select_type(which, *cases):
    types = [which, *cases]
    if not cases:
        raise type_error("select_n", types, "there is no case to choose")
    if not (dtypes.is_bool(which.dtype) or dtypes.is_integer(which.dtype)):
        raise type_error("select_n", types, f"the first operand chooses and is boolean or integer, not {which.dtype}")
    if dtypes.is_bool(which.dtype) and len(cases) > 2:
        raise type_error("select_n", types, f"a boolean chooses between two cases, here are {len(cases)}; choose with integers")
    if any([case.dtype != cases[0].dtype for case in cases]):
        raise type_error("select_n", types, "the cases must have one dtype (mini_jax.numpy.where promotes)")
    return array_type(result_shape("select_n", types), cases[0].dtype, all([case.weak_type for case in cases]))


def _select_jvp(primals, tangents):
    which, *cases = primals
    y = select_n_p.bind(*primals)
    out = typeof(y).tangent()
    if all([type(t) is Zero for t in tangents[1:]]):
        return y, Zero(out)
    zero = out.dtype.type(0)
    return y, spread(select_n_p.bind(which, *[zero if type(t) is Zero else t for t in tangents[1:]]), y)


def _select_transpose(ct, which, *cases):
    zero = typeof(ct).dtype.type(0)
    for position, case in enumerate(cases):
        if isinstance(case, Accumulator) and case.wanted:
            case.add(gathered(select_n_p.bind(which, *[ct if i == position else zero for i in range(len(cases))]), case.aval))


select_n_p.type_rule, select_n_p.jvp, select_n_p.transpose = _select_type, _select_jvp, _select_transpose
select_n_p.batch = nary_batch(select_n_p)

clamp_p = nary("clamp", 3, REALS | BOOL)


def clamp(min, x, max):
    """x where it lies between min and max, else the nearer of these: the lesser of max and the greater of min and x.

    x, min, max: real or boolean arrays or numbers of one dtype and one shape (or scalars). NaN if any of the three is. The
    derivative by x is 1 strictly between the bounds, 0 on and outside them. Raises TypeError otherwise. (StableHLO: clamp)
    """
    return clamp_p.bind(*of_one_dtype(min, x, max))


clamp_p.jvp = nary_jvp(clamp_p, (lambda t, y, low, x, high: select((low > x) & (low < high), t, 0.0),
                                 lambda t, y, low, x, high: select((x > low) & (x < high), t, 0.0),
                                 lambda t, y, low, x, high: select(high < x, t, 0.0)))
