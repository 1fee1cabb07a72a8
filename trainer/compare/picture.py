"""picture.py: plots of accuracy against time, samples and bytes, of speed, time shares, staleness and pipeline stages, as
SVG inside HTML. Points are medians over the rounds, whiskers ranges."""
import io
import statistics
import sys

import jobs

AXES = [("wall_s", "seconds", 1), ("samples", "thousand samples", 1e-3), ("sent_so_far", "MB sent", 1e-6)]
SHARES = [("compute_share", "compute", "C2"), ("comm_wait_share", "waiting", "C3"), ("slowed_share", "slowed down", "C4")]
LOG_FROM = 20  # an axis is logarithmic if the largest number is this many times the smallest
MISSING = ("No pictures: they need matplotlib. Install it (apt-get install python3-matplotlib) and run this again. The "
           "numbers are complete without it.")


def load():
    """matplotlib.pyplot; if it is missing, prints so on standard error and returns None."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        print(f"compare: {MISSING}", file=sys.stderr)
        return None
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "compare", "font.size": 8})
    return pyplot


def svg(pyplot, figure):
    """Renders a figure as text, and closes it."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg"):]


def figures(pyplot, strategies, names):
    """The pictures of one condition. strategies: the runs of each, by name; names: the strategies of all conditions, so
    that each has the same color everywhere."""
    colors = {name: "0.4" if name == jobs.ALONE else f"C{i % 10}" for i, name in enumerate(names)}
    styles = {name: "-" if i < 10 else "--" for i, name in enumerate(names)}
    figure, axes = pyplot.subplots(2, 3, figsize=(11, 7), layout="constrained")
    for axis, (field, label, scale) in zip(axes[0], AXES):
        draw_accuracy(axis, strategies, colors, styles, field, label, scale)
    draw_speed(axes[1][0], strategies, colors)
    draw_time(axes[1][1], strategies)
    draw_staleness(axes[1][2], strategies, colors)
    stages = [runs[-1] for runs in strategies.values() if "stages" in runs[-1].epochs[-1]]
    return [figure, *([draw_stages(pyplot, stages)] if stages else [])]


def fit(low, high):
    """The limits of an axis, with a margin around the data, and its scale."""
    if low > 0 and high / low >= LOG_FROM:
        margin = (high / low) ** 0.05
        return low / margin, high * margin, "log"
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1
    return low - margin, high + margin, "linear"


def fit_axes(axis, x, y):
    """Fits both axes to the data."""
    low, high, scale = fit(min(x), max(x))
    axis.set_xscale(scale)
    axis.set_xlim(low, high)
    axis.set_ylim(*fit(min(y), max(y))[:2])
    axis.grid(True, linewidth=0.3)


def median_and_whiskers(values):
    """The median, and how far the range goes below and above it."""
    median = statistics.median(values)
    return median, median - min(values), max(values) - median


def draw_accuracy(axis, strategies, colors, styles, field, label, scale):
    """Accuracy after each epoch against a field of it."""
    all_x, all_y = [], []
    for name, runs in strategies.items():
        xs = [[epoch[field] * scale for epoch in same] for same in zip(*(run.epochs for run in runs))]
        ys = [[100 * epoch["test_accuracy"] for epoch in same] for same in zip(*(run.epochs for run in runs))]
        if not max(map(max, xs)):
            continue  # one rank sends nothing
        x, left, right = zip(*map(median_and_whiskers, xs))
        y, below, above = zip(*map(median_and_whiskers, ys))
        axis.errorbar(x, y, xerr=(left, right), yerr=(below, above), color=colors[name], linestyle=styles[name], marker=".",
                      linewidth=1.2, elinewidth=0.8, capsize=1.5, label=name)
        all_x += sum(xs, [])
        all_y += sum(ys, [])
    axis.set(xlabel=label, ylabel="test accuracy, %")
    if all_x:
        fit_axes(axis, all_x, all_y)
        axis.legend(fontsize=6)


