#!/usr/bin/python3
"""curves.py: what coll_explain predicts on more and more ranks, as a picture (FILE.svg, with matplotlib) or as numbers
(FILE.csv)."""
import argparse
import csv
import re
import subprocess
import sys

sys.dont_write_bytecode = True  # writes no __pycache__ into the source folder
import picture

NS = {"ns": 1, "us": 1e3, "ms": 1e6}
BYTES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
TIME = r"([\d.]+) ([num]s)"


def text_of(number):
    """64K, as coll_explain writes it; numbers that are none of these stay."""
    suffix = max((s for s in BYTES if number % BYTES[s] == 0), key=BYTES.get)
    return f"{number // BYTES[suffix]}{suffix}"


def explain(program, *arguments):
    """The lines that coll_explain prints for an all-reduce of a range of sizes."""
    return subprocess.run([program, "allreduce", "--levels", "assumed", "--table", *arguments], check=True,
                          text=True, stdout=subprocess.PIPE).stdout.splitlines()


def size_of(text):
    """The bytes that 64K stands for."""
    digits, suffix = re.fullmatch(r"(\d+)([KMG]?)", text).groups()
    return int(digits) * BYTES[suffix]


def candidates(program, ranks, sizes):
    """Rows (group, curve, ranks, bytes, ns, chosen) of all candidates."""
    lines = explain(program, "-n", str(ranks), "-b", sizes)
    header = next(i for i, line in enumerate(lines) if line.startswith("bytes"))
    columns = [size_of(word) for word in lines[header].split()[1:]]
    for line in lines[header + 1:]:
        name, rest = line.split(maxsplit=1)
        for size, (time, unit, chosen, _) in zip(columns, re.findall(TIME + r"(\*?)|(-)", rest)):
            if time:
                yield "host memory", name, ranks, size, float(time) * NS[unit], chosen == "*"


def on_gpus(program, ranks, sizes):
    """Such rows of hosts of 8 GPUs."""
    for line in explain(program, "-n", str(ranks), "--gpu", "8", "-b", sizes):
        found = re.match(r" *(\d+[KMG]?)  (\S+?),? .*?  +" + TIME, line)
        if found:
            yield "GPUs", found[2], ranks, size_of(found[1]), float(found[3]) * NS[found[4]], True


def draw(pyplot, rows, path):
    """Two panels of times by size, of what is chosen, and two by ranks, of each candidate."""
    from matplotlib import ticker
    figure, axes = pyplot.subplots(2, 2, figsize=(10, 7.5))
    ranks = sorted({row[2] for row in rows})
    for axis, group in zip(axes[0], ("host memory", "GPUs")):
        for n in ranks:
            points = sorted((row[3], row[4] / 1e3) for row in rows if row[0] == group and row[2] == n and row[5])
            axis.plot(*zip(*points), marker=".", label=f"{text_of(n)} ranks")
        axis.set(title=f"all-reduce, {group}: the algorithm that is chosen", xlabel="bytes")
    sizes = sorted({row[3] for row in rows if row[0] == "host memory"})
    for axis, size in zip(axes[1], (sizes[0], sizes[-1])):
        for name in ("recdbl", "hier", "hier_split", "dbtree", "ring", "hier_ring", "hier_levels_split", "hier_trees"):
            points = sorted((row[2], row[4] / 1e3) for row in rows
                            if row[0] == "host memory" and row[1] == name and row[3] == size)
            if points:
                axis.plot(*zip(*points), marker=".", label=name)
        axis.set(title=f"all-reduce of {text_of(size)} bytes: algorithms", xlabel="ranks")
    for axis in axes.flat:
        ticks = sizes if axis in axes[0] else ranks
        axis.set(xscale="log", yscale="log", ylabel="us", xticks=ticks, xticklabels=map(text_of, ticks))
        axis.minorticks_off()
        if axis is axes[1][1]:  # colours are those of the panel beside it, and there are few decades
            axis.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        else:
            axis.legend(fontsize=6)
        axis.yaxis.set_major_formatter(ticker.FormatStrFormatter("%d"))
        axis.grid(True, linewidth=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main():
    """Asks coll_explain and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("explain", help="the program coll_explain")
    parser.add_argument("file", help="what to write: *.svg or *.csv")
    parser.add_argument("--ranks", default="64,512,4096,32768,100000", help="numbers of ranks, 8 on each host")
    parser.add_argument("--bytes", default="8-1G", help="sizes")
    options = parser.parse_args()
    pyplot = picture.load_pyplot("curves") if options.file.endswith(".svg") else None
    if options.file.endswith(".svg") and not pyplot:
        sys.exit(1)
    rows = []
    for n in options.ranks.split(","):
        rows += candidates(options.explain, int(n), options.bytes)
        rows += on_gpus(options.explain, int(n), options.bytes)
    if pyplot:
        draw(pyplot, rows, options.file)
        return
    with open(options.file, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("group", "algorithm", "ranks", "bytes", "ns", "chosen"))
        writer.writerows(row[:5] + (int(row[5]),) for row in rows)


if __name__ == "__main__":
    main()
