"""Types for annotations: `jax.typing`."""
from __future__ import annotations

from typing import Any, Protocol, Union, runtime_checkable

import numpy as np

from mini_jax.runtime.array import Array

ArrayLike = Union[Array, np.ndarray, np.bool_, np.number, bool, int, float, complex]
"""What functions take where they say they take arrays: an array, or what becomes one without a list being parsed."""


@runtime_checkable
class SupportsDType(Protocol):
    """Anything with a dtype."""
    @property
    def dtype(self) -> np.dtype: ...


DTypeLike = Union[str, type[Any], np.dtype, SupportsDType]
"""What may be given where a dtype is asked for."""
