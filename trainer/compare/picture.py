"""picture.py: accuracy against time, samples and bytes; where time goes; staleness; stages at work. As SVG inside
HTML."""
import io
import sys

AXES = [("wall_s", "seconds", 1), ("samples", "samples", 1), ("sent_so_far", "MB sent", 1e-6)]


def draw(conditions):
    """The pictures of each condition as one SVG text; none without matplotlib."""
    try:
        import matplotlib
        matplotlib.use("svg")
        from matplotlib import pyplot
    except ImportError:
        print("compare: no pictures: they need matplotlib (apt-get install python3-matplotlib)", file=sys.stderr)
        return {}
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "compare", "font.size": 8})
    names = sorted({run.strategy for runs in conditions.values() for run in runs})
    colors = {name: f"C{i}" for i, name in enumerate(names)}
    return {condition: draw_one(pyplot, runs, colors) + draw_stages(pyplot, runs) for condition, runs in conditions.items()}


def draw_one(pyplot, runs, colors):
    """The pictures of one condition."""
    figure, axes = pyplot.subplots(2, 3, figsize=(11, 6.4))
    for axis, (field, label, scale) in zip(axes[0], AXES):
        for run in runs:
            axis.plot([epoch[field] * scale for epoch in run.epochs],
                      [100 * epoch["test_accuracy"] for epoch in run.epochs], color=colors[run.strategy],
                      marker=".", label=run.strategy, linewidth=1.2)
        axis.set(xlabel=label, ylabel="test accuracy, %")
        axis.grid(True, linewidth=0.3)
    draw_time(axes[1][0], runs)
    draw_staleness(axes[1][1], runs, colors)
    axes[1][2].set_visible(False)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower right", bbox_to_anchor=(0.97, 0.1), ncol=2)
    return svg(pyplot, figure)


def svg(pyplot, figure):
    """A figure as text, which ends its life."""
    figure.tight_layout()
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return text.getvalue()[text.getvalue().index("<svg"):]


def draw_time(axis, runs):
    """Shares of the time of all ranks: in the model, waiting for others, and all else."""
    for row, run in enumerate(runs):
        whole = run.epochs[-1]["wall_s"]
        compute, wait = (100 * sum(e[name] * e["seconds"] for e in run.epochs) / whole
                         for name in ("compute_share", "comm_wait_share"))
        left = 0
        for share, color in ((compute, "C2"), (wait, "C3"), (max(0, 100 - compute - wait), "0.8")):
            axis.barh(row, share, left=left, color=color)
            left += share
    axis.set(yticks=range(len(runs)), yticklabels=[run.strategy for run in runs], xlim=(0, 100),
             xlabel="% of the ranks' time: compute, waiting, the rest")
    axis.invert_yaxis()


def draw_staleness(axis, runs, colors):
    """How old the weights were for which gradients were made, where a strategy counts that."""
    found = False
    for run in runs:
        counts = [sum(values) for values in zip(*(e["staleness"] + [0] * (64 - len(e["staleness"]))
                                                  for e in run.epochs if "staleness" in e))]
        if sum(counts):
            last = max(i for i, count in enumerate(counts) if count)
            axis.step(range(last + 1), [100 * count / sum(counts) for count in counts[:last + 1]], where="mid",
                      color=colors[run.strategy])
            found = True
    axis.set(xlabel="staleness, updates", ylabel="% of the gradients")
    axis.set_visible(found)


def draw_stages(pyplot, runs):
    """When each stage was at work on each micro-batch, in the last step of each run that has stages."""
    runs = [run for run in runs if "stages" in run.epochs[-1]]
    if not runs:
        return ""
    rows = [len(run.epochs[-1]["stages"]) for run in runs]
    figure, axes = pyplot.subplots(len(runs), 1, figsize=(11, sum(0.9 + 0.3 * row for row in rows)), squeeze=False,
                                   height_ratios=[2 + row for row in rows])
    for axis, run in zip(axes[:, 0], runs):
        draw_passes(axis, run.epochs[-1]["stages"])
        last = run.epochs[-1]
        axis.set_title(f"{run.strategy}: the last step, forward passes (blue) and backward ones (orange) by micro-batch; "
                       f"idle {100 * last['bubble']:.0f} % of the epoch, by the formula "
                       f"{100 * last['bubble_formula']:.0f} %", loc="left", fontsize=8)
    return svg(pyplot, figure)


def draw_passes(axis, stages):
    """A bar for each pass of each stage, from when it began to when it ended."""
    start = min(begin for stage in stages for begin, _ in stage["forward"])
    for row, stage in enumerate(stages):
        for passes, color in ((stage["forward"], "C0"), (stage["backward"], "C1")):
            for number, (begin, end) in enumerate(passes):
                axis.barh(row, 1e3 * (end - begin), left=1e3 * (begin - start), color=color, edgecolor="white",
                          linewidth=0.5)
                axis.text(1e3 * ((begin + end) / 2 - start), row, number, ha="center", va="center", fontsize=6)
    axis.set(yticks=range(len(stages)), yticklabels=[f"stage {row}" for row in range(len(stages))], xlabel="ms")
    axis.invert_yaxis()
