"""picture.py: time against size, a panel for each operation, as SVG."""
import os
import sys

STYLES = {"libcoll": ("C0", "-", 2.2), "libcoll-inplace": ("C0", ":", 1.2),
          "libcoll-shared": ("C2", "-", 1.8), "limit": ("black", "--", 1)}


def load_pyplot(program):
    """matplotlib's pyplot for pictures that are the same each time, or None after saying what is missing."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        print(f"{program}: no picture: it needs matplotlib (apt-get install python3-matplotlib)", file=sys.stderr)
        return None
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": program, "font.size": 8})
    return pyplot


def draw(result, folder):
    """One picture for each number of ranks; the paths, none without matplotlib."""
    pyplot = load_pyplot("compare")
    if not pyplot:
        return {}
    paths = {}
    for ranks in result.options.ranks:
        operations = [op for op in result.options.ops
                      if op != "barrier" and any(k[:2] == (ranks, op) for k in result.keys)]
        if operations:
            name = f"performance-{result.options.transport}-{ranks}.svg"
            paths[ranks] = os.path.join(folder, name)
            draw_one(pyplot, result, ranks, operations, paths[ranks])
    return paths


def draw_one(pyplot, result, ranks, operations, path):
    """All operations of one number of ranks."""
    columns = min(len(operations), 4)
    rows = -(-len(operations) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(3 * columns, 2.6 * rows + 0.5),
                                   squeeze=False)
    for axis in axes.flat[len(operations):]:
        axis.set_visible(False)
    lines = {}
    for axis, operation in zip(axes.flat, operations):
        keys = [key for key in result.keys if key[:2] == (ranks, operation)]
        for i, series in enumerate(result.series):
            points = [(key[2], result.median(key, series)) for key in keys]
            points = [point for point in points if point[1] is not None]
            color, dash, width = STYLES.get(series, (f"C{i}", "-", 1.2))
            if points:
                lines[series], = axis.plot(*zip(*points), dash, color=color, linewidth=width, marker=".",
                                           markersize=3)
        axis.set(title=operation, xscale="log", yscale="log", xlabel="bytes", ylabel="us")
        axis.grid(True, linewidth=0.3)
    figure.suptitle(f"{ranks} ranks, {result.options.transport}")
    figure.legend(lines.values(), lines.keys(), loc="lower center", ncol=len(lines))
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
