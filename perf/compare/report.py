"""report.py: tables for people, CSV of all samples, JSON of everything."""
import csv
import json

import cells

TITLES = {"libcoll-inplace": "in place", "libcoll-shared": "shared", "libcoll-one-nic": "one NIC", "one-socket": "1 socket"}
SOCKETS = {"sockets": "sockets: plain ones, of pairs of one host of each site, that exchange what must cross the line",
           "one-socket": "1 socket: a plain one between the sites, over which a host of each sends the other the whole vector"}


def head(result):
    """What was measured, and on what."""
    m, options = result.machine, result.options
    buffers = "; shared: buffers of coll_mem_alloc" if "libcoll-shared" in result.series else ""
    return [f"# {options.command}",
            f"# float sum, out of place, {options.transport}, medians of {result.samples.rounds} "
            f"interleaved rounds, us{buffers}",
            f"# {m['processor']}, {m['processors']} processors, Linux {m['kernel']}; "
            + ", ".join(f"{name} {version}" for name, version in result.versions.items())]


def number(us):
    """A time in five places, or a dash."""
    if us is None:
        return "-"
    return f"{us:.3f}" if us < 10 else f"{us:.2f}" if us < 100 else f"{us:.1f}"


def row(result, key):
    """One size of an operation."""
    cells_ = [f"{key[2]:>10}"]
    cells_ += [f"{number(result.median(key, series)):>9}" for series in result.series]
    ratio = result.ratio(key, "peer")
    if ratio is None:
        cells_.append(f"{'-':>6}{'':>16}")
    else:
        mark = "~" if result.unclear(key) else " "
        cells_.append(f"{ratio.median:>6.2f}{mark}{ratio.least:>6.2f} .. {ratio.most:<5.2f}")
    for what in ("limit", "shared_limit"):
        share = result.ratio(key, what)
        cells_.append(f"{'-':>6}" if share is None else f"{100 * share.median:>5.0f}%")
    if has_orders(result):
        medians, change = result.order_medians(key) or {}, result.ratio(key, "order")
        cells_ += [f"{number(medians.get(order)):>9}" for order in cells.ORDERS]
        clear = all(v.clear for v in result.verdicts if v.key == key and v.what == "order")
        cells_.append(f"{'-':>6}" if change is None else f"{change.median:>6.2f}{'' if clear else '~'}")
    return " ".join(cells_).rstrip()


def has_orders(result):
    """Whether ranks were placed in two orders."""
    return any(result.order_medians(key) for key in result.keys)


def tables(result, ranks=None):
    """A table for each number of ranks and operation."""
    lines, last = [], None
    names = " ".join(f"{TITLES.get(series, series):>9}" for series in result.series)
    orders = " ".join(["", *(f"{order:>9}" for order in cells.ORDERS), f"{'order':>6}"]) if has_orders(result) else ""
    for key in result.keys:
        if ranks and key[0] != ranks:
            continue
        if key[:2] != last:
            lines += ["", f"{key[1]}, {key[0]} ranks",
                      f"{'bytes':>10} {names} {'peer/libcoll, range':>22} {'of lim':>6} {'shared':>6}{orders}"]
            last = key[:2]
        lines.append(row(result, key))
    return lines


def limits(result, ranks=None):
    """How the sockets were used that set the limit of each size."""
    keys = [key for key in result.keys if key in result.limit_settings and ranks in (None, key[0])]
    lines = ["", "limit: the fastest use of sockets"] if keys else []
    lines += [f"{key[2]:>10} {key[1]}: {result.limit_settings[key]}" for key in keys]
    for series, meaning in SOCKETS.items():
        if series in result.series:
            lines += ["", meaning]
    if has_orders(result):
        lines += ["", "blocks, dealt: libcoll with ranks by blocks, and dealt out to hosts; order: the shorter time over the longer"]
    return lines


