"""`jax.ad`: what `vjp(...)[1].with_refs(...)` is told, and tells, about each gradient."""
from mini_jax.transforms.autodiff import DidntWant as DidntWant, DontWant as DontWant, GradRef as GradRef, GradValue as GradValue  # noqa: F401
