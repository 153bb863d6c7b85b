"""Scaled dot-product attention, with several queries for each key head, masks, biases, causality and windows."""
from __future__ import annotations

import math

from mini_jax import lax
from mini_jax import numpy as jnp
from mini_jax.core import dtypes
from mini_jax.core.trace import typeof
from mini_jax.nn.softmax import logsumexp, softmax
from mini_jax.runtime.dispatch import library

__all__ = ["dot_product_attention"]


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None,
                          key_value_seq_lengths=None, local_window_size=None, implementation=None, return_residual=False):
    """softmax(scale·q·kᵀ + bias)·v for each head. (Vaswani et al. 2017)

    query: [B, T, N, H]; key, value: [B, S, K, H], where N is a multiple of K: each key head serves N/K query heads. All three
    may come without B.
    bias, mask: broadcast to [B, N, T, S]; where the (boolean) mask is False, nothing is attended to.
    scale: default 1/√H. is_causal: position t attends to s ≤ t. local_window_size: (left, right), or one number for both:
    t attends to t - left ≤ s ≤ t + right.
    query_seq_lengths, key_value_seq_lengths: [B], how many positions count; results for further queries are 0.
    implementation: None or 'xla'. return_residual: return also the logsumexp of the scores, [B, T, N], as a constant.

    Raises ValueError for shapes and dtypes that do not fit.
    """
    if implementation not in (None, "xla"):
        raise ValueError(f"nn.dot_product_attention: implementation is None or 'xla' here, got {implementation!r}")
    if local_window_size is not None:
        window = local_window_size
        local_window_size = (window, window) if isinstance(window, int) else tuple(window)
    return _attention(query, key, value, bias, mask, query_seq_lengths, key_value_seq_lengths, scale, bool(is_causal),
                      local_window_size, bool(return_residual))


def _fail(problem: str):
    raise ValueError(f"nn.dot_product_attention: {problem}")


def _check(query, key, value, bias, mask, lengths):
    q, k, v = map(typeof, (query, key, value))
    if not (q.ndim == k.ndim == v.ndim == 4):
        _fail(f"query, key and value must have 3 or 4 dimensions ([B,] T, N, H), got {q}, {k} and {v}")
    if k.shape != v.shape or k.dtype != v.dtype or q.dtype != k.dtype:
        _fail(f"key and value must have one shape, and all three one dtype, got {q}, {k} and {v}")
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        _fail(f"query and key must agree in batch size and head size, got {q} and {k}")
    if k.shape[2] == 0 or q.shape[2] % k.shape[2]:
        _fail(f"the number of query heads, {q.shape[2]}, must be a multiple of that of key heads, {k.shape[2]}")
    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    for name, x in (("bias", bias), ("mask", mask)):
        if x is not None:
            aval = typeof(x)
            if aval.ndim > 4 or any([n not in (1, m) for n, m in zip(reversed(aval.shape), reversed(full))]):
                _fail(f"{name} must broadcast to [B, N, T, S] = {list(full)}, got {aval}")
    if mask is not None and typeof(mask).dtype != dtypes.bool_:
        _fail(f"mask must be boolean, got {typeof(mask)}")
    for name, x in lengths.items():
        if x is not None and (typeof(x).shape != (q.shape[0],) or not dtypes.is_integer(typeof(x).dtype)):
            _fail(f"{name} must be {q.shape[0]} integers, one for each of the batch, got {typeof(x)}")
    return full


@library(static_argnames=("scale", "is_causal", "window", "return_residual"))
def _attention(query, key, value, bias, mask, query_lengths, key_lengths, scale, is_causal, window, return_residual):
    alone = typeof(query).ndim == 3
    if alone:
        query, key, value = [lax.expand_dims(x, (0,)) if typeof(x).ndim == 3 else x for x in (query, key, value)]
    B, N, T, S = _check(query, key, value, bias, mask, {"query_seq_lengths": query_lengths, "key_value_seq_lengths": key_lengths})
    K, H, dtype = typeof(key).shape[2], typeof(key).shape[3], typeof(query).dtype
    G, wide = N // K, dtypes.float64 if dtype == dtypes.float64 else dtypes.float32

    # scores[b, k, t, g, s]: the batch and the key head are batch dimensions of both products
    heads = lax.reshape(query, (B, T, K, G, H))
    scores = lax.dot_general(heads, key, (((4,), (3,)), ((0, 2), (0, 2))), preferred_element_type=wide)
    scores = scores * wide.type(1 / math.sqrt(H) if scale is None else scale)
    if bias is not None:
        scores = scores + _as_scores(lax.convert_element_type(bias, wide), K, G)
    counted = _counted(T, S, K, G, mask, query_lengths, key_lengths, is_causal, window)
    if counted is not None:                            # not -inf: a query without keys attends to all alike
        scores = jnp.where(counted, scores, wide.type(-0.7 * float(dtypes.finfo(wide).max)))
    weights = lax.convert_element_type(softmax(scores, -1), dtype)
    out = lax.dot_general(weights, value, (((4,), (1,)), ((0, 1), (0, 2))), preferred_element_type=dtype)
    out = lax.reshape(lax.transpose(out, (0, 2, 1, 3, 4)), (B, T, N, H))
    if query_lengths is not None:
        out = out * _below(query_lengths, T)[:, :, None, None].astype(dtype)
    if alone:
        out = lax.squeeze(out, (0,))
    if not return_residual:
        return out
    residual = lax.reshape(lax.transpose(lax.stop_gradient(logsumexp(scores, -1)), (0, 2, 1, 3)), (B, T, N))
    return out, lax.convert_element_type(lax.squeeze(residual, (0,)) if alone else residual, dtype)


def _as_scores(x, K: int, G: int):
    """What broadcasts to [B, N, T, S], arranged to broadcast to [B, K, T, G, S]."""
    shape = (1,) * (4 - typeof(x).ndim) + typeof(x).shape
    split = (K, G) if shape[1] != 1 else (1, 1)
    return lax.transpose(lax.reshape(x, (shape[0], *split, *shape[2:])), (0, 1, 3, 2, 4))


def _below(lengths, size: int):
    """[B, size]: which positions are below the length."""
    return jnp.arange(size)[None, :] < lengths[:, None]


def _counted(T, S, K, G, mask, query_lengths, key_lengths, is_causal, window):
    """Which scores count, broadcasting to [B, K, T, G, S]; None: all."""
    t, s = jnp.arange(T)[:, None], jnp.arange(S)[None, :]
    parts = []
    if mask is not None:
        parts.append(_as_scores(mask, K, G))
    if is_causal:
        parts.append((s <= t)[None, None, :, None, :])
    if window is not None:
        left, right = window
        parts.append(((s >= t - left) & (s <= t + right))[None, None, :, None, :])
    if query_lengths is not None:
        parts.append(_below(query_lengths, T)[:, None, :, None, None])
    if key_lengths is not None:
        parts.append(_below(key_lengths, S)[:, None, None, None, :])
    out = None
    for part in parts:
        out = part if out is None else out & part
    return out
