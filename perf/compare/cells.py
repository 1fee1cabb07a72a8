"""cells.py: medians, ratios with their spread, floors, and which results are within the noise."""
import csv
import os
import platform
import statistics

OPERATIONS = ["allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather",
              "scatter", "barrier"]
STEADY = 1.5  # a reference that moves by more than this factor between rounds marks its cells

WHAT = {"peer": "best peer over libcoll",
        "peer_limit": "best peer over limit",
        "shared": "ordinary buffers over coll_mem_alloc's",
        "shared_limit": "limit over libcoll with coll_mem_alloc's buffers",
        "limit": "limit over libcoll",
        "composed": "reduce followed by broadcast over all-reduce",
        "in_place": "out of place over in place"}


class Ratio:
    """A ratio taken within each round: median, smallest and largest."""

    def __init__(self, values):
        self.median = statistics.median(values)
        self.least, self.most = min(values), max(values)

    def straddles(self, bound):
        """Whether rounds disagree on which side of the bound it is."""
        return bound is not None and self.least < bound < self.most


class Verdict:
    """A floor and whether a cell reached it."""

    def __init__(self, key, what, floor, ratio, steady):
        self.key, self.what, self.floor, self.ratio = key, what, floor, ratio
        self.passed = ratio.median >= floor
        self.clear = steady and not ratio.straddles(floor)


def read_floors(path):
    """The floors: (what, operations, where, transport, [(bytes, floor)]) for each line; `where` has numbers of ranks, or
    shapes of hosts."""
    floors = []
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        columns = [int(name) for name in next(rows)[4:]]
        for what, operations, where, transport, *values in rows:
            steps = [(size, float(v) if v else None) for size, v in zip(columns, values)]
            places = where.split() if transport == "hosts" else [int(n) for n in where.split()]
            floors.append((what, operations.split(), places, transport, steps))
    return floors


def machine():
    """The processor, how many of them, and the kernel."""
    model = platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return {"processor": model, "processors": len(os.sched_getaffinity(0)),
            "kernel": platform.release()}


class Result:
    """All results of a run, by cell: (ranks, operation, bytes)."""

    def __init__(self, options, found, samples, floors):
        self.options, self.samples = options, samples
        self.machine = machine()
        self.versions = found.versions
        self.limit_settings = {key: setting for library in found.all
                               for key, (_, setting) in library.fastest.items()}
        self.peers = [library.name for library in found.all if library.is_peer]
        seen = {key[3] for key in samples.us}
        known = ["libcoll", "libcoll-inplace", "libcoll-shared"] + self.peers + ["limit", "sockets"]
        self.series = [series for series in known if series in seen]
        self.recorded = self.series + sorted(seen - set(self.series))  # also what has no column
        order = {operation: i for i, operation in enumerate(OPERATIONS)}
        self.keys = sorted({key[:3] for key in samples.us}, key=lambda k: (k[0], order[k[1]], k[2]))
        self.verdicts = [verdict for line in floors for verdict in self._judge(line)]

    def median(self, key, series):
        """Median time over the rounds, or None."""
        times = [self.samples.get(key, series, r) for r in range(self.samples.rounds)]
        times = [us for us in times if us is not None]
        return statistics.median(times) if times else None

    def _in_round(self, key, what, number):
        """The two times of a ratio, in one round."""
        def get(series):
            return self.samples.get(key, series, number)
        if what in ("peer", "peer_limit"):
            times = [us for us in map(get, self.peers) if us is not None]
            if what == "peer_limit":
                return min(times, default=None), get("limit")
            # A peer's broadcast is in place: its root copies nothing.
            in_place = key[1] == "broadcast" and get("libcoll-inplace")
            return min(times, default=None), in_place or get("libcoll")
        return {"composed": (get("libcoll-composed"), get("libcoll")),
                "shared": (get("libcoll"), get("libcoll-shared")),
                "shared_limit": (get("limit"), get("libcoll-shared")),
                "limit": (get("limit"), get("libcoll")),
                "in_place": (get("libcoll"), get("libcoll-inplace"))}[what]

    def ratio(self, key, what):
        """One of WHAT over the rounds, or None."""
        pairs = [self._in_round(key, what, r) for r in range(self.samples.rounds)]
        values = [a / b for a, b in pairs if a and b]
        return Ratio(values) if values else None

    def steady(self, key):
        """Whether the hand-over of a cache line took about the same time in all rounds."""
        times = [us for (ranks, operation, _), us in self.samples.handover.items()
                 if us and (ranks, operation) == key[:2]]
        return not times or max(times) <= STEADY * min(times)

    def floor(self, key, what="peer"):
        """The floor of a cell, or None."""
        return next((v.floor for v in self.verdicts if v.key == key and v.what == what), None)

    def unclear(self, key):
        """Whether the noise is too large to say on which side of 1 or of its floor a cell is."""
        ratio = self.ratio(key, "peer")
        return ratio is not None and (not self.steady(key) or ratio.straddles(1)
                                      or ratio.straddles(self.floor(key)))

    def _judge(self, line):
        """The verdicts of one line of floors."""
        what, operations, places, transport, steps = line
        if transport != self.options.transport:
            return
        for key in self.keys:
            place = self.options.hosts.text if transport == "hosts" else key[0]
            if place not in places or key[1] not in operations:
                continue
            reached = [floor for size, floor in steps if size <= max(key[2], steps[0][0])]
            ratio = self.ratio(key, what)
            if ratio and reached[-1] is not None:
                yield Verdict(key, what, reached[-1], ratio, self.steady(key))

    def clearly_missed(self):
        """Misses that noise does not explain."""
        return [v for v in self.verdicts if not v.passed and v.clear]
