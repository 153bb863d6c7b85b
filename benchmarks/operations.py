"""Single operations, each compiled alone: sorting, cumulative operations, indexing, reductions, convolutions, linear algebra, …"""
import numpy as np

from benchmarks.registry import programs

_RNG = np.random.default_rng(0)
MILLION = 1_000_000


def _floats(*shape):
    return _RNG.standard_normal(shape, np.float32)


def _run(jax, function, *arrays):
    """The compiled function of these arrays, as a function that runs it and waits."""
    compiled, arrays = jax.jit(function), jax.device_put(arrays)
    return lambda: jax.block_until_ready(compiled(*arrays))


@programs
def sorting(jax):
    jnp, lax = jax.numpy, jax.lax
    line, rows = _floats(MILLION), _floats(1000, 1000)
    return {
        "sort, 1,000": _run(jax, jnp.sort, line[:1000]),
        "sort, 1,000,000": _run(jax, jnp.sort, line),
        "sort, 1,000,000 ints": _run(jax, jnp.sort, (line * 1e6).astype(np.int32)),
        "sort, rows of 1,000 x 1,000": _run(jax, jnp.sort, rows),
        "sort, columns of 1,000 x 1,000": _run(jax, lambda x: jnp.sort(x, axis=0), rows),
        "argsort, 1,000": _run(jax, jnp.argsort, line[:1000]),
        "argsort, 1,000,000": _run(jax, jnp.argsort, line),
        "argsort, rows of 1,000 x 1,000": _run(jax, jnp.argsort, rows),
        "sort by a key, 1,000,000": _run(jax, lambda k, v: lax.sort_key_val(k, v), line, line),
        "top 10 of 1,000,000": _run(jax, lambda x: lax.top_k(x, 10), line),
        "top 5 of rows of 1,000 x 1,000": _run(jax, lambda x: lax.top_k(x, 5), rows),
    }


@programs
def cumulative(jax):
    lax, line, matrix = jax.lax, _floats(MILLION), _floats(1000, 1000)
    result = {}
    for name in ("cumsum", "cumprod", "cummax", "cumlogsumexp"):
        operation = getattr(lax, name)
        result[f"{name}, 1,000,000"] = _run(jax, lambda x, f=operation: f(x, axis=0), line)
        result[f"{name}, leading axis of 1,000 x 1,000"] = _run(jax, lambda x, f=operation: f(x, axis=0), matrix)
        result[f"{name}, trailing axis of 1,000 x 1,000"] = _run(jax, lambda x, f=operation: f(x, axis=1), matrix)
    result["cumsum gradient, 1,000,000"] = _run(jax, jax.grad(lambda x: (lax.cumsum(x) * x).sum()), line)
    result["cumprod gradient, leading axis of 1,000 x 1,000"] = _run(jax, jax.grad(lambda x: lax.cumprod(x).sum()), matrix)
    return result


@programs
def indexing(jax):
    table, where = _floats(10_000, 64), _RNG.integers(0, 10_000, 20_000).astype(np.int32)
    line, places = _floats(MILLION), _RNG.integers(0, MILLION, MILLION).astype(np.int32)
    return {
        "gather, 1,000,000 of 1,000,000": _run(jax, lambda x, i: x[i], line, places),
        "gather, 20,000 rows": _run(jax, lambda x, i: x[i], table, where),
        "gather gradient, 20,000 rows": _run(jax, jax.grad(lambda x, i: (x[i] ** 2).sum()), table, where),
        "take_along_axis, 1,000 x 1,000": _run(jax, lambda x, i: jax.numpy.take_along_axis(x, i, axis=1),
                                               line.reshape(1000, 1000), places.reshape(1000, 1000) % 1000),
        "scatter-add, 1,000,000 into 1,000": _run(jax, lambda x, i: jax.numpy.zeros(1000).at[i].add(x), line, places % 1000),
        "scatter-add, 20,000 rows": _run(jax, lambda x, i, u: x.at[i].add(u), table, where, _floats(20_000, 64)),
        "scatter, 20,000 rows": _run(jax, lambda x, i, u: x.at[i].set(u), table, where, _floats(20_000, 64)),
    }


@programs
def reductions(jax):
    jnp, result = jax.numpy, {}
    for shape in ((1000, 1000), (100, 100_000), (100_000, 100)):
        x, size = _floats(*shape), " x ".join(f"{n:,}" for n in shape)
        for name in ("sum", "max", "mean", "argmax"):
            result[f"{name}, leading axis of {size}"] = _run(jax, lambda x, f=getattr(jnp, name): f(x, axis=0), x)
    x = _floats(1000, 1000)
    for name in ("sum", "max", "argmax", "prod", "std"):
        result[f"{name}, trailing axis of 1,000 x 1,000"] = _run(jax, lambda x, f=getattr(jnp, name): f(x, axis=1), x)
    result["prod, leading axis of 1,000 x 1,000"] = _run(jax, lambda x: jnp.prod(x, axis=0), x)
    result["sum of 1,000 x 1,000"] = _run(jax, jnp.sum, x)
    result["softmax, 1,000 x 1,000"] = _run(jax, jax.nn.softmax, x)
    result["softmax gradient, 1,000 x 1,000"] = _run(jax, jax.grad(lambda x: (jax.nn.softmax(x) ** 2).sum()), x)
    return result


