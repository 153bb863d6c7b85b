"""Indexing means what NumPy means, and JAX out of bounds: x[index], x.at[index], take, put, and lax's slices and scatters."""
import itertools
import re
import warnings

import numpy as np
import pytest

import mini_jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.errors import NonConcreteBooleanIndexError, TracerArrayConversionError
from mini_jax.runtime import xla

X = np.arange(60, dtype=np.float32).reshape(3, 4, 5)
A = np.array
ATOMS = [0, -1, 2, A(1), slice(None), slice(1, 3), slice(None, None, 2), slice(None, None, -1), slice(3, 0, -2), slice(2, 2),
         None, Ellipsis,
         A([0, 2]), A([[0], [-1]]), A([1, 1, 0], np.int8), A([True, False, True]), A([], int), True, False]


def indices():
    """Every entry, every pair, and a third of a choice of triples: those that NumPy accepts for X."""
    triples = itertools.product(ATOMS[::3] + [None, A([0, 2]), slice(None, None, -1)], repeat=3)
    for index in itertools.chain(ATOMS, itertools.product(ATOMS, repeat=2), itertools.islice(triples, 0, None, 3)):
        try:
            X[index]
        except IndexError:
            continue
        yield index


INDICES = list(indices())


def traced(index):
    """The index with its integers, but for masks, taken out; and a function that puts others in their place."""
    entries = index if type(index) is tuple else (index,)
    dynamic = [type(i) is int or isinstance(i, np.ndarray) and i.dtype != bool for i in entries]
    def fill(values):
        values = iter(values)
        filled = tuple([next(values) if d else i for i, d in zip(entries, dynamic)])
        return filled if type(index) is tuple else filled[0]
    return [np.asarray(i) for i, d in zip(entries, dynamic) if d], fill


QUICK = {"xla_backend_optimization_level": 0, **({"xla_cpu_use_fusion_emitters": False} if xla.jaxlib_version < (0, 11) else {})}


def jit(fun):
    """mini_jax.jit at a tenth of XLA's usual compile time: these programs are hundreds of small operations, each run once."""
    return mini_jax.jit(fun, compiler_options=QUICK)


def in_one_jit(functions, *args):
    """The results of many functions of the same arguments, compiled together."""
    return [np.asarray(out) for out in jit(lambda *args: [f(*args) for f in functions])(*args)]


def test_reading_with_known_indices_is_numpys():
    assert len(INDICES) > 500
    known = INDICES[::2]
    for index, out in zip(known, in_one_jit([lambda x, i=i: x[i] for i in known], X)):
        np.testing.assert_array_equal(out, X[index], err_msg=repr(index))


def test_reading_with_traced_indices_is_numpys():
    parts = [traced(i) for i in INDICES[1::2]]
    outs = jit(lambda x, values: [x[fill(v)] for (_, fill), v in zip(parts, values)])(X, [v for v, _ in parts])
    for index, out in zip(INDICES[1::2], outs):
        np.testing.assert_array_equal(out, X[index], err_msg=repr(index))


def test_reading_eagerly_is_numpys():
    x = jnp.asarray(X)
    for index in INDICES[5::41]:
        np.testing.assert_array_equal(x[index], X[index], err_msg=repr(index))
    np.testing.assert_array_equal(x[x > 20], X[X > 20])
    np.testing.assert_array_equal(x[:, X[0, :, 0] > 6, 1], X[:, X[0, :, 0] > 6, 1])
    assert x[...] is x and x[:] is x
    assert [r.shape for r in x] == [(4, 5)] * 3


UPDATES = {"set": lambda a, b: b, "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
           "power": np.power,
           "min": np.minimum, "max": np.maximum}
AT = {"set": None, "add": np.add.at, "subtract": np.subtract.at, "multiply": np.multiply.at, "divide": np.divide.at,
      "power": np.power.at,
      "min": np.minimum.at, "max": np.maximum.at}


def updated(index, op, value):
    """NumPy's unbuffered update: what repeats, applies repeatedly."""
    out = X.copy()
    if op == "set":
        out[index] = value
    else:
        AT[op](out, index, value)
    return out


