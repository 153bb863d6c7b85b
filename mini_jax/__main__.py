"""The command line: `python -m mini_jax dump FILE_OR_MODULE:function TYPE …` shows what a function becomes; `… launch` is in launch.py."""
from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import os
import re
import sys

from mini_jax import launch as launcher


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m mini_jax", description="What a function becomes on its way to the device, and programs of several processes.")
    commands = parser.add_subparsers(dest="command", required=True)
    dump = commands.add_parser("dump", help="print a function's program, its StableHLO, or XLA's optimised HLO",
                               formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES)
    dump.add_argument("--stage", choices=("jaxpr", "stablehlo", "hlo"), default="jaxpr", help="what to print (default: jaxpr)")
    dump.add_argument("--locations", action="store_true", help="with the name stack and source line of each operation (stablehlo)")
    explain = commands.add_parser("explain", help="run a function and print where the time goes, line by line",
                                  formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXPLAIN_EXAMPLES)
    for command in (dump, explain):
        _takes_a_function(command)
    launcher.add_to(commands)
    options = parser.parse_args(argv)
    if options.command == "launch":
        return launcher.launch(options)
    try:
        print(dumped(options) if options.command == "dump" else explained(options))
    except UsageError as error:
        print(f"python -m mini_jax {options.command}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _takes_a_function(command: argparse.ArgumentParser) -> None:
    """The words that say which function, of which arguments."""
    command.add_argument("function", metavar="FILE_OR_MODULE:function", help="path/to/file.py:function or package.module:function")
    command.add_argument("arguments", nargs="*", metavar="TYPE",
                         help='an argument: a type such as "f32[8,128]" or "i32[]", a number, or a pytree of them: "{\'w\': f32[3,4]}"; name=… by name')
    command.add_argument("--grad", action="store_true", help="of the gradient in the first argument (the function must return a scalar)")
    command.add_argument("--vmap", action="store_true", help="of the function mapped over axis 0 of all arguments (types include that axis)")
    command.add_argument("--devices", type=int, metavar="N", help="with N forced CPU devices, as pmap wants them")


EXAMPLES = """examples:
  python -m mini_jax dump model.py:loss "{'w': f32[3,4], 'b': f32[4]}" "f32[8,3]"
  python -m mini_jax dump model.py:loss "{'w': f32[3,4], 'b': f32[4]}" "f32[8,3]" --grad --stage stablehlo
  python -m mini_jax dump train.py:step "f32[8,16]" --devices 8 --stage hlo
"""


EXPLAIN_EXAMPLES = """examples:
  python -m mini_jax explain model.py:loss "{'w': f32[3,4], 'b': f32[4]}" "f32[8,3]" --grad
  python -m mini_jax explain train.py:step "f32[8,16]" --devices 8

In place of a type stands an array: floats from [0, 1), zeros for integers, True.
"""


class UsageError(Exception):
    """Something about the command's words."""


def dumped(options) -> str:
    """What `dump` prints."""
    fun, args, kwargs = _called(options)
    import mini_jax as jax
    traced = (fun if hasattr(fun, "trace") and hasattr(fun, "lower") else jax.jit(fun)).trace(*args, **kwargs)
    if options.stage == "jaxpr":
        return str(traced.jaxpr)
    lowered = traced.lower()
    return lowered.as_text(debug_info=options.locations) if options.stage == "stablehlo" else lowered.compile().as_text()


def explained(options) -> str:
    """What `explain` prints."""
    fun, args, kwargs = _called(options)
    from mini_jax.explain import explain
    return str(explain(fun, *args, **kwargs))


def _called(options) -> tuple:
    """The function that the words name, transformed as they ask, and its arguments."""
    if options.devices:
        flags = re.sub(r"--xla_force_host_platform_device_count=\d+", "", os.environ.get("XLA_FLAGS", ""))
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={options.devices}".strip()
    import mini_jax as jax
    fun = find(options.function)
    args, kwargs = [], {}
    for text in options.arguments:
        name = re.match(r"([A-Za-z_]\w*)=(?!=)", text)
        if name:
            kwargs[name[1]] = argument(text[name.end():])
        else:
            args.append(argument(text))
    if options.grad:
        fun = jax.grad(fun)
    if options.vmap:
        fun = jax.vmap(fun)
    return fun, args, kwargs


def find(place: str):
    """The function at `path/to/file.py:name` or `package.module:name` (name may be dotted)."""
    where, colon, name = place.rpartition(":")
    if not colon or not where or not name:
        raise UsageError(f"{place!r}: say FILE_OR_MODULE:function")
    if where.endswith(".py") or os.sep in where:
        if not os.path.isfile(where):
            raise UsageError(f"there is no file {where}")
        sys.path.insert(0, os.path.dirname(os.path.abspath(where)))
        spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(where))[0], where)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        sys.path.insert(0, os.getcwd())
        try:
            module = importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name != where.split(".")[0] and error.name != where:
                raise
            raise UsageError(f"there is no module {where}; for a file say {where}.py:{name}") from None
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_") and getattr(v, "__module__", None) == module.__name__]
            raise UsageError(f"{where} has no {name}; its functions are: {', '.join(functions) or 'none'}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"{place} is not a function but a {type(found).__name__}")
    return found


def argument(text: str):
    """`f32[8,128]` as a ShapeDtypeStruct; numbers and strings as they are; dicts, lists and tuples of those."""
    try:
        tree = ast.parse(re.sub(r"(\w)\[\s*\]", r"\1[()]", text.strip()), mode="eval").body
        return _value(tree)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"the argument {text!r} is not a type such as f32[8,128], a number, or a dict, list or tuple of them ({error})") from None


def _value(node):
    from mini_jax import ShapeDtypeStruct
    from mini_jax.core import dtypes
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        names = {dtypes.short_name(d): d for d in dtypes.all_dtypes} | {d.name: d for d in dtypes.all_dtypes}
        if node.value.id not in names:
            raise ValueError(f"unknown dtype {node.value.id}; there are {', '.join(dtypes.short_name(d) for d in dtypes.all_dtypes)}")
        shape = ast.literal_eval(node.slice)
        return ShapeDtypeStruct(shape if isinstance(shape, tuple) else (shape,), names[node.value.id])
    if isinstance(node, ast.Dict):
        return {ast.literal_eval(k): _value(v) for k, v in zip(node.keys, node.values)}
    if isinstance(node, (ast.List, ast.Tuple)):
        return (list if isinstance(node, ast.List) else tuple)(_value(item) for item in node.elts)
    return ast.literal_eval(node)


if __name__ == "__main__":
    sys.exit(main())
