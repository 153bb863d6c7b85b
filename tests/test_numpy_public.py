"""The public face of mini_jax.numpy: every function is there, documented, and named as what it is."""
import importlib
import inspect
import pkgutil

import pytest

import mini_jax as jax
import mini_jax.numpy as jnp

MODULES = [importlib.import_module(f"mini_jax.numpy.{info.name}") for info in pkgutil.iter_modules(jnp.__path__)
           if info.name != "refs"]                  # mini_jax.ref
LIBRARIES = (jnp.linalg, jnp.fft)                    # with names of their own
PUBLIC = [(module, name) for module in MODULES if module not in LIBRARIES for name in getattr(module, "__all__", ())]
FUNCTIONS = sorted({name for module, name in PUBLIC if inspect.isroutine(getattr(module, name)) or hasattr(getattr(module, name), "_cache_miss")})


def test_every_files_public_names_are_names_of_the_library():
    for module, name in PUBLIC:
        assert getattr(jnp, name) is getattr(module, name), (module.__name__, name)
    owners = {}
    for module, name in PUBLIC:
        assert owners.setdefault(name, module) is module, f"{name} stands in two files"


def test_every_function_is_documented_with_what_it_computes():
    assert len(FUNCTIONS) > 300
    for holder, names in ((jnp, FUNCTIONS), *[(lib, [n for n in dir(lib) if n[0] != "_" and inspect.isfunction(getattr(lib, n))]) for lib in LIBRARIES]):
        for name in names:
            doc = inspect.getdoc(getattr(holder, name))
            assert doc and len(doc) > 20 and doc[0].strip(), name


def test_every_function_has_a_signature_and_its_own_name():
    for name in FUNCTIONS:
        fun = getattr(jnp, name)
        if getattr(fun, "__module__", "").startswith("mini_jax"):
            assert inspect.signature(fun) is not None and fun.__name__, name


def test_numpys_aliases_are_one_function():
    for names in ("abs absolute", "divide true_divide", "remainder mod", "power pow", "max amax", "min amin", "invert bitwise_not bitwise_invert", "conj conjugate",
                  "rad2deg degrees", "arcsin asin", "arccos acos", "arctan2 atan2", "round around"):
        assert len({id(getattr(jnp, name)) for name in names.split()}) == 1, names


def test_arrays_and_traced_values_have_the_same_methods():
    from mini_jax.numpy import operators
    names = [*operators._METHODS, *operators._PROPERTIES, "__add__", "__radd__", "__matmul__", "__eq__", "__lt__", "__pow__", "__neg__", "copy", "item", "tolist"]
    for cls in (jax.Tracer, type(jnp.ones(2))):
        for name in names:
            assert hasattr(cls, name), (cls, name)


def test_constants():
    assert jnp.pi == pytest.approx(3.141592653589793) and jnp.e == pytest.approx(2.718281828459045) and jnp.inf > 1e308 and jnp.nan != jnp.nan
    assert jnp.newaxis is None and jnp.euler_gamma == pytest.approx(0.5772156649)
    assert jnp.s_[1:2] == slice(1, 2) and jnp.index_exp[1] == (1,)


def test_an_eager_call_is_one_program_and_the_second_call_compiles_nothing():
    calls = [lambda x: jnp.var(x, axis=0), lambda x: jnp.einsum("ij,kj->ik", x, x), lambda x: jnp.clip(x, 0, 1), lambda x: jnp.stack([x, x]), lambda x: x * 2.0 + 1]
    x = jnp.ones((3, 4))
    for call in calls:
        call(x)
    before = [fun._cache_size() for fun in (jnp.clip, jnp.add, jnp.multiply)]
    for call in calls:
        call(x + 1)
    assert [fun._cache_size() for fun in (jnp.clip, jnp.add, jnp.multiply)] == before