def values_for(k, index):
    """A scalar, a full array, or one that broadcasts, for the k-th index; the same for all elements that repeat."""
    shape = X[index].shape
    full = np.linspace(0.5, 2, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    return np.float32(1.5) if k % 3 == 0 or not shape else full[..., :1] if k % 3 == 1 else full


def repeats(index):
    flat = np.arange(60).reshape(X.shape)[index].ravel()
    return len(set(flat.tolist())) < flat.size


@pytest.mark.parametrize("dynamic", [False, True])
def test_updates_are_numpys(dynamic):
    cases = []
    for k, index in enumerate(INDICES[dynamic::5]):
        op = list(UPDATES)[k % len(UPDATES)]
        value = np.float32(1.5) if repeats(index) and op == "set" else values_for(k, index)
        cases.append((index, op, value))
    if dynamic:
        parts = [traced(i) for i, _, _ in cases]
        outs = jit(lambda x, vs: [getattr(x.at[fill(v)], op)(value) for (_, fill), v, (_, op, value) in zip(parts, vs, cases)])(
            X, [v for v, _ in parts])
    else:
        outs = in_one_jit([lambda x, i=i, op=op, v=v: getattr(x.at[i], op)(v) for i, op, v in cases], X)
    for (index, op, value), out in zip(cases, outs):
        np.testing.assert_allclose(out, updated(index, op, value), rtol=1e-5, err_msg=f"{index!r} {op}")


def test_updates_eagerly_are_numpys():
    x = jnp.asarray(X)
    for (k, index), op in zip(enumerate(INDICES[3::67]), itertools.cycle(["set", "add", "max"])):
        np.testing.assert_allclose(getattr(x.at[index], op)(2.0), updated(index, op, np.float32(2)), err_msg=f"{index!r} {op}")
    np.testing.assert_array_equal(x, X)


# --- out of bounds --------------------------------------------------------------------------------------------------------------

V = np.arange(4, dtype=np.float32)


def test_reads_out_of_bounds_clamp_and_writes_drop():
    nan = np.nan
    far = A([3, 4, -4, -5, 9])
    mini = in_one_jit([
        lambda v: v[far], lambda v: jnp.stack([v[4], v[-5], v[lax.add(4, jnp.int32(3))]]),
        lambda v: v.at[far].get(mode="fill"), lambda v: v.at[far].get(mode="fill", fill_value=-1),
        lambda v: v.at[far].get(mode="clip"),
        lambda v: v.at[9].get(mode="fill"), lambda v: v.at[jnp.int32(-5)].get(mode="fill", fill_value=7),
        lambda v: v.at[far].get(mode="fill", fill_value=0, wrap_negative_indices=False),
        lambda v: v.at[far].add(1.), lambda v: v.at[far].add(1., mode="clip"),
        lambda v: v.at[far].add(1., wrap_negative_indices=False),
        lambda v: v.at[4].set(9.), lambda v: v.at[jnp.int32(-5)].set(9.), lambda v: v.at[jnp.int32(9)].set(9., mode="clip"),
        lambda v: v.at[-1].set(9., wrap_negative_indices=False), lambda v: v.at[-7].set(9., mode="clip"),
        lambda v: v.astype(jnp.int8).at[9].get(mode="fill"), lambda v: v.astype(jnp.uint8).at[A([9])].get(mode="fill"),
        lambda v: (v > 2).at[A([0, 9])].get(mode="fill"), lambda v: v.at[far].get(mode="one_hot"),
    ], V)
    wanted = [[3, 3, 0, 0, 3], [3, 0, 3], [3, nan, 0, nan, nan], [3, -1, 0, -1, -1], [3, 3, 0, 0, 3], nan, 7, [3, 0, 0, 0, 0],
              [1, 1, 2, 4], [2, 1, 2, 6], [0, 1, 2, 4], V, V, [0, 1, 2, 9], V, [9, 1, 2, 3], -128, [255], [False, True],
              [3, 0, 0, 0, 0]]
    for k, (out, want) in enumerate(zip(mini, wanted, strict=True)):
        np.testing.assert_array_equal(out, want, err_msg=str(k))


def test_promised_bounds_and_unknown_modes():
    np.testing.assert_array_equal(jnp.asarray(V).at[A([2, 0])].get(mode="promise_in_bounds", unique_indices=True), [2, 0])
    with pytest.raises(ValueError, match="unknown gather mode 'wrap'"):
        jnp.asarray(V).at[A([9])].get(mode="wrap")


@pytest.mark.parametrize("x64", [False, True])
def test_index_dtypes_never_wrap(x64):
    """An index of a narrow dtype reaches all of a dimension of 300, and what is too large for a signed one stays large."""
    with mini_jax.enable_x64(x64):
        x = jnp.arange(300)
        kinds = [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, *([np.uint64, np.int64] if x64 else [])]
        tops = [A([min(int(np.iinfo(k).max), 2**40)], k) for k in kinds]
        outs = jit(lambda x, tops: [(x[t], x[t[0]], x.at[t].set(-1), x.at[t[0]].set(-1), lax.dynamic_slice(x, (t[0],), (2,)))
                                             for t in tops])(x, tops)
        for top, (taken, one, changed, changed_one, part) in zip(tops, outs):
            i = int(top[0])
            want = np.arange(300)
            if i < 300:
                want[i] = -1
            assert int(taken[0]) == int(one) == min(i, 299)
            np.testing.assert_array_equal(changed, want)
            np.testing.assert_array_equal(changed_one, want)
            np.testing.assert_array_equal(part, np.arange(2) + min(i, 298))
        signed = [k for k in kinds if np.issubdtype(k, np.signedinteger)]
        for out in jit(lambda x, minus: [x[m] for m in minus])(x, [A([-1, -100], k) for k in signed]):
            np.testing.assert_array_equal(out, [299, 200])


def test_a_python_int_beyond_the_index_dtype_is_an_error():
    with pytest.raises(OverflowError):
        jnp.asarray(V)[2**40]
    np.testing.assert_array_equal(jnp.asarray(V)[:2**40], V)


# --- masks ----------------------------------------------------------------------------------------------------------------------

def test_a_traced_mask_can_be_written_to():
    """Where every selected element gets the same, its number need not be known."""
    x, mask = X[0], X[0] % 3 == 1
    rows = mask[:, 1]
    mini = jit(lambda x, mask, rows: [
        x.at[mask].set(7.), x.at[mask].add(x[0, 1]), x.at[rows].multiply(jnp.arange(5.)),
        x.at[:, mask[0]].set(jnp.arange(4.)[:, None]),
        x.at[mask].max(9.), x.at[mask].apply(lax.neg), x.at[mask].divide(2.), x.at[..., mask[0]].set(1.)])(x, mask, rows)
    by_columns = np.where(mask[0], np.arange(4.)[:, None], x)
    wanted = [np.where(mask, 7, x), np.where(mask, x + 1, x), np.where(rows[:, None], x * np.arange(5), x), by_columns,
              np.where(mask, np.maximum(x, 9), x), np.where(mask, -x, x), np.where(mask, x / 2, x), np.where(mask[0], 1, x)]
    for out, want in zip(mini, wanted, strict=True):
        np.testing.assert_array_equal(out, want)


def test_known_masks_take_one_value_for_each_element():
    x, mask = X[0].copy(), X[0] % 3 == 1
    out = jnp.asarray(x).at[mask].set(np.arange(mask.sum()))
    x[mask] = np.arange(mask.sum())
    np.testing.assert_array_equal(out, x)


def test_what_is_not_selected_has_no_part_in_the_derivative():
    """sqrt-like slopes at unselected zeros do not turn gradients into NaN."""
    x = jnp.asarray([0.0, 4.0])
    for update in (lambda x: x.at[x > 1].power(0.5), lambda x: x.at[x > 1].divide(x[1]), lambda x: x.at[x > 1].multiply(2.)):
        grad = jit(mini_jax.grad(lambda x: update(x).sum()))(x)
        assert float(grad[0]) == 1.0 and np.isfinite(np.asarray(grad)).all()


# --- derivatives and batches ------------------------------------------------------------------------------------------

FUNCTIONS = [
    lambda x, y, i: x[i], lambda x, y, i: x[1:, ::-1] * y[0, 0], lambda x, y, i: x[i, 1], lambda x, y, i: x[i[0]] * y[i[1], i[2]],
    lambda x, y, i: x.at[i].set(y), lambda x, y, i: x.at[i].add(y), lambda x, y, i: x.at[::2].set(y[:2]),
    lambda x, y, i: x.at[2::-2, 1].add(y[:2, 0]),
    lambda x, y, i: x.at[i[0], 1].set(y[0, 0]), lambda x, y, i: x.at[1:3].multiply(y[:2]), lambda x, y, i: x.at[i].multiply(2.0),
    lambda x, y, i: x.at[i, 0].max(y[:, 0]), lambda x, y, i: x.at[:, 1].min(y[0, 0]), lambda x, y, i: x.at[1].divide(y[0]),
    lambda x, y, i: x.at[A([2, 0])].multiply(y[:2], unique_indices=True), lambda x, y, i: x.at[::2, i].add(y[:2]),
    lambda x, y, i: x.at[0].apply(lax.sin), lambda x, y, i: x.at[A([2, 0])].apply(lax.sin, unique_indices=True),
    lambda x, y, i: jnp.take(x, i, axis=1, mode="clip"), lambda x, y, i: jnp.take_along_axis(x, i[:, None], axis=1),
    lambda x, y, i: jnp.put_along_axis(x, i[:, None], y[:, :1], 1, inplace=False),
    lambda x, y, i: lax.dynamic_slice(x, (i[0], i[1]), (2, 1)),
    lambda x, y, i: lax.dynamic_update_slice(x, y[:2, :1], (i[0], 0)), lambda x, y, i: x.at[x > 0].subtract(y[0, 0]),
]


def test_derivatives_equal_finite_differences():
    """Forward and reverse, for indices of which one repeats."""
    with mini_jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x, y = rng.normal(size=(3, 3)), rng.normal(size=(3, 3)) + 3
        tx, ty = rng.normal(size=(2, 3, 3))
        i = A([1, 0, 1])

        def everything(x, y):
            return [f(x, y, jnp.asarray(i)) for f in FUNCTIONS]

        values = jit(everything)
        step = 1e-6
        ahead, behind = values(x + step * tx, y + step * ty), values(x - step * tx, y - step * ty)
        outs, pushed = jit(lambda x, y: mini_jax.jvp(everything, (x, y), (tx, ty)))(x, y)
        weights = [rng.normal(size=out.shape) for out in outs]
        pulled = jit(lambda x, y: [mini_jax.vjp(lambda x, y: f(x, y, jnp.asarray(i)), x, y)[1](w) for f,
                                   w in zip(FUNCTIONS, weights)])(x, y)
        for k, (a, b, t, w, (gx, gy)) in enumerate(zip(ahead, behind, pushed, weights, pulled)):
            np.testing.assert_allclose(t, (np.asarray(a) - np.asarray(b)) / (2 * step), atol=1e-6, err_msg=str(k))
            np.testing.assert_allclose(np.vdot(w, t), np.vdot(gx, tx) + np.vdot(gy, ty), err_msg=str(k))


def test_batches_equal_loops():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 3, 3)).astype(np.float32), rng.normal(size=(2, 3, 3)).astype(np.float32)
    i = A([[1, 0, 1], [2, 2, 0]])

    def everything(x, y, i):
        return [f(x, y, i) for f in FUNCTIONS]

    looped = jit(lambda x, y, i: [everything(x[b], y[b], i[b]) for b in range(2)])(x, y, i)
    batched = jit(mini_jax.vmap(everything))(x, y, i)
    inside = jit(mini_jax.vmap(everything, in_axes=(1, 2, 1), out_axes=-1))(x.swapaxes(0, 1), np.moveaxis(y, 0, 2), i.T)
    for k, (a, b, out, last) in enumerate(zip(*looped, batched, inside)):
        np.testing.assert_allclose(out, np.stack([a, b]), rtol=1e-6, err_msg=str(k))
        np.testing.assert_allclose(np.moveaxis(last, -1, 0), np.stack([a, b]), rtol=1e-6, err_msg=str(k))


