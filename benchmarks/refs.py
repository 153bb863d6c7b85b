"""Refs: reading and writing them in compiled functions and eagerly, small ones and large ones, and gradients added up in place."""
import numpy as np

from benchmarks.registry import call, elapsed, per_call, timed, workload
from benchmarks.workloads import _normal


def _ref_and_wait(jax, size=8):
    ref = jax.new_ref(jax.numpy.zeros(size, np.float32))
    return ref, lambda _: jax.block_until_ready(ref[0])


@call("ref update in jit, captured", 0.35)
def ref_in_jit(jax):
    ref, wait = _ref_and_wait(jax)

    @jax.jit
    def bump():
        ref[0] += 1
    return per_call(bump, wait)


@call("ref update in jit, an argument", 0.35)
def ref_argument(jax):
    ref, wait = _ref_and_wait(jax)

    @jax.jit
    def bump(ref):
        ref[0] += 1
    return per_call(lambda: bump(ref), wait)


@call("eager ref[i] += v", 0.05)
def ref_eager(jax):
    ref, wait = _ref_and_wait(jax)

    def bump():
        ref[0] += 1
    return per_call(bump, wait)


@call("eager ref[i] = v", 0.05)
def ref_eager_write(jax):
    ref, wait = _ref_and_wait(jax)

    def write():
        ref[0] = 1.0
    return per_call(write, wait)


@call("eager ref[i]", 0.05)
def ref_eager_read(jax):
    ref, _ = _ref_and_wait(jax)
    return per_call(lambda: ref[0], jax.block_until_ready)


@call("eager ref[...]", 0.2)
def ref_eager_value(jax):
    ref, _ = _ref_and_wait(jax)
    return per_call(lambda: ref[...], jax.block_until_ready)


# A write takes as long as what it writes, not as what the ref holds

LARGE, SMALL = 50_000_000, 3                          # 200 MB and 12 bytes


def _in_jit(jax, ref):
    f = jax.jit(lambda r: r.__setitem__(0, r[0] + 1))
    return lambda: f(ref)


def _eagerly(jax, ref):
    return lambda: ref.__setitem__(0, 1.0)


def _large_over_small(jax, update):
    """The time of an update of a large ref in times of that of a small one, each the best of calls made by turns."""
    refs = [_ref_and_wait(jax, size) for size in (LARGE, SMALL)]
    updates = [update(jax, ref) for ref, _ in refs]
    times = [[], []]
    for _ in range(3):
        for seen, do, (_, wait) in zip(times, updates, refs):
            elapsed(do), wait(None)
            seen.append(min(timed(lambda: (elapsed(do), wait(None))[0], total=0.1, at_least=3)))
    return min(times[0]) / min(times[1])


@call("update of a 200 MB ref in jit, times that of a 12-byte one", 3.0, of_itself=True)
def ref_large(jax):
    return _large_over_small(jax, _in_jit)


@call("eager update of a 200 MB ref, times that of a 12-byte one", 3.0, of_itself=True)
def ref_large_eager(jax):
    return _large_over_small(jax, _eagerly)


@call("update of a 200 MB ref in jit", 1.0)
def ref_large_in_jit(jax):
    ref, wait = _ref_and_wait(jax, LARGE)
    return per_call(_in_jit(jax, ref), wait)


# Gradients of 64 microbatches, added up. mini_jax adds them to refs; jax carries their sum through a scan, which is its best form

def _accumulated(jax, loss, params, data):
    jnp, tree = jax.numpy, jax.tree

    @jax.jit
    def with_refs(params, data):
        sums = tree.map(lambda p: jax.new_ref(jnp.zeros_like(p)), params)

        def body(_, batch):
            value, loss_vjp = jax.vjp(lambda params: loss(params, *batch), params)
            loss_vjp.with_refs(sums)(jnp.ones_like(value))
            return None, value
        _, values = jax.lax.scan(body, None, data)
        return tree.map(jax.freeze, sums), values

    @jax.jit
    def carried(params, data):
        def body(sums, batch):
            value, grads = jax.value_and_grad(loss)(params, *batch)
            return tree.map(jnp.add, sums, grads), value
        return jax.lax.scan(body, tree.map(jnp.zeros_like, params), data)

    add_up, given = with_refs if jax.__name__ == "mini_jax" else carried, jax.device_put((params, data))
    return lambda: jax.block_until_ready(add_up(*given))


@workload("gradients of 64 microbatches, MLP")
def accumulation(jax):
    jnp, sizes = jax.numpy, (784, 256, 256, 10)
    params = [(_normal(m, n), np.zeros(n, np.float32)) for m, n in zip(sizes, sizes[1:])]
    data = _normal(64 * 16, 784).reshape(64, 16, 784), (np.arange(64 * 16) % 10).reshape(64, 16)

    def loss(params, x, y):
        for weights, bias in params[:-1]:
            x = jnp.tanh(x @ weights + bias)
        weights, bias = params[-1]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(x @ weights + bias) * jax.nn.one_hot(y, 10), axis=1))
    return _accumulated(jax, loss, params, data)


@workload("gradients of 64 microbatches, embedding of 77 MB")
def accumulation_sparse(jax):
    jnp, entries = jax.numpy, 300_000
    params = _normal(entries, 64), _normal(64, 64)
    data = np.random.default_rng(1).integers(entries, size=(64, 16)).astype(np.int32), _normal(64 * 16, 64).reshape(64, 16, 64)

    def loss(params, i, y):
        return jnp.mean((jnp.tanh(params[0][i] @ params[1]) - y) ** 2)
    return _accumulated(jax, loss, params, data)
