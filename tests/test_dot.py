"""Laws of products: their values, and that XLA gets them in two dimensions and copies nothing."""
import re

import ml_dtypes
import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from mini_jax import lax

rng = np.random.default_rng(0)


def normal(*shape, dtype=np.float32):
    return rng.normal(size=shape).astype(dtype)


def product(contract, batch=((), ())):
    return lambda a, b: lax.dot_general(a, b, (contract, batch))


def pulled_back(f):
    """The cotangents of both operands, for a cotangent that depends on the product."""
    def gradients(a, b):
        y, back = jax.vjp(f, a, b)
        return back(jnp.tanh(y))
    return gradients


# --- what XLA gets -------------------------------------------------------------------------------------------------------------------

B, S, D, E, H = 4, 24, 16, 40, 6
TWO_DIMENSIONAL = {
    "matrices": (product(((1,), (0,))), (S, D), (D, E)),
    "x · w'": (lambda x, w: lax.dot(x, w.T), (S, D), (E, D)),
    "x' · w": (product(((0,), (0,))), (D, S), (D, E)),
    "bsd,de->bse": (product(((2,), (0,))), (B, S, D), (D, E)),
    "bsd,ed->bse": (product(((2,), (1,))), (B, S, D), (E, D)),
    "bsd,dhk->bshk": (product(((2,), (0,))), (B, S, D), (D, H, 8)),
    "bshk,hkd->bsd": (product(((2, 3), (0, 1))), (B, S, H, 8), (H, 8, D)),
    "bhsd,bhtd->bhst": (product(((3,), (3,)), ((0, 1), (0, 1))), (B, H, S, D), (B, H, E, D)),
    "bhst,bhtd->bhsd": (product(((3,), (2,)), ((0, 1), (0, 1))), (B, H, S, E), (B, H, E, D)),
    "vmap of x · w over x": (jax.vmap(lax.dot, (0, None)), (B, S, D), (D, E)),
    "vmap of x · w over both": (jax.vmap(lax.dot), (B, S, D), (B, D, E)),
    "crossed unit dimensions": (product(((2, 0), (1, 0))), (1, S, D), (1, D, E)),
}


@pytest.mark.parametrize("name", TWO_DIMENSIONAL)
def test_a_product_and_its_gradients_are_two_dimensional_and_move_nothing(name):
    f, a, b = TWO_DIMENSIONAL[name]
    a, b = normal(*a), normal(*b)
    for function, count in ((f, 1), (pulled_back(f), 3)):
        lowered = jax.jit(function).lower(a, b)
        text = lowered.as_text()
        if name != "x · w'":
            assert "stablehlo.transpose" not in text
        products = [line for line in text.splitlines() if "dot_general" in line]
        stacked = {"bhsd,bhtd->bhst": 2, "bhst,bhtd->bhsd": 2, "vmap of x · w over both": 1}.get(name, 0)         # batch dimensions
        assert [line.split("->")[1].count("x") for line in products] == [stacked + 2] * count
        assert all(line.count("batching_dims") == bool(stacked) for line in products)
        hlo = lowered.compile().as_text()
        assert len(re.findall(r" dot\(", hlo)) == count
        assert not re.search(r" (transpose|copy)\(", hlo), hlo


def test_vmap_over_one_operand_makes_one_product_not_many():
    for axes, shapes in (((0, None), ((B, S, D), (D, E))), ((None, 0), ((S, D), (B, D, E)))):
        text = jax.jit(jax.vmap(lax.dot, axes)).lower(*[normal(*s) for s in shapes]).as_text()
        assert "batching_dims" not in text and text.count("dot_general") == 1


def test_a_product_without_a_sum_is_a_multiplication():
    text = jax.jit(product(((), ()))).lower(normal(3), normal(4)).as_text()
    assert "dot_general" not in text and "stablehlo.multiply" in text


# --- values --------------------------------------------------------------------------------------------------------------------------

