"""figures.py: all-reduce beside the limits of the GPU and beside NCCL, in interleaved rounds."""
import json
import os
import statistics
import time

import steps as steps_
import verify

MIB = 1 << 20
SIZES, SIZES_SMALL = [8, 65536, MIB, 16 * MIB, 256 * MIB], [8, 16384]
SHORT = 4096  # up to this size the launches count, above the bytes
ROUNDS, LIMIT_S = 5, 90
# mode -> the least part of a copy's speed that an all-reduce of 256 MiB must have (issue 19).
COPY_FLOORS, COPY_BYTES = {"meet": 0.90, "ordered": 0.80}, 256 * MIB
# An all-reduce of 8 bytes takes at most so many times an empty launch with an event.
LAUNCH_FLOOR, LAUNCH_BYTES, LAUNCH_MODES = 3.0, 8, ("meet", "ordered", "spin")


def series(gpus, small):
    """What libcoll does: (mode, ranks, as what, calls, environment)."""
    one = verify.one_gpu()
    yield "meet", 2, "threads", "stream", one
    yield "ordered", 2, "processes", "stream", one
    if gpus > 1:
        yield "spin", gpus, "processes", "stream", {}
        yield "spin", gpus, "threads", "stream", {}
        yield "spin", gpus, "processes", "graph", {}
    yield "ordered", 2, "processes", "graph", one
    if not small:
        yield "meet", 4, "threads", "stream", one
        yield "ordered", 2, "threads", "stream", one
        yield "ordered", 4, "processes", "stream", one
        yield "staged", 2, "processes", "stream", one


def label(mode, ranks, how, calls):
    """A series' name."""
    return f"{mode}, {ranks} {how}, {calls}"


class Figures:
    """Times in microseconds: of a round, a name and a size."""

    def __init__(self, steps, programs, gpus, small, library, out):
        self.steps, self.programs, self.gpus, self.out = steps, programs, gpus, out
        self.sizes = SIZES_SMALL if small else SIZES
        self.series = list(series(gpus, small))
        self.small, self.library = small, library
        self.rounds, self.given_up, self.nccl_version, self.longest = [], set(), None, 0.0

    def measure(self, name, command, env):
        """Runs a command of a round, unless it failed in an earlier one."""
        if name in self.given_up:
            return "", False
        record, (out, _) = self.steps.run("figures", f"{name}, round {len(self.rounds)}", command, LIMIT_S, env)
        if record["status"] == "failed":
            self.given_up.add(name)
        return out, record["status"] == "passed"

    def limits(self, times):
        """The copies and launches of this GPU."""
        sizes = ["--bytes", ",".join(map(str, self.sizes)), "--ms", "3" if self.small else "50"]
        counts = sorted({ranks for mode, ranks, *_ in self.series if mode != "spin"})
        for ranks in counts:
            command = [self.programs["gpu_probe"], "limits", "--ranks", str(ranks), *sizes]
            out, _ = self.measure(f"limits of {ranks} ranks on a GPU", command, verify.one_gpu())
            self.take_limits(times, out, ranks, "copy")
        if self.gpus > 1:
            command = [self.programs["gpu_probe"], "limits", "--which", "peers", *sizes]
            out, _ = self.measure("limits between GPUs", command, {})
            self.take_limits(times, out, self.gpus, "peer")

    def take_limits(self, times, out, ranks, kind):
        """Keeps the fastest copy of each size, and the launches."""
        copied = {size * ranks if kind == "copy" else 2 * size * (ranks - 1) // ranks // 4 * 4: size
                  for size in self.sizes}
        for line in steps_.json_lines(out):
            if line["limit"] in ("launch", "launch_event"):
                times[line["limit"], 0, 0] = line["us"]
                continue
            size = copied[line["copied"]]
            for key in ((line["limit"], ranks, size), (f"{line['limit']} by {line['by']}", ranks, size)):
                times[key] = min(line["us"], times.get(key, line["us"]))

    def libcoll(self, times, one):
        """One series."""
        mode, ranks, how, calls, env = one
        name = label(mode, ranks, how, calls)
        path = os.path.join(self.out, "perf.json")
        check = "1" if not self.rounds else "0"
        words = ["allreduce", "-b", ",".join(map(str, self.sizes)), "-c", check, "--json", path, "-T", "20",
                 *verify.CALLS[calls]]
        if self.small:
            words += ["-n", "4", "-w", "1"]
        command = verify.command_of(self.programs, ranks, how, words)
        out, well = self.measure(name, command, {**env, "COLL_GPU_MODE": mode, "COLL_LOG": "info"})
        if not well:
            return
        with open(path, encoding="ascii") as file:
            result = json.load(file)
        os.remove(path)
        if result["staged"] != (mode == "staged"):
            self.steps.fail(self.steps.records[-1], f"it did not run in mode {mode}", out)
            self.given_up.add(name)
            return
        for line in result["results"]:
            times[name, ranks, line["size"]] = line["out_of_place"]["time_us"]
            times[name + ", in place", ranks, line["size"]] = line["in_place"]["time_us"]

    def nccl(self, times):
        """NCCL with a rank on each GPU: it refuses two on one."""
        command = [self.programs["gpu_probe"], "nccl", "--ranks", str(self.gpus), "--library", self.library,
                   "--bytes", ",".join(map(str, self.sizes))]
        out, _ = self.measure("NCCL", command, {})
        for line in steps_.json_lines(out):
            self.nccl_version = line["version"]
            times["nccl", line["ranks"], line["bytes"]] = line["us"]

    def round(self):
        """Measures all once more; false if the rounds are done, or there is no time for another one."""
        if len(self.rounds) >= (1 if self.small else ROUNDS) or self.steps.left() < 1.2 * self.longest + 2:
            return False
        start, times = time.monotonic(), {}
        self.limits(times)
        for one in self.series:
            self.libcoll(times, one)
        self.nccl(times)
        self.rounds.append(times)
        self.longest = max(self.longest, time.monotonic() - start)
        return True


