"""The language: types, programs, primitives, traces, and how a program is recorded. As `jax.core`, its names that users ask for are here."""
from __future__ import annotations

_NAMES = {"AbstractValue": "types", "ShapedArray": "types", "Tracer": "trace", "eval_jaxpr": "staging"}


def __getattr__(name: str):
    import importlib
    if name in _NAMES:
        value = globals()[name] = getattr(importlib.import_module(f"mini_jax.core.{_NAMES[name]}"), name)
        return value
    raise AttributeError(f"module 'mini_jax.core' has no attribute {name!r}")


def __dir__():
    return [*globals(), *_NAMES]
