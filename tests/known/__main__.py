import importlib
import json
import sys

import jax

from tests.known import FOLDER, described

for name in sys.argv[1:]:
    found = {group: {case: described(value) for case, value in rows.values(jax).items()}
             for group, rows in importlib.import_module(f"tests.known.{name}").groups(jax).items()}
    text = ",\n".join(f"{json.dumps(group)}: {{\n" + ",\n".join(f"  {json.dumps(c)}: {json.dumps(v, separators=(',', ':'))}" for c, v in rows.items())
                      + "\n}" for group, rows in found.items())
    (FOLDER / f"{name}.json").write_text("{\n" + text + "\n}\n")
    print(f"{name}: {sum(map(len, found.values()))} values, by jax {jax.__version__}")
