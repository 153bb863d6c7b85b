"""Looking into compiled programs while they run: debug.print, debug.log, debug.callback, debug.breakpoint."""
from __future__ import annotations

import builtins
import cmd
import linecache
import logging
import pprint
import re
import string
import sys
import threading
import warnings
from typing import Any, Callable

from mini_jax.core import source
from mini_jax.core.effects import HostEffect
from mini_jax.core.pytree import flatten
from mini_jax.core.trace import Tracer
from mini_jax.core.tracebacks import boundary
from mini_jax.runtime.pictures import inspect_array_sharding, visualize_array_sharding, visualize_sharding
from mini_jax.transforms.callbacks import bind_call, debug_callback_p

__all__ = ["print", "log", "callback", "breakpoint", "inspect_array_sharding", "visualize_array_sharding", "visualize_sharding"]


@boundary
def callback(callback: Callable, *args, ordered: bool = False, partitioned: bool = False, **kwargs) -> None:
    """Call callback(*args, **kwargs) in Python each time that the compiled program comes here; what it returns is dropped.

    Arguments are pytrees of arrays; leaves that are no arrays go along as they are. It changes nothing about the program: under
    derivatives it sees the primal values, under vmap it is called for each example, in each replica of pmap, in each step of a loop.
    ordered: after the ordered calls before it in the program; pmap, whose replicas have no order, refuses it (ValueError). An exception in
    it raises JaxRuntimeError where the program is called.
    """
    if not callable(callback):
        raise TypeError(f"debug.callback takes a function, got {callback!r:.200} of type {type(callback).__name__}")
    bind_call(debug_callback_p, callback, "debug.callback", args, kwargs, None, (), static=True, effect=HostEffect("debug", bool(ordered)))


@boundary
def print(fmt: str, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False, **kwargs) -> None:
    """Print fmt.format(*args, **kwargs) each time that the compiled program comes here, with the values that arrays have then.

        debug.print("x = {x}, sum {:.3f}", x.sum(), x=x)

    ordered: as in `callback`. Raises, while tracing, KeyError or IndexError for a field without an argument, ValueError for an argument
    without a field, and for an f-string, which would show the traced values instead of numbers.
    """
    _show("debug.print", builtins.print, fmt, args, kwargs, ordered, skip_format_check)


@boundary
def log(fmt: str, *args, ordered: bool = False, partitioned: bool = False, skip_format_check: bool = False, **kwargs) -> None:
    """`print` into the log: as a message of level INFO of the logger "mini_jax.debug"."""
    _show("debug.log", logging.getLogger("mini_jax.debug").info, fmt, args, kwargs, ordered, skip_format_check)


def _show(what: str, write: Callable[[str], Any], fmt: str, args: tuple, kwargs: dict, ordered: bool, skip_format_check: bool) -> None:
    """Write the formatted text each time that the program comes here."""
    if not isinstance(fmt, str):
        raise TypeError(f"{what} takes a format string first, as in {what}('x = {{}}', x), got {fmt!r:.200} of type {type(fmt).__name__}")
    if not skip_format_check:
        if "Tracer<" in fmt:
            raise ValueError(f"{what} was given the text of a traced value: {fmt!r:.200}. Leave the f before the string away and pass "
                             f"the values as arguments: {what}('x = {{x}}', x=x)")
        Fields(what).vformat(fmt, args, kwargs)

    def show(*args, **kwargs):
        write(fmt.format(*args, **kwargs))
    bind_call(debug_callback_p, show, what, args, kwargs, None, (), as_numpy=True, static=True, effect=HostEffect("debug", bool(ordered)))


class Fields(string.Formatter):
    """Reads a format string for its fields alone. KeyError or IndexError where one has no argument; ValueError where an argument has no field
    and all_used asks for one. what: whose string it is."""

    def __init__(self, what: str, all_used: bool = True):
        super().__init__()
        self.what, self.all_used = what, all_used

    def get_field(self, field_name, args, kwargs):
        name = re.split(r"[.\[]", field_name, maxsplit=1)[0]
        key = int(name) if name.isdigit() else name
        if isinstance(key, int) and key >= len(args):
            raise IndexError(f"{self.what}: the format string has a field for positional argument {key}, but there are {len(args)}")
        if isinstance(key, str) and key not in kwargs:
            raise KeyError(f"{self.what}: the format string has a field {{{key}}}, but there is no keyword argument {key!r}"
                             + (f"; there are {', '.join(kwargs)}" if kwargs else f": pass {key}=…"))
        return None, key

    def convert_field(self, value, conversion):
        return value

    def format_field(self, value, format_spec):
        return ""

    def check_unused_args(self, used_args, args, kwargs):
        unused = [f"number {i}" for i in range(len(args)) if i not in used_args] + [repr(k) for k in kwargs if k not in used_args]
        if unused and self.all_used:
            raise ValueError(f"{self.what}: no field of the format string shows argument {', '.join(unused)}: add {{}} or {{name}} for each")


