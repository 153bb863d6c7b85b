"""Types of values: interned, so that equal types are one object and are compared with `is`."""
from __future__ import annotations

import weakref
from typing import Any


from mini_jax.core import dtypes


class AbstractValue:
    """What a program knows of a value without the value itself."""
    __slots__ = ("__weakref__",)

    def tangent(self) -> "AbstractValue":
        """The type of a tangent (and of a cotangent) of a value of this type."""
        raise TypeError(f"values of type {self} have no tangents")


_NO_AXES: frozenset = frozenset()


class ShapedArray(AbstractValue):
    """`f32[3,4]`: an array of known shape and dtype.

    weak_type: the dtype came from a Python scalar and gives way in promotion.
    varying: the named axes (of vmap, pmap, shard_map) over which the value differs.

    `ShapedArray(shape, dtype)` and `array_type` return the one object there is for these facts.
    """
    __slots__ = ("shape", "dtype", "weak_type", "varying", "ndim", "size", "text", "mlir", "_tangent", "_strong")

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    varying: frozenset

    def __new__(cls, shape, dtype, weak_type: bool = False):
        return array_type(tuple(shape), dtype if dtypes.is_extended(dtype) else dtypes.canonicalize(dtypes.as_dtype(dtype)), weak_type)

    def update(self, *, shape=None, dtype=None, weak_type=None, varying=None) -> "ShapedArray":
        """The type that differs from this one in what is given."""
        return array_type(self.shape if shape is None else shape,
                          self.dtype if dtype is None else dtype,
                          self.weak_type if weak_type is None else weak_type,
                          self.varying if varying is None else varying)

    @property
    def strong(self) -> "ShapedArray":
        """The same type without weak_type."""
        if self._strong is None:
            self._strong = self.update(weak_type=False) if self.weak_type else self
        return self._strong

    def tangent(self) -> "ShapedArray":
        """float and complex: the type itself; all others: float0 of the same shape."""
        if self._tangent is None:
            self._tangent = self if dtypes.is_inexact(self.dtype) else self.update(dtype=dtypes.float0, weak_type=False)
        return self._tangent

    def __len__(self):
        if not self.shape:
            raise TypeError("len() of a value without dimensions")
        return self.shape[0]

    def __str__(self):
        return self.text

    def __repr__(self):
        return f"ShapedArray({self.text}{', weak_type=True' if self.weak_type else ''})"

    def __reduce__(self):
        return array_type, (self.shape, self.dtype, self.weak_type, self.varying)


_types: "weakref.WeakValueDictionary[tuple, ShapedArray]" = weakref.WeakValueDictionary()
_recent: dict[tuple, ShapedArray] = {}      # keeps the working set alive and spares the weak look-up


def array_type(shape: tuple[int, ...], dtype, weak_type: bool = False, varying: frozenset = _NO_AXES) -> ShapedArray:
    """The type of an array. `shape` is a tuple of ints, `dtype` a NumPy dtype object or an extended dtype, as they are."""
    key = (shape, dtype, weak_type, varying)
    found = _recent.get(key)
    return found if found is not None else _intern(key)


def _intern(key) -> ShapedArray:
    found = _types.get(key)
    if found is None:
        shape, dtype, weak_type, varying = key
        made = object.__new__(ShapedArray)
        made.shape, made.dtype, made.weak_type, made.varying = shape, dtype, weak_type, varying
        made.ndim = len(shape)
        size = 1
        for n in shape:
            size *= n
        made.size = size
        axes = "{" + ",".join(sorted(map(str, varying))) + "}" if varying else ""
        made.text = f"{dtypes.short_name(dtype)}[{','.join(map(str, shape))}]{axes}"
        made.mlir = dtypes.mlir_tensor(shape, dtype)
        made._tangent = made._strong = None
        found = _types.setdefault(key, made)     # one wins when two threads meet
    if len(_recent) > 8192:
        _recent.clear()
    _recent[key] = found
    return found


class RefType(AbstractValue):
    """`Ref{f32[3]}`: a place that holds an array of the type `inner`. Built by `ref_type`, which returns the one object there is."""
    __slots__ = ("inner",)

    shape = property(lambda self: self.inner.shape)
    dtype = property(lambda self: self.inner.dtype)
    ndim = property(lambda self: self.inner.ndim)
    size = property(lambda self: self.inner.size)
    varying = property(lambda self: self.inner.varying)
    weak_type = False

    def update(self, **changes) -> "RefType":
        """The type of a ref to what differs from `inner` in what is given."""
        return ref_type(self.inner.update(**changes))

    def tangent(self) -> "RefType":
        return ref_type(self.inner.tangent())

    def __str__(self):
        return f"Ref{{{self.inner}}}"

    def __repr__(self):
        return f"RefType({self.inner})"

    def __reduce__(self):
        return ref_type, (self.inner,)


_ref_types: "weakref.WeakValueDictionary[ShapedArray, RefType]" = weakref.WeakValueDictionary()


def ref_type(inner: ShapedArray) -> RefType:
    """The type of a ref to an array of this type. TypeError for a ref to a ref."""
    if type(inner) is not ShapedArray:
        raise TypeError(f"a ref holds an array, not {inner}: there are no refs to refs")
    inner = inner.strong
    found = _ref_types.get(inner)
    if found is None:
        made = RefType()
        made.inner = inner
        found = _ref_types.setdefault(inner, made)
    return found


class Token(AbstractValue):
    """The type of an ordering token: a value without data that one effect hands to the next."""
    __slots__ = ()
    mlir = "!stablehlo.token"

    def __repr__(self):
        return "token"


token = Token()
