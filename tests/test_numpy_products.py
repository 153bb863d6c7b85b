"""Products of arrays agree with NumPy: matmul over all shapes, einsum over random expressions, and their like."""
import itertools

import numpy as np
import pytest

import mini_jax as jax
import mini_jax.numpy as jnp
from tests.numpy_agreement import agree, compare

rng = np.random.default_rng(2)


def test_matmul_broadcasts_leading_axes():
    leading = [(), (1,), (2,), (3, 1), (3, 2), (1, 1)]
    pairs = [(rng.normal(size=(*a, 2, 4)), rng.normal(size=(*b, 4, 3))) for a, b in itertools.product(leading, leading)]
    pairs += [(rng.normal(size=4), y) for _, y in pairs[:6]] + [(x, rng.normal(size=4)) for x, _ in pairs[::6]] + [(rng.normal(size=4), rng.normal(size=4))]
    pairs += [(np.zeros((2, 0)), np.zeros((0, 3))), (np.zeros((0, 4)), np.zeros((4, 2)))]
    with jax.enable_x64(True):
        got = jax.jit(lambda pairs: [x @ y for x, y in pairs])(pairs)
    for g, (x, y) in zip(got, pairs):
        compare(g, x @ y, f"{x.shape} @ {y.shape}")


def test_products_of_vectors_and_matrices():
    agree("""
        np.dot(m, n)
        np.dot(v, n)
        np.dot(m, v)
        np.dot(v, v)
        np.dot(t, n)
        np.dot(m, 2.0)
        np.vdot(z, z[::-1])
        np.vecdot(z, z[::-1])
        np.vecdot(t, t[::-1], axis=0)
        np.matvec(t, v)
        np.vecmat(t[:, :, 0] + 1j, t)
        np.inner(m, n.T)
        np.inner(t, v)
        np.outer(m, v)
        [np.tensordot(t, t, a) for a in (0, 1 - 1, 3, ((0, 1), (0, 1)), ((2,), (2,)), ((-1, 0), (-1, 0)))]
        np.tensordot(m, n, 1)
        [np.kron(a, b) for a in (m, v, t) for b in (m, v)]
        np.cross(n[:3, :3], n[:3, :3][::-1])
        np.cross(v3, n[:3, :3], axisb=0)
        np.cross(n[:3, :3], v3, axisc=0)
        np.trace(m[:, :2])
        np.linalg.matrix_power(s, 5)
        np.linalg.matrix_power(s, 0)
        np.linalg.multi_dot([m, n, n.T, v])
        np.linalg.multi_dot([v, n, n.T])
        np.linalg.norm(m)
        [np.linalg.norm(m, o) for o in ('fro', 1, -1, np.inf, -np.inf)]
        [np.linalg.norm(v, o) for o in (None, 0, 1, 2, 3.5, np.inf, -np.inf, -2)]
        [np.linalg.norm(t, o, a, keepdims=k) for o, a in ((None, 1), (3, -1), ('fro', (0, 2)), (1, (2, 0)), (np.inf, (0, 1))) for k in (False, True)]
        np.linalg.norm(z, 3, 0)
        np.linalg.vector_norm(t, axis=(0, 2), ord=3, keepdims=True)
        np.linalg.matrix_norm(t)
    """, m=rng.normal(size=(2, 4)), n=rng.normal(size=(4, 3)), v=rng.normal(size=4), t=rng.normal(size=(3, 2, 4)), z=rng.normal(size=(2, 4)) * (1 + 2j),
        s=rng.normal(size=(3, 3)), v3=rng.normal(size=3))


EXPRESSIONS = [
    "ij->ji", "ij->", "ij->i", "ii->i", "ii", "iij->j", "i,i->", "i,j->ij", "ij,j->i", "ij,jk->ik", "ij,jk->ki", "ij,ij->ij", "ij,i->ij", "ij,kj->ik",
    "bij,bjk->bik", "bij,bjk->ikb", "bij,bik->jk", "ij,jk,kl->il", "ij,kl,jl->ki", "abc,cde,ea->bd", "ij,jk,kl,li->", "ab,ab,ab->a", "i,j,k->kji",
    "ij,jk", "ba", "bij,kj->kbi", "ijk,jl,km->ilm", "bhqd,bhkd->bhqk", "bhqk,bhkd->bqhd", "ab,cd->abcd", "ij,->ij", ",->", "a,ab,bc,cd,de,e->",
]


