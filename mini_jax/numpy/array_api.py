"""What the Python array API standard (2024.12) asks a namespace to say of itself: its version, its dtypes and its devices."""
from __future__ import annotations

from mini_jax.core import dtypes
from mini_jax.numpy.scalars import isdtype
from mini_jax.runtime import devices

__all__ = ["__array_api_version__", "__array_namespace_info__"]

__array_api_version__ = "2024.12"
_STANDARD = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64", "complex64", "complex128")


class __array_namespace_info__:
    """What mini_jax.numpy can do, in the words of the Python array API: `__array_namespace_info__().dtypes(kind="integral")`."""

    def capabilities(self) -> dict:
        """{"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}: shapes that depend on values are there
        outside of jit only, so that a library must not rely on them."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        """None, which as `device=` means: where the computation goes by itself."""
        return None

    def devices(self) -> list:
        """All that `device=` may be: None and each device of the default backend."""
        return [None, *devices.devices()]

    def default_dtypes(self, *, device=None) -> dict:
        """The dtypes of what is made of Python's numbers, by kind; with enable_x64 they have 64 bits."""
        self._check(device)
        kinds = {"real floating": float, "complex floating": complex, "integral": int, "indexing": int}
        return {kind: dtypes.canonicalize(dtypes.python_scalar_types[number]) for kind, number in kinds.items()}

    def dtypes(self, *, device=None, kind=None) -> dict:
        """The standard's dtypes by name, those of `kind` (as for isdtype; None: all). Those of 64 bits are there with enable_x64."""
        self._check(device)
        there = [dtypes.as_dtype(name) for name in _STANDARD if dtypes.canonicalize(dtypes.as_dtype(name)).name == name]
        return {dtype.name: dtype for dtype in there if kind is None or kind == () or isdtype(dtype, kind)}

    def _check(self, device) -> None:
        if device not in self.devices():
            raise ValueError(f"no device {device!r} here; there are {self.devices()}")
