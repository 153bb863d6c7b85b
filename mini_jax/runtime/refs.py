"""Refs where operations run at once: objects that own an array and hand its buffer on at every write.

The array object stays the same one as long as the ref stays on its devices, since compiled calls may hold it: a write donates its buffer
to the program that makes the new value, and then gives it the buffer of that (`ArrayImpl._replace_with`).

Calls that take refs as arguments see them through `xla.call_registry`, where a ref is a node with its array as the leaf. What flattens a
ref there notes it, so that what puts the results of a call together (`Delivery`) knows whose new value each is, all without Python's
dispatch. C++ lets go of the interpreter in the middle of a call. So refs take that way only in the thread that made them, and not once
another has used them; the setting `_thread`, part of every dispatch key, keeps the calls of the two apart.
"""
from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Callable, Sequence

from mini_jax.core import dtypes, source
from mini_jax.core.refs import FROZEN, LIVE, RefLike, described
from mini_jax.core.trace import register_type, typeof
from mini_jax.core.types import ref_type
from mini_jax.runtime import xla
from mini_jax.runtime.array import ArrayImpl, check_alive, device_put


class _Calling(threading.local):
    """Is this thread inside of a function that a running program has called?"""
    inside = False


calling = _Calling()
_thread = xla.config_state("mini_jax_ref_thread", None, in_key=True, in_trace=False)


class Ref(RefLike):
    """A mutable array. `ref[...]` is its value; `ref[i]`, `ref[i] = v`, `ref[i] += v` read and write parts of it, with any index
    that NumPy knows; `freeze(ref)` ends it. Made by `new_ref`."""
    __slots__ = ("array", "aval", "created", "status", "thread", "shared", "captured_by", "lock", "busy", "__weakref__")

    def __init__(self, array: ArrayImpl, created):
        """array: one that nobody else holds."""
        self.array, self.aval, self.created, self.status = array, ref_type(array.aval), created, LIVE
        self.thread, self.shared, self.captured_by, self.lock, self.busy = threading.get_ident(), False, [], threading.RLock(), False
        if _thread.value is None:
            _thread.set_local(self.thread)

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    sharding = property(lambda self: self.array._sharding)

    def unsafe_buffer_pointer(self) -> int:
        """The address of the buffer, on its one device. Writes don't change it."""
        self.check_live()
        return self.array.unsafe_buffer_pointer()

    def __repr__(self):
        if self.busy and calling.inside:
            return f"Ref(in use, shape={self.shape}, dtype={self.dtype.name})"
        with self.lock:
            self.used_here()
            self.check_kept()
            if self.status is not LIVE:
                return f"Ref({'frozen' if self.status is FROZEN else 'lost'}, shape={self.shape}, dtype={self.dtype.name})"
            text = repr(self.array)
        return "Ref" + text.removeprefix("Array").replace("\n      ", "\n    ")

    def has_row(self, index: int) -> bool:
        """Is it an index of the first dimension, of a live ref, not in use, that none but this thread, which made it, has used?"""
        shape = self.aval.inner.shape
        return bool(shape) and -shape[0] <= index < shape[0] < 2**31 and (
            self.status is LIVE and not self.shared and not self.busy and self.thread == threading.get_ident())

    def used_here(self) -> bool:
        """Note a use by this thread. Is it the one that made the ref, and the only one that uses it?"""
        if self.thread != threading.get_ident() and not self.shared:
            with self.lock:
                if not self.shared:
                    self._share()
        return not self.shared

    def _share(self) -> None:
        """A second thread uses the ref. No call of it goes without Python from now on; one that is on its way is waited for."""
        self.shared = True
        self.forget_calls()
        started = time.monotonic()
        time.sleep(0.001)                            # what has begun takes the buffer right away
        while self.array.is_deleted() and time.monotonic() - started < 10:
            time.sleep(0.0001)

    def check_live(self) -> None:
        if self.busy and calling.inside:
            raise RuntimeError(f"{described(self)} is in use by the program that called this function: hand the function the value, ref[...], as an argument")
        self.used_here()
        if self.array.is_deleted():
            with self.lock:                          # by another thread's call, whose result is here when that ends; or for good
                self.check_kept()
        super().check_live()

    def __reduce__(self):
        self.check_live()
        return make, (self[...],)                    # a copy is a ref of its own

    def forget_calls(self) -> None:
        """No compiled call may use the array without Python any more."""
        for dispatcher in self.captured_by:
            if (found := dispatcher()) is not None:
                found._clear_cache()
        self.captured_by.clear()

    def update(self, write: Callable[[ArrayImpl], ArrayImpl]) -> None:
        """Make the value what `write`, which is given the array and may use up its buffer, returns."""
        with self.lock:
            self.check_live()
            try:
                new = write(self.array)
            except BaseException:
                self.check_kept()
                raise
            self.take(new)

    def take(self, new: ArrayImpl) -> None:
        """Hold the buffer of a new value. The array object stays, but where the new one is spread over other devices."""
        have = self.array._sharding
        if new._sharding is have or new._sharding == have:
            self.array._replace_with(new)
        else:
            self.forget_calls()
            self.array = new

    def check_kept(self) -> None:
        """If a failed call used up the buffer, the value is lost."""
        if self.array.is_deleted() and self.status is LIVE:
            self.forget_calls()
            self.status = "was lost: a computation that wrote it in place failed, or its buffer was donated. Make a new one"

    def freeze(self) -> ArrayImpl:
        """The value, which is this object's no more."""
        with self.lock:
            self.check_live()
            self.forget_calls()
            self.status = FROZEN
            return self.array


