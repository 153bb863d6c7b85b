"""platform_dependent: one of several functions, chosen by the platform that a program is compiled for; composite: a function as an operation of a name."""
from __future__ import annotations

import functools
from typing import Any, Callable

from lowering.emit import lowers
from mini_jax.core import dtypes
from mini_jax.core.primitive import Primitive
from mini_jax.core.tracebacks import boundary
from mini_jax.core.types import array_type
from mini_jax.runtime import xla
from mini_jax.runtime.devices import current_device
from mini_jax.runtime.platforms import exact
from mini_jax.transforms.control.bodies import check_callable
from mini_jax.transforms.control.branches import choose
from mini_jax.transforms.jit import jit

__all__ = ["platform_dependent", "composite", "platform_index_p"]

_NAMES = {"gpu": ("cuda", "rocm", "gpu")}             # the platforms that a name of a keyword stands for; else itself

platform_index_p = Primitive("platform_index", facts={"family": "higher_order"})
_INDEX = array_type((), dtypes.int32)


@boundary
def platform_dependent(*args, default: Callable | None = None, **per_platform: Callable) -> Any:
    """per_platform[p](*args) on the platform p ("cpu", "cuda", "rocm", "tpu", or "gpu" for either kind of GPU), default(*args) on the others.

    All functions are recorded, and must give results of equal types. Which one is compiled, alone, is decided then. Raises
    TypeError for what is no function and without any, NotImplementedError, when it is compiled, for a platform without a function.
    """
    if not per_platform and default is None:
        raise TypeError("platform_dependent needs a function for a platform, or a default")
    for name, fun in per_platform.items():
        check_callable(fun, f"platform_dependent: {name}")
    if default is not None:
        check_callable(default, "platform_dependent: default")
    platforms = tuple([_NAMES.get(name, (name,)) for name in per_platform])
    branches = [*per_platform.values(), *([] if default is None else [default])]
    if not xla.staging.value:
        return branches[_chosen(current_device().platform, platforms, default is not None)](*args)
    if len(branches) == 1 and default is None:
        branches *= 2                                 # a choice all the same, so that the platform is looked at
    index = platform_index_p.bind(platforms=platforms, has_default=default is not None)
    return choose("platform_dependent", index, branches, [*per_platform, "default"], args)


def _chosen(platform: str, platforms: tuple, has_default: bool) -> int:
    platform = exact(platform)                        # GPUs call theirs "gpu", of whichever kind they are
    for i, names in enumerate(platforms):
        if platform in names:
            return i
    if has_default:
        return len(platforms)
    raise NotImplementedError(f"platform_dependent has no function for the platform {platform}, only for "
                              f"{', '.join([name for names in platforms for name in names])}, and no default")


platform_index_p.type_rule = lambda *, platforms, has_default: _INDEX


@lowers(platform_index_p)
def _lower(e, eqn):
    return e.constant(_chosen(e.module.platform, **eqn.params), _INDEX)


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """`decomposition` as an operation of the name `name`, which stays a function of that name in the compiled program.

    Positional arguments are arrays, keyword arguments static values. version: of the operation, for those who look for it by its name.
    """
    check_callable(decomposition, "composite: decomposition")

    @functools.wraps(decomposition)
    def named(*args, **kwargs):
        return decomposition(*args, **kwargs)
    named.__name__ = name

    @functools.wraps(decomposition)
    def operation(*args, **kwargs):
        return jit(named, static_argnames=tuple(kwargs))(*args, **kwargs)
    return operation
