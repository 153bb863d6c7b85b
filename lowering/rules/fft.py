"""How Fourier transforms are written."""
from __future__ import annotations

from lowering.emit import lowers
from mini_jax.lax.fft import fft_p


@lowers(fft_p)
def _fft(e, eqn, x):
    [t], out = eqn.in_types, eqn.outvars[0].aval
    if t.size == 0 or out.size == 0:
        return e.constant(0, out)
    kind, lengths = eqn.params["fft_type"].name, list(eqn.params["fft_lengths"])
    return e.emit(f"stablehlo.fft {x}, type = {kind}, length = {lengths} : ({t.mlir}) -> {out.mlir}")
