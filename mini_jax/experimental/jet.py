"""The names of `jax.experimental.jet`: Taylor-mode differentiation."""
from mini_jax.transforms.jet import fact, jet      # noqa: F401