register_type(Ref, lambda ref: ref.aval)


def make(value) -> Ref:
    """A ref that holds a copy of an array or a number."""
    aval = typeof(value)
    if dtypes.is_extended(aval.dtype):
        raise TypeError(f"a ref holds numbers, not {aval}: hold random.key_data(keys), and wrap what you read with random.wrap_key_data")
    if isinstance(value, ArrayImpl):
        check_alive(value)
    return Ref(_copy(device_put(value) if not isinstance(value, ArrayImpl) else value, aval), source.capture(2))


def _copy(array: ArrayImpl, aval) -> ArrayImpl:
    raise RuntimeError("mini_jax.numpy is not loaded")


# --- in compiled calls ---------------------------------------------------------------------------------------------------------------

class _Noted(threading.local):
    """The refs that the call being dispatched in this thread has among its arguments."""

    def __init__(self):
        self.refs: list[Ref] = []
        self.doubtful = False


_noted = _Noted()


def _flatten_ref(ref: Ref):
    kind = None
    if ref.status is not LIVE or ref.shared or ref in _noted.refs:
        kind, _noted.doubtful = ref.status is LIVE, True
    elif ref.captured_by:
        kind = "captured"
    _noted.refs.append(ref)
    return (ref.array,), kind


xla.call_registry.register_node(Ref, _flatten_ref, lambda kind, children: children[0])


def begin_call() -> bool:
    """Python answers a call that has refs among its arguments. May the next like it be answered by C++ alone?"""
    doubtful = _noted.doubtful
    _noted.refs.clear()
    _noted.doubtful = False
    return not doubtful


class Delivery:
    """How the results of a call reach the refs that it writes.

    captured: the arrays of the refs that the function captured and writes; written: which of the refs among its arguments it writes;
    count: how many those are. As a tree its children are the new values, first of the captured ones, and the user's result.
    """
    __slots__ = ("captured", "written", "count")

    def __init__(self, captured: Sequence[ArrayImpl], written: Sequence[int], count: int):
        self.captured, self.written, self.count = tuple(captured), tuple(written), count

    def deliver(self, children: Sequence) -> Any:
        captured, last = self.captured, len(children) - 1
        for array, new in zip(captured, children):
            array._replace_with(new)
        if self.count:
            refs = _noted.refs
            for position, new in zip(self.written, children[len(captured):last]):
                refs[position - self.count].take(new)
            refs.clear()
        return children[last]


class _Delivered(tuple):
    """(delivery, results): a tree whose putting together delivers."""


xla.registry.register_node(_Delivered, lambda pair: (pair[1], pair[0]), lambda delivery, children: delivery.deliver(children))


def delivery_tree(delivery: Delivery, out_tree):
    """The structure of a call's results: new values of refs, then the user's, of the structure out_tree."""
    count = len(delivery.captured) + len(delivery.written)
    result = out_tree.unflatten(range(out_tree.num_leaves))
    return xla.registry.flatten(_Delivered((delivery, [*range(count), result])))[1]


def note_capture(ref: Ref, dispatcher) -> None:
    """A compiled call of this dispatcher uses the ref's array without Python."""
    if not any([found() is dispatcher for found in ref.captured_by]):
        ref.captured_by.append(weakref.ref(dispatcher))
