"""Control flow inside programs: loops and choices, each a primitive that holds the programs it runs."""
from mini_jax.transforms.control.associative_scan import associative_scan
from mini_jax.transforms.control.branches import cond, cond_p, switch
from mini_jax.transforms.control.loops import fori_loop, while_loop, while_p
from mini_jax.transforms.control.map import map
from mini_jax.transforms.control.scan import scan, scan_p
from mini_jax.transforms.control.solves import custom_linear_solve, custom_linear_solve_p, custom_root
from mini_jax.transforms.control import refs, scan_derivatives   # noqa: F401  (these give the primitives rules)

__all__ = ["associative_scan", "cond", "cond_p", "custom_linear_solve", "custom_linear_solve_p", "custom_root", "fori_loop", "map", "scan", "scan_p",
           "switch", "while_loop", "while_p"]
