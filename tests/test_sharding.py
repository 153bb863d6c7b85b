"""Arrays spread over meshes, and programs that run over them: values are those of one device, whatever lies where."""
import pickle
from collections import namedtuple

import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax, random
from mini_jax.runtime import meshes
from mini_jax.sharding import (AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec as P, SingleDeviceSharding, get_abstract_mesh, get_mesh,
                               reshard, set_mesh)

DEVICES = jax.devices()
MESH = jax.make_mesh((4, 2), ("x", "y"))


def spread(value, *entries, mesh=MESH):
    return jax.device_put(value, NamedSharding(mesh, P(*entries)))


def host(*shape, seed=0):
    return np.random.RandomState(seed).randn(*shape).astype(np.float32)


# --- meshes and specs --------------------------------------------------------------------------------------------------------

def test_a_mesh_is_a_grid_of_devices_with_names():
    assert MESH.shape == {"x": 4, "y": 2} and MESH.size == 8 and MESH.axis_names == ("x", "y") and MESH.axis_sizes == (4, 2)
    assert MESH.devices.shape == (4, 2) and MESH.device_ids.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert not MESH.empty and not MESH.is_multi_process and MESH.local_devices == DEVICES
    assert MESH == Mesh(np.array(DEVICES).reshape(4, 2), ("x", "y")) and hash(MESH) == hash(Mesh(np.array(DEVICES).reshape(4, 2), ("x", "y")))
    assert MESH != Mesh(np.array(DEVICES).reshape(4, 2), ("y", "x")) and MESH != Mesh(np.array(DEVICES[::-1]).reshape(4, 2), ("x", "y"))
    assert repr(MESH) == "Mesh('x': 4, 'y': 2)" and MESH.abstract_mesh == AbstractMesh((4, 2), ("x", "y")) == AbstractMesh((("x", 4), ("y", 2)))
    assert MESH.axis_types == (AxisType.Auto, AxisType.Auto) and Mesh(DEVICES, "i").shape == {"i": 8}
    with pytest.raises(ValueError):
        MESH.devices[0, 0] = None