def foot(result):
    """How much of it noise leaves undecided."""
    compared = [key for key in result.keys if result.ratio(key, "peer")]
    unclear = [key for key in compared if result.unclear(key)]
    behind = [key for key in compared if key not in unclear and result.ratio(key, "peer").median < 1]
    unsteady = {key[:2] for key in result.keys if not result.steady(key)}
    lines = ["", f"{len(compared)} cells with a peer: libcoll is ahead in "
                 f"{len(compared) - len(unclear) - len(behind)}, behind in {len(behind)}; "
                 f"{len(unclear)} (~) cannot be told apart from 1 or their floor in this noise."]
    if unsteady:
        lines.append(f"The machine was too noisy in {len(unsteady)} of "
                     f"{len({key[:2] for key in result.keys})} tables: handing over a cache line took "
                     f"more than {cells.STEADY} times as long in one round as in another.")
    return lines


def floors(result):
    """The floors: how many were reached, and which not."""
    lines = [""]
    for what, meaning in cells.WHAT.items():
        verdicts = [v for v in result.verdicts if v.what == what]
        if not verdicts:
            continue
        passed = sum(v.passed for v in verdicts)
        unclear = sum(not v.clear for v in verdicts)
        by_other = sum(v.passed and not v.alone for v in verdicts)
        which = f", of which {by_other} by its alternative" if by_other else ""
        lines.append(f"floors of {meaning}: {passed} pass{which}, {len(verdicts) - passed} miss, "
                     f"{unclear} of them unclear (~)")
        for v in verdicts:
            beyond = v.what == "peer" and result.ratio(v.key, "peer_limit")
            limit = f"; the limit reaches {beyond.median:.2f}" if beyond and beyond.median < v.floor else ""
            other = v.alternative
            instead = f"; or {cells.WHAT[other.what]}: {figures(other)}" if other else ""
            if v.untimed:
                instead = f"; or {cells.WHAT[v.untimed]}: it has no time"
            if not v.alone:
                how = ("instead" if v.passed else "miss") + (" " if v.clear else "~")
                lines.append(f"  {how} {v.key[1]}, {v.key[0]} ranks, {v.key[2]} bytes: {figures(v)}{limit}{instead}")
    return lines


def figures(verdict):
    """The ratio that was reached and its floor."""
    ratio = verdict.ratio
    return f"{ratio.median:.2f} ({ratio.least:.2f} .. {ratio.most:.2f}), floor {verdict.floor:g}"


def write_csv(result, path):
    """All samples, a line for each."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["transport", "ranks", "operation", "bytes", "library", "round", "us"])
        for key in result.keys:
            for series in result.recorded:
                for r in range(result.samples.rounds):
                    us = result.samples.get(key, series, r)
                    if us is not None:
                        out.writerow([result.options.transport, *key, series, r + 1, f"{us:.4f}"])


def json_ratio(ratio):
    """A ratio, or null."""
    return ratio and {"median": ratio.median, "min": ratio.least, "max": ratio.most}


def write_json(result, path):
    """Medians, ratios and floors of every cell, and the reference of every round."""
    found = [{"ranks": key[0], "operation": key[1], "bytes": key[2],
              "median_us": {series: result.median(key, series) for series in result.recorded},
              "libcoll_order_us": result.order_medians(key),
              "ratios": {what: json_ratio(result.ratio(key, what)) for what in cells.WHAT},
              "limit_setting": result.limit_settings.get(key),
              "unclear": result.unclear(key),
              "floors": [{"what": v.what, "floor": v.floor, "passed": v.passed, "clear": v.clear,
                          "or": v.alternative and {"what": v.alternative.what, "floor": v.alternative.floor,
                                                   "passed": v.alternative.passed}}
                         for v in result.verdicts if v.key == key]} for key in result.keys]
    handover = [{"ranks": ranks, "operation": operation, "round": r + 1, "us": us}
                for (ranks, operation, r), us in result.samples.handover.items()]
    everything = {"command": result.options.command, "transport": result.options.transport,
                  "rounds": result.samples.rounds, "seconds": result.samples.seconds,
                  "machine": result.machine, "versions": result.versions, "cells": found,
                  "handover": handover}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(everything, file, indent=1)
        file.write("\n")
