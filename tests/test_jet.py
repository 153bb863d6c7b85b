"""jet: Taylor coefficients are those of nested derivatives, for every primitive and every way to put them together."""
import math

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax
from mini_jax.core import dtypes
from mini_jax.core.program import subprograms
from mini_jax.core.trace import typeof
from mini_jax.experimental.jet import fact, jet
from tests.folded import folded
from tests.test_primitives import CASES, application, derivative_dtypes, differentiable, direction, draw, same

ORDER = 3


def derivatives(f, xs, vs, order):
    """[f(x + s v), its derivatives by s up to `order`] at s = 0, by nested jvps."""
    along = lambda s: f(*[x + s * v for x, v in zip(xs, vs)])
    found = [along]
    for _ in range(order):
        found.append(lambda s, g=found[-1]: jax.jvp(g, (s,), (1.0,))[1])
    return [g(0.0) for g in found]


def by_jet(f, xs, vs, order):
    value, terms = jet(f, tuple(xs), tuple([[v, *[jnp.zeros_like(v)] * (order - 1)] for v in vs]))
    return [value, *[jax.tree.map(lambda row: row[k], terms, is_leaf=lambda t: type(t) is list) for k in range(order)]]


def assert_equals_nested_jvps(functions, xs, vs, order=ORDER, tolerance=1e-9):
    """In one compiled program, for all functions."""
    with jax.enable_x64(True):
        xs, vs = [np.asarray(x, np.float64) for x in xs], [np.asarray(v, np.float64) for v in vs]
        ours, nested = folded(lambda: ([by_jet(f, xs, vs, order) for f in functions], [derivatives(f, xs, vs, order) for f in functions]))()
    assert jax.tree.structure(ours) == jax.tree.structure(nested)
    for position, (one, other) in enumerate(zip(ours, nested)):
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other)):
            assert np.isfinite(b).all()
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=f"function {position}")


# --- primitives ---------------------------------------------------------------------------------------------------------------------

# They have no rules of their own, and take seconds to compile; test_primitives checks their derivatives of second order.
SLOW = {"zeta", "polygamma", "igamma", "igammac", "igamma_grad_a", "regularized_incomplete_beta", "bessel_i0e", "bessel_i1e", "eig", "eigh",
        "lu", "qr", "digamma", "cumlogsumexp", "reduce_prod", "reduce_window"}


def analytic():
    """The first sample of every primitive that has derivatives of second order."""
    found = {}
    for case in CASES:
        primitive, sample = case.values
        if primitive.jvp is not None and primitive.name not in SLOW and sample.order > 1 and derivative_dtypes(primitive, sample):
            found.setdefault(primitive.name, (primitive, sample))
    return list(found.values())


RADIUS, COUNT = 0.01, 8
POINTS = RADIUS * np.cos(np.pi * (np.arange(COUNT) + 0.5) / COUNT)


@pytest.mark.parametrize("part", range(6))
def test_coefficients_of_every_primitive_are_those_of_the_polynomial_through_its_values(part):
    with jax.enable_x64(True):
        names, jets, fits = [], [], []
        for primitive, sample in analytic()[part::6]:
            operands = draw(sample, derivative_dtypes(primitive, sample)[0])
            where = differentiable(sample, operands)
            xs = [np.asarray(operands[i]) for i in where]
            terms = [[direction(10 * i + k, x) for k in range(ORDER)] for i, x in enumerate(xs)]

            def f(*xs, primitive=primitive, sample=sample, operands=operands, where=where):
                args = list(operands)
                for i, x in zip(where, xs):
                    args[i] = x
                return [y for y in application(primitive, sample)(*args) if dtypes.is_inexact(typeof(y).dtype)]
            values = [f(*[x + sum(t * s ** (k + 1) for k, t in enumerate(row)) for x, row in zip(xs, terms)]) for s in POINTS] if where else []
            if values and values[0]:
                names.append(primitive.name)
                jets.append((f, tuple(xs), tuple(terms)))
                stacked = [np.stack([np.asarray(y) for y in ys]) for ys in zip(*values)]
                powers = np.linalg.inv(np.vander(POINTS / RADIUS, COUNT, increasing=True)) / RADIUS ** np.arange(COUNT)[:, None]
                fits.append([np.tensordot(powers, ys, 1)[:ORDER + 1] for ys in stacked])
        found = folded(lambda: [jet(*args, factorial_scaled=False) for args in jets])()
    assert len(names) > 10
    for name, (value, terms), fit in zip(names, found, fits):
        for y, row, expected in zip(value, terms, fit):
            for k, coefficient in enumerate([y, *row]):
                same(coefficient, expected[k], 1e-5, f"coefficient {k} of {name}")


