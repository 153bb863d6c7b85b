"""Random numbers by seed, generator, function, shape and dtype."""
import numpy as np


def cases(jax) -> dict:
    """name -> function of nothing that gives an array. `jax` is JAX or mini_jax."""
    r, jnp = jax.random, jax.numpy
    found = {}

    def case(name, fun, x64=False):
        def value():
            with jax.enable_x64(x64):
                return fun()
        assert name not in found, name
        found[name] = value

    # keys: seeds, splitting, folding in; typed and raw
    for x64 in (False, True):
        for seed in (0, 1, 42, -1, -5, 2**31 - 1, 2**31, 2**32 + 7, -2**33, 2**63 - 1):
            case(f"seed {seed}{' x64' * x64}", lambda seed=seed: r.PRNGKey(seed), x64)
        for seed in (np.int32(-3), np.int64(2**40 + 3), np.uint32(2**32 - 1), np.int8(-1), np.uint64(2**63 + 1)):
            case(f"seed {type(seed).__name__}({seed}){' x64' * x64}", lambda seed=seed: r.key_data(r.key(seed)), x64)
    for seed in (3, -3):
        case(f"seed array {seed}", lambda seed=seed: r.PRNGKey(jnp.int32(seed)))
        case(f"seed array {seed} jit", lambda seed=seed: jax.jit(r.PRNGKey)(seed))
        case(f"seed array {seed} jit x64", lambda seed=seed: jax.jit(r.PRNGKey)(jnp.int64(seed)), True)
    key = lambda seed=7: r.key(seed)
    for num in (0, 1, 2, 3, 10, (2, 3)):
        case(f"split {num}", lambda num=num: r.key_data(r.split(key(), num)))
        case(f"split raw {num}", lambda num=num: r.split(r.PRNGKey(7), num))
    case("split chain", lambda: r.key_data(r.split(r.split(r.split(key())[1])[0], 3)[2]))
    for data in (0, 1, 12345, 2**32 - 1):
        case(f"fold_in {data}", lambda data=data: r.key_data(r.fold_in(key(), data)))
    case("fold_in chain", lambda: r.fold_in(r.fold_in(r.PRNGKey(7), 3), jnp.int32(-2)))
    case("fold_in jit", lambda: jax.jit(r.fold_in)(r.PRNGKey(7), 3))
    case("vmap split", lambda: r.key_data(jax.vmap(lambda k: r.split(k, 3))(r.split(key(), 4))))
    case("vmap fold_in", lambda: jax.vmap(r.fold_in, (None, 0))(r.PRNGKey(1), jnp.arange(4)))

    # bits
    for dtype in ("uint8", "uint16", "uint32"):
        for shape in ((), (1,), (5,), (4, 3), (2, 0, 3), (1, 7, 1, 2), (1000,)):
            case(f"bits {dtype} {shape}", lambda dtype=dtype, shape=shape: r.bits(key(), shape, dtype))
    for shape in ((), (5,), (3, 3)):
        case(f"bits uint64 {shape}", lambda shape=shape: r.bits(key(), shape, "uint64"), True)
    case("vmap bits", lambda: jax.vmap(lambda k: r.bits(k, (2, 3)))(r.split(key(), 5)))
    case("vmap vmap bits", lambda: jax.vmap(jax.vmap(lambda k: r.bits(k, (3,))), 1, 1)(r.split(key(), (2, 4))))

    # uniform
    for dtype in ("float16", "bfloat16", "float32"):
        for shape in ((), (5,), (3, 4), (0,)):
            case(f"uniform {dtype} {shape}", lambda dtype=dtype, shape=shape: r.uniform(key(), shape, dtype))
        case(f"uniform {dtype} (-1, 3)", lambda dtype=dtype: r.uniform(key(), (9,), dtype, -1.0, 3.0))
    for dtype in ("float8_e4m3fn", "float8_e5m2"):
        case(f"uniform {dtype}", lambda dtype=dtype: r.uniform(key(), (9,), dtype))
    case("uniform float64", lambda: r.uniform(key(), (6,), "float64"), True)
    case("uniform default x64", lambda: r.uniform(key(), (6,)), True)
    case("uniform arrays", lambda: r.uniform(key(), (2, 3), minval=jnp.zeros(3), maxval=jnp.array([[1.0], [100.0]])))
    case("uniform int bounds", lambda: r.uniform(key(), (5,), minval=-2, maxval=7))
    case("uniform raw", lambda: r.uniform(r.PRNGKey(3), (1000,)))

    # integers
    for low, high in ((0, 10), (-5, 5), (0, 2**31 - 1), (-2**31, 2**31 - 1), (5, 5), (7, 3), (0, 3)):
        case(f"randint {low} {high}", lambda low=low, high=high: r.randint(key(), (8,), low, high))
    for dtype, low, high in (("int8", -128, 128), ("uint8", 0, 256), ("uint8", 3, 1000), ("int16", -7, 30000), ("uint16", 0, 70000),
                             ("uint32", 0, 17), ("int4", -8, 8)):
        case(f"randint {dtype} {low} {high}", lambda dtype=dtype, low=low, high=high: r.randint(key(), (9,), low, high, dtype))
    case("randint uint32 all", lambda: r.randint(key(), (5,), 0, np.uint32(2**32 - 1), "uint32"))
    case("randint int64", lambda: r.randint(key(), (5,), -2**40, 2**62, "int64"), True)
    case("randint uint8 x64", lambda: r.randint(key(), (5,), 0, 256, "uint8"), True)
    case("randint int32 beyond x64", lambda: r.randint(key(), (5,), 0, 2**40, "int32"), True)
    case("randint arrays", lambda: r.randint(key(), (2, 3), jnp.arange(3), jnp.array([[10], [20]])))
    case("randint raw", lambda: r.randint(r.PRNGKey(0), (1000,), 0, 1000))

    # coins
    case("bernoulli", lambda: r.bernoulli(key(), shape=(20,)))
    case("bernoulli p", lambda: r.bernoulli(key(), 0.1, (50,)))
    case("bernoulli array", lambda: r.bernoulli(key(), jnp.array([[0.2], [0.8]]), (2, 10)))
    case("bernoulli bfloat16", lambda: r.bernoulli(key(), jnp.full(20, 0.5, "bfloat16")))
    case("bernoulli high", lambda: r.bernoulli(key(), 0.3, (50,), mode="high"))
    for dtype in ("int32", "int8", "float32"):
        case(f"rademacher {dtype}", lambda dtype=dtype: r.rademacher(key(), (20,), dtype))

    # permutations and choices
    case("permutation n", lambda: r.permutation(key(), 10))
    case("permutation 0", lambda: r.permutation(key(), 0))
    case("permutation 2000", lambda: r.permutation(key(), 2000))
    case("permutation array", lambda: r.permutation(key(), jnp.arange(20).reshape(4, 5)))
    case("permutation axis", lambda: r.permutation(key(), jnp.arange(20).reshape(4, 5), axis=1))
    case("permutation independent", lambda: r.permutation(key(), jnp.arange(20).reshape(4, 5), axis=-1, independent=True))
    case("permutation raw", lambda: r.permutation(r.PRNGKey(0), 100))
    case("choice", lambda: r.choice(key(), 10, (6,)))
    case("choice one", lambda: r.choice(key(), 10))
    case("choice array", lambda: r.choice(key(), jnp.arange(12).reshape(3, 4), (2, 2), axis=1))
    case("choice different", lambda: r.choice(key(), 10, (2, 3), replace=False))
    case("choice different array", lambda: r.choice(key(), jnp.arange(12).reshape(3, 4), (2,), replace=False, axis=1))
    case("choice p", lambda: r.choice(key(), 5, (20,), p=jnp.array([0.1, 0.2, 0.0, 0.3, 0.4])))
    case("choice p different", lambda: r.choice(key(), 5, (3,), replace=False, p=jnp.array([0.1, 0.2, 0.1, 0.2, 0.4])))
    case("choice empty", lambda: r.choice(key(), 5, (0,)))
    logits = lambda: jnp.array([[0.0, 1.0, 2.0, -1.0], [3.0, 0.0, -jnp.inf, 0.5]])
    case("categorical", lambda: r.categorical(key(), logits()))
    case("categorical axis 0", lambda: r.categorical(key(), logits(), axis=0))
    case("categorical shape", lambda: r.categorical(key(), logits(), shape=(20, 2)))
    case("categorical different", lambda: r.categorical(key(), logits(), shape=(3, 2), replace=False))
    case("categorical high", lambda: r.categorical(key(), logits(), shape=(20, 2), mode="high"))

    # continuous distributions
    for dtype in ("float16", "bfloat16", "float32", "complex64"):
        case(f"normal {dtype}", lambda dtype=dtype: r.normal(key(), (7,), dtype))
    case("normal ()", lambda: r.normal(key()))
    case("normal (0, 3)", lambda: r.normal(key(), (0, 3)))
    case("normal float64", lambda: r.normal(key(), (7,), "float64"), True)
    case("normal complex128", lambda: r.normal(key(), (7,), "complex128"), True)
    case("normal 1000", lambda: r.normal(key(), (1000,)))
    case("normal raw jit", lambda: jax.jit(lambda k: r.normal(k, (3, 5)))(r.PRNGKey(2)))
    case("normal vmap", lambda: jax.vmap(lambda k: r.normal(k, (3,)))(r.split(key(), 4)))
    for dtype in ("bfloat16", "float32"):
        case(f"truncated_normal {dtype}", lambda dtype=dtype: r.truncated_normal(key(), -2, 2, (7,), dtype))
    case("truncated_normal arrays", lambda: r.truncated_normal(key(), jnp.array([-1.0, 0.0, 3.0]), jnp.array([1.0, 0.1, 9.0])))
    for name in ("exponential", "laplace", "logistic", "cauchy", "gumbel", "maxwell"):
        case(name, lambda name=name: getattr(r, name)(key(), (9,)))
        case(f"{name} bfloat16", lambda name=name: getattr(r, name)(key(), (9,), "bfloat16"))
    case("gumbel high", lambda: r.gumbel(key(), (30,), mode="high"))
    case("lognormal", lambda: r.lognormal(key(), jnp.array([0.5, 1.0, 2.0])))
    case("rayleigh", lambda: r.rayleigh(key(), 2.0, (9,)))
    case("pareto", lambda: r.pareto(key(), jnp.array([1.0, 2.0, 5.0])))
    case("weibull_min", lambda: r.weibull_min(key(), 2.0, 3.0, (9,)))
    case("wald", lambda: r.wald(key(), jnp.array([0.5, 1.0, 2.0])))
    case("triangular", lambda: r.triangular(key(), -1.0, 0.5, 2.0, (9,)))
    case("double_sided_maxwell", lambda: r.double_sided_maxwell(key(), 1.0, 2.0, (9,)))

    case("geometric", lambda: r.geometric(key(), 0.3, (20,)))
    case("poisson", lambda: r.poisson(key(), 3.0, (20,)))
    case("poisson arrays", lambda: r.poisson(key(), jnp.array([0.0, 0.5, 9.0, 11.0, 100.0, 12345.0])))

    # gamma and what comes of it
    case("gamma", lambda: r.gamma(key(), jnp.array([0.1, 0.5, 1.0, 2.5, 30.0])))
    case("gamma shape", lambda: r.gamma(key(), 0.7, (3, 4)))
    case("gamma float64", lambda: r.gamma(key(), 2.5, (5,)), True)
    case("loggamma", lambda: r.loggamma(key(), jnp.array([1e-3, 0.1, 0.5, 1.0, 2.5, 30.0])))
    case("gamma derivative", lambda: jax.grad(lambda a: r.gamma(key(), a).sum())(jnp.array([0.3, 1.0, 4.0])))
    case("beta", lambda: r.beta(key(), 0.5, jnp.array([0.5, 1.0, 3.0])))
    case("dirichlet", lambda: r.dirichlet(key(), jnp.array([0.5, 1.0, 2.0]), (4,)))
    case("chisquare", lambda: r.chisquare(key(), 3.0, (5,)))
    case("f", lambda: r.f(key(), 3.0, 5.0, (5,)))
    case("t", lambda: r.t(key(), 3.0, (5,)))
    case("generalized_normal", lambda: r.generalized_normal(key(), 1.5, (5,)))
    case("ball", lambda: r.ball(key(), 3, 2, (4,)))
    case("ball p", lambda: r.ball(key(), 2, 1.5, (4,)))

    # typed keys through structural operations
    keys = lambda: r.split(key(), 6)
    for name, fun in {
        "index": lambda ks: ks[2], "slice": lambda ks: ks[1::2], "reshape": lambda ks: ks.reshape(3, 2), "new axis": lambda ks: ks[None, :, None],
        "gather": lambda ks: ks[jnp.array([3, 0, 5])], "concatenate": lambda ks: jnp.concatenate([ks, ks[:1]]),
        "stack": lambda ks: jnp.stack([ks[0], ks[4]]), "where": lambda ks: jnp.where(jnp.arange(6) % 2 == 0, ks, ks[0]),
        "transpose": lambda ks: ks.reshape(2, 3).T, "broadcast": lambda ks: jnp.broadcast_to(ks[3], (2, 2)), "squeeze": lambda ks: ks[None].squeeze(0),
    }.items():
        case(f"keys {name}", lambda fun=fun: r.key_data(fun(keys())))
        case(f"keys {name} jit", lambda fun=fun: r.key_data(jax.jit(fun)(keys())))

    # the older, not partitionable way
    def older(fun):
        def value():
            with jax.threefry_partitionable(False):
                return fun()
        return value
    case("older split", older(lambda: r.key_data(r.split(key(), 5))))
    case("older split (2, 3)", older(lambda: r.split(r.PRNGKey(7), (2, 3))))
    case("older fold_in", older(lambda: r.fold_in(r.PRNGKey(7), 9)))
    for dtype in ("uint8", "uint16", "uint32"):
        for shape in ((), (5,), (2, 3), (0,)):
            case(f"older bits {dtype} {shape}", older(lambda dtype=dtype, shape=shape: r.bits(key(), shape, dtype)))
    case("older bits uint64", older(lambda: r.bits(key(), (5,), "uint64")), True)
    case("older normal", older(lambda: r.normal(key(), (5,))))
    case("older vmap", older(lambda: jax.vmap(lambda k: r.bits(k, (3,)))(keys())))

    # the other generators: their keys (their bits are the backend's)
    for impl in ("rbg", "unsafe_rbg"):
        case(f"{impl} seed", lambda impl=impl: r.key_data(r.key(7, impl=impl)))
        case(f"{impl} split", lambda impl=impl: r.key_data(r.split(r.key(7, impl=impl), 3)))
        case(f"{impl} fold_in", lambda impl=impl: r.key_data(r.fold_in(r.key(7, impl=impl), 5)))
        case(f"{impl} bits", lambda impl=impl: r.bits(r.key(7, impl=impl), (5,)))
    case("rbg uniform", lambda: r.uniform(r.key(7, impl="rbg"), (5,)))
    return found