def operands_of(expression):
    sizes = dict(zip("abcdehijklmq", (2, 3, 4, 2, 3, 2, 3, 4, 2, 3, 2, 4)))
    return [rng.normal(size=tuple(sizes[c] for c in term)) for term in expression.split("->")[0].split(",")]


@pytest.mark.parametrize("optimize", ["auto", False])
def test_einsum_in_all_kinds_of_expressions(optimize):
    arrays = [operands_of(e) for e in EXPRESSIONS]
    with jax.enable_x64(True):
        got = jax.jit(lambda arrays: [jnp.einsum(e, *xs, optimize=optimize) for e, xs in zip(EXPRESSIONS, arrays)])(arrays)
    for e, xs, g in zip(EXPRESSIONS, arrays, got):
        compare(g, np.einsum(e, *xs), e, 1e-11)


def test_einsum_with_ellipses_lists_and_axes_of_size_one():
    t, m, v = rng.normal(size=(2, 3, 4)), rng.normal(size=(4, 5)), rng.normal(size=4)
    agree("""
        np.einsum('...k,kl->...l', t, m)
        np.einsum('...ij->...ji', t)
        np.einsum('i...->...', t)
        np.einsum('...,...->...', t, v)
        np.einsum('...i,...i', t, t[:1])
        np.einsum('ij...,ij...->...', t, t)
        np.einsum('...', v)
        np.einsum(t, [0, 1, 2], m, [2, 3], [3, 0, 1])
        np.einsum(t, [..., 2], v, [2], [...])
        np.einsum('ij,ij->i', m, m[:1])
        np.einsum('ij,ij->j', m[:, :1], m)
        np.einsum(' i j , j k -> i k ', m.T, m)
    """, t=t, m=m, v=v)


def test_the_order_of_products_is_the_cheapest_or_as_told():
    m = rng.normal(size=(3, 4))
    np.testing.assert_allclose(jnp.einsum("ij,jk,kl", m, m.T, m, optimize=[(1, 2), (0, 1)]), m @ m.T @ m, rtol=1e-5)
    a, b, c = np.ones((2, 100)), np.ones((100, 3)), np.ones((3, 200))
    assert jnp.einsum_path("ij,jk,kl->il", a, b, c)[0] == [(0, 1), (0, 1)]
    assert jnp.einsum_path("ij,jk,kl->il", c.T, b.T, a.T)[0] == [(1, 2), (0, 1)]
    assert jnp.einsum_path("ij,jk->ik", a, b)[0] == [(0, 1)]
    many = [np.ones((4, 4))] * 9
    path = jnp.einsum_path("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", *many)[0]
    assert len(path) == 8 and "operations" in jnp.einsum_path("ab,bc->ac", *many[:2])[1]
    sizes = [eqn.outvars[0].aval.size for eqn in jax.make_jaxpr(lambda *xs: jnp.einsum("ab,bc,cd,de,ef,fg,gh,hi,ij->aj", *xs))(*many).eqns]
    assert max(sizes) == 16                                    # no product of two matrices that share no index


def test_products_of_two_operands_are_one_dot_general():
    for e in ("ij,jk->ik", "ij,jk->ki", "bij,bjk->bik", "bij,kj->bik"):
        xs = operands_of(e)
        names = [str(eqn.primitive) for eqn in jax.make_jaxpr(lambda *xs: jnp.einsum(e, *xs))(*xs).eqns]
        assert names == ["dot_general"], (e, names)
    assert [str(e.primitive) for e in jax.make_jaxpr(jnp.matmul)(np.ones((5, 1, 2, 3)), np.ones((4, 3, 2))).eqns].count("broadcast_in_dim") == 0


