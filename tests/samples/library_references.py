"""What functions that NumPy and SciPy don't have compute, written in NumPy: mini_jax.nn and mini_jax.ops, for the walk over the libraries."""
from types import SimpleNamespace

import numpy as np


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _logsumexp(x, axis=None, keepdims=False):
    return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))


def _standardize(x, axis=-1):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + 1e-5)


def _elu(x, alpha=1.0):
    return np.where(x > 0, x, alpha * np.expm1(x))


def _glu(x):
    a, b = np.split(x, 2, axis=-1)
    return a * _sigmoid(b)


def _attention(query, key, value):
    """For each batch and head: softmax(q kᵀ / √d) v, of arrays (batch, time, heads, d)."""
    scores = np.einsum("btnh,bsnh->bnts", query, key) / np.sqrt(query.shape[-1])
    return np.einsum("bnts,bsnh->btnh", np.exp(scores - _logsumexp(scores, -1, True)), value)


def _segments(ufunc, start):
    def reduced(data, ids, num):
        out = np.full((num, *data.shape[1:]), start)
        ufunc.at(out, ids[ids >= 0], data[ids >= 0])
        return out
    return reduced


_selu = 1.0507009873554804934193349852946
_identity = lambda x: x

nn = SimpleNamespace(
    celu=_elu, elu=_elu, glu=_glu, identity=_identity, sigmoid=_sigmoid, standardize=_standardize, logsumexp=_logsumexp, dot_product_attention=_attention,
    gelu=lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3))), hard_sigmoid=lambda x: np.clip(x + 3, 0, 6) / 6,
    hard_silu=lambda x: x * np.clip(x + 3, 0, 6) / 6, hard_swish=lambda x: x * np.clip(x + 3, 0, 6) / 6, hard_tanh=lambda x: np.clip(x, -1, 1),
    leaky_relu=lambda x: np.where(x >= 0, x, 0.01 * x), log_sigmoid=lambda x: np.log(_sigmoid(x)), mish=lambda x: x * np.tanh(np.log1p(np.exp(x))),
    relu=lambda x: np.maximum(x, 0), relu6=lambda x: np.clip(x, 0, 6), selu=lambda x: _selu * _elu(x, 1.6732632423543772848170429916717),
    silu=lambda x: x * _sigmoid(x), swish=lambda x: x * _sigmoid(x), soft_sign=lambda x: x / (1 + np.abs(x)), softplus=lambda x: np.log1p(np.exp(x)),
    sparse_plus=lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)), sparse_sigmoid=lambda x: np.clip((x + 1) / 2, 0, 1),
    squareplus=lambda x: (x + np.sqrt(x * x + 4)) / 2, tanh=np.tanh, log1mexp=lambda x: np.log(1 - np.exp(-x)),
    softmax=lambda x, axis=-1: np.exp(x - _logsumexp(x, axis, True)), log_softmax=lambda x, axis=-1: x - _logsumexp(x, axis, True),
    logmeanexp=lambda x, axis=None: np.log(np.mean(np.exp(x), axis=axis)),
    one_hot=lambda k, n, axis=-1: np.moveaxis((k[..., None] == np.arange(n)).astype(np.float64), -1, axis))

ops = SimpleNamespace(segment_sum=_segments(np.add, 0.0), segment_prod=_segments(np.multiply, 1.0), segment_max=_segments(np.maximum, -np.inf),
                      segment_min=_segments(np.minimum, np.inf))
