"""The public face of mini_jax.scipy: it is loaded when asked for, and every function is documented under its own name."""
import importlib
import inspect
import pkgutil
import subprocess
import sys

from mini_jax import scipy

MODULES = [importlib.import_module(info.name) for info in pkgutil.walk_packages(scipy.__path__, "mini_jax.scipy.")]
PUBLIC = [(module, name) for module in MODULES for name in getattr(module, "__all__", ())]


def test_every_function_is_documented_and_has_a_signature():
    assert len(PUBLIC) > 200
    for module, name in PUBLIC:
        doc = inspect.getdoc(getattr(module, name))
        assert doc and doc.strip(), (module.__name__, name)
        assert inspect.signature(getattr(module, name)) is not None and getattr(module, name).__name__ in (name, f"_{name}"), (module.__name__, name)


def test_parts_are_attributes_and_importing_mini_jax_loads_none():
    for name in scipy._MODULES:
        assert inspect.ismodule(getattr(scipy, name)) and name in dir(scipy)
    loaded = "import sys, mini_jax; assert not [m for m in sys.modules if m.startswith('mini_jax.scipy')]; mini_jax.scipy.special.erf"
    subprocess.run([sys.executable, "-c", loaded], check=True)
