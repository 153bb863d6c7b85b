"""The versions: that of the JAX whose public names these are, for programs that ask `jax.__version__`, and this package's own."""

__version__ = "0.10.2"
__version_info__ = tuple(map(int, __version__.split(".")))
release = "0.1.0"