def test_vectors_matrices_and_stacks():
    a, b, v, w = normal(3, 4), normal(4, 5), normal(4), normal(4)
    stack, other = normal(2, 3, 4), normal(2, 4, 5)
    found = jax.jit(lambda: [lax.dot(a, b), lax.dot(a, v), lax.dot(v, b), lax.dot(v, w), lax.batch_matmul(stack, other),
                             lax.dot(a[:, :0], b[:0]), lax.dot(a[:0], b)])()
    for actual, expected in zip(found, [a @ b, a @ v, v @ b, v @ w, stack @ other, np.zeros((3, 5)), np.zeros((0, 5))]):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_integers_wrap_and_booleans_say_whether_any_pair_holds():
    i, u = np.full((1, 3), 100, np.int8), np.full((3, 1), 200, np.uint8)
    t, f = np.array([[True, False]]), np.array([[False, False], [True, False]])
    found = jax.jit(lambda: [lax.dot(i, i.T), lax.dot(i, i.T, preferred_element_type=np.int32), lax.dot(u.T, u, preferred_element_type=np.int32),
                             lax.dot(i, u, preferred_element_type=np.int32), lax.dot(t, f), lax.dot(f, t.T)])()
    for actual, expected in zip(found, [np.int8(48), np.int32(30000), np.int32(120000), np.int32(60000), [[False, False]], [[False], [True]]]):
        expected = np.asarray(expected)
        assert np.asarray(actual).dtype == expected.dtype and np.array_equal(actual, np.broadcast_to(expected, np.shape(actual)))


def test_narrow_floats_are_added_in_32_bits():
    ones = np.ones((1, 3000))
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = ones.astype(dtype)
        narrow, wide = jax.jit(lambda x: (lax.dot(x, x.T), lax.dot(x, x.T, preferred_element_type=np.float32)))(x)
        assert narrow.dtype == dtype and float(narrow[0, 0]) == float(np.array(3000, dtype))
        assert wide.dtype == np.float32 and float(wide[0, 0]) == 3000


def test_operands_of_two_dtypes_meet_in_the_higher_kind():
    kinds = [(np.int32, np.float32, np.float32), (ml_dtypes.bfloat16, np.float32, np.float32), (np.bool_, np.int8, np.int8),
             (np.float32, np.complex64, np.complex64), (np.float16, ml_dtypes.bfloat16, ml_dtypes.bfloat16), (np.int8, np.uint8, np.int8)]
    for a, b, expected in kinds:
        assert lax.dot(np.ones((2, 3), a), np.ones((3, 2), b)).dtype == expected


# --- precision ---------------------------------------------------------------------------------------------------------------------------

def test_precision_is_taken_by_value_by_name_in_pairs_and_from_the_option():
    x = normal(2, 2)
    written = lambda precision: re.findall(r"precision = \[(\w+), (\w+)\]", jax.jit(lambda x: lax.dot(x, x, precision=precision)).lower(x).as_text())
    assert written(None) == []
    assert written("float32") == written(lax.Precision.HIGHEST) == [("HIGHEST", "HIGHEST")]
    assert written(("default", lax.Precision.HIGH)) == [("DEFAULT", "HIGH")]
    with jax.default_matmul_precision("tensorfloat32"):
        assert written(None) == [("HIGH", "HIGH")]
    assert lax.Precision("highest") is lax.Precision.HIGHEST and lax.Precision(None) is lax.Precision.DEFAULT
    assert str(lax.Precision.HIGH) == "HIGH" and repr(lax.Precision.HIGH) == "Precision.HIGH"


def test_an_algorithm_rounds_its_operands_and_gives_the_operands_dtype():
    x = np.array([[1 + 2.0 ** -9, 1 + 2.0 ** -12]], np.float32)
    squares = lambda y: float(np.sum(np.square(y.astype(np.float64))))
    rounded = {"BF16_BF16_F32": x.astype(ml_dtypes.bfloat16), "F16_F16_F32": x.astype(np.float16), "F32_F32_F32": x, "BF16_BF16_F32_X9": x,
               lax.DotAlgorithm(np.float16, np.float16, np.float32): x.astype(np.float16), lax.DotAlgorithmPreset.TF32_TF32_F32: x.astype(np.float16)}
    found = jax.jit(lambda x: [lax.dot(x, x.T, precision=p) for p in rounded])(x)
    for y, exact in zip(found, rounded.values()):
        assert y.dtype == np.float32 and float(y[0, 0]) == float(np.float32(squares(exact)))


