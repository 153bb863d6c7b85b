"""The names of `jax.custom_derivatives`."""
from mini_jax.core.linear import Zero as SymbolicZero                                                            # noqa: F401
from mini_jax.transforms.custom_derivatives import (                                                             # noqa: F401
    CustomVJPPrimal, closure_convert, custom_gradient, custom_jvp, custom_jvp_call_p, custom_vjp, custom_vjp_call_p,
    custom_vjp_primal_tree_values, zero_from_primal)
from mini_jax.transforms.linear_call import linear_call                                                          # noqa: F401
from mini_jax.transforms.remat_opt import remat_opt_p                                                            # noqa: F401