def _convolution(jax, layout, stride, x, w, groups=1):
    kernel = "HWIO" if layout == "NHWC" else "OIHW"
    f = lambda x, w: jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=(layout, kernel, layout),
                                                  feature_group_count=groups)
    ct = np.ones(jax.eval_shape(f, x, w).shape, np.float32)
    return {"": _run(jax, f, x, w),
            "input gradient, ": _run(jax, lambda x, w, ct: jax.vjp(lambda x: f(x, w), x)[1](ct), x, w, ct),
            "kernel gradient, ": _run(jax, lambda x, w, ct: jax.vjp(lambda w: f(x, w), w)[1](ct), x, w, ct)}


@programs
def convolutions(jax):
    result = {}
    for layout, x, w in (("NHWC", _floats(8, 56, 56, 64), _floats(3, 3, 64, 64)), ("NCHW", _floats(8, 64, 56, 56), _floats(64, 64, 3, 3))):
        for stride in (1, 2):
            for name, run in _convolution(jax, layout, stride, x, w).items():
                result[f"convolution {name}{layout}, stride {stride}"] = run
    return result


@programs
def other_convolutions(jax):
    result = {}
    for layout, x, w in (("NHWC", _floats(8, 56, 56, 64), _floats(3, 3, 1, 64)), ("NCHW", _floats(8, 64, 56, 56), _floats(64, 1, 3, 3))):
        result |= {f"depthwise convolution {name}{layout}": run for name, run in _convolution(jax, layout, 1, x, w, 64).items()}
    result |= {f"pointwise convolution {name}NHWC": run
               for name, run in _convolution(jax, "NHWC", 1, _floats(8, 56, 56, 64), _floats(1, 1, 64, 64)).items()}
    result |= {f"first convolution of a ResNet {name}NHWC": run
               for name, run in _convolution(jax, "NHWC", 2, _floats(4, 224, 224, 3), _floats(7, 7, 3, 64)).items()}
    return result


@programs
def pooling(jax):
    lax, x = jax.lax, _floats(8, 56, 56, 64)

    def pool(x, size, stride):
        return lax.reduce_window(x, -np.inf, lax.max, (1, size, size, 1), (1, stride, stride, 1), "SAME")

    def average(x):
        return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4
    return {
        "max pool 2 x 2": _run(jax, lambda x: pool(x, 2, 2), x),
        "max pool 2 x 2 gradient": _run(jax, jax.grad(lambda x: pool(x, 2, 2).sum()), x),
        "max pool 3 x 3 gradient": _run(jax, jax.grad(lambda x: pool(x, 3, 2).sum()), x),
        "mean pool 2 x 2 gradient": _run(jax, jax.grad(lambda x: (average(x) ** 2).sum()), x),
    }


@programs
def linear_algebra(jax):
    jnp = jax.numpy
    a = _floats(200, 200)
    b, positive = _floats(200), a @ a.T + 200 * np.eye(200, dtype=np.float32)
    return {
        "solve, 200 x 200": _run(jax, jnp.linalg.solve, a, b),
        "cholesky, 200 x 200": _run(jax, jnp.linalg.cholesky, positive),
        "cholesky gradient, 200 x 200": _run(jax, jax.grad(lambda a: jnp.linalg.cholesky(a).sum()), positive),
        "qr, 200 x 200": _run(jax, jnp.linalg.qr, a),
        "svd, 200 x 200": _run(jax, jnp.linalg.svd, a),
        "eigh, 200 x 200": _run(jax, jnp.linalg.eigh, positive),
        "eig, 200 x 200": _run(jax, jnp.linalg.eig, a),
        "inv, 200 x 200": _run(jax, jnp.linalg.inv, a),
        "det, 200 x 200": _run(jax, jnp.linalg.det, a),
    }


@programs
def transforms(jax):
    jnp, line = jax.numpy, _floats(2 ** 20)
    q, k = _floats(8, 4, 256, 32), _floats(8, 4, 256, 32)
    return {
        "fft, 2^20": _run(jax, jnp.fft.fft, line),
        "rfft, rows of 1,024 x 1,024": _run(jax, jnp.fft.rfft, line.reshape(1024, 1024)),
        "fft2, 1,024 x 1,024": _run(jax, jnp.fft.fft2, line.reshape(1024, 1024)),
        "random.uniform, 1,000,000": _run(jax, lambda key: jax.random.uniform(key, (MILLION,)), jax.random.key(0)),
        "random.normal, 1,000,000": _run(jax, lambda key: jax.random.normal(key, (MILLION,)), jax.random.key(0)),
        "random.permutation, 100,000": _run(jax, lambda key: jax.random.permutation(key, 100_000), jax.random.key(0)),
        "einsum, attention scores": _run(jax, lambda q, k: jnp.einsum("bhqd,bhkd->bhqk", q, k), q, k),
        "einsum, attention scores of bshd": _run(jax, lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k),
                                                 q.transpose(0, 2, 1, 3).copy(), k.transpose(0, 2, 1, 3).copy()),
        "einsum, bilinear": _run(jax, lambda x, w, y: jnp.einsum("bi,ijk,bk->bj", x, w, y), _floats(64, 100), _floats(100, 100, 100),
                                 _floats(64, 100)),
        "einsum, trace of products": _run(jax, lambda x, y: jnp.einsum("bij,bji->b", x, y), _floats(100, 100, 100), _floats(100, 100, 100)),
    }