def draw_speed(axis, strategies, colors):
    """Samples per second of each strategy."""
    values = [[run.samples_per_s for run in runs] for runs in strategies.values()]
    for row, (name, same) in enumerate(zip(strategies, values)):
        median, left, right = median_and_whiskers(same)
        axis.errorbar(median, row, xerr=[[left], [right]], marker="o", color=colors[name], capsize=2,
                      label="median and range of the rounds" if row == 0 else None)
    fit_axes(axis, sum(values, []), [0, len(values) - 1])
    axis.set(xlabel="samples/s", yticks=range(len(values)), yticklabels=list(strategies), ylim=(len(values) - 0.5, -0.5))
    axis.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1))


def draw_time(axis, strategies):
    """Shares of the ranks' time: computing, waiting for others, slowed down on purpose, the rest."""
    for row, runs in enumerate(strategies.values()):
        left = 0
        for name, label, color in SHARES:
            share, below, above = median_and_whiskers([100 * run.share(name) for run in runs])
            axis.barh(row, share, left=left, color=color, label=label if row == 0 else None,
                      xerr=[[below], [above]] if name == "comm_wait_share" else None, error_kw={"linewidth": 0.8})
            left += share
        axis.barh(row, max(0, 100 - left), left=left, color="0.8", label="the rest" if row == 0 else None)
    axis.set(yticks=range(len(strategies)), yticklabels=list(strategies), xlim=(0, 100), xlabel="% of the ranks' time")
    axis.invert_yaxis()
    axis.legend(fontsize=6, loc="lower center", bbox_to_anchor=(0.5, 1), ncol=4)


def draw_staleness(axis, strategies, colors):
    """How old the weights of each gradient were, for strategies that count this."""
    for name, runs in strategies.items():
        counts = [sum(values) for values in zip(*(e["staleness"] + [0] * (64 - len(e["staleness"]))
                                                  for run in runs for e in run.epochs if "staleness" in e))]
        if sum(counts):
            last = max(i for i, count in enumerate(counts) if count)
            axis.step(range(last + 1), [100 * count / sum(counts) for count in counts[:last + 1]], where="mid",
                      color=colors[name], label=name)
    axis.set(xlabel="staleness, updates", ylabel="% of the gradients")
    axis.set_visible(bool(axis.lines))
    if axis.lines:
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.legend(fontsize=6)


def draw_stages(pyplot, runs):
    """When each stage worked on each micro-batch, in the last step of the last round."""
    rows = [len(run.epochs[-1]["stages"]) for run in runs]
    figure, axes = pyplot.subplots(len(runs), 1, figsize=(11, sum(1.2 + 0.3 * row for row in rows)), squeeze=False,
                                   height_ratios=[2 + row for row in rows], layout="constrained")
    for axis, run in zip(axes[:, 0], runs):
        last = run.epochs[-1]
        draw_passes(axis, last["stages"])
        axis.set_title(f"{run.strategy}: the last step of the last round, passes by micro-batch; idle "
                       f"{100 * last['bubble']:.0f} % of the epoch, by the formula {100 * last['bubble_formula']:.0f} %",
                       loc="left", fontsize=8)
    return figure


def draw_passes(axis, stages):
    """A bar for each pass of each stage, from when it began to when it ended."""
    start = min(begin for stage in stages for begin, _ in stage["forward"])
    for row, stage in enumerate(stages):
        for kind, color in (("forward", "C0"), ("backward", "C1")):
            for number, (begin, end) in enumerate(stage[kind]):
                axis.barh(row, 1e3 * (end - begin), left=1e3 * (begin - start), color=color, edgecolor="white",
                          linewidth=0.5, label=f"{kind} pass" if row == number == 0 else None)
                axis.text(1e3 * ((begin + end) / 2 - start), row, number, ha="center", va="center", fontsize=6)
    axis.set(yticks=range(len(stages)), yticklabels=[f"stage {row}" for row in range(len(stages))], xlabel="ms")
    axis.invert_yaxis()
    axis.legend(fontsize=6, loc="lower left", bbox_to_anchor=(1, 0))
