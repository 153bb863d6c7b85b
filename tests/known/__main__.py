import importlib
import json
import sys

import jax
import numpy as np

from tests.known import FOLDER, described

for name in sys.argv[1:]:
    cases = importlib.import_module(f"tests.known.{name}").cases(jax)
    rows = [f"{json.dumps(case)}: {json.dumps(described(np.asarray(value())))}" for case, value in cases.items()]
    (FOLDER / f"{name}.json").write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(f"{len(rows)} values, by jax {jax.__version__}")