def test_repeated_writes_differentiate_as_the_one_that_stays():
    x, y = jnp.zeros(3), jnp.arange(4.)
    write = lambda y: x.at[A([1, 1, 1, 2])].set(y)
    kept = np.asarray(write(y))
    grad = np.asarray(mini_jax.grad(lambda y: (write(y) * jnp.asarray([1., 10., 100.])).sum())(y))
    assert kept[1] == float(np.flatnonzero(grad[:3])[0]) and grad[:3].sum() == 10 and grad[3] == 100


def test_scatter_mul_refuses_derivatives_by_repeated_factors():
    with pytest.raises(NotImplementedError, match="unique_indices=True"):
        mini_jax.grad(lambda y: jnp.ones(3).at[A([0, 0])].multiply(y).sum())(jnp.ones(2))


# --- how it is written, and what is compiled --------------------------------------------------------------------------

def operations(fun, *args):
    text = mini_jax.jit(fun).lower(*args).as_text()
    return set(re.findall(r'= "?stablehlo\.(\w+)', text))


def test_known_indices_are_slices_and_traced_integers_dynamic_slices():
    x = X[0]
    assert operations(lambda x: x[1:, 2], x) == {"slice", "reshape"}
    assert operations(lambda x: x[::-1], x) == {"reverse"}
    assert "gather" not in operations(lambda x, i: x[i], x, 1) >= {"dynamic_slice"}
    assert "gather" not in operations(lambda x, i: x[i, 1:, None], x, 1) >= {"dynamic_slice"}
    assert "scatter" not in operations(lambda x, i: x.at[i, 1:].set(0.), x, 1) >= {"dynamic_update_slice"}
    assert operations(lambda x: x.at[0].set(0.), x) >= {"dynamic_update_slice"}
    assert "gather" in operations(lambda x, i: x[i], x, A([1]))


