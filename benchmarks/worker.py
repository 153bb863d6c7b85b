"""One benchmark on one framework in this process: `python -m benchmarks.worker mini_jax|jax NAME`; prints a line of JSON."""
import importlib
import importlib.metadata
import json
import sys


def main(framework, name):
    jax = importlib.import_module(framework)
    importlib.import_module(f"{framework}.numpy")
    from benchmarks import calls, cold, collectives, control_flow, eager, imports, libraries, operations, refs, registry, scaling, warm, workloads  # noqa: F401
    result = {"framework": framework, "jaxlib": importlib.metadata.version("jaxlib"), "python": sys.version.split()[0]}
    try:
        result["values"] = registry.BENCHMARKS[name].run(jax)
    except (AttributeError, ImportError, NotImplementedError) as error:      # the framework lacks what the row needs
        result["lacks"] = f"{type(error).__name__}: {error}"
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
