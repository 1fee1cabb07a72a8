"""perftest.py: what the device itself can do, by ib_write_lat and ib_write_bw, in the same boot."""
import itertools
import os
import re
import statistics
import subprocess
import time

import libraries

LONGEST_LATENCY = 4096    # sizes up to this are limited by latency, larger ones by bandwidth
BYTES = 16 << 20          # that a measurement of bandwidth moves each way
TIMES = 3                 # each, of which the median counts: perftest gauges its clock anew each time,
                          # and can be a fifth off, or fail to
LISTEN_S, MEASURE_S = 40, 60
PORTS = itertools.count(18600)


def listens(port):
    """Whether somebody waits for connections at a TCP port."""
    wanted = f":{port:04X}"
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(path):
            with open(path, encoding="ascii") as file:
                rows = [line.split() for line in file]
            if any(row[1].endswith(wanted) and row[3] == "0A" for row in rows):
                return True
    return False


def run_once(program, *words):
    """The columns that a program of perftest prints, or the reason why there are none."""
    port = next(PORTS)
    command = [program, "-d", "rxe0", "-x", "1", "-F", "-p", str(port), *words]
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        end = time.monotonic() + LISTEN_S
        while not listens(port):
            if server.poll() is not None or time.monotonic() > end:
                return None, f"{program} does not listen"
            time.sleep(0.05)
        text, why = libraries.run_all([command + [os.environ["ADDRESS"]]], MEASURE_S)
    finally:
        libraries.stop([server])
    values = re.findall(r"^ *\d+ +\d+ +[0-9.]+.*$", text, re.MULTILINE)
    return (None, why or f"{program} prints no values") if why or not values else (values[0].split(), None)


def measure(column, program, *words):
    """The median of a column, or None and the reason."""
    results = [run_once(program, *words) for _ in range(TIMES)]
    values = [float(columns[column]) for columns, _ in results if columns]
    return (statistics.median(values), None) if values else (None, results[0][1])


class Perftest(libraries.Library):
    """The limit of an all-reduce. Up to a few KiB: the time of one RDMA write between two ranks, its median.
    Above: what the ranks of a ring must send, 2 (n - 1) S, at the bandwidth of writes both ways at once."""
    is_peer = False

    def __init__(self, options):
        super().__init__("limit", options, "perftest")

    def run(self, operation, ranks, sizes):
        times = []
        for size in sizes:
            if size > LONGEST_LATENCY:
                number = str(max(BYTES // size, 5))
                mebibytes, why = measure(3, "ib_write_bw", "-b", "-s", str(size), "-n", number)
                us = mebibytes and 2 * (ranks - 1) * size / (mebibytes * 1.048576)
            elif ranks == 2:
                us, why = measure(4, "ib_write_lat", "-s", str(size), "-n", "1000")
            else:
                continue
            if why:
                return times, why
            times.append(("limit", size, us))
        return times, None
