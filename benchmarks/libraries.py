"""Library functions called eagerly, one small call each, and what tracing one costs."""
import numpy as np

from benchmarks.registry import call, elapsed, per_call


def _of_matrix(jax, function):
    x = jax.numpy.asarray(np.linspace(-1, 1, 8 * 16, dtype=np.float32).reshape(8, 16))
    return per_call(lambda: function(x), jax.block_until_ready)


@call("one dispatch, which no eager call does without: a jitted -x")
def eager_dispatch(jax):
    negative = jax.jit(lambda x: -x)
    return _of_matrix(jax, lambda x: negative(x))


@call("eager nn.softmax", 0.25, quick=True)
def eager_softmax(jax):
    return _of_matrix(jax, jax.nn.softmax)


@call("eager jnp.mean", 0.25)
def eager_mean(jax):
    return _of_matrix(jax, lambda x: jax.numpy.mean(x, axis=0))


@call("eager jnp.var", 0.25)
def eager_var(jax):
    return _of_matrix(jax, lambda x: jax.numpy.var(x, axis=-1))


@call("eager jnp.einsum", 0.25)
def eager_einsum(jax):
    return _of_matrix(jax, lambda x: jax.numpy.einsum("ij,kj->ik", x, x))


@call("eager x.at[1].set", 0.25)
def eager_at_set(jax):
    return _of_matrix(jax, lambda x: x.at[1].set(2.0))


@call("eager layer norm", 0.25)
def eager_layer_norm(jax):
    def layer_norm(x):
        mean, var = jax.numpy.mean(x, -1, keepdims=True), jax.numpy.var(x, -1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(var + 1e-5)
    return _of_matrix(jax, layer_norm)


@call("eager gradient of a perceptron of 2 layers", 0.25)
def eager_mlp_gradient(jax):
    jnp = jax.numpy
    params = [np.full((16, 16), 0.1, np.float32), np.full((16, 4), 0.1, np.float32)]
    gradient = jax.grad(lambda params, x: jnp.mean((jnp.tanh(x @ params[0]) @ params[1]) ** 2))
    params = [jnp.asarray(p) for p in params]
    return _of_matrix(jax, lambda x: gradient(params, x))


@call("eager random.split", 0.25)
def eager_split(jax):
    key = jax.random.key(0)
    return per_call(lambda: jax.random.split(key), jax.block_until_ready)


@call("eager random.normal of 8", 1.0)
def eager_normal(jax):
    key = jax.random.key(0)
    return per_call(lambda: jax.random.normal(key, (8,)), jax.block_until_ready)


@call("tracing of 20 jnp calls", 0.25, quick=True)
def trace_library(jax):
    jnp = jax.numpy

    def program(x):
        for _ in range(2):
            x = jnp.where(jnp.sort(x, -1) > jnp.mean(x, -1, keepdims=True), jnp.cumsum(x, -1), jnp.clip(x, -1, 1))
            x = jnp.einsum("ij,kj->ik", x, x) + jnp.var(x) + jnp.roll(jnp.stack([x, x]).sum(0), 1, 0)[:, :8].sum()
        return x
    x = np.ones((8, 8), np.float32)
    jax.make_jaxpr(program)(x)
    return min(elapsed(lambda: jax.make_jaxpr(lambda x: program(x))(x)) for _ in range(20))
