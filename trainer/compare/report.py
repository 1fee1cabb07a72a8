"""report.py: the CSV of all epochs, the table of winners, and the HTML page around the pictures."""
import csv
import html
import os

import jobs
import picture

FIELDS = ["condition", "strategy", "epoch", "wall_s", "samples", "sent_so_far", "train_loss", "test_loss",
          "test_accuracy", "samples_per_s", "comm_wait_share", "compute_share"]
STYLE = """body { font: 14px sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 3px 10px; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; } .best { font-weight: bold; background: #e5f3e5; }"""


def write_csv(path, runs):
    """A line for each epoch of each run."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for run in runs:
            for epoch in run.epochs:
                writer.writerow({"condition": run.condition, "strategy": run.strategy, **epoch})


def goal_of(runs):
    """The accuracy to be reached: one percent less than the best of all."""
    return max(run.accuracy for run in runs) - 0.01


def rows_of(runs, goal, alone):
    """What the table shows: name, text of each column, and the number that decides (smaller is better). alone:
    the accuracy of one rank, or None."""
    rows = []
    for run in runs:
        last, to_goal = run.epochs[-1], run.seconds_to(goal)
        rows.append((run.strategy, [
            (f"{100 * run.accuracy:.2f} %", -run.accuracy),
            (f"{100 * (run.accuracy - alone):+.2f} %" if alone else "-", None),
            (f"{to_goal:.2f} s" if to_goal else "-", to_goal or float("inf")),
            (f"{run.samples_per_s:.0f}", -run.samples_per_s),
            (f"{last['sent_so_far'] / 1e6:.1f} MB", last["sent_so_far"]),
            (f"{100 * sum(e['comm_wait_share'] * e['seconds'] for e in run.epochs) / last['wall_s']:.0f} %", None)]))
    return rows


HEADS = ["test accuracy", "beside one rank", "time to the goal", "samples/s", "sent", "waiting"]


def winners(rows):
    """The strategy that is best in each column that decides something."""
    best = {}
    for column, head in enumerate(HEADS):
        values = [(texts[column][1], name) for name, texts in rows
                  if texts[column][1] is not None and name != jobs.ALONE]
        if values and min(values)[0] != float("inf"):
            best[head] = min(values)[1]
    return best


def table(rows):
    """Rows as HTML, with the best of each column marked."""
    best = winners(rows)
    lines = ["<table><tr><th>strategy</th>" + "".join(f"<th>{head}</th>" for head in HEADS) + "</tr>"]
    for name, texts in rows:
        cells = "".join(f"<td{' class=best' if best.get(head) == name else ''}>{text}</td>"
                        for head, (text, _) in zip(HEADS, texts))
        lines.append(f"<tr><td>{html.escape(name)}</td>{cells}</tr>")
    return "\n".join(lines + ["</table>"])


def verdict(conditions, goal):
    """Who won where, in a line for each condition."""
    lines = []
    for condition, runs in conditions.items():
        best = winners(rows_of(runs, goal, None))
        lines.append(f"<li><b>{html.escape(condition)}</b>: "
                     + "; ".join(f"{head}: {html.escape(name)}" for head, name in best.items()) + "</li>")
    return "<ul>" + "\n".join(lines) + "</ul>"


def write(options, runs):
    """Writes epochs.csv and report.html into the folder."""
    write_csv(os.path.join(options.out, "epochs.csv"), runs)
    conditions, goal = {}, goal_of(runs)
    alone = next((run.accuracy for run in runs if run.strategy == jobs.ALONE), None)
    for run in runs:
        conditions.setdefault(run.condition, []).append(run)
    parts = [f"<h1>Strategies of distributed training</h1><p><code>{html.escape(options.command)}</code>: "
             f"{options.ranks} ranks, {options.epochs} epochs each, medians of {options.rounds} runs. The goal is a "
             f"test accuracy of {100 * goal:.2f} %: one percent less than the best of all runs.</p>",
             "<h2>Who won where</h2>", verdict(conditions, goal)]
    pictures = picture.draw(conditions)
    for condition, same in conditions.items():
        parts += [f"<h2>{html.escape(condition)}</h2>", table(rows_of(same, goal, alone)), pictures.get(condition, "")]
    with open(os.path.join(options.out, "report.html"), "w", encoding="utf-8") as file:
        file.write(f"<!doctype html><html lang=en><meta charset=utf-8><title>coll_train: strategies</title>"
                   f"<style>{STYLE}</style>" + "\n".join(parts) + "</html>\n")