@pytest.mark.parametrize("make, error, words", [
    (lambda: Mesh(np.array(DEVICES).reshape(4, 2), ("x", "x")), ValueError, "repeat"),
    (lambda: Mesh(DEVICES, ("x", "y")), ValueError, "one name for each"),
    (lambda: Mesh([DEVICES[0], DEVICES[0]], "x"), ValueError, "twice"),
    (lambda: jax.make_mesh((16,), ("x",)), ValueError, "takes 16 devices, and there are 8.*--xla_force_host_platform_device_count=16"),
    (lambda: jax.make_mesh((4,), ("x",), devices=DEVICES), ValueError, "takes 4 devices, and there are 8"),
    (lambda: jax.make_mesh((4, 2), ("x",)), ValueError, "one length"),
    (lambda: NamedSharding(MESH, P("z")), ValueError, "'z', which Mesh"),
    (lambda: NamedSharding(MESH, P("x", "x")), ValueError, "twice"),
    (lambda: NamedSharding(MESH, P(("x", "y"), "y")), ValueError, "twice"),
    (lambda: NamedSharding(MESH, ("x",)), TypeError, "takes a PartitionSpec"),
    (lambda: NamedSharding(DEVICES, P("x")), TypeError, "takes a Mesh first"),
    (lambda: spread(np.zeros(6), "x"), ValueError, "dimension 0 .* size 6, which can't be cut into 4"),
    (lambda: spread(np.zeros(8), "x", "y"), ValueError, "cuts 2 dimensions, but the array has 1"),
    (lambda: set_mesh(DEVICES), TypeError, "takes a Mesh"),
    (lambda: get_mesh(), ValueError, "no mesh is set"),
    (lambda: jax.jit(lambda x: x, in_shardings=P("x"))(np.zeros(8)), ValueError, "no mesh is set"),
    (lambda: jax.jit(lambda x: x, in_shardings=("x",))(np.zeros(8)), TypeError, "got 'x' of type str"),
    (lambda: jax.jit(lambda x: x, in_shardings=NamedSharding(MESH, P("x")))(np.zeros(6)), ValueError, "jit of .*: argument x of type .* size 6, which can't be cut into 4"),
    (lambda: jax.jit(lambda x: x, in_shardings=(NamedSharding(MESH, P("x")),) * 2)(np.zeros(8)), ValueError, "in_shardings"),
    (lambda: jax.jit(lambda x: x, out_shardings=NamedSharding(MESH, P("x")))(np.zeros(6)), ValueError, "jit of .*: result 0 of type .* size 6, which can't be cut into 4"),
    (lambda: lax.with_sharding_constraint(np.zeros(6), NamedSharding(MESH, P("x"))), ValueError, "size 6, which can't be cut into 4"),
    (lambda: jax.jit(lambda x, y: x + y, in_shardings=(NamedSharding(MESH, P()), NamedSharding(Mesh(DEVICES[:4], "i"), P())))(1., 2.),
     ValueError, "over the same devices"),
    (lambda: pickle.dumps(MESH), TypeError, "can't be pickled"),
])
def test_what_cannot_be_is_said(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_specs_say_how_dimensions_are_cut():
    assert P("x", None) == P("x", None) and hash(P("x")) == hash(P("x")) and isinstance(P("x"), tuple)
    assert P(("x",)) == P("x") and P(()) == P(None) and P(["x", "y"]) == P(("x", "y"))
    assert pickle.loads(pickle.dumps(P("x", ("y", "z")))) == P("x", ("y", "z"))
    assert repr(P("x", None)) == "PartitionSpec('x', None)"
    for longer in (P("x") + P("y"), P("x") + ("y",), ("x",) + P("y")):
        assert type(longer) is P and longer == P("x", "y")
    assert NamedSharding(MESH, P("x")) == NamedSharding(MESH, P("x", None)) != NamedSharding(MESH, P(None, "x"))
    assert NamedSharding(MESH, P("x")).is_equivalent_to(NamedSharding(MESH, P("x", None)), 2)
    assert NamedSharding(MESH, P(("x", "y"))).is_equivalent_to(NamedSharding(Mesh(DEVICES, "i"), P("i")), 1)
    assert not NamedSharding(MESH, P(("y", "x"))).is_equivalent_to(NamedSharding(Mesh(DEVICES, "i"), P("i")), 1)
    sharding = NamedSharding(MESH, P("x", "y"))
    assert sharding.shard_shape((8, 6)) == (2, 3) and sharding.device_set == set(DEVICES) and sharding.num_devices == 8
    assert not sharding.is_fully_replicated and NamedSharding(MESH, P()).is_fully_replicated
    assert NamedSharding(jax.make_mesh((1, 8), ("x", "y")), P("x")).is_fully_replicated
    assert sharding.is_fully_addressable and sharding.addressable_devices == set(DEVICES)
    assert sharding.with_spec(P("y")) == NamedSharding(MESH, P("y"))


@pytest.mark.parametrize("entries", [(), ("x",), ("x", "y"), (("x", "y"),), (("y", "x"),), (None, "x"), ("y", "x"), (None, ("y", "x"))])
def test_each_device_holds_the_part_its_place_in_the_mesh_says(entries):
    whole, x = host(16, 8), spread(host(16, 8), *entries)
    assert (np.asarray(x) == whole).all() and x.shape == (16, 8) and x.sharding == NamedSharding(MESH, P(*entries))
    places = dict(zip(MESH.devices.flat, np.ndindex(4, 2)))
    seen = {}
    for shard in x.addressable_shards:
        place, cut = dict(zip("xy", places[shard.device])), []
        for d in range(2):
            names = entries[d] if d < len(entries) else None
            names = () if names is None else names if isinstance(names, tuple) else (names,)
            number, count = 0, 1
            for name in names:
                number, count = number * MESH.shape[name] + place[name], count * MESH.shape[name]
            size = whole.shape[d] // count
            cut.append(slice(number * size, (number + 1) * size))
        assert (np.asarray(shard.data) == whole[tuple(cut)]).all() and (whole[shard.index] == whole[tuple(cut)]).all()
        assert shard.data.devices() == {shard.device} and shard.replica_id == seen.get(str(cut), 0)
        seen[str(cut)] = seen.get(str(cut), 0) + 1
    assert (np.asarray(x.addressable_data(3)) == np.asarray(x.addressable_shards[3].data)).all()
    assert len(x.global_shards) == 8 and x.is_fully_addressable and x.is_fully_replicated == (entries == ()) and x.devices() == set(DEVICES)


def test_arrays_move_between_shardings_and_print_whole():
    whole = host(8, 8)
    x = jax.device_put(whole, DEVICES[3])
    for entries in ((), ("x",), ("y", "x"), (("y", "x"),), (None, "y")):
        x = spread(x, *entries)
        assert x.committed and (np.asarray(x) == whole).all()
    x = jax.device_put(x, NamedSharding(Mesh(DEVICES[2:4], "i"), P("i")))
    assert x.devices() == set(DEVICES[2:4]) and (np.asarray(x) == whole).all()
    x = jax.device_put(x, DEVICES[1])
    assert isinstance(x.sharding, SingleDeviceSharding) and (np.asarray(x) == whole).all()
    tree = jax.device_put({"a": np.arange(8), "b": (np.ones((8, 2)), 3.)}, {"a": NamedSharding(MESH, P("x")), "b": NamedSharding(MESH, P())})
    assert tree["a"].sharding.spec == P("x") and tree["b"][1].sharding.is_fully_replicated
    y = spread(np.arange(8, dtype=np.int32), "x")
    assert repr(y) == "Array([0, 1, 2, 3, 4, 5, 6, 7], dtype=int32)" and str(y) == "[0 1 2 3 4 5 6 7]"
    assert y.tolist() == list(range(8)) and list(map(int, y)) == list(range(8)) and int(y[5]) == 5
    y.copy_to_host_async()
    copy = pickle.loads(pickle.dumps(y))
    assert (np.asarray(copy) == np.arange(8)).all()
    y.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        y + 1


@pytest.mark.parametrize("dtype", ["bool", "int8", "int4", "float16", "bfloat16", "float8_e4m3fn", "complex64"])
def test_any_dtype_is_spread_and_computed_with(dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    whole = (np.arange(16).reshape(8, 2) % 2).astype(kind)
    x = spread(whole, "x", "y")
    assert x.dtype == kind and (np.asarray(x) == whole).all()
    gathered, turned, same = jax.jit(lambda x: (lax.with_sharding_constraint(x, NamedSharding(MESH, P())), x.T, x == x[::-1]))(x)
    assert gathered.sharding.is_fully_replicated and (np.asarray(gathered) == whole).all() and (np.asarray(turned) == whole.T).all()
    assert (np.asarray(same) == (whole == whole[::-1])).all()


def test_scalars_and_empty_arrays_are_spread_too():
    s, e = spread(np.float32(3)), spread(np.zeros((0, 8), np.float32), None, "x")
    assert float(s) == 3 and len(s.addressable_shards) == 8 and e.addressable_shards[0].data.shape == (0, 2) and np.asarray(e).shape == (0, 8)
    total, bigger = jax.jit(lambda s, e: (s + e.sum(), lax.concatenate([e, e], 0)))(s, e)
    assert float(total) == 3 and bigger.shape == (0, 8)
    assert spread(np.zeros((0, 8)), "x").shape == (0, 8)


def test_typed_keys_are_spread():
    keys = jax.device_put(random.split(random.key(0), 8), NamedSharding(MESH, P("x")))
    there = np.asarray(jax.jit(jax.vmap(lambda k: random.normal(k, (3,))))(keys))
    assert (there == np.asarray(jax.vmap(lambda k: random.normal(k, (3,)))(random.split(random.key(0), 8)))).all()
    assert keys.shape == (8,) and keys.sharding == NamedSharding(MESH, P("x"))


def test_random_values_do_not_depend_on_how_they_are_spread():
    draw = lambda: random.normal(random.key(3), (16, 4))
    assert (np.asarray(jax.jit(draw, out_shardings=NamedSharding(MESH, P("x", "y")))()) == np.asarray(draw())).all()


# --- programs -----------------------------------------------------------------------------------------------------------------

def test_jit_follows_its_arguments():
    a, b = host(16, 8), host(8, 4, seed=1)
    f = jax.jit(lambda a, b, c: {"product": jnp.sin(a) @ b, "sum": a.sum(), "scaled": a * c})
    out = f(spread(a, "x", "y"), b, 2.0)
    np.testing.assert_allclose(out["product"], np.sin(a) @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(out["sum"], a.sum(), rtol=1e-4)
    assert out["scaled"].sharding == NamedSharding(MESH, P("x", "y")) and out["product"].devices() == set(DEVICES)
    again = f(spread(a, "x", "y"), b, 2.0)                  # by now through C++
    np.testing.assert_array_equal(again["product"], out["product"])
    assert f(a, b, 2.0)["sum"].devices() == {DEVICES[0]}    # and on one device where it is given what lies there


def test_eager_operations_follow_their_arguments():
    a = host(16, 8)
    x = spread(a, "x", "y")
    for fun in (lambda x: x + 1, lambda x: -x, lambda x: x[3], lambda x: x[:, ::2], lambda x: x.T @ x, lambda x: x.reshape(-1), lambda x: x.at[2].set(0.),
                lambda x: jnp.sort(x, 0), lambda x: jnp.concatenate([x, a]), lambda x: jnp.where(x > 0, x, 0.), lambda x: x.mean(1)):
        out = fun(x)
        assert out.devices() == set(DEVICES)
        np.testing.assert_allclose(out, fun(jnp.asarray(a)), rtol=1e-5, atol=1e-5)
    assert (x * 2).sharding == x.sharding and x.argmax() == a.argmax() and bool((x == x).all())


def test_in_shardings_and_out_shardings():
    a, b = host(8, 4), host(4, 6, seed=1)
    rows, columns, both = [NamedSharding(MESH, P(*e)) for e in (("x",), (None, "y"), ("x", "y"))]
    out = jax.jit(lambda a, b: a @ b, in_shardings=(rows, columns), out_shardings=both)(a, b)
    assert out.sharding == both and np.allclose(out, a @ b, atol=1e-5)
    f = jax.jit(lambda p, x: ({"y": x @ p["w"] + p["b"]}, x.sum()), in_shardings=({"w": columns, "b": None}, rows), out_shardings=({"y": both}, None))
    y, total = f({"w": b, "b": 1.0}, a)
    assert y["y"].sharding == both and np.allclose(y["y"], a @ b + 1, atol=1e-5) and np.allclose(total, a.sum(), atol=1e-5)
    one = jax.jit(lambda x, y: (x, y + 1), in_shardings=rows, out_shardings=rows)              # one for all
    assert [t.sharding for t in one(a, a)] == [rows, rows]
    with set_mesh(MESH):
        assert get_mesh() is MESH and get_abstract_mesh() == MESH.abstract_mesh
        assert jax.jit(lambda x: x * 2, in_shardings=P("x"), out_shardings=P(None, "y"))(a).sharding == columns
        assert jax.device_put(a, P("x")).sharding == rows and jax.device_put((a, {"b": a}), (P("x"), P(None, "y")))[1]["b"].sharding == columns
        assert jax.jit(lambda x: jax.device_put(x, P("x")) + 1)(a).sharding == rows
    with MESH:
        assert lax.with_sharding_constraint(a, P("x")).sharding == rows
    assert get_abstract_mesh().empty
    last = DEVICES[-1]
    assert jax.jit(lambda x: x + 1, out_shardings=SingleDeviceSharding(last))(a).devices() == {last}
    assert jax.jit(lambda x: x + 1, in_shardings=SingleDeviceSharding(last))(a).devices() == {last}


def test_committed_arguments_are_resharded_to_in_shardings():
    a = host(8, 8)
    f = jax.jit(lambda x: x + 1, in_shardings=NamedSharding(MESH, P("x")))
    for entries in ((), ("y",), (None, ("x", "y"))):
        assert np.allclose(f(spread(a, *entries)), a + 1)
    with pytest.raises(ValueError, match="committed to"):
        f(jax.device_put(a, DEVICES[3]))
    with pytest.raises(ValueError, match="committed to|different devices"):
        jax.jit(lambda x, y: x + y)(spread(a, "x"), spread(a, "i", mesh=Mesh(DEVICES[:4], "i")))


def test_static_arguments_captured_arrays_and_keywords():
    a, table = host(8, 4), spread(host(4, 4, seed=2), None, "y")
    f = jax.jit(lambda x, n, *, scale: (x @ table) ** n * scale, static_argnums=1, in_shardings=(NamedSharding(MESH, P("x")),))
    assert np.allclose(f(a, 2, scale=3.0), (a @ np.asarray(table)) ** 2 * 3, atol=1e-4)
    assert np.allclose(jax.jit(lambda x: x @ table)(a), a @ np.asarray(table), atol=1e-5)       # a captured array alone says where
    assert jax.jit(lambda: table * 2)().sharding == table.sharding


def test_donated_parts_are_reused():
    f = jax.jit(lambda x, y: (x + 1, y.sum()), donate_argnums=0)
    x, y = spread(host(8, 4), "x"), spread(host(8), "y")
    out, _ = f(x, y)
    assert x.is_deleted() and not y.is_deleted() and np.allclose(out, host(8, 4) + 1)
    out2, _ = f(out, y)
    assert out.is_deleted() and np.allclose(out2, host(8, 4) + 2)


def test_refs_are_updated_where_they_lie():
    ref = jax.new_ref(spread(np.zeros((8, 4), np.float32), "x"))
    captured = jax.new_ref(spread(np.zeros(8, np.float32), "y"))

    @jax.jit
    def step(ref, x):
        ref[...] += x
        captured[...] = captured[...] + x.sum(1)
        return ref[...].sum()
    a = host(8, 4)
    for n in range(1, 4):
        total = step(ref, spread(a, "x"))
        assert np.allclose(ref[...], n * a, atol=1e-5) and np.allclose(captured[...], n * a.sum(1), atol=1e-5) and np.allclose(total, n * a.sum(), atol=1e-4)
    assert ref[...].devices() == set(DEVICES)


def test_stages_take_shapes_with_shardings():
    rows = NamedSharding(MESH, P("x"))
    f = jax.jit(lambda x: jnp.sin(x) * 2)
    lowered = f.lower(jax.ShapeDtypeStruct((8, 4), np.float32, sharding=rows))
    assert 'sdy.sharding<@mesh, [{"x"}, {}]>' in lowered.as_text() and "num_partitions = 8" in lowered.as_text()
    compiled, a = lowered.compile(), host(8, 4)
    out = compiled(spread(a, "x"))
    assert out.sharding == rows and np.allclose(out, np.sin(a) * 2, atol=1e-6)
    assert compiled.as_text().startswith("HloModule")
    over = jax.jit(lambda x: x + 1, in_shardings=rows, out_shardings=NamedSharding(MESH, P())).lower(a).compile()
    assert over(a).sharding.is_fully_replicated


def test_a_constraint_says_how_a_value_inside_is_spread():
    rows, none = NamedSharding(MESH, P("x")), NamedSharding(MESH, P())
    g = jax.jit(lambda a: lax.with_sharding_constraint(a * 2, NamedSharding(MESH, P("y"))))
    a = host(8)
    assert g(a).sharding.spec == P("y") and np.allclose(g(a), a * 2)
    assert np.allclose(jax.grad(lambda a: (g(a) ** 2).sum())(a), 8 * a)
    assert np.allclose(jax.jit(jax.hessian(lambda a: (g(a) ** 3).sum()))(a), np.diag(48 * a), atol=1e-4)
    assert jax.vmap(g)(host(3, 8)).sharding.spec == P(None, "y") and jax.vmap(g, 1, 1)(host(8, 3)).sharding.spec == P("y")
    assert np.allclose(jax.jvp(g, (a,), (a,))[1], 2 * a)
    assert jax.vmap(g, spmd_axis_name="x")(host(4, 8)).sharding.spec == P("x", "y")

    @jax.jit
    def scanned(xs):
        def body(carry, x):
            carry = lax.with_sharding_constraint(carry + x, rows)
            return carry, carry.sum()
        return lax.scan(body, jnp.zeros(8), xs)
    xs = host(3, 8)
    carry, sums = scanned(xs)
    assert np.allclose(carry, xs.sum(0), atol=1e-5) and np.allclose(sums, xs.cumsum(0).sum(1), atol=1e-4)
    tree = jax.jit(lambda t: lax.with_sharding_constraint(t, {"a": rows, "b": none}))({"a": a, "b": [a, a]})
    assert tree["a"].sharding == rows and tree["b"][1].sharding == none
    assert reshard(a, rows).sharding == rows
    assert "sdy.sharding_constraint" in g.lower(a).as_text()


def test_control_flow_and_calls_run_over_meshes():
    x = spread(host(8, 4), "x")

    @jax.jit
    def f(x, flag):
        x = lax.cond(flag, jnp.sin, jnp.cos, x)
        x = lax.fori_loop(0, 3, lambda i, x: jax.jit(lambda x: x * 2)(x) - x.mean(), x)
        return lax.while_loop(lambda x: x.sum() < 100, lambda x: x + 10, x)
    assert np.allclose(f(x, True), f(host(8, 4), True), atol=1e-4) and np.allclose(f(x, False), f(host(8, 4), False), atol=1e-4)
    out = lax.fori_loop(0, 3, lambda i, x: x + 1, x)         # eager
    assert np.allclose(out, host(8, 4) + 3, atol=1e-5) and out.devices() == set(DEVICES)


def test_derivatives_of_programs_over_meshes():
    w, x, y = host(4, 4), host(16, 4, seed=1), host(16, 4, seed=2)
    loss = lambda w, x, y: ((jnp.tanh(x @ w) - y) ** 2).mean()
    expected = jax.value_and_grad(loss)(w, x, y)
    for step in (jax.value_and_grad(loss), jax.jit(jax.value_and_grad(loss)), jax.value_and_grad(jax.jit(loss)), jax.value_and_grad(jax.checkpoint(loss))):
        value, gradient = step(spread(w, None, "y"), spread(x, "x"), spread(y, "x"))
        assert np.allclose(value, expected[0], atol=1e-5) and np.allclose(gradient, expected[1], atol=1e-5)


def test_meshes_of_one_device_of_some_devices_and_in_other_orders():
    a = host(8, 4)
    one = jax.make_mesh((1,), ("i",), devices=[DEVICES[5]])
    out = jax.jit(lambda x: jnp.sin(x) @ x.T)(spread(a, "i", mesh=one))
    assert out.devices() == {DEVICES[5]} and np.allclose(out, np.sin(a) @ a.T, atol=1e-5)
    assert jax.jit(lambda x: x, out_shardings=NamedSharding(one, P("i")))(a).sharding == NamedSharding(one, P("i"))
    some = Mesh(np.array([DEVICES[6], DEVICES[1], DEVICES[4], DEVICES[3]]).reshape(2, 2), ("i", "j"))
    x = spread(a, "i", "j", mesh=some)
    out, total = jax.jit(lambda x: (x + 1, x.sum(0)))(x)
    assert out.sharding == x.sharding and np.allclose(out, a + 1) and np.allclose(total, a.sum(0), atol=1e-5)
    turned = Mesh(MESH.devices.T[::-1], ("u", "v"))
    f = jax.jit(lambda x: lax.with_sharding_constraint(jnp.cos(x), NamedSharding(turned, P("v", "u"))))        # two meshes in one program
    assert f(spread(a, "x", "y")).sharding.is_equivalent_to(NamedSharding(turned, P("v", "u")), 2) and np.allclose(f(spread(a, "x", "y")), np.cos(a), atol=1e-6)
    line = Mesh(DEVICES, "i")
    first, second = jax.jit(lambda x, y: (x + 1, y + 1))(spread(a, "i", mesh=line), spread(a, "x", "y"))
    assert first.sharding == NamedSharding(line, P("i")) and second.sharding == NamedSharding(MESH, P("x", "y"))
    parts = jax.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(MESH, P("x"))))(spread(a, "i", mesh=line))
    assert parts.sharding.is_equivalent_to(NamedSharding(MESH, P("x")), 2)
    mixed = jax.jit(lambda x, y: x @ y.T)(spread(a, "x", "y"), spread(a, "v", mesh=turned))
    assert np.allclose(mixed, a @ a.T, atol=1e-5)


def test_pmapped_arrays_enter_and_spread_arrays_enter_pmap():
    a = host(8, 4)
    doubled = jax.pmap(lambda x: x * 2)(a)
    out = jax.jit(lambda x, y: x + y)(doubled, spread(a, "x"))
    assert np.allclose(out, 3 * a, atol=1e-5)
    assert np.allclose(jax.jit(lambda x: x + 1)(doubled), 2 * a + 1, atol=1e-5)
    assert np.allclose(jax.pmap(lambda x: x.sum())(spread(a, "x", "y")), a.sum(1), atol=1e-5)
    with pytest.raises(NotImplementedError, match="pmap inside of a program over a mesh"):
        jax.jit(lambda x: jax.pmap(jnp.sin)(x))(spread(a, "x"))


def test_callbacks_run_once_over_a_mesh():
    seen = []
    f = jax.jit(lambda x: jax.pure_callback(lambda v: np.asarray(v) * 2, jax.ShapeDtypeStruct((8, 4), np.float32), x) + x)
    assert np.allclose(f(spread(host(8, 4), "x")), 3 * host(8, 4), atol=1e-5)

    @jax.jit
    def g(x):
        jax.debug.callback(lambda s: seen.append(float(s)), x.sum())
        return x
    g(spread(host(8), "x"))
    jax.effects_barrier()
    assert len(seen) >= 1 and np.allclose(seen, host(8).sum(), atol=1e-5)


def test_device_put_in_a_program_is_a_constraint():
    columns = NamedSharding(MESH, P(None, "y"))
    f = jax.jit(lambda x: jax.device_put({"a": x * 2, "b": 1.0}, {"a": columns, "b": NamedSharding(MESH, P())}))
    Pair = namedtuple("Pair", "a b")
    assert jax.device_put(Pair(host(8, 4), host(2, 2)), Pair(columns, None)).a.sharding == columns
    assert f(host(8, 4))["a"].sharding == columns and np.allclose(f(host(8, 4))["a"], 2 * host(8, 4))
    assert np.allclose(jax.grad(lambda x: (jax.device_put(x, columns) ** 2).sum())(spread(host(8, 4), "x")), 2 * host(8, 4))


def test_debug_nans_names_the_operation_over_a_mesh():
    with jax.debug_nans(True), pytest.raises(FloatingPointError, match=r"nan. encountered in log at .*test_sharding.py"):
        jax.jit(lambda x: jnp.log(x - 5) + 1)(spread(np.arange(8, dtype=np.float32), "x"))


def test_older_names():
    from mini_jax.experimental import mesh_utils
    from mini_jax.experimental.pjit import pjit
    assert Mesh(mesh_utils.create_device_mesh((4, 2)), ("x", "y")) == MESH
    assert (mesh_utils.create_device_mesh((2, 2), DEVICES[4:]) == np.array(DEVICES[4:]).reshape(2, 2)).all()
    assert mesh_utils.create_hybrid_device_mesh((4, 2), (1, 1)).shape == (4, 2)
    with pytest.raises(ValueError, match="takes 4 devices, and there are 8"):
        mesh_utils.create_device_mesh((4,))
    with pytest.raises(ValueError, match="takes 2 slices of 4 devices each"):
        mesh_utils.create_hybrid_device_mesh((4,), (2,))
    assert pjit(lambda x: x + 1, out_shardings=NamedSharding(MESH, P("x")))(host(8)).sharding.spec == P("x")


def test_what_xla_decided_is_said_over_a_finer_mesh_where_it_must():
    line = Mesh(DEVICES, "i")
    for entries in ((("x",), ("y",), ("y", "x"), (None, ("y", "x")), ("x", "y"))):
        asked = NamedSharding(MESH, P(*entries))
        found = meshes.sharding_of(line, meshes.hlo_tiles(MESH, P(*entries), 2), 2)
        assert found.is_equivalent_to(asked, 2) and (np.asarray(jax.device_put(spread(host(8, 8), *entries), found)) == host(8, 8)).all()
    six = jax.make_mesh((6,), ("i",), devices=DEVICES[:6])
    thirds = meshes.sharding_of(six, meshes.hlo_tiles(jax.make_mesh((2, 3), ("x", "y"), devices=DEVICES[:6]), P("y"), 1), 1)
    assert thirds.mesh.axis_sizes == (2, 3) and thirds.shard_shape((6,)) == (2,)
    turned = Mesh(MESH.devices.T, ("u", "v"))
    same = meshes.over(NamedSharding(turned, P("v", "u")), MESH, 2)
    assert same == NamedSharding(MESH, P("x", "y")) and meshes.over(NamedSharding(Mesh(DEVICES[::-1], "i"), P("i")), line, 1) is None


# --- arrays made of parts -------------------------------------------------------------------------------------------------------

def test_arrays_are_made_of_parts():
    whole, sharding = host(8, 6), NamedSharding(MESH, P("x", "y"))
    asked = []

    def part(index):
        asked.append(index)
        return whole[index]
    x = jax.make_array_from_callback((8, 6), sharding, part)
    assert (np.asarray(x) == whole).all() and x.sharding == sharding and len(asked) == 8
    asked.clear()
    assert (np.asarray(jax.make_array_from_callback((8, 6), NamedSharding(MESH, P("y")), part)) == whole).all() and len(asked) == 2
    again = jax.make_array_from_single_device_arrays((8, 6), sharding, [s.data for s in x.addressable_shards])
    assert (np.asarray(again) == whole).all()
    assert again.addressable_shards[2].data.unsafe_buffer_pointer() == x.addressable_shards[2].data.unsafe_buffer_pointer()
    assert (np.asarray(jax.make_array_from_process_local_data(sharding, whole)) == whole).all()
    assert jax.make_array_from_callback((8, 6), sharding, part, dtype=jnp.bfloat16).dtype == jnp.bfloat16
    with pytest.raises(ValueError, match=r"must have shape \(2, 3\), got \(8, 6\)"):
        jax.make_array_from_callback((8, 6), sharding, lambda index: whole)
    with pytest.raises(ValueError, match="one array on each"):
        jax.make_array_from_single_device_arrays((8, 6), sharding, [s.data for s in x.addressable_shards[:7]])
    with pytest.raises(ValueError, match="global_shape"):
        jax.make_array_from_process_local_data(sharding, whole, (16, 6))


# --- threads ----------------------------------------------------------------------------------------------------------------------

def test_threads_run_programs_that_communicate_at_once():
    from concurrent.futures import ThreadPoolExecutor
    x = spread(np.arange(8, dtype=np.float32), "x")
    f, g = jax.jit(lambda x: x + x.sum()), jax.jit(lambda x: x * 2)
    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda i: np.asarray((f, g)[i % 2](x)), range(80)))
    assert all((out == (np.arange(8) + 28 if i % 2 == 0 else np.arange(8) * 2)).all() for i, out in enumerate(outs))


def test_an_error_in_a_function_that_a_program_calls_ends_the_call_not_the_devices():
    x = spread(np.arange(8, dtype=np.float32), "x")
    other = jax.jit(lambda x: x + x.sum())

    def fails(v):
        raise KeyError("oops")
    for fun, words in ((fails, "KeyError: 'oops'"), (lambda v: np.asarray(other(x)), "can't run such programs itself")):
        with pytest.raises(jax.errors.JaxRuntimeError, match=words):
            jax.jit(lambda v: jax.pure_callback(fun, jax.ShapeDtypeStruct((8,), np.float32), v) + v.sum())(x)
    assert other(x).tolist() == [28. + i for i in range(8)]
