"""Associated Legendre functions and spherical harmonics, by recurrence in the degree."""
from __future__ import annotations

import functools
import math
import operator

import numpy as np

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import Tracer, typeof
from mini_jax.numpy.promotion import as_array, promote_args_inexact
from mini_jax.runtime.dispatch import library

__all__ = ["sph_harm_y"]


def _normalized_legendre(n, m, cosine, sine, highest: int):
    """√((2n+1)/4π (n-m)!/(n+m)!) Pₙᵐ(cos θ) for 0 ≤ m, elementwise: from Pₘᵐ upwards to degree n. 0 where m > n.

    P̄ₘᵐ = -√(1 + 1/2m) sin θ P̄ₘ₋₁ᵐ⁻¹ and P̄ₗᵐ = a(l) (cos θ P̄ₗ₋₁ᵐ - P̄ₗ₋₂ᵐ / a(l-1)) with a(l)² = (4l² - 1)/(l² - m²). (dlmf.nist.gov 14.10)
    """
    here = jnp.full_like(cosine, 0.5 / math.sqrt(math.pi))
    for k in range(1, highest + 1):
        here = jnp.where(k <= m, -math.sqrt(1 + 0.5 / k) * sine * here, here)
    before, last = jnp.zeros_like(here), jnp.zeros_like(here)
    for l in range(1, highest + 1):
        active = (l > m) & (l <= n)
        gap = jnp.where(l > m, l * l - m * m, 1).astype(cosine.dtype)
        a = jnp.sqrt((4 * l * l - 1) / gap)
        made = a * (cosine * here - last * before)
        before, here = jnp.where(active, here, before), jnp.where(active, made, here)
        last = jnp.where(active, 1 / a, last)
    return jnp.where(m > n, 0, here)


def sph_harm_y(n, m, theta, phi, diff_n: int | None = None, n_max: int | None = None):
    """Yₙᵐ(θ, φ) = √((2n+1)/4π (n-m)!/(n+m)!) Pₙᵐ(cos θ) exp(imφ), with the phase (-1)ᵐ in Pₙᵐ; complex.

    n ≥ |m|: degrees and orders, integer arrays. theta: polar angles in [0, π]; phi: azimuths. All broadcast. n_max: the greatest degree,
    needed where n is traced. Derivatives are those of automatic differentiation: diff_n must be None (NotImplementedError).
    """
    if diff_n is not None:
        raise NotImplementedError("sph_harm_y: diff_n is not supported; take derivatives with jvp or grad")
    if n_max is None:
        if isinstance(n, Tracer):
            raise ValueError("sph_harm_y: n is traced, so that its greatest value is not known; pass n_max")
        n_max = int(np.max(np.asarray(n), initial=0))
    for name, x in (("n", n), ("m", m)):
        if not dtypes.is_integer(typeof(x).dtype):
            raise ValueError(f"sph_harm_y: {name} must be of an integer dtype, got {typeof(x)}")
    return _harmonics(n, m, theta, phi, operator.index(n_max))


@functools.partial(library, static_argnames=("n_max",))
def _harmonics(n, m, theta, phi, n_max):
    theta, phi = map(as_array, promote_args_inexact("sph_harm_y", theta, phi))
    n, m, theta, phi = jnp.broadcast_arrays(n, m, theta, phi)
    size = jnp.abs(m)
    p = _normalized_legendre(n, size, jnp.cos(theta), jnp.sin(theta), n_max)
    angle = size.astype(phi.dtype) * phi
    y = lax.complex(p * jnp.cos(angle), p * jnp.sin(angle))
    return jnp.where(m < 0, jnp.where(size % 2 == 0, 1, -1) * jnp.conj(y), y)