def median(rounds, *key):
    """The median of a time over rounds, or None."""
    values = [times[key] for times in rounds if key in times]
    return statistics.median(values) if values else None


def median_ratio(rounds, above, below):
    """The median of the ratios of each round, or None."""
    values = [times[above] / times[below] for times in rounds if above in times and times.get(below)]
    return statistics.median(values) if values else None


def tables(rounds, all_series, sizes):
    """For each series and size: time, and what it is of the limit and of NCCL."""
    rows = []
    for mode, ranks, how, calls, _ in all_series:
        name = label(mode, ranks, how, calls)
        limit = "peer" if mode == "spin" else "copy"
        for size in sizes:
            key = (name, ranks, size)
            rows.append({"series": name, "mode": mode, "ranks": ranks, "as": how, "calls": calls, "bytes": size,
                         "us": median(rounds, *key), "in_place_us": median(rounds, name + ", in place", ranks, size),
                         "copy_us": median(rounds, limit, ranks, size),
                         "of_copy": median_ratio(rounds, (limit, ranks, size), key) if size > SHORT else None,
                         "launches": median_ratio(rounds, key, ("launch_event", 0, 0)) if size <= SHORT else None,
                         "nccl_us": median(rounds, "nccl", ranks, size),
                         "of_nccl": median_ratio(rounds, ("nccl", ranks, size), key)})
    return rows


def judge(rows, counts):
    """Each floor, and whether it is met: None if it was not measured, or the times mean nothing."""
    floors = []
    for row in rows:
        value = None
        if row["calls"] == "stream" and row["bytes"] == COPY_BYTES and row["mode"] in COPY_FLOORS:
            value, floor, kind = row["of_copy"], COPY_FLOORS[row["mode"]], "of a copy"
            met = value is not None and value >= floor
        elif row["calls"] == "stream" and row["bytes"] == LAUNCH_BYTES and row["mode"] in LAUNCH_MODES:
            value, floor, kind = row["launches"], LAUNCH_FLOOR, "empty launches with an event"
            met = value is not None and value <= floor
        else:
            continue
        floors.append({"series": row["series"], "bytes": row["bytes"], "kind": kind, "value": value, "floor": floor,
                       "met": met if counts and value is not None else None})
    return floors
