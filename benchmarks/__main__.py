"""Every performance budget, measured: mini_jax against jax, on the same jaxlib, in alternating fresh processes of one run.

    python -m benchmarks                      all of it, about ten minutes
    python -m benchmarks quick                the most telling part, about two minutes
    python -m benchmarks eager mlp            rows by name or by a part of their names
    python -m benchmarks --full               with the 48-layer transformer, on which jax spends minutes

jax runs in an environment of its own, which is made on first use (or given with --jax-python). A figure is the median over
the rounds, of programs (operations, control flow) the least. A budget is the largest ratio allowed; "noise" means that it is
exceeded, but by less than the rounds of this run differ among themselves, "not yet" that mini_jax still lacks something the row needs.
"""
import argparse
import csv
import datetime
import importlib.metadata
import json
import math
import os
import platform
import statistics
import sys
from pathlib import Path

from benchmarks import calls, cold, collectives, control_flow, eager, imports, libraries, operations, refs, scaling, warm, workloads  # noqa: F401  (they register what there is to measure)
from benchmarks.environment import jax_python, measure
from benchmarks.registry import BENCHMARKS

SIDES = ("mini_jax", "jax")


def compare(benchmark, pythons, rounds):
    """The rows of one benchmark: run it on both sides by turns, and set each measured value against its budget."""
    answers = {side: [] for side in SIDES}
    for _ in range(rounds):
        for side in SIDES:
            if not any("values" not in answer for answer in answers[side]):      # what fails once is not tried again
                answers[side].append(measure(pythons[side], side, benchmark))
    versions = {answer["jaxlib"] for side in SIDES for answer in answers[side] if "jaxlib" in answer}
    if len(versions) > 1:
        raise SystemExit(f"The two sides run on different versions of jaxlib: {', '.join(sorted(versions))}")
    measures = benchmark.measures or {what: 1.0 for side in SIDES for answer in answers[side] for what in answer.get("values", {})}
    measures = measures or {benchmark.name: None}                                # it failed on both sides, which is a row too
    return [row(benchmark, what, budget, answers) for what, budget in measures.items()]


def row(benchmark, what, budget, answers):
    """One measured value: medians, ratio and verdict, and what went wrong if something did."""
    samples = {side: [answer["values"][what] for answer in answers[side] if "values" in answer] for side in SIDES}
    typical = statistics.median if benchmark.measures else min                # of programs many are short, and most of what differs is noise
    mini, theirs = (typical(samples[side]) if samples[side] else None for side in SIDES)
    ratio = mini / theirs if mini and theirs else None
    last = {side: answers[side][-1] for side in SIDES}
    if any("failed" in answer for answer in last.values()):
        met = "failed"
    elif "lacks" in last["mini_jax"]:
        met = "not yet"
    elif budget is None or ratio is None:
        met = ""
    elif benchmark.of_itself:
        met = "yes" if mini <= budget else "noise" if min(samples["mini_jax"]) <= budget else "NO"
    elif ratio <= budget:
        met = "yes"
    elif min(samples["mini_jax"]) / max(samples["jax"]) <= budget:
        met = "noise"
    else:
        met = "not yet" if benchmark.awaits else "NO"
    why = [f"{side}: {answer.get('lacks') or answer.get('failed')}" for side, answer in last.items() if "values" not in answer]
    if met == "not yet" and not why:
        why = [f"awaits {benchmark.awaits}"]
    return {"benchmark": benchmark.name, "what": what, "unit": "times" if benchmark.of_itself else "bytes" if what.endswith("memory") else "count" if what.endswith(("equations", "operations", "modules")) and "time of" not in what else "seconds",
            "mini_jax": mini, "jax": theirs, "ratio": ratio, "budget": budget, "met": met, "why": "; ".join(why), "samples": samples}


def readable(value, unit):
    if value is None:
        return "-"
    if unit == "bytes":
        return f"{value / 2**20:.0f} MB"
    if unit == "times":
        return f"{value:.2f} x"
    if unit == "count":
        return f"{value:.0f}"
    scale, name = (1, "s") if value >= 1 else (1e-3, "ms") if value >= 1e-3 else (1e-6, "us")
    return f"{value / scale:.{max(0, 2 - int(math.log10(value / scale)))}f} {name}"


def line(what, mini, theirs, ratio, budget, met):
    return f"{what:60}{mini:>10}{theirs:>10}{ratio:>8}{budget:>8}  {met}"


def show(row):
    print(line(row["what"], readable(row["mini_jax"], row["unit"]), readable(row["jax"], row["unit"]),
               "-" if row["ratio"] is None else f"{row['ratio']:.2f}", "-" if row["budget"] is None else f"{row['budget']:g}",
               row["met"]), flush=True)
    if row["why"]:
        print(f"    {row['why'][:160]}", flush=True)


def write(folder, rows, conditions):
    """results.json: everything, with every round's value. results.csv: a line for each row, in seconds or bytes, for plotting."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")
    with open(folder / "results.csv", "w", newline="") as file:
        table = csv.DictWriter(file, [name for name in rows[0] if name != "samples"], extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    print(f"Written: {folder / 'results.json'}, {folder / 'results.csv'}")


def main():
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="quick, or parts of the names: " + ", ".join(BENCHMARKS))
    parser.add_argument("--full", action="store_true", help="also what takes minutes")
    parser.add_argument("--rounds", type=int, default=3, help="fresh processes on each side (3)")
    parser.add_argument("--jax-python", metavar="PATH", help="a Python with jax and the same jaxlib (else one is made)")
    parser.add_argument("--out", type=Path, default=Path("out/benchmarks"), help="folder for results.json and results.csv")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds: at least 1")
    for name in args.rows:
        if name != "quick" and not any(name in known for known in BENCHMARKS):
            parser.error(f"no row's name contains {name!r}; there are: {', '.join(BENCHMARKS)}")

    def wanted(benchmark):
        def named(name):
            return name == benchmark.name if name in BENCHMARKS else name in benchmark.name or name == "quick" and benchmark.quick
        return any(map(named, args.rows)) if args.rows else args.full or not benchmark.full_only
    chosen = [benchmark for benchmark in BENCHMARKS.values() if wanted(benchmark)]

    pythons = {"mini_jax": sys.executable, "jax": jax_python(args.jax_python)}
    for side in SIDES:                                       # once for nothing: bytecode is written, files are in memory
        measure(pythons[side], side, BENCHMARKS["importing"])
    print(line("what", "mini_jax", "jax", "ratio", "budget", "met"))
    rows = []
    for benchmark in chosen:
        for found in compare(benchmark, pythons, 1 if benchmark.full_only else args.rounds):
            show(found)
            rows.append(found)
    count = lambda verdict: sum(row["met"] == verdict for row in rows)
    print(f"{count('yes')} budgets met, {count('noise')} within noise, {count('NO')} not met, "
          f"{count('not yet')} not yet, {count('failed')} failed")
    write(args.out, rows, {"date": datetime.datetime.now().isoformat(timespec="seconds"), "machine": platform.platform(),
                           "cpus": os.cpu_count(), "load": os.getloadavg(), "python": platform.python_version(),
                           "jaxlib": importlib.metadata.version("jaxlib"), "rounds": args.rounds})
    return 1 if count("failed") else 0


if __name__ == "__main__":
    raise SystemExit(main())
