"""Operators and methods of arrays and traced values."""
import operator

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp

X = np.array([[1.0, -2.0, 3.0], [0.5, 4.0, -1.5]], np.float32)
N = np.array([[7, -3, 2], [5, 1, -8]], np.int32)
BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.eq, operator.ne, operator.lt,
          operator.le, operator.gt, operator.ge]
BITWISE = [operator.and_, operator.or_, operator.xor]


def same(got, wanted):
    np.testing.assert_allclose(np.asarray(got), wanted, rtol=1e-6)


def test_operators_have_numpys_values_on_arrays_and_on_tracers():
    def all_of(x, y):
        return [op(x, y) for op in BINARY]
    for x, y in ((X, X + 0.25), (X, np.float32(2)), (N, N + 20), (X, X[0])):
        wanted = [op(x, y) for op in BINARY]
        for got in (all_of(jnp.asarray(x), jnp.asarray(y)), jax.jit(all_of)(x, y)):
            for g, w in zip(got, wanted):
                same(g, w)
    for got in ([op(jnp.asarray(N), 3) for op in BITWISE], jax.jit(lambda n: [op(n, 3) for op in BITWISE])(N)):
        for g, op in zip(got, BITWISE):
            same(g, op(N, 3))


def test_reflected_operators_keep_the_order_of_operands():
    def all_of(x):
        return [2.0 - x, 2 - x, 3.0 / x, 2.0 ** x, 5 % x, 7.0 // x, np.float32(2) - x, np.ones(3, np.float32) - x, 2.0 < x, 2.0 >= x]
    wanted = all_of(X)
    for got in (all_of(jnp.asarray(X)), jax.jit(all_of)(X)):
        for g, w in zip(got, wanted):
            assert isinstance(g, jax.Array)
            same(g, w)
    n = jnp.array([1, 2])
    assert (1 << n).tolist() == [2, 4] and (8 >> n).tolist() == [4, 2] and (3 & n).tolist() == [1, 2] and (6 ^ n).tolist() == [7, 4]


@pytest.mark.parametrize("op, fun", [*zip(BINARY, (jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.floor_divide, jnp.remainder, jnp.equal, jnp.not_equal,
                                                   jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal)), (operator.pow, jnp.power)])
def test_an_array_before_a_tracer_records_what_the_function_does(op, fun):
    for array in (jnp.asarray(X), jnp.asarray(N), jnp.asarray(X[0]), jnp.asarray(2.0)):
        for traced in (X, N, X[0]):
            recorded = [str(jax.make_jaxpr(lambda t: f(array, t))(traced)) for f in (op, fun)]
            assert recorded[0] == recorded[1]


def test_unary_operators():
    x = jnp.asarray(X)
    for g, w in zip([-x, +x, abs(x), ~jnp.asarray(N), round(x, 1), round(x)], [-X, X, abs(X), ~N, np.round(X, 1), np.round(X)]):
        same(g, w)
    assert round(x).dtype == jnp.int32
    q, r = divmod(jnp.asarray(N), 4)
    same(q, N // 4), same(r, N % 4)


def test_powers_by_python_ints_are_products():
    jaxpr = jax.make_jaxpr(lambda x: x ** 3)(X)
    assert [str(e.primitive) for e in jaxpr.eqns] == ["integer_pow"]
    same(jnp.asarray(X) ** 3, X ** 3), same(jnp.asarray(X) ** -2, X ** -2.0), same(2 ** jnp.asarray(N % 5), 2 ** (N % 5))


@pytest.mark.parametrize("fun,primitives", [
    (lambda x: x * x, ["mul"]), (lambda x: x * 2.0, ["mul"]), (lambda x: x * 2, ["mul"]), (lambda x: 2 - x, ["sub"]), (lambda x: x / 3, ["div"]),
    (lambda x: x > 0, ["gt"]), (lambda x: x + np.float32(1), ["add"]), (lambda x: -x, ["neg"]),
    (lambda x: x + x[0], ["slice", "squeeze", "broadcast_in_dim", "add"]), (lambda x: x @ x.T, ["transpose", "dot_general"]),
])
def test_an_operator_is_one_equation_where_types_agree(fun, primitives):
    assert [str(e.primitive) for e in jax.make_jaxpr(fun)(X).eqns] == primitives


def test_python_numbers_take_the_arrays_dtype():
    for dtype in ("bfloat16", "float16", "float32", "int8", "complex64"):
        for fun in (lambda x: x + 1, lambda x: 1 - x, lambda x: x * 3):
            x = jnp.ones(2, dtype)
            assert fun(x).dtype == jax.eval_shape(fun, x).dtype == dtype
    assert (jnp.ones(2, "float16") * 1e10).tolist() == [np.inf, np.inf]
    assert (jnp.ones(2, "int8") + 1.5).dtype == jax.eval_shape(lambda x: x + 1.5, jnp.ones(2, "int8")).dtype == jnp.float32
    with jax.enable_x64(True):
        assert (jnp.ones(2, "float32") * 2.0).dtype == jax.eval_shape(lambda x: x * 2.0, jnp.ones(2, "float32")).dtype == jnp.float32


class Other:
    """An operand that knows arrays, but that arrays don't know."""
    def __radd__(self, x):
        return "Other"

    __rmatmul__ = __rsub__ = __radd__


def test_operands_of_other_classes_decide_themselves():
    for x in (jnp.ones(2), X[0]):
        fun = lambda x: [x + Other(), x - Other(), x @ Other()]
        assert fun(jnp.asarray(x)) == ["Other"] * 3
    seen = []
    jax.make_jaxpr(lambda x: seen.append((x + Other(), x @ Other())) or x)(X)
    assert seen == [("Other", "Other")]


@pytest.mark.parametrize("operand", [None, "a", [1, 2, 3], {}, object()])
def test_operands_that_are_no_values_are_type_errors(operand):
    def attempt(x):
        for op in (operator.add, operator.mul, operator.lt, operator.matmul, operator.pow, operator.and_):
            for call in (lambda: op(x, operand), lambda: op(operand, x)):
                with pytest.raises(TypeError):
                    call()
        assert (x == operand) is False and (x != operand) is True
        return x
    attempt(jnp.arange(3))
    jax.make_jaxpr(attempt)(jnp.arange(3))


def test_numpy_arrays_and_scalars_give_way():
    x = jnp.asarray(X)
    for made in (X * x, x * X, np.float32(2) * x, np.float64(2) * x, X[0] + x, X @ x.T, np.int32(2) ** x):
        assert isinstance(made, jax.Array) and not isinstance(made, np.ndarray)
    made = []
    jax.make_jaxpr(lambda x: made.append((X * x, np.float32(2) * x)) or x)(x)
    assert all(isinstance(m, jax.Array) for m in made[0])


def test_assignment_says_what_to_write_instead():
    with pytest.raises(TypeError, match=r"\.at\[0\]\.set"):
        jnp.ones(3)[0] = 1
    with pytest.raises(TypeError, match=r"\.at"):
        jax.jit(lambda x: x.__setitem__(0, 1))(jnp.ones(3))
    x = y = jnp.ones(3)
    x += 1
    assert x.tolist() == [2, 2, 2] and y.tolist() == [1, 1, 1]


def test_iteration_and_length():
    x = jnp.asarray(N)
    assert [row.tolist() for row in x] == N.tolist() and len(x) == 2
    a, b = jax.jit(lambda x: tuple(row.sum() for row in x))(x)
    assert (int(a), int(b)) == (6, -2)
    for call in (lambda x: iter(x), lambda x: len(x)):
        with pytest.raises(TypeError):
            call(jnp.float32(1))
        with pytest.raises(TypeError):
            jax.jit(call)(jnp.float32(1))


METHODS = {
    "all": (), "any": (), "argmax": (1,), "argmin": (), "argsort": (), "astype": (np.float16,), "clip": (0, 2), "conj": (), "conjugate": (), "copy": (),
    "cumprod": (1,), "cumsum": (0,), "diagonal": (), "flatten": (), "max": (0,), "mean": (1,), "min": (), "prod": (), "ptp": (1,), "ravel": (),
    "repeat": (2, 1), "reshape": (3, 2), "round": (), "sort": (), "squeeze": (), "std": (), "sum": (1,), "swapaxes": (0, 1), "take": (np.array([1, 2]),),
    "trace": (), "transpose": (1, 0), "var": (0,), "view": (np.int32,), "dot": (X.T,), "nonzero": (), "item": (2,), "tolist": (), "choose": None,
}


def test_methods_have_numpys_results_on_arrays_and_on_tracers():
    concrete = ("nonzero", "item", "tolist")
    names = [name for name, args in METHODS.items() if args is not None]
    numpy = lambda x, name: np.sort(x) if name == "sort" else np.ptp(x, *METHODS[name]) if name == "ptp" else getattr(x, name)(*METHODS[name])
    x = jnp.asarray(X)
    for name in names:
        got, wanted = getattr(x, name)(*METHODS[name]), numpy(X, name)
        for g, w in zip(got if isinstance(got, tuple) else [got], wanted if isinstance(wanted, tuple) else [wanted]):
            same(g, w)
    traced = [name for name in names if name not in concrete]
    for name, got in zip(traced, jax.jit(lambda x: [getattr(x, name)(*METHODS[name]) for name in traced])(X)):
        same(got, numpy(X, name))
    same(x.T, X.T), same(jnp.ones((4, 2, 3)).mT.shape, (4, 3, 2)), same((x + 1j).real, X), same((x + 1j).imag, np.ones_like(X))


def test_attributes():
    x = jnp.asarray(X)
    assert (x.shape, x.ndim, x.size, x.dtype, x.nbytes, x.itemsize) == ((2, 3), 2, 6, np.float32, 24, 4)
    assert x.__array_namespace__() is jnp and x.__array_namespace__(api_version="2024.12") is jnp
    with pytest.raises(ValueError):
        x.__array_namespace__(api_version="1999")
    moved = x.to_device(jax.devices()[-1])
    assert moved.device == jax.devices()[-1] and jax.jit(lambda x: x.to_device(jax.devices()[0]) + jnp.zeros(3, device=jax.devices()[0]))(x).shape == (2, 3)
    assert jnp.ones(2, device=jax.devices()[-1]).device == jax.devices()[-1]
    with pytest.raises(TypeError):
        hash(x)


def test_keyword_arguments_of_methods():
    x = jnp.asarray(X)
    same(x.sum(axis=0, keepdims=True), X.sum(axis=0, keepdims=True)), same(x.std(ddof=1), X.std(ddof=1))
    same(x.reshape((3, 2), order="F"), X.reshape((3, 2), order="F")), same(x.reshape(-1), X.ravel()), same(x.transpose(), X.T)
    same(x.transpose((1, 0)), X.T), same(x.sum(axis=(0, 1)), X.sum()), same(x.sum(axis=[0, 1]), X.sum()), same(x.max(axis=-1), X.max(axis=-1))
    same(x.argsort(axis=0, descending=True), np.argsort(-X, axis=0)), same(x.clip(min=0), X.clip(min=0)), same(x.flatten("F"), X.flatten("F"))


def test_operators_differentiate_and_batch():
    f = lambda x: ((2.0 * x - x / 3.0 + x ** 2 - 1.0) @ x.T).sum() - (-x).mean()
    with jax.enable_x64(True):
        x = X.astype(np.float64)
        grad = jax.grad(f)(x)
        for i, j in ((0, 1), (1, 2)):
            d = np.zeros_like(x)
            d[i, j] = 1e-6
            assert float(grad[i, j]) == pytest.approx((float(f(x + d)) - float(f(x - d))) / 2e-6, abs=1e-6)
    y = jax.vmap(lambda row, n: row * n + row[0] - 1)(jnp.asarray(X), jnp.arange(2.0))
    same(y, np.stack([X[i] * i + X[i, 0] - 1 for i in range(2)]))