def test_positions_do_not_recompile(monkeypatch):
    x = jnp.arange(20.)
    x[3], x[:5], x[2:7], x.at[1].set(0.), x.at[:2].add(1.), x.at[3:5].add(1.)
    compiled = []
    compile = xla.compile
    monkeypatch.setattr(xla, "compile", lambda *args, **options: compiled.append(args) or compile(*args, **options))
    for i in range(10):
        assert float(x[i]) == i
        np.testing.assert_array_equal(x[i:i + 5], np.arange(i, i + 5))
        x.at[i].set(0.), x.at[i:i + 2].add(1.)
    assert not compiled


# --- errors -----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("index, error, words", [
    ((0, 0, 0, 0), IndexError, "too many indices: the array has 3 dimensions"), ((..., ...), IndexError, "single ellipsis"),
    ([0, 1], TypeError, "no tuple"), (range(2), TypeError, "no tuple"), ("a", TypeError, "strings"), (0.5, TypeError, "float"),
    (A([0.5]), TypeError, "float64"), (object(), IndexError, "only integers"), ({}, IndexError, "only integers"),
    (slice(0, 2, 0), ValueError, "zero"), (slice(0, 1.5), TypeError, "integers|float"), (np.ones(4, bool), IndexError, r"\(4,\)"),
    (np.ones((3, 5), bool), IndexError, r"\(3, 5\)"), ((A([0, 1]), A([0, 1, 2])), ValueError, r"\(2,\).*\(3,\)"),
])
def test_bad_indices(index, error, words):
    for use in (lambda x: x[index], lambda x: x.at[index].set(0.), jit(lambda x: x[index])):
        with pytest.raises(error, match=words):
            use(jnp.asarray(X))


