"""A line on the terminal while a program compiles for long: `compiling step (train.py:31, 4,812 equations): 12 s`.

    with compiling(describe): …          describe() is asked for the words only once the line is due

It comes after two seconds, changes in place, and is erased at the end; nothing is written where stderr is no terminal. What compiles is noted
in a list that one thread, started with the first compilation on a terminal, looks at when the next line is due, so a short compilation
costs some microseconds.
"""
from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Callable

from mini_jax.core import config

AFTER, EVERY = 2.0, 1.0                           # seconds until the line appears, and between its changes

_lock = threading.Lock()
_due = threading.Event()                          # something compiles, so the thread has something to look at
_running: list["compiling"] = []                  # in the order in which they began: the oldest has the line
_thread: threading.Thread | None = None


class compiling:
    """What compiles within the block is shown if it takes long (`config.compile_progress`)."""
    __slots__ = ("describe", "began", "width", "watched")

    def __init__(self, describe: Callable[[], str]):
        self.describe, self.began, self.width = describe, 0.0, 0

    def __enter__(self):
        self.watched = config.compile_progress.value and on_terminal()
        if self.watched:
            self.began = time.monotonic()
            with _lock:
                _running.append(self)
            if not _due.is_set():
                _start()
                _due.set()
        return self

    def __exit__(self, *_):
        if self.watched:
            with _lock:
                _running.remove(self)
                if self.width:
                    _write("\r" + " " * self.width + "\r")


def on_terminal() -> bool:
    """Is stderr a terminal on which a line can be changed?"""
    try:
        return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    except (AttributeError, ValueError):          # there is none (pythonw), or it is closed
        return False


def _start() -> None:
    global _thread
    with _lock:
        if _thread is None or not _thread.is_alive():          # a forked process has none
            _thread = threading.Thread(target=_watch, name="mini_jax compile progress", daemon=True)
            with contextlib.suppress(RuntimeError):            # Python that is about to end starts no more threads
                _thread.start()


def _watch() -> None:
    while True:
        _due.wait()
        with _lock:
            if not _running:
                _due.clear()
                continue
            first = _running[0]
            wait = first.began + AFTER - time.monotonic()
            if wait <= 0:
                _show(first)
        time.sleep(wait if wait > 0 else EVERY)


def _show(first: compiling) -> None:
    line = f"compiling {first.describe()}: {time.monotonic() - first.began:.0f} s"
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns - 1
    except (AttributeError, OSError, ValueError):
        columns = 79
    line = line if len(line) <= columns or columns < 10 else "…" + line[1 - columns:]
    _write("\r" + line.ljust(first.width))
    first.width = len(line)


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):
        pass
