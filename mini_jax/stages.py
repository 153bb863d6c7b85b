"""The classes of `jax.stages`."""
from __future__ import annotations

from typing import Any, Protocol, Union, runtime_checkable

from mini_jax.transforms.stages import ArgInfo, Compiled, Lowered, Traced                                        # noqa: F401

CompilerOptions = dict[str, Union[str, bool]]


@runtime_checkable
class Wrapped(Protocol):
    """What jit and pmap return: a function with the first of the stages."""

    def __call__(self, *args, **kwargs) -> Any: ...
    def trace(self, *args, **kwargs) -> Traced: ...
    def lower(self, *args, **kwargs) -> Lowered: ...
