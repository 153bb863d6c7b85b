"""What XLA does once in a process when it first needs it, done beside a compilation, which mostly keeps one core busy.

Eigen's products of float32 write their machine code (oneDNN's) when the first of them runs: 40 to 60 ms of a program's first step.
"""
from __future__ import annotations

import contextlib
import re
import threading

import numpy as np

from mini_jax.core import config
from mini_jax.runtime import xla
from mini_jax.runtime.array import device_put

LONG = 20_000                                    # characters of a program's text that takes far longer to compile than this does
EIGENS = {xla.YNNPACK_RUNS: "LIBRARY_FUSION_TYPE_REDUCE"}                  # sums only: no products
_TRANSPOSED = re.compile(r"dot_general [^:]*?contracting_dims = \[0\] x [^:]*: \(tensor<[\dx]+xf32>")       # YNNPACK takes no such products
_ANY = re.compile(r"dot_general [^:]*: \(tensor<[\dx]+xf32>")
_PROGRAM = """
func.func public @main(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %y : tensor<8x8xf32>
}
"""
_begun = threading.Lock()                        # taken once, and kept


def products(text: str, options: dict, device: xla.Device) -> None:
    """Run a product by Eigen in a thread, once in a process, if a long program, compiled on CPU with these options, is going to."""
    if len(text) < LONG or _begun.locked():
        return
    by_eigen = _ANY if "DOT" not in options.get(xla.YNNPACK_RUNS, "DOT") else _TRANSPOSED
    if by_eigen.search(text) is not None and _begun.acquire(blocking=False):
        thread = threading.Thread(target=_run_product, args=(device.client.local_devices()[0],), name="mini_jax warm-up")
        with contextlib.suppress(RuntimeError):  # Python that is about to end starts no more threads
            thread.start()                       # (a daemon might be in XLA at exit)


def _run_product(device: xla.Device) -> None:
    program = xla.compile(_PROGRAM, (device,), options=EIGENS)
    with config.transfer_guard_host_to_device("allow"):
        program.execute_sharded([device_put(np.zeros((8, 8), np.float32), device)])
