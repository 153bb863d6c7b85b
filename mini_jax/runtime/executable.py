"""A compiled program, ready to run: puts its arguments where they belong, runs, and wraps what comes out."""
from __future__ import annotations

from typing import Any, Callable, Sequence

import numpy as np

from lowering.physical import is_extended, physical_type
from mini_jax.core import dtypes
from mini_jax.core.program import Jaxpr
from mini_jax.core.types import ShapedArray, array_type
from mini_jax.runtime import nonfinite, xla
from mini_jax.runtime.array import ArrayImpl, check_alive, host_value, move, put_host
from mini_jax.runtime.sharding import PmapSharding, on_device, pmap_sharding


# True in a thread in which a program of several replicas waits for a Python function that it calls. (It is part of every dispatch key.)
in_replica = xla.config_state("mini_jax_in_replica", False, in_key=True)


def refuse_inside_replica() -> None:
    """RuntimeError in such a thread: the devices that another program of several replicas would need are waiting, it would never end."""
    if in_replica.value:
        raise RuntimeError("a function that a program on several devices (of pmap, or over a mesh) calls can't run such programs itself: the "
                           "devices are waiting for it. Programs for one device it can run; vmap instead of pmap inside of it is one.")


class Executable:
    """One program on its devices: one device, the replicas of a pmap, or the partitions of an SPMD program.

    loaded: what `xla.compile` returned.
    in_types, in_shardings: of each flat argument, unused ones included.
    kept: for each argument whether the program takes it (None: it takes all).
    const_args: arrays that the program takes before its arguments (captured values).
    out_types, out_shardings: of each output.
    devices: all devices, in the order of the device assignment.
    name, jaxpr: what to call it, and the program, (constants, kept arguments) -> outputs, on whole values (kept only where debug_nans or debug_infs
        is on).
    committed: whether outputs are committed to those devices, as they are when an input is.
    fragile: whether its starts need care (`xla.FRAGILE_REPLICAS`); default: those of a program for several devices.
    agreement: called once, before the first run: a program of several processes makes sure that all are to run it.
    shown: loads what is shown in place of `loaded`, where that has only what running takes (`runtime.lean`).
    host_functions: the Python functions that the program calls. Such a program has run to its end when a call of it returns, so that
        nothing that they print is lost, and an error in one of them is an error of the call. Each keeps its `failures`.
    """
    __slots__ = ("loaded", "fragile", "host_functions", "name", "jaxpr", "in_types", "out_types", "in_shardings", "out_shardings", "kept", "const_args", "devices",
                 "committed", "agreement", "shown", "_handlers", "_float0_outputs", "__weakref__")

    def __init__(self, loaded: xla.LoadedExecutable, in_types: Sequence[ShapedArray], out_types: Sequence[ShapedArray],
                 in_shardings: Sequence[Any], out_shardings: Sequence[Any], *, devices: Sequence[xla.Device],
                 kept: Sequence[bool] | None = None, const_args: Sequence[ArrayImpl] = (), committed: bool = False,
                 host_functions: Sequence[Any] = (), name: str = "a program", jaxpr: Jaxpr | None = None, fragile: bool = True,
                 agreement: Callable[[], None] | None = None, shown: Callable[[], xla.LoadedExecutable] | None = None):
        self.agreement, self.shown = agreement, shown or (lambda: loaded)
        self.fragile = fragile and xla.FRAGILE_REPLICAS and len(devices) > 1
        self.name, self.jaxpr = name, jaxpr if nonfinite.watching() else None      # for `check` alone: it may hold the program that this is kept with
        self.loaded, self.host_functions = loaded, tuple(host_functions)
        for function in self.host_functions:
            function.carries_on = len(devices) > 1          # a replica that stopped would leave the others waiting for it
        self.in_types, self.out_types = tuple(in_types), tuple(out_types)
        self.in_shardings, self.out_shardings = tuple(in_shardings), tuple(out_shardings)
        self.kept = (True,) * len(self.in_types) if kept is None else tuple(kept)
        self.devices, self.committed = tuple(devices), committed
        self.const_args = tuple([value if value._sharding.num_devices == len(devices) > 1 else move(value, whole(self.devices, value.ndim), False)
                                 for value in const_args])
        self._handlers = [xla.result_handler(physical_type(type_), sharding, committed)
                          for type_, sharding in zip(self.out_types, self.out_shardings)]
        self._float0_outputs = [i for i, type_ in enumerate(self.out_types) if type_.dtype == dtypes.float0]

    def __call__(self, flat_args: Sequence[Any]) -> list[ArrayImpl]:
        """Run. Raises ValueError for arrays committed to other devices, RuntimeError for deleted ones."""
        if len(self.devices) > 1:
            refuse_inside_replica()
        if self.agreement is not None:
            self.agreement()
            self.agreement = None
        inputs = list(self.const_args)
        for arg, sharding, kept in zip(flat_args, self.in_shardings, self.kept):
            if kept:
                inputs.append(arg if type(arg) is ArrayImpl and arg._sharding is sharding else place(arg, sharding))
        for value in inputs:
            check_alive(value)                  # XLA logs an error of its own, and its words for a deleted input say neither which nor why
        try:
            if self.fragile:
                with xla.replicas_start as starts:
                    outputs = self._run(inputs)
                    starts.started(outputs)
            else:
                outputs = self._run(inputs)
        except (xla.XlaRuntimeError, ValueError):
            self._raise_host_failure()
            for value in inputs:
                check_alive(value)              # another thread may have donated one meanwhile
            raise
        if nonfinite.watching():
            nonfinite.check(self.name, self.jaxpr, inputs, outputs)
        for i in self._float0_outputs:
            outputs[i] = np.zeros(self.out_types[i].shape, dtypes.float0)
        return outputs

    def _run(self, inputs: Sequence[ArrayImpl]) -> list[ArrayImpl]:
        if not self.host_functions:
            return self.loaded.execute_sharded(inputs).consume_with_handlers(self._handlers)
        results = self.loaded.execute_sharded(inputs, with_tokens=True)
        results.consume_token().block_until_ready()
        self._raise_host_failure()
        return results.consume_with_handlers(self._handlers)

    def _raise_host_failure(self) -> None:
        """Raise what a Python function that the program called has raised."""
        for function in self.host_functions:
            if function.failures:
                failure = function.failures.pop()
                raise failure from failure.__cause__

    def fastpath(self, out_tree, guarded: bool = False, leading: Sequence[ArrayImpl] = ()) -> xla.Fastpath | None:
        """What lets the C++ dispatcher run this without Python; None where Python has something to do at every call.

        guarded: the caller does at every call what fragile replicas need. leading: the first arguments, which are always these."""
        if self.host_functions or nonfinite.watching() or self._float0_outputs or any(map(is_extended, self.out_types)):
            return None
        if self.fragile and not guarded:
            return None
        shardings = [value._sharding for value in self.const_args]
        shardings += [sharding for sharding, kept in zip(self.in_shardings, self.kept) if kept]
        count = len(leading)
        always = [*self.const_args, *[value for value, kept in zip(leading, self.kept) if kept]]
        return xla.fastpath(self.loaded, out_tree, shardings, self.out_shardings, self.out_types,
                            (self.committed,) * len(self.out_types), self.kept[count:], always)

    def hlo_text(self) -> str:
        """The optimised HLO."""
        return xla.hlo_text(self.shown())

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of flops, bytes and the like."""
        return xla.cost_analysis(self.shown())

    def memory_analysis(self):
        """XLA's memory plan."""
        return xla.memory_analysis(self.shown())


def place(value, sharding) -> ArrayImpl:
    """An argument as an array of `sharding`. Host values are put there and arrays moved, except that an array committed
    to other devices is an error. What pmap left spread over devices is committed to none, and pmap spreads whatever it is given.
    """
    if type(value) is ArrayImpl:
        old = value._sharding
        if old is sharding or old == sharding:
            return value
        if value._committed and PmapSharding not in (type(old), type(sharding)) and old.device_set != sharding.device_set:
            raise ValueError(f"an argument of type {value.aval} is committed to {_names(old)}, but the program runs on "
                             f"{_names(sharding)}: move it with device_put")
        return move(value, sharding, value._committed and type(old) is not PmapSharding)
    if hasattr(value, "__jax_array__"):
        return place(value.__jax_array__(), sharding)
    host, weak_type = host_value(value)
    return put_host(host, array_type(host.shape, host.dtype, weak_type), sharding, False)


def whole(devices, ndim: int):
    """The sharding that gives each device all of an array."""
    return on_device(devices[0]) if len(devices) == 1 else pmap_sharding(devices, None, (None,), ndim)


def _names(sharding) -> str:
    return ", ".join(map(str, sharding._device_assignment))


xla.set_argument_placer(place)
