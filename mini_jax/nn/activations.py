"""Activation functions. Elementwise; integers become floats, except where the function keeps whole numbers whole."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.lax.shapes import canonical_axis
from mini_jax.numpy.promotion import arraylike, promote_args_inexact, promote_args_numeric
from mini_jax.runtime.dispatch import library
from mini_jax.transforms.custom_derivatives import custom_jvp

__all__ = ["identity", "relu", "relu6", "leaky_relu", "elu", "celu", "selu", "gelu", "silu", "swish", "sigmoid", "tanh",
           "log_sigmoid", "softplus", "squareplus", "sparse_plus", "sparse_sigmoid", "soft_sign", "mish", "glu",
           "hard_tanh", "hard_sigmoid", "hard_silu", "hard_swish", "log1mexp"]


def _float(name: str, x):
    return promote_args_inexact(name, x)[0]


def _scalar(value, x):
    """A constant in the dtype of x."""
    return typeof(x).dtype.type(value)


def identity(x):
    """x, unchanged, as an array."""
    return jnp.asarray(*arraylike("identity", x))


# --- rectifiers: the derivative at a kink is that of the flat side -----------------------------------------------------------------

@library
def relu(x):
    """max(x, 0); its derivative is 0 at 0."""
    x, = promote_args_numeric("relu", x)
    return jnp.where(x <= 0, 0, x)


@library
def relu6(x):
    """min(max(x, 0), 6); its derivative is 0 at 0 and at 6."""
    x = _float("relu6", x)
    return jnp.where(x <= 0, 0, jnp.where(x >= 6, 6, x))


@library
def leaky_relu(x, negative_slope=0.01):
    """x where x ≥ 0, negative_slope·x elsewhere."""
    x = _float("leaky_relu", x)
    return jnp.where(x >= 0, x, negative_slope * x)


@library
def elu(x, alpha=1.0):
    """x where x > 0, alpha·(eˣ - 1) elsewhere."""
    x = _float("elu", x)
    below = jnp.where(x > 0, 0, x)              # so that where x is large, eˣ is not, nor its derivative
    return jnp.where(x > 0, x, alpha * jnp.expm1(below))


@library
def celu(x, alpha=1.0):
    """max(x, 0) + min(alpha·(e^(x/alpha) - 1), 0): elu, differentiable for every alpha."""
    x = _float("celu", x)
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.where(x > 0, 0, x) / alpha))


@library
def selu(x):
    """λ·elu(x, α) with the λ and α that keep mean 0 and variance 1. (Klambauer et al. 2017)"""
    return 1.0507009873554804934193349852946 * elu(x, 1.6732632423543772848170429916717)


# --- smooth ------------------------------------------------------------------------------------------------------------------------------

@library
def sigmoid(x):
    """1 / (1 + e⁻ˣ), from 0 to 1, elementwise."""
    return lax.logistic(_float("sigmoid", x))


@library
def tanh(x):
    """The hyperbolic tangent, (eˣ - e⁻ˣ) / (eˣ + e⁻ˣ), elementwise."""
    return jnp.tanh(x)


@library
def silu(x):
    """x·sigmoid(x), also called swish."""
    x = _float("silu", x)
    return x * lax.logistic(x)


swish = silu


@library(static_argnames=("approximate",))
def gelu(x, approximate=True):
    """x·Φ(x), Φ the normal distribution function; approximate: Φ(x) ≈ (1 + tanh(√(2/π)(x + 0.044715x³)))/2.

    (Hendrycks, Gimpel 2016)
    """
    x = _float("gelu", x)
    if approximate:
        return x * (0.5 * (1 + jnp.tanh(_scalar(math.sqrt(2 / math.pi), x) * (x + 0.044715 * (x * x * x)))))
    return 0.5 * x * lax.erfc(-x * _scalar(math.sqrt(0.5), x))


@library
def softplus(x):
    """log(1 + eˣ), a smooth relu, elementwise and without overflow."""
    return _softplus(_float("softplus", x))


@custom_jvp
def _softplus(x):
    positive = x > 0
    return jnp.where(positive, x, 0) + jnp.log1p(jnp.exp(jnp.where(positive, -x, x)))


@_softplus.defjvp
def _(primals, tangents):
    """The sigmoid, of x alone: nothing else need be kept for it."""
    (x,), (t,) = primals, tangents
    return _softplus(x), t * lax.logistic(x)


@library
def log_sigmoid(x):
    """log sigmoid(x) = -softplus(-x), elementwise, without overflow."""
    return -softplus(-_float("log_sigmoid", x))


@library
def mish(x):
    """x·tanh(softplus(x)). (Misra 2019)"""
    x = _float("mish", x)
    return x * jnp.tanh(softplus(x))


@library
def squareplus(x, b=4):
    """(x + √(x² + b))/2: a softplus without exponentials. (Barron 2021)"""
    x, b = _float("squareplus", x), jnp.asarray(b)
    return (x + jnp.sqrt(x * x + b)) / 2


@library
def soft_sign(x):
    """x / (1 + |x|), from -1 to 1, elementwise."""
    x = _float("soft_sign", x)
    return x / (jnp.abs(x) + 1)


@library
def log1mexp(x):
    """log(1 - e⁻ˣ) for x > 0, without loss where x is small or large; NaN for x < 0, -inf at 0. (Mächler 2012)"""
    x = _float("log1mexp", x)
    small = x < math.log(2)
    near = jnp.where(small, x, 1)               # each branch sees only what it is good for
    far = jnp.where(small, 1, x)
    return jnp.where(small, jnp.log(-jnp.expm1(-near)), jnp.log1p(-jnp.exp(-far)))


# --- made of straight and parabolic pieces -------------------------------------------------------------------------------------------------

@library
def hard_tanh(x):
    """max(-1, min(x, 1)): x, cut off at -1 and 1."""
    x, = promote_args_numeric("hard_tanh", x)
    above = jnp.where(x > 1, 1, x)
    return above if dtypes.is_unsigned(typeof(x).dtype) else jnp.where(x < -1, -1, above)


@library
def hard_sigmoid(x):
    """relu6(x + 3)/6: a sigmoid of straight pieces."""
    return relu6(_float("hard_sigmoid", x) + 3) / 6


@library
def hard_silu(x):
    """x·hard_sigmoid(x), also called hard_swish."""
    x = _float("hard_silu", x)
    return x * hard_sigmoid(x)


hard_swish = hard_silu


@library
def sparse_plus(x):
    """0 for x ≤ -1, x for x ≥ 1, the parabola (x + 1)²/4 between."""
    x = _float("sparse_plus", x)
    inside = jnp.clip(x, -1, 1)
    return jnp.where(x <= -1, 0, jnp.where(x >= 1, x, (inside + 1) * (inside + 1) / 4))


@library
def sparse_sigmoid(x):
    """(x + 1)/2 cut off at 0 and 1: the derivative of sparse_plus."""
    return 0.5 * jnp.clip(_float("sparse_sigmoid", x) + 1, 0, 2)


@library(static_argnames=("axis",))
def glu(x, axis=-1):
    """a·sigmoid(b) for the two halves a, b of x along `axis`, whose size must be even (else ValueError). (Dauphin et al. 2016)"""
    x = _float("glu", x)
    size = x.shape[canonical_axis(axis, x.ndim)]
    if size % 2:
        raise ValueError(f"nn.glu: the size of axis {axis} must be even, but {typeof(x)} has {size}")
    a, b = jnp.split(x, 2, axis)
    return a * lax.logistic(b)