def test_dtypes_of_products():
    b = jnp.ones((2, 2), bool)
    assert (b @ b).dtype == jnp.bool_ and jnp.einsum("ij->", b).dtype == jnp.bool_
    assert jnp.matmul(jnp.ones((2, 2), "int8"), jnp.ones((2, 2), "float16")).dtype == jnp.float16
    assert jnp.matmul(jnp.ones((2, 2), "bfloat16"), jnp.ones((2, 2), "bfloat16"), preferred_element_type="float32").dtype == jnp.float32
    assert jnp.einsum("ij,jk->ik", jnp.ones((2, 2), "int8"), jnp.ones((2, 2), "int8"), preferred_element_type="int32").dtype == jnp.int32
    assert jnp.dot(jnp.ones(2, int), 2.0).dtype == jnp.float32 and jnp.dot(2, 3).weak_type
    assert jnp.matmul(jnp.ones((2, 2)), jnp.ones((2, 2)), precision="highest").dtype == jnp.float32


@pytest.mark.parametrize("call,error,words", [
    (lambda: jnp.ones((2, 3)) @ jnp.ones((2, 3)), TypeError, "contracted"), (lambda: jnp.ones(2) @ 3, ValueError, "operand 1"),
    (lambda: jnp.matmul(jnp.ones((2, 2, 2)), jnp.ones((3, 2, 2))), ValueError, "broadcast"), (lambda: jnp.dot(jnp.ones(2), jnp.ones(3)), TypeError, "contracted"),
    (lambda: jnp.tensordot(jnp.ones(2), jnp.ones(2), 2), TypeError, "exceeds"), (lambda: jnp.tensordot(jnp.ones(2), jnp.ones(2), ((0,), ())), TypeError, "equal length"),
    (lambda: jnp.cross(jnp.ones(4), jnp.ones(4)), ValueError, "size 2 or 3"), (lambda: jnp.vecdot(jnp.ones(2), jnp.ones(3)), ValueError, "sizes"),
    (lambda: jnp.einsum("ij,jk->ik", jnp.ones((2, 2))), ValueError, "2 operands"), (lambda: jnp.einsum("ij->ik", jnp.ones((2, 2))), ValueError, "'k'"),
    (lambda: jnp.einsum("ij,jk", jnp.ones((2, 3)), jnp.ones((2, 3))), ValueError, "label 'j'"), (lambda: jnp.einsum("ijk", jnp.ones((2, 3))), ValueError, "2 dimensions"),
    (lambda: jnp.einsum("i!", jnp.ones((2, 3))), ValueError, "letters"), (lambda: jnp.einsum("i->ii", jnp.ones(2)), ValueError, "twice"),
    (lambda: jnp.einsum("ii", jnp.ones((2, 3))), ValueError, "'i'"), (lambda: jnp.einsum("i", [1, 2]), TypeError, "list"),
    (lambda: jnp.linalg.matrix_power(jnp.ones((2, 3)), 2), TypeError, "square"), (lambda: jnp.linalg.norm(jnp.ones(2), "fro"), ValueError, "order"),
    (lambda: jnp.linalg.multi_dot([jnp.ones((2, 3))] * 2), ValueError, "shapes"),
])
def test_wrong_arguments_are_named(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_products_differentiate_and_batch():
    a, b, c = rng.normal(size=(2, 3)), rng.normal(size=(3, 4)), rng.normal(size=(4,))
    def f(a, b, c):
        return jnp.einsum("ij,jk,k->", a, b, c * c) + jnp.sum(jnp.tanh(a @ b) @ c) + jnp.vdot(jnp.kron(a, c), jnp.kron(a, c)) + jnp.cross(a[0], a[1]).sum()
    with jax.enable_x64(True):
        grads = jax.jit(jax.grad(f, (0, 1, 2)))(a, b, c)
        g = jax.jit(f)
        for n, (x, grad) in enumerate(zip((a, b, c), grads)):
            for i in list(np.ndindex(x.shape))[::3]:
                d = np.zeros_like(x)
                d[i] = 1e-6
                moved = lambda s: g(*[y + s * d if k == n else y for k, y in enumerate((a, b, c))])
                assert float(grad[i]) == pytest.approx(float(moved(1) - moved(-1)) / 2e-6, abs=1e-6)
        batched = jax.jit(jax.vmap(lambda x, y: jnp.einsum("ij,jk->ki", x, y), in_axes=(0, None)))(np.stack([a, a + 1]), b)
        np.testing.assert_allclose(batched, np.stack([(a @ b).T, ((a + 1) @ b).T]))
