"""What depth costs, as a picture: `python -m benchmarks.depth` draws what the last `python -m benchmarks cold --full` measured into docs/depth.svg."""
import json
import math
import re
from pathlib import Path

COLOURS = {"jax": "#c2571a", "mini_jax": "#1a6fc2"}
WIDTH, HEIGHT, LEFT, TOP, SIDE = 760, 330, 60, 40, 270


def panel(title, left, lines):
    """The elements of one diagram with logarithmic axes. lines: side -> [(layers, seconds)]."""
    points = [point for line in lines.values() for point in line]
    xs = sorted({x for x, _ in points})
    low, high = [edge(math.log10(pick([y for _, y in points]))) for edge, pick in ((math.floor, min), (math.ceil, max))]
    across = lambda x: left + SIDE * math.log(x / xs[0]) / math.log(xs[-1] / xs[0])
    up = lambda y: TOP + SIDE * 0.85 * (high - math.log10(y)) / (high - low)
    out = [text(left, TOP - 18, title, "bold")]
    for k in range(low, high + 1):
        out += [f'<line x1="{left}" x2="{left + SIDE}" y1="{up(10 ** k):.1f}" y2="{up(10 ** k):.1f}" stroke="#ddd"/>',
                text(left - 8, up(10 ** k) + 4, f"{10 ** k:g} s" if k >= 0 else f"{10 ** (k + 3):g} ms", anchor="end")]
    out += [text(across(x), up(10 ** low) + 20, f"{x} layers", anchor="middle") for x in xs]
    for side, line in lines.items():
        path = " ".join([f"{across(x):.1f},{up(y):.1f}" for x, y in line])
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[side]}" stroke-width="2"/>')
        out += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5" fill="{COLOURS[side]}"/>' for x, y in line]
        out.append(text(across(line[-1][0]) - 6, up(line[-1][1]) - 10, side, anchor="end", fill=COLOURS[side]))
    return out


def text(x, y, words, weight="normal", anchor="start", fill="#333"):
    return f'<text x="{x:.1f}" y="{y:.1f}" font-weight="{weight}" text-anchor="{anchor}" fill="{fill}">{words}</text>'


def picture(rows):
    """The whole picture of the rows that `python -m benchmarks` wrote."""
    panels = []
    for k, what in enumerate(("first step", "step")):
        lines = {side: sorted([(int(found[1]), row[side]) for row in rows if row[side]
                               and (found := re.fullmatch(rf"transformer of (\d+) layers: {what}", row["what"]))]) for side in COLOURS}
        panels += panel({"first step": "to the end of the first step", "step": "a step"}[what], LEFT + k * (SIDE + 100), lines)
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
                      f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>', *panels, "</svg>"]) + "\n"


if __name__ == "__main__":
    rows = json.loads(Path("out/benchmarks/results.json").read_text())["rows"]
    Path("docs/depth.svg").write_text(picture(rows))
