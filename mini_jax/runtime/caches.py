"""Caches of programs: kept by the function, for as long as it lives; bounded all together, the least recently used first out.

    Kept()        what a function, a program or a primitive keeps: a dictionary
    ByFunction()  one for each function; it goes when the function does
    recorded, executables      the two bounds: over what all of those hold of recorded programs and of compiled ones
    code          XLA's executables by their text, so that what is recorded anew, from a function made anew, is not compiled anew

C++ answers hot calls, and Python doesn't see them. So that it knows what is in use, C++'s answers are forgotten from time to time, once for
every eighth of the capacity that is made anew: what is in use passes through Python once then (some 15 us). What is thrown out has
not been used since, so C++ holds nothing of it; where that is not sure, its answers are forgotten first.
"""
from __future__ import annotations

import threading
import types
import weakref
from collections import OrderedDict
from typing import Any, Callable

from mini_jax.core import config, replay
from mini_jax.core.program import Kept
from mini_jax.runtime import xla


# --- computed once, whoever asks first ------------------------------------------------------------------------------------


class _Pending:
    """A value that some thread is computing. values: it, once it is there."""
    __slots__ = ("done", "values")

    def __init__(self):
        self.done, self.values = threading.Event(), ()


_busy = threading.local()


def once(cache: dict, key, make: Callable[[], Any]):
    """cache[key], made by `make()` if it is not there. Threads that ask at the same time wait for the first of them.

    A thread that is itself making something does not wait (two that make each other's would wait forever): it makes its own.
    """
    while True:
        found, mine = cache.get(key), None
        if found is None:
            mine = _Pending()
            found = cache.setdefault(key, mine)
        if found is mine:
            depth = getattr(_busy, "depth", 0)
            _busy.depth = depth + 1
            try:
                value = make()
                cache[key], mine.values = value, (value,)
                return value
            except BaseException:
                cache.pop(key, None)
                raise
            finally:
                _busy.depth = depth
                mine.done.set()
        if type(found) is not _Pending:
            return found
        if getattr(_busy, "depth", 0):
            return make()
        found.done.wait()
        if found.values:                             # it may have been thrown out already
            return found.values[0]


# --- by function ------------------------------------------------------------------------------------------------------------


class ByFunction:
    """What is kept for each function, for as long as it lives; for a bound method as long as its object does, whose methods are
    objects made anew each time."""

    def __init__(self):
        self._functions: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
        self._objects: dict[int, tuple[weakref.ref, dict]] = {}

    def of(self, fun) -> Kept:
        if type(fun) is types.MethodType and (methods := self._methods(fun.__self__)) is not None:
            cache, fun = methods, fun.__func__
        else:
            cache = self._functions
        found = cache.get(fun)
        return found if found is not None else cache.setdefault(fun, Kept())

    def _methods(self, owner) -> dict | None:
        """What is kept for each method of an object, which is the same as no other; None where it can't be referred to weakly."""
        found = self._objects.get(id(owner))
        if found is None:
            try:
                gone = weakref.ref(owner, lambda _, place=id(owner), objects=self._objects: objects.pop(place, None))
            except TypeError:
                return None
            found = self._objects.setdefault(id(owner), (gone, {}))
        return found[1]

    def functions(self) -> list:
        """The functions for which something is kept."""
        return [*self._functions, *[fun for _, methods in list(self._objects.values()) for fun in list(methods)]]


# --- bounded together ---------------------------------------------------------------------------------------------------------


class _Calls:
    """The calls that C++ answers without Python. age: how often they have been forgotten."""

    def __init__(self):
        self.age, self._made = 0, 0

    def forget(self) -> None:
        self.age, self._made = self.age + 1, 0
        xla.calls.clear()

    def grown(self) -> None:
        """Something was made, where room runs short."""
        self._made += 1
        if self._made * 8 >= _capacity():
            self.forget()


_calls = _Calls()


def _capacity() -> int:
    return max(1, config.jit_cache_size.value)


class _Entry:
    """A value that counts: `holder[key]` is this, and nothing else holds it. used: the age in which it was last, as Python knows."""
    __slots__ = ("value", "key", "holder", "used", "reference", "__weakref__")

    def __init__(self, value, key, holder: Kept):
        self.value, self.key, self.holder, self.used, self.reference = value, key, weakref.ref(holder), _calls.age, None


class Bounded:
    """At most `config.jit_cache_size` values, those used last. They are held elsewhere, and go from here when they go there."""

    def __init__(self):
        self._entries: OrderedDict[weakref.ref, None] = OrderedDict()        # the least recently used first

    def __len__(self):
        return len(self._entries)

    def once(self, holder: Kept, key, make: Callable[[], Any]):
        """What `holder` keeps as `key`, made by `make()` if it is not there (as the function `once` does)."""
        entry = holder.get(key)
        if type(entry) is not _Entry:
            entry = once(holder, key, lambda: _Entry(make(), key, holder))
            if entry.reference is None:
                self._add(entry)
        self._use(entry)
        return entry.value

    def trim(self) -> None:
        """Throw out what there is too much of."""
        while len(self._entries) > _capacity():
            try:
                self._drop(next(iter(self._entries)))
            except (StopIteration, RuntimeError):    # another thread changes it right now
                pass

    def clear(self) -> None:
        for reference in list(self._entries):
            self._drop(reference)

    def _use(self, entry: _Entry) -> None:
        entry.used = _calls.age
        try:
            self._entries.move_to_end(entry.reference)
        except KeyError:                             # another thread has just thrown it out
            pass

    def _add(self, entry: _Entry) -> None:
        entry.reference = weakref.ref(entry, lambda gone, entries=self._entries: entries.pop(gone, None))
        self._entries[entry.reference] = None
        if 2 * len(self._entries) > _capacity():
            _calls.grown()
        self.trim()

    def _drop(self, reference: weakref.ref) -> None:
        entry = reference()
        if entry is not None:
            if entry.used == _calls.age:             # C++ may hold it
                _calls.forget()
            holder = entry.holder()
            if holder is not None and holder.get(entry.key) is entry:
                holder.pop(entry.key, None)
        self._entries.pop(reference, None)


recorded, executables = Bounded(), Bounded()


# --- XLA's code ---------------------------------------------------------------------------------------------------------------

_code: OrderedDict[tuple, Any] = OrderedDict()
_SHARE = 16                                          # beside the capacity, one for so many of it


def code(digest: bytes, settings: tuple, make: Callable[[], Any]):
    """What XLA made of the text with this digest, with these settings: made by `make()` if it is not among what was used last."""
    key = (digest, *settings)
    found = once(_code, key, make)
    try:
        _code.move_to_end(key)
    except KeyError:                                 # another thread has just thrown it out
        pass
    _trim_code()
    return found


def _trim_code() -> None:
    try:
        while len(_code) > max(1, _capacity() // _SHARE):
            _code.popitem(last=False)
    except KeyError:                                 # another thread was faster
        pass


# --- all of it ------------------------------------------------------------------------------------------------------------------

def clear() -> None:
    """Forget every recorded and compiled program."""
    for bounded in (recorded, executables):
        bounded.clear()
    _code.clear()
    replay.forget()
    _calls.forget()


def _trim() -> None:
    for bounded in (recorded, executables):
        bounded.trim()
    _trim_code()


config.jit_cache_size.watch(_trim)
