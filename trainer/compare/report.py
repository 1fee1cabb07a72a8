"""report.py: the CSV of all epochs of all rounds, and the HTML page with the winners, tables and pictures."""
import collections
import csv
import html
import math
import os

import jobs
import noise
import picture

FIELDS = ["condition", "strategy", "round", "epoch", "wall_s", "samples", "sent_so_far", "train_loss", "test_loss",
          "test_accuracy", "samples_per_s", "comm_wait_share", "slowed_share", "compute_share"]
STYLE = """body { font: 14px sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; }
table { border-collapse: collapse; } td, th { padding: 3px 10px; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; } small { color: #777; } .missing { background: #fff3cd; padding: 1em; }
.best { font-weight: bold; background: #e5f3e5; }"""

# A column of the table: how to print a number, its value in a run, and whether more is better (None: it has no winner).
Column = collections.namedtuple("Column", "head text value more_is_better")


def columns_of(goal):
    """The columns of the table."""
    return [Column("test accuracy", lambda x: f"{100 * x:.2f} %", lambda run: run.accuracy, True),
            Column("time to the goal", lambda x: f"{x:.2f} s", lambda run: run.seconds_to(goal), False),
            Column("samples/s", lambda x: f"{x:.0f}", lambda run: run.samples_per_s, True),
            Column("sent", lambda x: f"{x / 1e6:.1f} MB", lambda run: run.epochs[-1]["sent_so_far"], False),
            Column("waiting", lambda x: f"{100 * x:.0f} %", lambda run: run.share("comm_wait_share"), None),
            Column("slowed down", lambda x: f"{100 * x:.0f} %", lambda run: run.share("slowed_share"), None)]


def write_csv(path, found):
    """Writes a line for each epoch of each round."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, extrasaction="ignore")
        writer.writeheader()
        for strategies in found.values():
            for run in (run for runs in strategies.values() for run in runs):
                for epoch in run.epochs:
                    writer.writerow({"condition": run.condition, "strategy": run.strategy, "round": run.turn, **epoch})


def goal_of(found):
    """The accuracy to reach: one point less than the best median."""
    return max(noise.Spread([run.accuracy for run in runs]).median
               for strategies in found.values() for runs in strategies.values()) - 0.01


def spreads_of(column, strategies):
    """The rounds of each strategy in one column."""
    return {name: noise.Spread([column.value(run) for run in runs], column.more_is_better)
            for name, runs in strategies.items()}


def rivals(spreads):
    """Those that can win: one rank alone is only a baseline."""
    return {name: spread for name, spread in spreads.items() if name != jobs.ALONE}


def cell(column, spread):
    """A median with its range."""
    text, low, high = (column.text(x) if math.isfinite(x) else "never" for x in (spread.median, spread.low, spread.high))
    return text if low == high else f"{text} <small>{low} to {high}</small>"


def beside_alone(spread, alone):
    """How far the accuracy is from that of one rank."""
    difference = f"{100 * (spread.median - alone.median):+.2f}"
    return f"{difference} <small>noise</small>" if spread.overlaps(alone) else difference


def table(strategies, columns, alone):
    """The strategies as HTML, with the winner of each column marked. alone: the accuracy of one rank, or None."""
    spreads = [spreads_of(column, strategies) for column in columns]
    best = [noise.winner_of(rivals(same)) if column.more_is_better is not None else None
            for column, same in zip(columns, spreads)]
    heads = [column.head for column in columns]
    heads.insert(1, "points beside one rank")
    lines = ["<table><tr><th>strategy</th>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"]
    for name in strategies:
        cells = [f"<td{' class=best' if winner == name else ''}>{cell(column, same[name])}</td>"
                 for column, same, winner in zip(columns, spreads, best)]
        cells.insert(1, f"<td>{beside_alone(spreads[0][name], alone) if alone and name != jobs.ALONE else '-'}</td>")
        lines.append(f"<tr><td>{html.escape(name)}</td>{''.join(cells)}</tr>")
    return "\n".join(lines + ["</table>"])


def verdict(strategies, columns):
    """The winner of each column that has one, or those between which there is no difference."""
    words = []
    for column in columns:
        if column.more_is_better is None:
            continue
        spreads = rivals(spreads_of(column, strategies))
        winner, best = noise.winner_of(spreads), noise.best_of(spreads)
        if winner:
            words.append(f"{column.head}: <b>{html.escape(winner)}</b>")
        elif len(best) > 1:
            words.append(f"{column.head}: no difference beyond the noise ({html.escape(', '.join(best))})")
        else:
            words.append(f"{column.head}: no winner")
    return "<br>".join(words)


def introduction(options, goal):
    """What was run, and how to read it."""
    return (f"<h1>Strategies of distributed training</h1><p><code>{html.escape(options.command)}</code>: "
            f"{options.ranks} ranks, {options.epochs} epochs each, {options.rounds} rounds, each with its own seed. Numbers "
            "are medians over the rounds, followed by the range; in the pictures points are medians, whiskers ranges. The "
            f"goal is a test accuracy of {100 * goal:.2f} %: one point less than the best median.</p><p>{noise.RULE}</p>"
            "<p>“Waiting” is the share of the ranks' time in which they waited for others. The time that a slow worker "
            "sleeps on purpose is counted as “slowed down” instead. The others wait for it meanwhile.</p>")


def write(options, found):
    """Writes epochs.csv and report.html into the folder. found: runs by condition and strategy."""
    write_csv(os.path.join(options.out, "epochs.csv"), found)
    goal = goal_of(found)
    columns = columns_of(goal)
    alone = next((noise.Spread([run.accuracy for run in strategies[jobs.ALONE]])
                  for strategies in found.values() if jobs.ALONE in strategies), None)
    names = list(dict.fromkeys(name for strategies in found.values() for name in strategies))
    parts = [introduction(options, goal)]
    pyplot = picture.load()
    if not pyplot:
        parts.append(f"<p class=missing>{picture.MISSING}</p>")
    parts += ["<h2>Who won where</h2><ul>"]
    parts += [f"<li><b>{html.escape(condition)}</b><br>{verdict(strategies, columns)}</li>"
              for condition, strategies in found.items()]
    parts.append("</ul>")
    for condition, strategies in found.items():
        parts += [f"<h2>{html.escape(condition)}</h2>", table(strategies, columns, alone)]
        parts += [picture.svg(pyplot, figure) for figure in picture.figures(pyplot, strategies, names)] if pyplot else []
    with open(os.path.join(options.out, "report.html"), "w", encoding="utf-8") as file:
        file.write(f"<!doctype html><html lang=en><meta charset=utf-8><title>coll_train: strategies</title>"
                   f"<style>{STYLE}</style>" + "\n".join(parts) + "</html>\n")
