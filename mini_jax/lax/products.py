"""Products that contract named axes."""
from __future__ import annotations

from typing import Sequence

from mini_jax.core.linear import Accumulator, Zero, zero_like
from mini_jax.core.primitive import Primitive
from mini_jax.core.state import reduced_axes, state
from mini_jax.core.trace import typeof
from mini_jax.lax.collectives import axis_names, axis_size, from_copies, psum_p, summed
from mini_jax.lax.dot import batched_numbers, canonical_precision, contracted_numbers, dot_general_p
from mini_jax.lax.elementwise import mul
from mini_jax.lax.shapes import add_any, reduce_sum

__all__ = ["pdot", "pdot_p"]

pdot_p = Primitive("pdot", facts={"family": "collectives", "named_axes": True, "axes": lambda params: params["axes"]})


def pdot(x, y, axis_name, pos_contract: Sequence = ((), ()), pos_batch: Sequence = ((), ()), precision=None):
    """Σ x · y over named axes and over contracted dimensions: psum(dot_general(x, y, (pos_contract, pos_batch)), axis_name), without the batch
    of products that stands in this formula.

    axis_name: a name or a tuple of names. pos_contract, pos_batch: pairs of sequences of dimensions of x and of y. Named axes along which
    both vary and that are not listed are batch axes by themselves.
    Along an axis of vmap it is one product that contracts the batch dimension; along axes of devices, a product and one psum.
    Raises NameError for a name that is not in scope, TypeError where dimensions do not fit, as dot_general does.
    """
    names = axis_names(axis_name)
    axis_size(names)
    pairs = tuple([tuple([tuple(dims) for dims in pair]) for pair in (pos_contract, pos_batch)])
    return pdot_p.bind(x, y, axes=names, dimension_numbers=pairs, precision=canonical_precision(precision), preferred_element_type=None)


def _type(x, y, *, axes, **params):
    return dot_general_p.type_rule(x, y, **params).update(varying=(x.varying | y.varying) - frozenset(axes))


def _jvp(primals, tangents, **params):
    (x, y), (dx, dy) = primals, tangents
    out = pdot_p.bind(x, y, **params)
    terms = [pdot_p.bind(a, b, **params) for a, b in ((dx, y), (x, dy)) if type(a) is not Zero and type(b) is not Zero]
    return out, zero_like(out) if not terms else terms[0] if len(terms) == 1 else add_any(*terms)


class _OfCopies(Accumulator):
    """Where cotangents of each copy of an operand go that is the same along some axes."""
    __slots__ = ("operand", "axes")

    def __init__(self, operand: Accumulator, axes: frozenset):
        self.aval, self.operand, self.axes = operand.aval.update(varying=operand.aval.varying | axes), operand, axes

    def add(self, cotangent) -> None:
        self.operand.add(from_copies(cotangent, self.axes))


def _transpose(ct, x, y, *, axes, **params):
    """That of the product, of that of the sum (as psum's)."""
    own = reduced_axes() - typeof(ct).varying
    sent = tuple([name for name in axes if name not in own])
    ct = psum_p.bind(ct, axes=sent, groups=None)[0] if sent else ct
    operand, other = (x, y) if isinstance(x, Accumulator) else (y, x)
    copied = frozenset(axes) - operand.aval.varying
    if state.reduced is not None:                        # ct is the same for all: the sum of its products is its product with the sum
        alone = copied & state.reduced.now & typeof(other).varying - typeof(ct).varying
        other, copied = summed(other, alone), copied - alone
    gathers = _OfCopies(operand, copied) if operand.wanted else operand
    dot_general_p.transpose(ct, *((gathers, other) if operand is x else (other, gathers)), **params)


def _batch(axis, args, dims, *, axes, dimension_numbers, **params):
    if axis.name is None or axis.name not in axes:
        numbers, dim = batched_numbers(args, dims, dimension_numbers)
        return pdot_p.bind(*args, axes=axes, dimension_numbers=numbers, **params), dim
    if None not in dims:
        dimension_numbers = contracted_numbers(dims, dimension_numbers)
    else:                                                # of what is the same for all, so many times the product with the sum of the other
        args = [x if d is None else reduce_sum(x, (d,)) for x, d in zip(args, dims)]
        if dims == [None, None]:
            args[0] = mul(args[0], typeof(args[0]).dtype.type(axis.size))
    rest = tuple([name for name in axes if name != axis.name])
    params |= {"dimension_numbers": dimension_numbers}
    return pdot_p.bind(*args, axes=rest, **params) if rest else dot_general_p.bind(*args, **params), None


pdot_p.type_rule, pdot_p.jvp, pdot_p.transpose, pdot_p.batch = _type, _jvp, _transpose, _batch