def test_empty_dimensions_have_no_elements():
    x = jnp.zeros((0, 3))
    for index in (0, (0, 1), A([0]), (A([0]), A([1])), jnp.int32(0)):
        with pytest.raises(IndexError, match="size 0"):
            x[index]
    with pytest.raises(IndexError, match="size 0"):
        jnp.take(x, A([0]), axis=0)
    shapes = [(x[A([], int)], (0, 3)), (x[:, 1], (0,)), (x[1:], (0, 3)), (x[A([], int), A([], int)], (0,)),
              (x.at[:, 0].set(1.), (0, 3)),
              (x.at[A([0])].set(1.), (0, 3)), (jnp.take(x, A([], int), axis=0), (0, 3)), (jnp.ones((2, 3))[A([], int)], (0, 3)),
              (jnp.take_along_axis(x, A([], int).reshape(0, 1), 1), (0, 1)),
              (mini_jax.vmap(lambda x, i: x[i])(x, A([], int)), (0,)),
              (mini_jax.vmap(lambda x, i: x.at[i].set(1.))(x, A([], int)), (0, 3))]
    for out, shape in shapes:
        assert out.shape == shape


def test_traced_values_where_known_ones_are_needed():
    with pytest.raises(NonConcreteBooleanIndexError, match=r"bool\[3,4,5\]"):
        jit(lambda x: x[x > 1])(X)
    with pytest.raises(NonConcreteBooleanIndexError):
        jit(lambda x: x.at[x > 1].set(jnp.arange(58.)))(X)
    with pytest.raises(IndexError, match="dynamic_slice"):
        jit(lambda x, i: x[i:])(X, 1)
    with pytest.raises(TracerArrayConversionError):
        jit(lambda x, i: x[0, [i, i]])(X, 1)
    assert mini_jax.grad(lambda x: x[x > 1].sum())(jnp.arange(4.)).tolist() == [0, 0, 1, 1]


