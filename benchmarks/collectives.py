"""Messages between devices: each collective over 8 forced CPU devices, of a few numbers and of a megabyte a device, with pmap and with shard_map;
and total gradients (reduce_axes) against gradients that are summed afterwards."""
import numpy as np

from benchmarks.registry import BENCHMARKS, Benchmark, per_call

SIZES = {"64 B": 16, "1 MB": 1 << 18}


def _collectives(jax):
    lax, ring = jax.lax, [(k, (k + 1) % 8) for k in range(8)]
    return {"psum": lambda x: lax.psum(x, "i"), "all_gather": lambda x: lax.all_gather(x, "i", tiled=True),
            "psum_scatter": lambda x: lax.psum_scatter(x, "i", tiled=True), "all_to_all": lambda x: lax.all_to_all(x, "i", 0, 0, tiled=True),
            "ppermute": lambda x: lax.ppermute(x, "i", ring)}


def _mapped(how):
    def run(jax):
        values = {}
        for name, collective in _collectives(jax).items():
            for size, count in SIZES.items():
                if how == "pmap":
                    f, x = jax.pmap(collective, axis_name="i"), np.ones((8, count), np.float32)
                    x = jax.pmap(lambda x: x)(x)
                else:
                    spec, mesh = jax.sharding.PartitionSpec("i"), jax.sharding.Mesh(np.array(jax.devices()[:8]), ("i",))
                    f = jax.jit(jax.shard_map(collective, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
                    x = jax.device_put(np.ones(8 * count, np.float32), jax.sharding.NamedSharding(mesh, spec))
                values[f"{name} of {size}, {how}"] = per_call(lambda: f(x).block_until_ready(), block=0.01, total=0.6)
        return values
    return run


for _how in ("pmap", "shard_map"):
    BENCHMARKS[f"collectives_{_how}"] = Benchmark(f"collectives_{_how}", {}, _mapped(_how), False, 8)


def _per_example(jax):
    """vmap of grad, then the sum: what a program without reduce_axes does where the loss is written for one example."""
    return lambda loss: lambda w, xs: jax.tree.map(lambda g: g.sum(0), jax.vmap(jax.grad(loss), (None, 0))(w, xs))


def _total(jax):
    return lambda loss: jax.vmap(jax.grad(loss, reduce_axes=("i",)), (None, 0), out_axes=None, axis_name="i")


def total_gradient(jax):
    """A perceptron written for one example, on a batch of 512."""
    jnp = jax.numpy
    w = {"a": np.full((256, 512), 0.01, np.float32), "b": np.full((512, 256), 0.01, np.float32)}
    loss = lambda w, x: jnp.sum(jnp.tanh(jnp.tanh(x @ w["a"]) @ w["b"]) ** 2)
    f = jax.jit((_total if jax.__name__ == "mini_jax" else _per_example)(jax)(loss))
    w, xs = jax.device_put((w, np.ones((512, 256), np.float32)))
    return {"total gradient of a loss of one example, batch of 512 (reduce_axes; in jax a sum of gradients)": per_call(lambda: jax.block_until_ready(f(w, xs)), block=0.05, total=1.5)}


BENCHMARKS["total_gradient"] = Benchmark("total_gradient", {}, total_gradient, False, 1)
