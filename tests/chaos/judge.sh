#!/bin/bash
# The judge of storms (tests/chaos/judge.py): which verdicts of ranks it accepts, and which it does not.
set -euo pipefail
exec python3 -B - "$SOURCE/tests/chaos" <<'PROGRAM'
import sys
import types

sys.path.insert(0, sys.argv[1])
import hosts
import judge
import storm

failed = 0


def look(name, complaint, strikes, reports, places=(0, 0, 2, 2), after=None):
    """Ranks are on hosts 0 and 2. reports: rank -> (culprit, time, message); all go on together, except the dead."""
    global failed
    everyone = ",".join(map(str, range(len(places))))
    said = {rank: [] for rank in range(len(places))}
    for rank, (culprit, when, message) in reports.items():
        said[rank].append(f"fail 1 7 allreduce COLL_ERR_PEER_LOST {culprit} {when:.6f} {message}".split(" "))
        if after is not None:  # the failure before, which ended with this communicator
            said[rank].append(f"fail 0 7 allreduce COLL_ERR_PEER_LOST 9 {after:.6f} it died".split(" "))
    ranks = [types.SimpleNamespace(number=number, host=host) for number, host in enumerate(places)]
    case = types.SimpleNamespace(ranks=ranks, strikes=strikes, errors=[])
    members = {rank: (rank, everyone) for rank in said}
    judge.judge_verdict(case, said, 1, members, {rank: None for rank in reports})
    if (complaint is None and case.errors) or (complaint and not any(complaint in error for error in case.errors)):
        print(f"{name}: expected {complaint}, got {case.errors}")
        failed = 1


def kill(when, rank):
    return storm.Strike("kill", {rank}, when)


def cut(when, end, apart=hosts.apart):
    strike = storm.Strike("cut", {0, 1, 2, 3}, when, apart)
    strike.end = end
    return strike


LOST = "rank 3 is lost: its control link to rank 0 closed"
SILENT = "rank {} is silent: nothing comes over its control link to rank {}"
look("one died", None, [kill(10, 3)], {0: (3, 10.01, LOST), 1: (3, 10.02, LOST), 2: (3, 10.02, LOST)})
look("nobody was struck", "not struck before", [], {0: (3, 10.01, LOST)})
look("another was struck", "not struck before", [kill(10, 2)], {0: (3, 10.01, LOST)})
look("struck afterwards", "not struck before", [kill(11, 3)], {0: (3, 10.01, LOST)})
look("nobody is named", "not a member", [kill(10, 3)], {0: (-1, 10.01, "something failed")})
look("two died at once", None, [kill(10, 2), kill(10.001, 3)], {0: (3, 10.01, LOST), 1: (2, 10.02, "rank 2 is lost")})
look("one died long after the other was known", "verdicts differ", [kill(10, 2), kill(12, 3)],
     {0: (2, 10.01, "rank 2 is lost"), 1: (3, 12.1, LOST)})
look("one died long after another, whom nobody missed", "had been killed long before", [kill(10, 2), kill(12, 3)],
     {0: (3, 12.1, LOST), 1: (3, 12.1, LOST)})
look("frozen first, and noticed last", None, [storm.Strike("freeze", {2}, 10), kill(12, 3)],
     {0: (3, 12.1, LOST), 1: (3, 12.1, LOST)})
look("two names, one of them struck", "not struck before", [kill(10, 2)],
     {0: (2, 10.01, "rank 2 is lost"), 1: (3, 10.02, LOST)})
look("cut", None, [cut(10, 15)], {0: (2, 13, SILENT.format(2, 0)), 1: (2, 13.1, SILENT.format(2, 0))})
look("cut, noticed on the other side", None, [cut(10, 15)], {0: (2, 13, SILENT.format(2, 1))})
look("cut, but on this side", "not cut from", [cut(10, 15)], {0: (1, 13, SILENT.format(1, 0))})
look("cut, and nobody says who noticed", None, [cut(10, 15)], {0: (2, 13, "rank 2 did not answer")})
look("cut elsewhere", "not cut from", [cut(10, 15, lambda a, b: False)], {0: (2, 13, "rank 2 did not answer")})
look("cut, long before", "not struck before", [cut(10, 15)], {0: (2, 40, SILENT.format(2, 0))}, after=20)
look("cut, and killed on this side", None, [cut(10, 15), kill(12, 1)], {0: (1, 12.1, SILENT.format(1, 0))})
sys.exit(failed)
PROGRAM
