"""SciPy's functions on arrays and traced values, with JAX's names and semantics. Each part is imported when it is first asked for."""
_MODULES = ("cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special", "stats")


def __getattr__(name: str):
    if name in _MODULES:
        import importlib
        return importlib.import_module(f"mini_jax.scipy.{name}")
    raise AttributeError(f"module 'mini_jax.scipy' has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_MODULES})
