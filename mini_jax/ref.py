"""`jax.ref`: mutable arrays, and the functions that read and write them."""
from mini_jax.numpy.refs import (  # noqa: F401
    AbstractRef as AbstractRef, Ref as Ref, addupdate as addupdate, empty_ref as empty_ref, free_ref as free_ref, freeze as freeze,
    get as get, new_ref as new_ref, set as set, swap as swap)