def test_values_that_do_not_fit():
    x = jnp.asarray(X[0])
    for value in (np.ones(4), np.ones((2, 5)), np.ones((1, 5))):
        with pytest.raises(ValueError, match=r"can't be written to elements of shape \(5,\)"):
            x.at[0].set(value)
    with pytest.raises(TypeError):
        x.at[0].set(None)
    with pytest.raises(TypeError, match="bool"):
        (x > 1).at[0].add(True)


def test_conversions_that_lose_values_warn():
    x = jnp.arange(3)
    with pytest.warns(FutureWarning, match="float32.*int32") as caught:
        assert x.at[0].set(1.5).tolist() == [1, 1, 2]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jnp.arange(3.).at[0].set(2).tolist() == [2, 1, 2]
        assert x.at[1].divide(2).tolist() == [0, 0.5, 2]
        assert x.at[1].add(np.int8(1)).dtype == np.int32


LAX_ERRORS = [
    (lambda x: lax.slice(x, (0, 0), (3, 5)), TypeError, "limit 5"), (lambda x: lax.slice(x, (0,), (3,)), TypeError, "one entry"),
    (lambda x: lax.slice(x, (2, 0), (1, 4)), TypeError, "start 2, limit 1"),
    (lambda x: lax.slice(x, (0, 0), (3, 4), (0, 1)), TypeError, "stride 0"),
    (lambda x: lax.slice_in_dim(x, 0, 1, axis=2), ValueError, "axis 2"), (lambda x: lax.index_in_dim(x, 3), IndexError, "size 3"),
    (lambda x: lax.dynamic_slice(x, (0,), (1, 1)), ValueError, "1 start indices"),
    (lambda x: lax.dynamic_slice(x, (0, 0), (1, 5)), TypeError, "slice_sizes"),
    (lambda x: lax.dynamic_slice(x, (0, 0.5), (1, 1)), TypeError, "integer"),
    (lambda x: lax.dynamic_slice(x, (A([0]), 0), (1, 1)), TypeError, "scalars"),
    (lambda x: lax.dynamic_slice(x, (0, -1), (1, 1), allow_negative_indices=False), ValueError, "-1"),
    (lambda x: lax.dynamic_update_slice(x, x[0], (0, 0)), TypeError, "rank"),
    (lambda x: lax.dynamic_update_slice(x, x.astype(int), (0, 0)), TypeError, "dtype"),
    (lambda x: lax.pad(x, 0., ((-2, -2, 0), (0, 0, 0))), ValueError, r"\(-1, 4\)"),
    (lambda x: lax.pad(x, 0., ((0, 0, -1), (0, 0, 0))), ValueError, "interior"),
    (lambda x: lax.pad(x, 0., ((0, 0, 0),)), ValueError, "each of the 2"),
    (lambda x: lax.pad(x, x[0], ((0, 0, 0), (0, 0, 0))), ValueError, "scalar"),
    (lambda x: lax.pad(x, np.int32(0), ((1, 0, 0), (0, 0, 0))), TypeError, "dtype"),
    (lambda x: lax.concatenate([x, x], 2), TypeError, "dimension"), (lambda x: lax.concatenate([x, x[0]], 0), TypeError, "rank"),
    (lambda x: lax.concatenate([x, x[:, :2]], 0), TypeError, "every dimension but 0"),
    (lambda x: lax.concatenate([x, x.astype(int)], 0), TypeError, "dtype"),
    (lambda x: lax.concatenate([], 0), ValueError, "at least one"), (lambda x: lax.split(x, (1, 1)), ValueError, "add up to 3"),
    (lambda x: lax.split(x, (1, 2), axis=3), ValueError, "axis 3"), (lambda x: lax.rev(x, (0, 0)), TypeError, "distinct"),
    (lambda x: lax.rev(x, (2,)), TypeError, "distinct"), (lambda x: lax.iota(bool, 3), TypeError, "bool"),
    (lambda x: lax.iota(int, -3), TypeError, "negative"),
    (lambda x: lax.broadcasted_iota(int, (2, 3), 2), ValueError, "dimension 2"),
    (lambda x: lax.tile(x, (2,)), TypeError, "1 repetitions"),
]