# --- breakpoint -------------------------------------------------------------------------------------------------------------------

@boundary
def breakpoint(*, backend: str | None = None, filter_frames: bool = True, num_frames: int | None = None, ordered: bool = False,
               token=None, stdin=None, stdout=None) -> None:
    """Stop here each time that the compiled program comes here, and read commands: the variables of the functions on the stack have the
    values that they have then.

    Commands: p and pp (print an expression), l (list the source), bt (backtrace), u and d (go to the caller's frame and back),
    c (continue), q (quit: an error ends the program), h (help). filter_frames: leave out the frames of this package; num_frames: how
    many at most. stdin, stdout: files to use instead of the terminal. Under vmap it stops for each example.
    """
    frames, frame = [], sys._getframe(1)
    while frame is not None and (num_frames is None or len(frames) < num_frames):
        if not filter_frames or not source.is_internal(frame.f_code.co_filename):
            frames.append(frame)
        frame = frame.f_back
    places = [(f.f_code.co_filename, f.f_lineno, f.f_code.co_qualname, f.f_globals) for f in frames]

    def stop(*variables):
        with _stopped:
            _Prompt(list(zip(places, variables)), stdin, stdout).cmdloop()
    bind_call(debug_callback_p, stop, "debug.breakpoint", tuple([_shown_variables(f.f_locals) for f in frames]), {}, None, (), static=True,
              effect=HostEffect("debug", bool(ordered)))


_stopped = threading.Lock()                      # one prompt at a time


class _Opaque:
    """A variable that is no pytree of arrays, as a leaf that goes along."""
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


def _shown_variables(variables: dict) -> dict:
    """The variables, those that hold no tracers wrapped: their values are known already."""
    def holds_tracer(value) -> bool:
        try:
            return any([isinstance(leaf, Tracer) and leaf._trace.alive for leaf in flatten(value)[0]])
        except (TypeError, ValueError):              # dictionaries whose keys have no order
            return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")              # of iterators, which are leaves
        return {name: value if holds_tracer(value) else _Opaque(value) for name, value in variables.items()}


class _Prompt(cmd.Cmd):
    """Reads commands about frames, innermost first: ((file, line, function, globals), variables)."""
    prompt = "(mini_jax) "

    def __init__(self, frames: list, stdin, stdout):
        super().__init__(stdin=stdin, stdout=stdout)
        self.use_rawinput = stdin is None
        self.frames = [(place, {k: v.value if type(v) is _Opaque else v for k, v in variables.items()}) for place, variables in frames]
        self.at = 0

    def preloop(self):
        self._say(self._place(self.at))

    def _say(self, text: str) -> None:
        self.stdout.write(text + "\n")

    def _place(self, i: int) -> str:
        (file, line, function, _), _ = self.frames[i]
        return f"{'>' if i == self.at else ' '} {file}({line}) {function}\n-> {linecache.getline(file, line).strip()}"

    def _value(self, expression: str):
        (_, _, _, names), variables = self.frames[self.at]
        return eval(expression, {**names, **variables})

    def _show(self, expression: str, form: Callable) -> None:
        try:
            self._say(form(self._value(expression)))
        except Exception as error:
            self._say(f"*** {type(error).__name__}: {error}")

    def do_p(self, expression):
        """p EXPRESSION: print its value"""
        self._show(expression, repr)

    def do_pp(self, expression):
        """pp EXPRESSION: print its value, over several lines"""
        self._show(expression, pprint.pformat)

    def do_l(self, _):
        """l: list the source around this line"""
        file, line = self.frames[self.at][0][:2]
        for n in range(max(line - 5, 1), line + 6):
            text = linecache.getline(file, n).rstrip()
            self._say(f"{n:5}{' ->' if n == line else '   '} {text}")

    def do_bt(self, _):
        """bt: the frames, outermost first"""
        self._say("\n".join([self._place(i) for i in reversed(range(len(self.frames)))]))

    def do_u(self, _):
        """u: go up, to the caller's frame"""
        self.at = min(self.at + 1, len(self.frames) - 1)
        self._say(self._place(self.at))

    def do_d(self, _):
        """d: go down again"""
        self.at = max(self.at - 1, 0)
        self._say(self._place(self.at))

    def do_c(self, _):
        """c: continue"""
        return True

    def do_q(self, _):
        """q: quit; the program ends with an error"""
        raise RuntimeError("quit from debug.breakpoint")

    do_list, do_up, do_down, do_continue, do_quit, do_exit, do_where = do_l, do_u, do_d, do_c, do_q, do_q, do_bt
    do_cont, do_w = do_c, do_bt

    def do_EOF(self, _):
        """end of input: continue"""
        return True

    def emptyline(self):
        return False

    def default(self, line):
        self._show(line, repr)
