"""Looking into compiled programs while they run: debug.print, debug.callback."""
from __future__ import annotations

import builtins
import re
import string
from typing import Callable

from mini_jax.core.effects import HostEffect
from mini_jax.core.tracebacks import boundary
from mini_jax.transforms.callbacks import bind_call, debug_callback_p

__all__ = ["print", "callback"]


@boundary
def callback(callback: Callable, *args, ordered: bool = False, partitioned: bool = False, **kwargs) -> None:
    """Call callback(*args, **kwargs) in Python each time that the compiled program comes here; what it returns is dropped.

    Arguments are pytrees of arrays; leaves that are no arrays go along as they are. It changes nothing about the program: under
    derivatives it sees the primal values, under vmap it is called for each example, in each replica of pmap, in each step of a loop.
    ordered: after the ordered calls before it in the program; vmap and pmap refuse it (ValueError). An exception in it raises
    JaxRuntimeError where the program is called.
    """
    if not callable(callback):
        raise TypeError(f"debug.callback takes a function, got {callback!r:.200} of type {type(callback).__name__}")
    bind_call(debug_callback_p, callback, "debug.callback", args, kwargs, None, (), static=True, effect=HostEffect("debug", bool(ordered)))


@boundary
def print(fmt: str, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False, **kwargs) -> None:
    """Print fmt.format(*args, **kwargs) each time that the compiled program comes here, with the values that arrays have then.

        debug.print("x = {x}, sum {:.3f}", x.sum(), x=x)

    ordered: as in `callback`. Raises ValueError, while tracing, where the fields of fmt and the arguments do not fit together, and for
    an f-string, which would show the traced values instead of numbers.
    """
    if not isinstance(fmt, str):
        raise TypeError(f"debug.print takes a format string first, as in debug.print('x = {{}}', x), got {fmt!r:.200} of type {type(fmt).__name__}")
    if not skip_format_check:
        if "Tracer<" in fmt:
            raise ValueError(f"debug.print was given the text of a traced value: {fmt!r:.200}. Leave the f before the string away and pass "
                             "the values as arguments: debug.print('x = {x}', x=x)")
        _Fields().vformat(fmt, args, kwargs)

    def show(*args, **kwargs):
        builtins.print(fmt.format(*args, **kwargs))
    bind_call(debug_callback_p, show, "debug.print", args, kwargs, None, (), as_numpy=True, static=True, effect=HostEffect("debug", bool(ordered)))


class _Fields(string.Formatter):
    """Reads a format string for its fields alone. ValueError where one has no argument, or an argument no field."""

    def get_field(self, field_name, args, kwargs):
        name = re.split(r"[.\[]", field_name, maxsplit=1)[0]
        key = int(name) if name.isdigit() else name
        if isinstance(key, int) and key >= len(args):
            raise ValueError(f"debug.print: the format string has a field for positional argument {key}, but there are {len(args)}")
        if isinstance(key, str) and key not in kwargs:
            raise ValueError(f"debug.print: the format string has a field {{{key}}}, but there is no keyword argument {key!r}"
                             + (f"; there are {', '.join(kwargs)}" if kwargs else f": pass {key}=…"))
        return None, key

    def convert_field(self, value, conversion):
        return value

    def format_field(self, value, format_spec):
        return ""

    def check_unused_args(self, used_args, args, kwargs):
        unused = [f"number {i}" for i in range(len(args)) if i not in used_args] + [repr(k) for k in kwargs if k not in used_args]
        if unused:
            raise ValueError(f"debug.print: no field of the format string shows argument {', '.join(unused)}: add {{}} or {{name}} for each")