@pytest.mark.parametrize("call, error, words", LAX_ERRORS)
def test_lax_says_what_is_wrong(call, error, words):
    with pytest.raises(error, match=words):
        call(jnp.asarray(X[0, :3, :4]))


ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))


@pytest.mark.parametrize("change, sizes, words", [
    ({}, (1, 5), "size 5 does not fit"), ({}, (2, 4), "window must have size 1"),
    ({"start_index_map": (0, 1)}, (1, 4), "1 entries"),
    ({"offset_dims": (1, 1)}, (1, 4), "distinct"), ({"offset_dims": (2,)}, (1, 4), "dimensions"),
    ({"collapsed_slice_dims": (2,)}, (1, 4), "collapsed"),
    ({"start_index_map": (4,)}, (1, 4), "distinct dimensions of the operand"), ({}, (1,), "one size"),
    ({"operand_batching_dims": (1,)}, (1, 4), "pair"),
])
def test_gather_and_scatter_check_their_description(change, sizes, words):
    x, i = jnp.asarray(X[0, :3, :4]), A([[0], [2]])
    with pytest.raises(TypeError, match=words):
        lax.gather(x, i, ROWS._replace(**change), sizes)


def test_scatter_checks_its_updates():
    x, i, rows = jnp.asarray(X[0, :3, :4]), A([[0], [2]]), lax.ScatterDimensionNumbers((1,), (0,), (0,))
    for updates, words in ((np.ones((2, 5)), "does not fit"), (np.ones((3, 4)), r"\(2, 4\)"), (np.ones(4), "rank 2"),
                           (np.ones((2, 4), int), "dtype")):
        with pytest.raises(TypeError, match=words):
            lax.scatter(x, i, updates.astype(np.float32) if updates.dtype == float else updates, rows)
    with pytest.raises(TypeError, match="bool"):
        lax.scatter_add(x > 0, i, np.ones((2, 4), bool), rows)
    with pytest.raises(TypeError, match="integer"):
        lax.gather(x, A([[0.0]]), ROWS, (1, 4))


# --- take and put, and the rest ---------------------------------------------------------------------------------------

def test_take_and_put_are_numpys():
    x = X[0]
    i, along = A([[3, -1], [0, 2]]), A([[1, -1], [0, 0], [3, 2], [4, 4]])
    big = A([21, -1, -41, 3])
    with np.errstate(all="ignore"):
        wanted = [np.take(x, i), np.take(x, i, axis=1), np.take(x, 2, axis=0), np.take(x, big, mode="wrap"),
                  np.take(x, big, mode="clip"),
                  [np.nan, 19, np.nan, 3], np.take_along_axis(x, along, 1),
                  np.take_along_axis(np.broadcast_to(x[:1], (4, 5)), along, 1), np.take_along_axis(x, A([[1], [0]]), 0),
                  np.take_along_axis(x, A([3, 9]), None)]
    mini = in_one_jit([
        lambda x: jnp.take(x, i), lambda x: jnp.take(x, i, axis=1), lambda x: jnp.take(x, 2, axis=0),
        lambda x: jnp.take(x, big, mode="wrap"),
        lambda x: jnp.take(x, big, mode="clip"), lambda x: jnp.take(x, big), lambda x: jnp.take_along_axis(x, along, 1),
        lambda x: jnp.take_along_axis(x[:1], along, 1), lambda x: jnp.take_along_axis(x, A([[1], [0]]), 0),
        lambda x: jnp.take_along_axis(x, A([3, 9]), None)], x)
    for k, (out, want) in enumerate(zip(mini, wanted, strict=True)):
        np.testing.assert_array_equal(out, want, err_msg=str(k))

    puts = []
    for ind, v, mode in ((A([1, 7, -1]), A([1., 2.]), "wrap"), (A([21, -41]), 5., "wrap"), (A([[21, 3]]), A([7., 8.]), "clip")):
        want = x.copy()
        np.put(want, ind, v, mode)
        puts.append((ind, v, mode, want))
    for out, (*_, want) in zip(in_one_jit([lambda x, p=p: jnp.put(x, *p[:3], inplace=False) for p in puts], x), puts):
        np.testing.assert_array_equal(out, want)
    want = x.copy()
    np.put_along_axis(want, along[:, :1], A([[9.], [8.], [7.], [6.]]), 1)
    np.testing.assert_array_equal(jnp.put_along_axis(x, along[:, :1], A([[9.], [8.], [7.], [6.]]), 1, inplace=False), want)


