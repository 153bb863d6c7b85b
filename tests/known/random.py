"""Random numbers by seed, generator, function, shape and dtype."""
from __future__ import annotations

import numpy as np

from tests.known import Group


def groups(jax) -> dict[str, Group]:
    """What JAX or mini_jax, given as `jax`, is asked for."""
    r, jnp = jax.random, jax.numpy

    # --- keys ------------------------------------------------------------------------------------------------------------------
    def seeds():
        numbers = (0, 1, 42, -1, -5, 2**31 - 1, 2**31, 2**32 + 7, -2**33, 2**63 - 1, -2**63)
        numpy_numbers = (np.int32(-3), np.int64(2**40 + 3), np.uint32(2**32 - 1), np.int8(-1), np.uint64(2**63 + 1))
        return {f"{seed!r}": r.key_data(r.key(seed)) for seed in numbers + numpy_numbers} | {"raw": r.PRNGKey(7)}

    def traced_seeds():
        return jax.jit(lambda *seeds: {str(i): r.PRNGKey(s) for i, s in enumerate(seeds)})(3, -3, jnp.int32(-7), jnp.uint8(200), np.uint16(9))

    def splitting():
        key, raw = r.key(7), r.PRNGKey(7)
        found = {f"split {num}": r.key_data(r.split(key, num)) for num in (0, 1, 2, 3, (2, 3))}
        found |= {f"fold_in {data}": r.key_data(r.fold_in(key, data)) for data in (0, 12345, 2**32 - 1)}
        return found | {
            "split raw": r.split(raw, 3), "split chain": r.key_data(r.split(r.split(r.split(key)[1])[0], 3)[2]),
            "fold_in raw": r.fold_in(r.fold_in(raw, 3), jnp.int32(-2)),
            "vmap split": r.key_data(jax.vmap(lambda k: r.split(k, 3))(r.split(key, 4))),
            "vmap fold_in": jax.vmap(r.fold_in, (None, 0))(raw, jnp.arange(4))}

    def structural(keys):
        found = {"index": keys[2], "slice": keys[1::2], "reshape": keys.reshape(3, 2), "new axis": keys[None, :, None],
                 "gather": keys[jnp.array([3, 0, 5])], "concatenate": jnp.concatenate([keys, keys[:1]]), "stack": jnp.stack([keys[0], keys[4]]),
                 "where": jnp.where(jnp.arange(6) % 2 == 0, keys, keys[0]), "transpose": keys.reshape(2, 3).T,
                 "broadcast": jnp.broadcast_to(keys[3], (2, 2)), "squeeze": keys[None].squeeze(0), "at": keys.at[1].set(keys[5])}
        return {name: r.key_data(value) for name, value in found.items()}

    # --- uniform numbers -----------------------------------------------------------------------------------------------------------
    def bits():
        key = r.key(7)
        found = {f"{dtype} {shape}": r.bits(key, shape, dtype) for dtype in ("uint8", "uint16", "uint32")
                 for shape in ((), (4, 3), (2, 0, 3), (1, 7, 1, 2), (1000,))}
        return found | {"vmap": jax.vmap(lambda k: r.bits(k, (2, 3)))(r.split(key, 5)),
                        "vmap vmap": jax.vmap(jax.vmap(lambda k: r.bits(k, (3,))), 1, 1)(r.split(key, (2, 4)))}

    def wide():
        key = r.key(7)
        return {"bits": r.bits(key, (4, 3), "uint64"), "bits default": r.bits(key, (4, 3)), "uniform": r.uniform(key, (4, 3)),
                "normal": r.normal(key, (4, 3)), "complex": r.normal(key, (4, 3), complex), "randint": r.randint(key, (4, 3), -2**40, 2**62),
                "randint int32": r.randint(key, (4, 3), 0, 2**40, "int32"), "randint uint8": r.randint(key, (4, 3), 0, 256, "uint8"),
                "seed": r.PRNGKey(jnp.int64(-2**33 - 1)), "permutation": r.permutation(key, 12)}

    def uniform():
        key = r.key(7)
        found = {dtype: r.uniform(key, (9,), dtype) for dtype in ("float16", "bfloat16", "float32", "float8_e4m3fn", "float8_e5m2")}
        found |= {f"{dtype} (-1, 3)": r.uniform(key, (9,), dtype, -1.0, 3.0) for dtype in ("float16", "bfloat16", "float32")}
        return found | {
            "()": r.uniform(key), "(0,)": r.uniform(key, (0,)), "raw": r.uniform(r.PRNGKey(3), (9,)),
            "arrays": r.uniform(key, (3, 3), minval=jnp.zeros(3), maxval=jnp.array([[1.0], [100.0], [0.0]])),
            "integer bounds": r.uniform(key, (9,), minval=-2, maxval=7)}

    def integers():
        key = r.key(7)
        ranges = ((0, 10), (-5, 5), (0, 2**31 - 1), (-2**31, 2**31 - 1), (5, 5), (7, 3))
        narrow = (("int8", -128, 128), ("uint8", 3, 1000), ("int16", -7, 30000), ("uint16", 0, 70000), ("uint32", 0, 17), ("int4", -8, 8))
        found = {f"{low} {high}": r.randint(key, (9,), low, high) for low, high in ranges}
        found |= {f"{dtype} {low} {high}": r.randint(key, (9,), low, high, dtype) for dtype, low, high in narrow}
        return found | {"uint32 all": r.randint(key, (9,), 0, np.uint32(2**32 - 1), "uint32"),
                        "arrays": r.randint(key, (3, 3), jnp.arange(3), jnp.array([[10], [20], [0]]))}

    def coins():
        key = r.key(7)
        return {"p": r.bernoulli(key, 0.3, (20,)), "array": r.bernoulli(key, jnp.array([[0.2], [0.8]]), (2, 10)), "()": r.bernoulli(key),
                "bfloat16": r.bernoulli(key, jnp.full(20, 0.5, "bfloat16")), "high": r.bernoulli(key, 0.3, (20,), mode="high"),
                **{f"rademacher {dtype}": r.rademacher(key, (20,), dtype) for dtype in ("int32", "int8", "float32")}}

    # --- finite sets ---------------------------------------------------------------------------------------------------------------
    def sets():
        key, table = r.key(7), jnp.arange(20).reshape(4, 5)
        p = jnp.array([0.1, 0.2, 0.0, 0.3, 0.4])
        logits = jnp.array([[0.0, 1.0, 2.0, -1.0], [3.0, 0.0, -jnp.inf, 0.5]])
        return {
            "permutation n": r.permutation(key, 20), "permutation 0": r.permutation(key, 0), "permutation raw": r.permutation(r.PRNGKey(0), 20),
            "permutation array": r.permutation(key, table), "permutation axis": r.permutation(key, table, axis=1),
            "permutation independent": r.permutation(key, table, axis=-1, independent=True), "permutation 2000": r.permutation(key, 2000),
            "choice": r.choice(key, 10, (20,)), "choice one": r.choice(key, 10), "choice array": r.choice(key, table, (2, 2), axis=1),
            "choice different": r.choice(key, 20, (2, 3), replace=False), "choice empty": r.choice(key, 5, (0,)),
            "choice different array": r.choice(key, table, (2,), replace=False, axis=1), "choice p": r.choice(key, 5, (20,), p=p),
            "choice p different": r.choice(key, 5, (3,), replace=False, p=p),
            "categorical": r.categorical(key, logits), "categorical axis 0": r.categorical(key, logits, axis=0),
            "categorical shape": r.categorical(key, logits, shape=(5, 2)), "categorical different": r.categorical(key, logits, shape=(3, 2), replace=False),
            "categorical high": r.categorical(key, logits, shape=(5, 2), mode="high"), "geometric": r.geometric(key, 0.3, (20,))}

    # --- distributions -----------------------------------------------------------------------------------------------------------------
    def normal():
        key = r.key(7)
        found = {dtype: r.normal(key, (9,), dtype) for dtype in ("float16", "bfloat16", "float32", "complex64")}
        return found | {
            "()": r.normal(key), "(0, 3)": r.normal(key, (0, 3)), "1000": r.normal(key, (1000,)), "raw": r.normal(r.PRNGKey(2), (9,)),
            "vmap": jax.vmap(lambda k: r.normal(k, (3,)))(r.split(key, 3)), "truncated": r.truncated_normal(key, -2, 2, (9,)),
            "truncated bfloat16": r.truncated_normal(key, -2, 2, (9,), "bfloat16"),
            "truncated arrays": r.truncated_normal(key, jnp.array([-1.0, 0.0, 3.0]), jnp.array([1.0, 0.1, 9.0]), (3, 3))}

    def continuous():
        key, three = r.key(7), jnp.array([0.5, 1.0, 2.0])
        found = {name: getattr(r, name)(key, (9,)) for name in ("exponential", "laplace", "logistic", "cauchy", "gumbel", "maxwell")}
        found |= {f"{name} bfloat16": getattr(r, name)(key, (9,), "bfloat16") for name in ("exponential", "laplace", "logistic", "gumbel")}
        return found | {
            "gumbel high": r.gumbel(key, (9,), mode="high"), "lognormal": r.lognormal(key, three, (3, 3)), "rayleigh": r.rayleigh(key, 2.0, (9,)),
            "pareto": r.pareto(key, three, (3, 3)), "weibull_min": r.weibull_min(key, 2.0, 3.0, (9,)), "wald": r.wald(key, three, (3, 3)),
            "triangular": r.triangular(key, -1.0, 0.5, 2.0, (9,)), "double_sided_maxwell": r.double_sided_maxwell(key, 1.0, 2.0, (9,))}

    def gamma():
        key, a = r.key(7), jnp.array([0.3, 1.0, 4.0, 30.0])
        return {
            "gamma": r.gamma(key, a), "loggamma": r.loggamma(key, jnp.array([1e-3, 0.1, 0.9, 2.5])),
            "derivative": jax.grad(lambda a: r.gamma(key, a).sum())(a), "beta": r.beta(key, 0.5, a), "dirichlet": r.dirichlet(key, a),
            "chisquare": r.chisquare(key, 3.0, (4,)), "f": r.f(key, 3.0, 5.0, (4,)), "t": r.t(key, 3.0, (4,)),
            "generalized_normal": r.generalized_normal(key, 1.5, (4,)), "ball": r.ball(key, 2, 1.5, (2,))}

    def poisson():
        return {"": r.poisson(r.key(7), jnp.array([0.0, 0.5, 9.0, 11.0, 100.0, 12345.0, jnp.nan]))}

    def several():
        key, p = r.key(7), jnp.array([0.02, 0.3, 0.5, 0.97, 0.0, 1.0])
        mean, cov = jnp.array([1.0, -2.0]), jnp.array([[2.0, 0.5], [0.5, 1.0]])
        odd = jnp.array([-1.0, jnp.nan, jnp.inf, 3.7])
        return {
            "binomial": r.binomial(key, 20, p, (3, 6)), "binomial many": r.binomial(key, 1000.0, p), "binomial odd": r.binomial(key, odd, 0.3),
            "binomial odd p": r.binomial(key, 7, jnp.array([-0.1, jnp.nan])), "binomial int": r.binomial(key, jnp.array([0, 5, 60]), 0.4),
            "multinomial": r.multinomial(key, jnp.array([5.0, 100.0]), jnp.array([[0.2, 0.3, 0.5], [0.1, 0.9, 0.0]])),
            **{f"multivariate_normal {m}": r.multivariate_normal(key, mean, cov, (4,), method=m) for m in ("cholesky", "eigh", "svd")},
            "multivariate_normal batch": r.multivariate_normal(key, jnp.zeros((3, 1, 2)), jnp.stack([cov, 2 * cov])),
            "orthogonal": r.orthogonal(key, 3, (2,)), "orthogonal wide": r.orthogonal(key, 2, m=4), "orthogonal complex": r.orthogonal(key, 3, dtype="complex64")}

    # --- other ways to make bits -----------------------------------------------------------------------------------------------------
    def older():
        with jax.threefry_partitionable(False):
            key, raw = r.key(7), r.PRNGKey(7)
            found = {f"bits {dtype} {shape}": r.bits(key, shape, dtype) for dtype in ("uint8", "uint16", "uint32") for shape in ((), (2, 3), (9,), (0,))}
            return found | {"split": r.key_data(r.split(key, 5)), "split (2, 3)": r.split(raw, (2, 3)), "fold_in": r.fold_in(raw, 9),
                            "vmap": jax.vmap(lambda k: r.bits(k, (3,)))(r.split(key, 6))}

    def older_wide():
        with jax.threefry_partitionable(False):
            return {"bits": r.bits(r.key(7), (5,), "uint64")}

    def backend():
        found = {}
        for impl in ("rbg", "unsafe_rbg"):
            key = r.key(7, impl=impl)
            found |= {f"{impl} seed": r.key_data(key), f"{impl} split": r.key_data(r.split(key, 3)), f"{impl} fold_in": r.key_data(r.fold_in(key, 5)),
                      f"{impl} bits": r.bits(key, (5,)), f"{impl} bits uint8": r.bits(key, (5,), "uint8"), f"{impl} bits uint16": r.bits(key, (5,), "uint16"),
                      f"{impl} uniform": r.uniform(key, (5,)), f"{impl} vmap": jax.vmap(lambda k: r.bits(k, (2,)))(r.split(key, 3))}
        return found

    return {
        "seeds": Group(seeds, jit=False), "seeds x64": Group(seeds, jit=False, x64=True), "seeds jit": Group(seeds),
        "traced seeds": Group(traced_seeds, jit=False), "traced seeds x64": Group(traced_seeds, jit=False, x64=True),
        "splitting": Group(splitting), "structural": Group(lambda: structural(r.split(r.key(7), 6)), jit=False),
        "structural jit": Group(lambda: structural(r.split(r.key(7), 6))),
        "bits": Group(bits), "wide": Group(wide, x64=True), "uniform": Group(uniform), "integers": Group(integers), "coins": Group(coins),
        "sets": Group(sets), "normal": Group(normal), "continuous": Group(continuous), "gamma": Group(gamma), "poisson": Group(poisson), "several": Group(several),
        "older": Group(older), "older wide": Group(older_wide, x64=True), "backend": Group(backend),
    }
