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
        "in_place": "out of place over in place",
        "one_nic": "libcoll with one network interface over libcoll with all",
        "one_socket": "one socket between the sites over libcoll",
        "order": "the shorter over the longer of libcoll's times in two orders of ranks"}
ORDER_FLOOR = 0.95  # of all shapes of hosts
ORDERS = ("blocks", "dealt")  # of ranks over hosts: in the first round and every second one, and in the others


class Ratio:
    """A ratio taken within each round: median, smallest and largest."""
    enough = True  # rounds to know what noise does

    def __init__(self, values):
        self.median = statistics.median(values)
        self.least, self.most = min(values), max(values)

    def straddles(self, bound):
        """Whether rounds disagree on which side of the bound it is."""
        return bound is not None and self.least < bound < self.most


class OrderRatio(Ratio):
    """A ratio between rounds of one order of ranks and of the other, that of the lower median first: the ratio of the
    medians, the smallest and the largest of any two rounds."""

    def __init__(self, times):
        better, worse = sorted(times, key=statistics.median)
        super().__init__([a / b for a in better for b in worse])
        self.median = statistics.median(better) / statistics.median(worse)
        self.enough = min(map(len, times)) > 1


class Verdict:
    """A floor and whether a cell reached it, or that of the alternative, another verdict."""

    def __init__(self, key, what, floor, ratio, steady):
        self.key, self.what, self.floor, self.ratio = key, what, floor, ratio
        self.passed = self.alone = ratio.median >= floor  # alone: without the alternative
        self.clear = steady and ratio.enough and not ratio.straddles(floor)
        self.alternative = None
        self.untimed = None  # the ratio of an alternative that was not measured

    def allow(self, other):
        """Either is enough."""
        self.alternative = other
        passing = [v for v in (self, other) if v.passed]
        self.clear = any(v.clear for v in passing) if passing else self.clear and other.clear
        self.passed = bool(passing)


def read_floors(path):
    """The floors: (what, operations, where, transport, [(bytes, floor)]) for each line; `where` has numbers of ranks, or
    shapes of hosts. A line that begins with "or" is an alternative to the one before it."""
    floors = []
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        columns = [int(name) for name in next(rows)[4:]]
        for what, operations, where, transport, *values in rows:
            steps = [(size, float(v) if v else None) for size, v in zip(columns, values)]
            places = where.split() if transport == "hosts" else [int(n) for n in where.split()]
            floors.append((what, operations.split(), places, transport, steps))
    return floors


def floor_of(steps, size):
    """The floor of a size: that of the largest size of the line that is no larger, or of its first."""
    return [floor for of, floor in steps if of <= max(size, steps[0][0])][-1]


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
        ours, limits = ["libcoll", "libcoll-inplace", "libcoll-shared", "libcoll-one-nic"], ["limit", "sockets", "one-socket"]
        known = ours + self.peers + limits
        self.series = [series for series in known if series in seen]
        self.recorded = self.series + sorted(seen - set(self.series))  # also what has no column
        order = {operation: i for i, operation in enumerate(OPERATIONS)}
        self.keys = sorted({key[:3] for key in samples.us}, key=lambda k: (k[0], order[k[1]], k[2]))
        orders = [(key, self.ratio(key, "order")) for key in self.keys]
        self.verdicts = [*self._judge_all(floors), *(Verdict(key, "order", ORDER_FLOOR, ratio, self.steady(key))
                                                     for key, ratio in orders if ratio)]

    def median(self, key, series):
        """Median time over the rounds, or None."""
        times = self._times(key, series, range(self.samples.rounds))
        return statistics.median(times) if times else None

    def _times(self, key, series, rounds):
        """The times of some rounds."""
        times = [self.samples.get(key, series, r) for r in rounds]
        return [us for us in times if us is not None]

    def order_medians(self, key):
        """libcoll's median by each of ORDERS, or None where ranks have only one order, or no round of another."""
        times = self._order_times(key)
        return times and {order: statistics.median(us) for order, us in zip(ORDERS, times)}

    def _order_times(self, key):
        hosts = self.options.hosts
        if not hosts or not hosts.orders_differ:
            return None
        # The first round is cold: it does not count where its order has two others.
        first = 2 if self.samples.rounds >= 5 else 0
        times = [self._times(key, "libcoll", range(start, self.samples.rounds, 2)) for start in (first, 1)]
        return times if all(times) else None

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
                "one_nic": (get("libcoll-one-nic"), get("libcoll")),
                "one_socket": (get("one-socket"), get("libcoll")),
                "in_place": (get("libcoll"), get("libcoll-inplace"))}[what]

    def ratio(self, key, what):
        """One of WHAT over the rounds, or None."""
        if what == "order":
            times = self._order_times(key)
            return times and OrderRatio(times)
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

    def _judge_all(self, floors):
        """The verdicts of all lines of floors; one that has an alternative knows it."""
        verdicts, above = [], {}
        for line in floors:
            what, judged = line[0].removeprefix("or "), {}
            for key, floor in self._floors(line):
                ratio = self.ratio(key, what)
                if ratio:
                    judged[key] = Verdict(key, what, floor, ratio, self.steady(key))
                elif line[0] != what and key in above:
                    above[key].untimed = what
            for key, verdict in judged.items():
                if line[0] != what and key in above:
                    above[key].allow(verdict)
                else:
                    verdicts.append(verdict)
            above = judged
        return verdicts

    def _floors(self, line):
        """The cells that one line has a floor for, and the floor."""
        _, operations, places, transport, steps = line
        if transport != self.options.transport:
            return
        for key in self.keys:
            place = self.options.hosts.text if transport == "hosts" else key[0]
            if place not in places or key[1] not in operations:
                continue
            floor = floor_of(steps, key[2])
            if floor is not None:
                yield key, floor

    def clearly_missed(self):
        """Misses that noise does not explain."""
        return [v for v in self.verdicts if not v.passed and v.clear]
