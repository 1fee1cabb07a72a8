"""docs.py: writes a run into docs: a summary into performance.md, where what people wrote around it stays,
and all tables into a text file beside it."""
import os
import re
import shutil
import sys

import cells
import report


def short(size):
    """A size in few characters."""
    for shift, unit in ((20, "M"), (10, "K")):
        if size >> shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def column(sizes, size):
    """The column of a size: whole blocks can make it a little larger or smaller than was asked for."""
    return min(sizes, key=lambda wanted: abs(wanted - size))


def ratios(result, ranks, what):
    """A line for each operation: a ratio for each size."""
    sizes = result.options.sizes
    lines = []
    for operation in cells.OPERATIONS:
        row = {}
        for key in result.keys:
            ratio = key[:2] == (ranks, operation) and result.ratio(key, what)
            if ratio:
                mark = "~" if what == "peer" and result.unclear(key) else " "
                row[column(sizes, key[2])] = f"{ratio.median:.2f}{mark}"
        if row:
            lines.append(f"{operation:<16}" + "".join(f"{row.get(size, '- '):>8}" for size in sizes))
    return lines


def summary(result):
    """The times of peers over libcoll's; those of the limit only for the fewest ranks."""
    heads = {"peer": "best peer / libcoll", "limit": "limit / libcoll",
             "shared_limit": "limit / libcoll with registered memory"}
    sizes = "".join(f"{short(size):>7} " for size in result.options.sizes)
    lines = []
    for ranks in result.options.ranks:
        for what, head in heads.items():
            rows = ratios(result, ranks, what) if what == "peer" or ranks == result.options.ranks[0] else []
            if rows:
                lines += ["", f"{head}, {ranks} ranks", " " * 16 + sizes.rstrip()] + rows
    return [line.rstrip() for line in lines]


def section(result, pictures, tables):
    """The generated lines of one transport."""
    links = [f"[all times]({tables})"]
    links += [f"[picture, {ranks} ranks]({os.path.basename(path)})" for ranks, path in pictures.items()]
    lines = ["```"] + report.head(result) + summary(result) + ["```", "", "; ".join(links)]
    lines += report.foot(result)
    counts = [line for line in report.floors(result) if line.startswith("floors of")]
    if counts:
        lines += ["", "Floors (`perf/compare/floors.csv`):", "", "```"] + counts + ["```"]
    return lines


def write(result, pictures, folder):
    """Replaces the lines between this transport's markers, the tables and the pictures."""
    path = os.path.join(folder, "performance.md")
    tables = f"performance-{result.options.transport}.txt"
    begin, end = (f"<!-- {word} of perf/compare/run, {result.options.transport} -->"
                  for word in ("begin", "end"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if len(re.findall(pattern, text, re.DOTALL)) != 1:
        print(f"compare: {path} has no lines '{begin}' and '{end}'; not written", file=sys.stderr)
        return
    new = "\n".join([begin, *section(result, pictures, tables), end])
    text = re.sub(pattern, lambda _: new, text, flags=re.DOTALL)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(folder, tables), "w", encoding="utf-8") as file:
        lines = report.head(result) + report.tables(result) + report.limits(result)
        file.write("\n".join(lines + report.foot(result) + report.floors(result)) + "\n")
    for picture in pictures.values():
        shutil.copy(picture, folder)
