"""What test_processes.py runs in each of several processes: named checks, whose results, as JSON, are compared there with those of one process.

    python -m mini_jax launch -n 2 --devices 2 tests/process_checks.py
"""
import json
import warnings

import numpy as np

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.experimental import io_callback, multihost_utils
from mini_jax.sharding import Mesh, NamedSharding, PartitionSpec as P

X = np.random.default_rng(0).normal(size=(4, 3)).astype("f4")
W = np.array([1.0, -2.0, 0.5], "f4")


def step(w, x, axes):
    """A value that needs everyone, and one that is each row's own."""
    total = lax.psum(jnp.sum(jnp.tanh(x * w)), axes)
    return total, x * 2 + total + lax.axis_index(axes)


def main():
    jax.distributed.initialize()
    me, devices = jax.process_index(), jax.devices()
    mesh, grid = Mesh(np.array(devices), ("d",)), Mesh(np.array(devices).reshape(2, 2), ("host", "core"))
    cut, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
    mine = X[2 * me:2 * me + 2]
    spread = jax.make_array_from_process_local_data(cut, mine)
    rows = jax.pmap(lambda w, x: step(w, x, "i"), "i", in_axes=(None, 0))
    mapped = jax.shard_map(lambda w, x: step(w, x, "d"), mesh=mesh, in_specs=(P(), P("d")), out_specs=(P(), P("d")))

    def facts():
        return [me, jax.process_count(), jax.process_indices(), jax.device_count(), jax.local_device_count(), [d.process_index for d in devices],
                [d.process_index for d in jax.local_devices(process_index=1)], jax.distributed.is_initialized()]

    def older_names():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = [jax.host_id(), jax.host_count(), jax.host_ids(), [d.process_index for d in jax.local_devices(host_id=0)]]
        return [found, [w.category.__name__ for w in caught]]

    def pmap_twice():
        return [[np.asarray(out).tolist() for out in rows(W, mine)] for _ in range(3)][-1]

    def pmap_of_what_pmap_returned():
        x = mine
        for _ in range(3):
            x = rows(W, x)[1] * 0.1
        return [np.asarray(x).tolist(), x.is_fully_addressable, x.shape]

    def pmap_shared_result():
        return np.asarray(jax.pmap(lambda x: lax.pmean(x, "i"), "i", out_axes=None)(mine)).tolist()

    def pmap_gradient():
        loss = lambda w: rows(w, mine)[0][0]
        return np.asarray(jax.grad(loss)(W)).tolist()

    def pmap_nested():
        f = jax.pmap(jax.pmap(lambda x: [lax.psum(x, ("i", "j")), lax.psum(x, "j"), lax.axis_index("i") * 10 + lax.axis_index("j")], "j"), "i")
        return [np.asarray(out).tolist() for out in f(mine[None])]

    def pmap_of_this_process_alone():
        return np.asarray(jax.pmap(lambda x: lax.psum(x, "i"), "i", devices=jax.local_devices())(mine)).tolist()

    def pmap_inside_jit():
        return jax.jit(lambda x: rows(W, x))(mine)

    def pmap_of_too_many():
        return rows(W, X)

    def shard_map_in_and_outside_of_jit():
        return [[np.asarray(total).tolist(), multihost_utils.process_allgather(each, tiled=True).tolist()]
                for f in (mapped, jax.jit(mapped), jax.jit(mapped)) for total, each in [f(W, spread)]]

    def jit_over_a_mesh():
        f = jax.jit(lambda w, x: (jnp.tanh(x * w).sum(), x @ x.T), in_shardings=(whole, cut), out_shardings=(whole, cut))
        total, product = f(W, spread)
        return [float(total), multihost_utils.process_allgather(product, tiled=True).tolist(), product.sharding == cut]

    def operations_one_by_one():
        y = jnp.sin(spread) * 2 + spread.sum()
        return [float(y[3, 1]), multihost_utils.process_allgather(y, tiled=True).tolist()]

    def gradient_and_loop():
        @jax.jit
        def descend(w, x):
            return lax.fori_loop(0, 5, lambda i, w: w - 0.1 * jax.grad(lambda w: jnp.mean((x @ w - 1) ** 2))(w), w)
        return np.asarray(descend(W, spread)).tolist()

    def many_programs_on_their_way():
        """None waited for before the next is started; jaxlib 0.10 can't have many of them at once."""
        f, g, x, y = jax.jit(lambda x: x + x.sum() * 1e-4), jax.jit(lambda x: x - x.mean()), spread, mine
        for _ in range(60):
            x, y = g(f(x)), rows(W * 0, y)[1] * 0.5
        return [np.asarray((x * x).sum()).tolist(), np.asarray(y).tolist()]

    def what_an_array_says():
        return [spread.shape, spread.is_fully_addressable, repr(spread), str(spread), f"{spread}", [[s.device.process_index, s.index[0].start, s.replica_id, s.data is None]
                for s in spread.global_shards], [np.asarray(s.data).tolist() for s in spread.addressable_shards]]

    def reading_what_is_elsewhere():
        return np.asarray(spread)

    def moving_what_is_elsewhere():
        return jax.device_put(spread, jax.local_devices()[0])

    def respread():
        return np.asarray(jax.device_put(spread, whole)).tolist()

    def a_copy():
        return [np.asarray(s.data).tolist() for s in spread.copy().addressable_shards]

    def made_by_callback():
        x = jax.make_array_from_callback(X.shape, NamedSharding(grid, P("core", None)), lambda index: X[index])
        return [multihost_utils.process_allgather(x, tiled=True).tolist(), [s.replica_id for s in x.addressable_shards]]

    def data_as_large_as_the_whole():
        return multihost_utils.process_allgather(jax.make_array_from_process_local_data(cut, X + me, X.shape), tiled=True).tolist()

    def data_of_no_size_that_fits():
        return jax.make_array_from_process_local_data(cut, X[:3], X.shape)

    def python_called_by_a_program():
        f = jax.jit(lambda x: io_callback(lambda value: np.float32(value.sum()), jax.ShapeDtypeStruct((), "float32"), x))
        return float(f(spread))

    def nans_here_and_there():
        with jax.debug_nans(True):
            return jax.jit(lambda x: jnp.log(-x))(jax.device_put(np.abs(X), cut))

    def put_alike():
        return multihost_utils.process_allgather(jax.device_put(X, NamedSharding(grid, P(("core", "host")))), tiled=True).tolist()

    def put_differing():
        return jax.device_put(X + me, cut)

    def numpy_for_in_shardings():
        return jax.jit(lambda x: x, in_shardings=cut)(mine)

    def differing_programs():
        return jax.jit(lambda x: x * (2 + me))(spread)

    def after_that():
        return float(jax.jit(lambda x: x.max())(spread))

    def broadcast():
        tree = {"a": np.arange(3) + me, "b": (np.float32(me), me == 0), "c": np.array([-0.0, np.nan], "f4")}
        out = multihost_utils.broadcast_one_to_all(tree)
        return [out["a"].tolist(), float(out["b"][0]), bool(out["b"][1]), np.signbit(out["c"]).tolist(), np.isnan(out["c"]).tolist(),
                multihost_utils.broadcast_one_to_all(np.arange(2) + me, is_source=me == 1).tolist()]

    def broadcast_of_none():
        return multihost_utils.broadcast_one_to_all(1, is_source=False)

    def allgather():
        gather = multihost_utils.process_allgather
        return [gather(np.arange(2) + me).tolist(), gather(np.arange(2) + me, tiled=True).tolist(), gather(jnp.float32(me), tiled=True).tolist(), gather({"k": me})["k"].tolist()]

    def allgather_of_other_shapes():
        return multihost_utils.process_allgather(np.zeros(2 + me))

    def waiting():
        return multihost_utils.sync_global_devices("here")

    def waiting_elsewhere():
        return multihost_utils.sync_global_devices(f"place {me}")

    def equal():
        return multihost_utils.assert_equal({"a": X, "b": 1})

    def unequal():
        return multihost_utils.assert_equal({"a": me}, "the seeds differ")

    def local_and_global():
        found = []
        for spec in (P("host", "core"), P("core", "host"), P(None, "host"), P(("host", "core"))):
            whole = multihost_utils.host_local_array_to_global_array(X[:, :2] + 10 * me, grid, spec)
            back = multihost_utils.global_array_to_host_local_array(whole, grid, spec)
            found.append([whole.shape, np.asarray(back).tolist() == (X[:, :2] + 10 * me).tolist()])
        return found

    for name, check in list(locals().items()):
        if callable(check) and getattr(check, "__qualname__", "").startswith("main.<locals>.") and check.__name__ == name:
            try:
                result = check()
            except Exception as error:
                result = {"error": type(error).__name__, "text": str(error)}
            print(json.dumps([name, result], default=str), flush=True)


if __name__ == "__main__":
    main()
