"""Interpolation of values on a grid."""
from __future__ import annotations

import itertools

import numpy as np

from mini_jax import numpy as jnp
from mini_jax.core.pytree import register_pytree_node_class
from mini_jax.numpy.promotion import array_argument, arraylike, as_array, promote_dtypes_inexact

__all__ = ["RegularGridInterpolator"]


@register_pytree_node_class
class RegularGridInterpolator:
    """The function that interpolates `values` (n₁, …, n_d, …) on the grid of coordinates `points`: d ascending vectors of sizes n₁, …, n_d.

    method: 'linear' or 'nearest'. fill_value: what it is outside of the grid, or None: as if the outermost cells went on. bounds_error must be False
    (NotImplementedError): values can't raise errors in compiled programs. Call it with points (..., d), or d arrays that broadcast: it returns
    (..., …). Differentiable by values, and where 'linear', by points. Raises ValueError for shapes that don't fit and unknown methods.
    """

    def __init__(self, points, values, method: str = "linear", bounds_error: bool = False, fill_value=np.nan):
        _check_method(method)
        if bounds_error:
            raise NotImplementedError("`bounds_error` takes no effect under JIT")
        values = array_argument("RegularGridInterpolator", *promote_dtypes_inexact(*arraylike("RegularGridInterpolator", values)))
        grid = tuple([as_array(p) for p in promote_dtypes_inexact(*arraylike("RegularGridInterpolator", *points))])
        if len(grid) > values.ndim:
            raise ValueError(f"there are {len(grid)} point arrays, but values has {values.ndim} dimensions")
        for i, p in enumerate(grid):
            if p.ndim != 1 or p.shape[0] != values.shape[i] or p.shape[0] < 2:
                raise ValueError(f"the points in dimension {i} must be a vector of size {values.shape[i]}, at least 2, got {p.aval}")
        self.method, self.bounds_error, self.fill_value, self.grid, self.values = method, bounds_error, fill_value, grid, values

    def tree_flatten(self):
        """The arrays it consists of, and how it interpolates."""
        return (self.grid, self.values, self.fill_value), (self.method, self.bounds_error)

    @classmethod
    def tree_unflatten(cls, how, arrays):
        """The interpolator of these arrays."""
        made = object.__new__(cls)
        (made.method, made.bounds_error), (made.grid, made.values, made.fill_value) = how, arrays
        return made

    def __call__(self, xi, method: str | None = None):
        method = self.method if method is None else method
        _check_method(method)
        d = len(self.grid)
        if isinstance(xi, tuple):
            xi = jnp.stack(jnp.broadcast_arrays(*xi), -1)
        xi = array_argument("RegularGridInterpolator", *promote_dtypes_inexact(*arraylike("RegularGridInterpolator", xi)))
        if xi.ndim == 1 and d == 1:
            xi = xi[:, None]
        if xi.shape[-1] != d:
            raise ValueError(f"the requested sample points xi have dimension {xi.shape[-1]}, but this interpolator has dimension {d}")
        cells, shares, outside = [], [], False
        for i, p in enumerate(self.grid):
            x = xi[..., i]
            cell = jnp.clip(jnp.searchsorted(p, x, side="right") - 1, 0, p.shape[0] - 2)
            cells.append(cell)
            shares.append((x - p[cell]) / (p[cell + 1] - p[cell]))
            outside = outside | (x < p[0]) | (x > p[-1])
        spread = lambda y: y.reshape(*y.shape, *(1,) * (self.values.ndim - d))
        if method == "nearest":
            out = self.values[tuple([jnp.where(s <= 0.5, c, c + 1) for c, s in zip(cells, shares)])]
        else:
            out = 0
            for corner in itertools.product((0, 1), repeat=d):
                weight = 1
                for share, upper in zip(shares, corner):
                    weight = weight * (share if upper else 1 - share)
                out = out + self.values[tuple([c + upper for c, upper in zip(cells, corner)])] * spread(weight)
        lost = jnp.any(jnp.isnan(xi), -1)
        if self.fill_value is not None:
            out = jnp.where(spread(outside), self.fill_value, out)
        return jnp.where(spread(lost), np.nan, out)


def _check_method(method: str) -> None:
    if method not in ("linear", "nearest"):
        raise ValueError(f"RegularGridInterpolator: method is 'linear' or 'nearest', got {method!r}")