def test_take_and_put_say_what_is_wrong():
    x = jnp.asarray(X[0])
    for call, error in ((lambda: jnp.take(x, A([0.5])), ValueError), (lambda: jnp.take(x, [0]), TypeError),
                        (lambda: jnp.take(x, 0, axis=2), ValueError),
                        (lambda: jnp.take(x, 0, mode="raise"), NotImplementedError),
                        (lambda: jnp.take(x, 0, mode="foo"), ValueError),
                        (lambda: jnp.take_along_axis(x, A([0]), 1), ValueError),
                        (lambda: jnp.take_along_axis(x, A([[0.5]]), 1), TypeError),
                        (lambda: jnp.take_along_axis(x, np.zeros((3, 1), int), 1), ValueError),
                        (lambda: jnp.put(x, A([0]), 1.), ValueError),
                        (lambda: jnp.put(x, A([0]), 1., mode="drop", inplace=False), ValueError),
                        (lambda: jnp.put_along_axis(x, A([[0]]), 1., 1), ValueError)):
        with pytest.raises(error):
            call()


def test_scatter_apply_applies_as_often_as_an_index_occurs():
    x = jnp.arange(3.)
    np.testing.assert_array_equal(x.at[A([0, 0, 2])].apply(lambda v: v * 2 + 1), [3, 1, 5])
    np.testing.assert_array_equal(x.at[1:].apply(lax.neg), [0, -1, -2])
    with pytest.raises(NotImplementedError, match="unique_indices"):
        mini_jax.grad(lambda x: x.at[A([0, 0])].apply(lax.sin).sum())(x)


def test_tile_and_the_in_dim_functions():
    x = X[0, :2, :3]
    mini = in_one_jit([
        lambda x: lax.tile(x, (2, 3)), lambda x: lax.slice_in_dim(x, -2, None, axis=1),
        lambda x: lax.index_in_dim(x, -1, 1, keepdims=False),
        lambda x: lax.dynamic_index_in_dim(x, jnp.int32(-1), 1), lambda x: lax.dynamic_slice_in_dim(x, 1, 2, axis=1),
        lambda x: lax.dynamic_update_slice_in_dim(x, x[:, :1], 2, 1), lambda x: lax.dynamic_update_index_in_dim(x, x[:, 0], 2, 1),
        lambda x: lax.dynamic_slice(x, A([0, 1]), (2, 2)), lambda x: lax.dynamic_slice(x, jnp.asarray([0, -1]), (2, 1))], x)
    changed = np.concatenate([x[:, :2], x[:, :1]], 1)
    wanted = [np.tile(x, (2, 3)), x[:, -2:], x[:, -1], x[:, -1:], x[:, 1:3], changed, changed, x[:, 1:], x[:, 2:]]
    for out, want in zip(mini, wanted, strict=True):
        np.testing.assert_array_equal(out, want)


def test_with_debug_index_bounds_any_index_outside_raises_and_says_which_of_what_and_where():
    x = jnp.arange(3.0)
    inside = [lambda: x[2], lambda: x[-3], lambda: x.at[jnp.array([0, 2])].add(1.0), lambda: x.at[7].get(mode="fill"), lambda: jnp.take(x, 5, mode="clip")]
    outside = [(7, lambda: x[7]), (-4, lambda: x.at[-4].set(1.0)), (5, lambda: jnp.take(x, jnp.array([1, 5]))), (3, lambda: mini_jax.jit(lambda x, i: x[i])(x, 3)),
               (3, lambda: mini_jax.vmap(lambda i: x[i])(jnp.arange(4))), (4, lambda: mini_jax.grad(lambda x: x[4])(x)),
               (3, lambda: mini_jax.lax.scan(lambda c, i: (c, x[i]), 0, jnp.arange(4)))]
    with mini_jax.debug_index_bounds(True):
        for call in inside:
            mini_jax.block_until_ready(call())
        for index, call in outside:
            with pytest.raises((IndexError, mini_jax.errors.JaxRuntimeError), match=rf"index {index} is out of bounds for an axis of size 3, at .*test_indexing.py:\d+"):
                mini_jax.block_until_ready(call())
    assert float(x[7]) == 2.0                            # off: the nearest element
