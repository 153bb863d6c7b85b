"""The names of `jax.custom_derivatives`."""
from mini_jax.core.linear import Zero as SymbolicZero                                                            # noqa: F401
from mini_jax.transforms.custom_derivatives import CustomVJPPrimal, closure_convert, custom_jvp, custom_vjp      # noqa: F401
