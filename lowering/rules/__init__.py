"""The lowering rules, one file for each family of mini_jax/lax; importing this package registers them all."""
import importlib
import os

for _name in sorted({name.partition(".")[0] for name in os.listdir(__path__[0]) if name[0] not in "_."}):
    importlib.import_module(f"{__name__}.{_name}")
