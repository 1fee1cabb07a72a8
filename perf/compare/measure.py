"""measure.py: runs all libraries round by round and collects their times."""
import collections
import sys
import time

HOPELESS_RATIO = 20    # a peer that takes so many times libcoll's time
HOPELESS_US = 2000     # and so long is not measured again
ROUNDS_AT_LEAST = 3    # before a budget ends the run
WARM_UPS = 3           # of the first size between hosts: kernels need some 0.3 s to spread ranks over the processors


class Samples:
    """Times by (ranks, operation, bytes, series, round), in microseconds."""

    def __init__(self):
        self.us = {}
        self.handover = {}  # by (ranks, operation, round)
        self.rounds = 0     # that were completed
        self.failed = []    # libcoll's failures
        self.complaints = collections.Counter()

    def put(self, key, series, number, us):
        """Keeps one time; key: (ranks, operation, bytes)."""
        self.us[key + (series, number)] = us

    def get(self, key, series, number):
        """One time, or None."""
        return self.us.get(key + (series, number))

    def complain(self, library, ranks, operation, why):
        """Reports a failure once for each library and operation."""
        told = (library.name, ranks, operation)
        self.complaints[told] += 1
        if library.is_ours:
            self.failed.append(told)
        if self.complaints[told] == 1:
            print(f"compare: {library.name}, {operation}, {ranks} ranks: {why}", file=sys.stderr)


def sizes_of(options, ranks, operation):
    """The sizes for an operation: whole floats for each rank where there are blocks."""
    if operation == "barrier":
        return [0]
    unit = 4 if operation in ("allreduce", "broadcast", "reduce") else 4 * ranks
    fitting = [s for s in options.sizes if options.largest is None or s * ranks <= options.largest]
    return sorted({max(s // unit, 1) * unit for s in fitting})


def is_hopeless(samples, library, key):
    """Whether a peer was too slow in the first round to measure it again."""
    theirs, ours = samples.get(key, library.name, 0), samples.get(key, "libcoll", 0)
    return (library.is_peer and theirs is not None and ours is not None
            and theirs > HOPELESS_US and theirs > HOPELESS_RATIO * ours)


def run_operation(options, found, samples, ranks, operation, number, warm_ups):
    """Runs all libraries, starting with a different one in each round; between hosts in each two, one of each order."""
    sizes = sizes_of(options, ranks, operation)
    samples.handover[ranks, operation, number] = found.handover()
    first = (number if options.hosts is None else number // 2) % len(found.all)
    order = found.all[first:] + found.all[:first]
    for library in order:
        wanted = [s for s in sizes if number == 0
                  or not is_hopeless(samples, library, (ranks, operation, s))]
        if not wanted or not library.takes(operation, ranks):
            continue
        times, why = library.run(operation, ranks, wanted[:1] * warm_ups + wanted)  # the last time counts
        for series, size, us in times:
            samples.put((ranks, operation, size), series, number, us)
        if why:
            samples.complain(library, ranks, operation, why)


def measure(options, found, hosts=None):
    """Runs all rounds, or fewer if the time budget does not suffice. hosts: those that are measured between, which are told of the round."""
    samples = Samples()
    start = time.monotonic()
    longest = 0
    warm_ups = WARM_UPS if hosts and not hosts.shape.rates and not hosts.shape.line else 0
    for number in range(options.rounds):
        before = time.monotonic()
        if hosts:
            hosts.round = number
        if options.budget and number >= ROUNDS_AT_LEAST and before - start + longest > options.budget:
            print(f"compare: no time for round {number + 1}", file=sys.stderr)
            break
        for ranks in options.ranks:
            for operation in options.ops:
                run_operation(options, found, samples, ranks, operation, number, warm_ups)
        samples.rounds = number + 1
        took = time.monotonic() - before
        longest = max(longest if number > 1 else 0, took)  # the first one has the hopeless cells
        print(f"compare: round {number + 1} of {options.rounds}: {took:.0f} s", file=sys.stderr)
    samples.seconds = time.monotonic() - start
    return samples