def test_derivatives_keep_precision_and_preferred_dtype():
    a, b = normal(2, 3, dtype=ml_dtypes.bfloat16), normal(3, 4, dtype=ml_dtypes.bfloat16)
    f = lambda a, b: jnp.sum(lax.dot(a, b, precision=("high", "highest"), preferred_element_type=np.float32))
    text = str(jax.make_jaxpr(jax.grad(f, (0, 1)))(a, b))
    assert text.count("preferred_element_type=float32") == 3
    left, right = jax.grad(f, (0, 1))(a, b)
    assert left.dtype == right.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(left.astype(np.float32), np.tile(b.astype(np.float32).sum(1), (2, 1)), rtol=1e-2)
    np.testing.assert_allclose(right.astype(np.float32), np.tile(a.astype(np.float32).sum(0)[:, None], (1, 4)), rtol=1e-2)


@pytest.mark.parametrize("error, words, call", [
    (TypeError, r"dot\(f32\[2,3\], f32\[2,3\]\).*must agree", lambda x: lax.dot(x, x)),
    (TypeError, "must agree", lambda x: lax.dot(2.0, x)),
    (TypeError, "lhs must lie between 0 and 1", lambda x: lax.dot_general(x, x, (((-1,), (0,)), ((), ())))),
    (TypeError, "rhs must lie between 0 and 1", lambda x: lax.dot_general(x, x, (((1,), (2,)), ((), ())))),
    (TypeError, "must be distinct", lambda x: lax.dot_general(x, x, (((0,), (0,)), ((0,), (0,))))),
    (TypeError, r"contracting dimensions .* got \(2,\) and \(3,\)", lambda x: lax.dot_general(x, x, (((0,), (1,)), ((), ())))),
    (TypeError, r"batch dimensions .* got \(0?\)|\(2,\) and \(\)", lambda x: lax.dot_general(x, x, (((1,), (1,)), ((0,), ())))),
    (TypeError, "narrower than the operands", lambda x: lax.dot(x.astype(np.int32), x.T.astype(np.int32), preferred_element_type=np.int8)),
    (ValueError, "at least two dimensions", lambda x: lax.batch_matmul(x[0], x)),
    (ValueError, "as many dimensions", lambda x: lax.batch_matmul(x[None], x)),
    (ValueError, "precision='best' is not known", lambda x: lax.dot(x, x.T, precision="best")),
    (ValueError, "precision=7 is not known", lambda x: lax.dot(x, x.T, precision=7)),
])
def test_errors_say_what_was_wrong(error, words, call):
    with pytest.raises(error, match=words):
        call(jnp.ones((2, 3)))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int8"])
def test_products_of_narrow_operands_whose_transposes_are_found_late(dtype):
    x, y = np.random.default_rng(0).integers(-3, 4, size=(2, 16, 16)).astype(dtype)
    wide = lambda a: np.asarray(a).astype(np.float64)
    for hidden in (lambda x: jnp.broadcast_to((2 * x).T[None], (2, 16, 16))[1], lambda x: jnp.stack([(2 * x).T, x])[0],
                   lambda x: jnp.pad((2 * x).T, ((0, 1), (0, 0)))[:16], lambda x: (2 * x).T):
        for product, wanted in [(lambda x, y: hidden(x) @ y, 2 * wide(x).T @ wide(y)), (lambda x, y: y @ hidden(x), wide(y) @ (2 * wide(x).T)),
                                (lambda x, y: hidden(x) @ y[0], 2 * wide(x).T @ wide(y)[0]), (lambda x, y: hidden(x) @ hidden(y), 4 * (wide(y) @ wide(x)).T)]:
            np.testing.assert_allclose(wide(jax.jit(product)(x, y)), wanted.astype(dtype).astype(np.float64), rtol=0.01, atol=1)