KNOWN = {                                           # coefficient k of the series at 0
    "exp": (jnp.exp, lambda k: 1 / math.factorial(k)),
    "expm1": (jnp.expm1, lambda k: 1 / math.factorial(k) if k else 0),
    "sin": (jnp.sin, lambda k: [0, 1, 0, -1][k % 4] / math.factorial(k)),
    "cos": (jnp.cos, lambda k: [1, 0, -1, 0][k % 4] / math.factorial(k)),
    "sinh": (jnp.sinh, lambda k: k % 2 / math.factorial(k)),
    "tan": (jnp.tan, lambda k: [0, 1, 0, 1 / 3, 0, 2 / 15, 0, 17 / 315, 0][k]),
    "tanh": (jnp.tanh, lambda k: [0, 1, 0, -1 / 3, 0, 2 / 15, 0, -17 / 315, 0][k]),
    "log1p": (jnp.log1p, lambda k: -(-1) ** k / k if k else 0),
    "log(1 + x)": (lambda x: jnp.log(1 + x), lambda k: -(-1) ** k / k if k else 0),
    "sqrt(1 + x)": (lambda x: jnp.sqrt(1 + x), lambda k: math.prod((0.5 - i) / (i + 1) for i in range(k))),
    "(1 + x)^2.5": (lambda x: (1 + x) ** 2.5, lambda k: math.prod((2.5 - i) / (i + 1) for i in range(k))),
    "1 / (1 - x)": (lambda x: 1 / (1 - x), lambda k: 1),
    "(1 + x)^-3": (lambda x: (1 + x) ** -3, lambda k: (-1) ** k * (k + 1) * (k + 2) / 2),
    "x^3": (lambda x: x ** 3, lambda k: k == 3),
    "x^4.0": (lambda x: x ** 4.0, lambda k: k == 4),
    "atan": (jnp.arctan, lambda k: k % 2 * (-1) ** (k // 2) / max(k, 1)),
    "asinh": (jnp.arcsinh, lambda k: [0, 1, 0, -1 / 6, 0, 3 / 40, 0, -15 / 336, 0][k]),
    "erf": (lax.erf, lambda k: k % 2 * 2 / math.sqrt(math.pi) * (-1) ** (k // 2) / (math.factorial(k // 2) * max(k, 1))),
    "logistic": (jax.nn.sigmoid, lambda k: [1 / 2, 1 / 4, 0, -1 / 48, 0, 1 / 480, 0, -17 / 80640, 0][k]),
}


def test_known_taylor_series():
    order = 8
    with jax.enable_x64(True):
        found = jax.jit(lambda: [jet(f, (0.0,), ([1.0] + [0.0] * (order - 1),), factorial_scaled=False) for f, _ in KNOWN.values()])()
    for (name, (_, coefficient)), (value, terms) in zip(KNOWN.items(), found):
        np.testing.assert_allclose([value, *terms], [float(coefficient(k)) for k in range(order + 1)], rtol=1e-12, atol=1e-14, err_msg=name)


def test_the_number_of_operations_grows_with_the_square_of_the_order():
    def operations(f, order):
        terms = [jnp.ones(3)] * order
        return len(jax.make_jaxpr(lambda x: jet(f, (x,), (terms,)))(jnp.ones(3)).eqns)
    for f in (jnp.exp, jnp.sin, jnp.tanh, jnp.log, lax.rsqrt, lax.erf):
        assert operations(f, 12) < 5 * operations(f, 6), f


# --- programs --------------------------------------------------------------------------------------------------------------------------

W = np.array([[0.5, -0.3, 0.2], [0.1, 0.7, -0.4], [0.3, 0.2, 0.6]])
X, V = np.array([0.3, 0.7, 0.5]), np.array([1.0, -0.5, 0.3])


@jax.custom_jvp
def softened(x):
    return jnp.sqrt(x * x + 0.1)


@softened.defjvp
def _softened_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    y = softened(x)
    return y, t * x / y


def test_programs_of_all_kinds():
    step = jax.jit(lambda x: jnp.tanh(W @ x) + jax.jit(jnp.sin)(x))
    assert_equals_nested_jvps([
        lambda x: jax.nn.softmax(W @ x),
        lambda x: {"a": jnp.sort(x * x)[::-1], "b": (jnp.max(x), x[1], jnp.where(x > 0.4, x ** 3, 0.0))},
        lambda x: jnp.linalg.norm(x) * x,
        lambda x: jnp.linalg.solve(W + jnp.outer(x, x), x),
        step,
        lambda x: step(step(x)),
        jax.checkpoint(lambda x: step(x) * x),
        softened,
        lambda x: softened(jnp.sin(x)) * x,
        jax.vmap(lambda x: jnp.exp(jnp.sin(x)) / x),
        jax.grad(lambda x: jnp.sum(jnp.sin(W @ x) ** 3)),
        lambda x: lax.custom_root(lambda y: y + 0.3 * jnp.sin(y) - x, x, lambda f, y: lax.fori_loop(0, 30, lambda _, y: y - f(y) / 1.3, y),
                                  lambda g, y: jax.vmap(jnp.divide)(y, g(jnp.ones(3)))),
        lambda x: lax.stop_gradient(x) * x,
    ], [X], [V], tolerance=1e-8)


def test_control_flow():
    def newton(a):
        return lax.while_loop(lambda c: c[1] < 6, lambda c: (c[0] - (c[0] ** 3 - a) / (3 * c[0] ** 2), c[1] + 1), (jnp.ones_like(a), 0))[0]
    assert_equals_nested_jvps([
        lambda x: lax.scan(lambda c, y: (jnp.sin(c) * y, (c, c * x[0])), x[0], x),
        lambda x: lax.scan(lambda c, y: ((c[0] + y, c[0] * c[1]), None), (1.0, x[1]), x, reverse=True),        # a carry that varies later
        lambda x: lax.cond(x[0] > 0, lambda x: jnp.sin(x), lambda x: 2 * x, x),
        lambda x: jax.vmap(lambda x: lax.switch((x > 0.4).astype(int), [jnp.sin, lambda x: 2.0 * x], x))(x),
        newton,
        lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.tanh(W @ x) * (i + 1), x),
        lambda x: lax.map(lambda y: y * jnp.exp(y), x),
    ], [X], [V])


def test_the_terms_of_several_arguments_go_together():
    assert_equals_nested_jvps([lambda x, y: (x * y, jnp.arctan2(x, y), x ** y, W @ x - y, 2.0 / y), lambda x, y: jnp.outer(x, y).sum()],
                              [X, X + 0.5], [V, V * V])
    x, terms = 0.5 ** 3, (3 * 0.5 ** 2, 6 * 0.5)                                          # sin(z³) at z = ½, by Faà di Bruno's formula
    value, (first, second) = jet(jnp.sin, (x,), (terms,))
    np.testing.assert_allclose([value, first, second], [np.sin(x), np.cos(x) * terms[0], np.cos(x) * terms[1] - np.sin(x) * terms[0] ** 2], rtol=1e-6)


def test_calls_stay_calls():
    step = jax.jit(lambda x: jnp.tanh(x) * x)
    program = jax.make_jaxpr(lambda x: jet(lambda x: step(step(x)), (x,), ([x, x],)))(1.0)
    calls = [eqn.params["jaxpr"] for eqn in program.eqns if eqn.primitive.name == "jit"]
    assert len(calls) == 2 and calls[0] is calls[1]


def test_a_loop_stays_a_loop():
    program = jax.make_jaxpr(lambda x: jet(lambda x: lax.fori_loop(0, 50, lambda _, x: jnp.sin(x), x), (x,), ([1.0, 0.0, 0.0],)))(1.0)
    assert [name for eqn in program.eqns for name, _ in subprograms(eqn.params)] == ["jaxpr"]


def test_other_transformations_go_through():
    def third(x):
        return jet(lambda x: jnp.sin(x) * x, (x,), ([1.0, 0.0, 0.0],))[1][2]              # 3 · -sin x - x cos x
    xs = jnp.arange(4.0)
    expected = -3 * np.sin(xs) - xs * np.cos(xs)
    np.testing.assert_allclose(jax.vmap(third)(xs), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(third))(xs), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.pmap(third)(xs), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(jax.grad(third))(xs), -4 * np.cos(xs) + xs * np.sin(xs), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(third(third(0.3)), third(np.float32(-3 * np.sin(0.3) - 0.3 * np.cos(0.3))), rtol=1e-5)


def test_what_does_not_depend_on_the_argument_has_zero_terms_of_its_type():
    value, terms = jet(lambda x: {"constant": 3.0, "count": (x > 0).astype(int), "floor": jnp.floor(x), "given": x}, (jnp.ones(2, "bfloat16"),),
                       ([jnp.ones(2, "bfloat16"), jnp.zeros(2, "bfloat16")],))
    assert jax.tree.map(lambda y: (y.shape, y.dtype), terms["given"]) == [((2,), jnp.bfloat16)] * 2
    assert all(not np.any(np.asarray(t)) for name in ("constant", "count", "floor") for t in terms[name])
    assert terms["count"][0].dtype == value["count"].dtype
    assert jet(jnp.sin, (1.0,), ([],))[1] == []


def test_a_custom_vjp_is_differentiated_itself():
    @jax.custom_vjp
    def f(x):
        return x * x
    f.defvjp(lambda x: (x * x, None), lambda _, ct: (0 * ct,))
    assert [float(t) for t in jet(f, (3.0,), ([1.0, 0.0],))[1]] == [6.0, 2.0]


def test_effects_happen_once(capfd):
    def f(x):
        jax.debug.print("x = {}", x)
        return jnp.sin(x)
    for run in (jet, jax.jit(jet, static_argnums=0)):
        run(f, (1.0,), ([1.0, 0.0, 0.0],))
        jax.effects_barrier()
        assert capfd.readouterr().out == "x = 1.0\n"


def test_collectives_and_maps_over_devices():
    weights = lambda x: jet(lambda x: jnp.exp(x) / lax.psum(jnp.exp(x), "i"), (x,), ([x, 0.0, 0.0],))
    x = jnp.arange(3.0)
    expected = jet(jax.nn.softmax, (x,), ([x, jnp.zeros(3), jnp.zeros(3)],))
    for found in (jax.vmap(weights, axis_name="i")(x), jax.pmap(weights, axis_name="i")(x)):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    _, terms = jet(jax.pmap(lambda x: jnp.sin(x) * x), (x,), ([jnp.ones(3), jnp.zeros(3)],))
    np.testing.assert_allclose(terms[1], 2 * np.cos(x) - x * np.sin(x), rtol=1e-5)


def test_arguments_may_be_pytrees():
    value, terms = jet(lambda p: p["a"] * p["b"], ({"a": 2.0, "b": 3.0},), ([{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 0.0}],))
    assert float(value) == 6 and [float(t) for t in terms] == [5, 2]


def test_errors_say_which_argument():
    f = lambda x: x
    f.__name__ = "f"
    with pytest.raises(ValueError, match="inconsistent lengths for different arguments: 1 for argument 0, 2 for argument 1"):
        jet(jnp.add, (1.0, 2.0), ([1.0], [1.0, 2.0]))
    with pytest.raises(TypeError, match="tuples of one length"):
        jet(jnp.add, (1.0, 2.0), ([1.0],))
    with pytest.raises(TypeError, match="the series of argument 0 is a list of terms"):
        jet(jnp.sin, (1.0,), (1.0,))
    with pytest.raises(TypeError, match=r"jet: x of f is i32\[\]"):
        jet(f, (np.int32(1),), ([1.0],))
    with pytest.raises(ValueError, match=r"the term of order 2 for x of f is f32\[2\], but the argument is f32\[3\]"):
        jet(f, (jnp.ones(3),), ([jnp.ones(3), jnp.ones(2)],))
    with pytest.raises(ValueError, match="terms of order 1 must have the structure"):
        jet(f, (1.0,), ([(1.0,)],))
    with pytest.raises(ValueError, match="pure_callback"):
        jet(lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float32), x), (1.0,), ([1.0],))


def test_fact_is_the_factorial():
    np.testing.assert_allclose(fact(jnp.arange(5.0)), [1, 1, 2, 6, 24], rtol=1e-5)
