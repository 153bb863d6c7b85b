"""mini_jax against jax, side by side: `python -m benchmarks`. What is measured stands in calls.py and workloads.py."""
