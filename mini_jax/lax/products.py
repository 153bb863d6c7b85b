"""Products that contract named axes."""
from __future__ import annotations

from typing import Sequence

from mini_jax.core.state import state
from mini_jax.core.trace import typeof
from mini_jax.lax import shapes
from mini_jax.lax.collectives import along_dimension, axis_names, axis_size, summed
from mini_jax.lax.dot import dot_general
from mini_jax.lax.elementwise import mul

__all__ = ["pdot"]


def pdot(x, y, axis_name, pos_contract: Sequence = ((), ()), pos_batch: Sequence = ((), ()), precision=None):
    """Σ x · y over named axes and over contracted dimensions: psum(dot_general(x, y, (pos_contract, pos_batch)), axis_name), without the batch
    of products that stands in this formula.

    axis_name: a name or a tuple of names. pos_contract, pos_batch: pairs of sequences of dimensions of x and of y. Named axes along which
    both vary and that are not listed are batch axes by themselves.
    Along an axis of vmap it is one product that contracts the batch dimension; along axes of devices, a product and one psum.
    Raises NameError for a name that is not in scope, TypeError where dimensions do not fit, as dot_general does.

    >>> vmap(lambda x, y: lax.pdot(x, y, "i"), axis_name="i")(xs, ys)                 # xs · ys, at each index
    """
    names = axis_names(axis_name)
    axis_size(names)
    batch = [name for name in names if not state.axes[name].spread]
    varies = lambda v: frozenset([name for name in batch if name in typeof(v).varying])
    both = tuple([name for name in batch if name in varies(x) & varies(y)])
    copies = axis_size([name for name in batch if name not in varies(x) | varies(y)])
    x, y = summed(x, varies(x) - varies(y)), summed(y, varies(y) - varies(x))
    (x_contract, y_contract), (x_batch, y_batch) = [[tuple(dims) for dims in pair] for pair in (pos_contract, pos_batch)]
    if both:
        x, y = [along_dimension(shapes.expand_dims(v, (0,)), both, 0) for v in (x, y)]
        x_contract, y_contract, x_batch, y_batch = [tuple([d + 1 for d in dims]) for dims in (x_contract, y_contract, x_batch, y_batch)]
        x_contract, y_contract = (0, *x_contract), (0, *y_contract)
    out = dot_general(x, y, ((x_contract, y_contract), (x_batch, y_batch)), precision)
    if copies != 1:
        out = mul(out, typeof(out).dtype.type(copies))
    return summed(out, frozenset(names) - frozenset(batch))
