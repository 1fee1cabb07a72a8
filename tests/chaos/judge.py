"""Judges a storm: what its ranks reported, and what they left behind."""
import collections
import os
import re

import hosts


def judge(storm):
    """Adds what is wrong to storm.errors; returns how many failures there were, and how many collectives."""
    said = {r.number: [line.split(" ") for line in r.lines()] for r in storm.ranks}
    for rank in storm.ranks:
        judge_end(storm, rank, said[rank.number])
    depth = 0
    members = entered(said, 0)
    while members:
        children = entered(said, depth + 1)
        if storm.liar is None:  # a lying rank may blame anyone
            judge_lineage(storm, said, depth, members)
            judge_verdict(storm, said, depth, children)
        members, depth = children, depth + 1
    for rank in storm.ranks:
        judge_leaving(storm, rank, said[rank.number])
    failures = sum(any(line[:2] == ["fail", str(d)] for lines in said.values() for line in lines) for d in range(depth))
    if not storm.harmed and failures:
        storm.errors.append("a failure, although nothing happened that is a reason")
    judge_remains(storm)
    return failures, sum(collectives(said, d) for d in range(depth))


def collectives(said, depth):
    """How many the ranks have made after `depth` shrinks."""
    counts = [int(line[2]) for lines in said.values() for line in lines
              if line[0] in ("fail", "done") and line[1] == str(depth)]
    return max(counts, default=0)


def judge_end(storm, rank, lines):
    status = rank.process.returncode
    if -status != storm.victims.get(rank.number, 0) and not (status == 0 and rank.number in storm.victims):
        storm.errors.append(f"rank {rank.number} ended with {status}")
    for line in lines:
        text = " ".join(line)
        # A trace that has no room is refused at once.
        refused = "full_disk" in storm.events and "COLL_TRACE=" in text and "No space left on device" in text
        if line[0] == "unjoined" and not storm.harmed and not refused:
            storm.errors.append(f"a newcomer did not get in: {text}")
        if line[0] in ("wrong", "leak"):
            storm.errors.append(f"rank {rank.number}: {text}")
    if status == 0 and not any(line[0] in ("done", "left", "unjoined") for line in lines):
        storm.errors.append(f"rank {rank.number} ended without a word")


def judge_leaving(storm, rank, lines):
    """Only silence, of a rank or of a network, and a shortage may cost a rank its place."""
    for line in lines:
        if line[0] == "left" and not storm.silence and not storm.short and storm.liar is None:
            storm.errors.append(f"rank {rank.number} was left out, although nobody was silent: {' '.join(line)}")
        elif line[0] == "left" and line[2] in ("COLL_ERR_SYSTEM", "COLL_ERR_NO_MEMORY") and not (
                storm.short or storm.liar is not None):
            storm.errors.append(f"rank {rank.number} lacked something: {' '.join(line)}")


def entered(said, depth):
    """Who was in a communicator after `depth` shrinks: rank -> (its number there, the list)."""
    return {rank: (int(line[2]), line[3]) for rank, lines in said.items() for line in lines
            if line[:2] == ["comm", str(depth)]}


def judge_lineage(storm, said, depth, members):
    if len({where for _, where in members.values()}) > 1:
        storm.errors.append(f"after {depth} shrinks, several communicators: {members}")
    for rank, (number, where) in members.items():
        if where.split(",")[number] != str(rank):
            storm.errors.append(f"rank {rank} is number {number} of {where}")
    ids = {line[2] for lines in said.values() for line in lines if line[:2] == ["id", str(depth)]}
    if len(ids) > 1:
        storm.errors.append(f"after {depth} shrinks, several communicators: {ids}")


def judge_verdict(storm, said, depth, children):
    """Whom the ranks that continued together blamed."""
    failures = {rank: line for rank in children for line in said[rank] if line[:2] == ["fail", str(depth)]}
    ended = {rank for rank, lines in said.items() if any(line[:2] == ["done", str(depth)] for line in lines)}
    revoked = {rank for rank, lines in said.items() for line in lines
               if line[:2] == ["fail", str(depth)] and line[3] == "half"}
    culprits = {rank: int(line[5]) for rank, line in failures.items()
                if (line[4] != "COLL_ERR_ABORTED" or int(line[5]) not in revoked)
                and (line[3] != "half" or int(line[5]) >= 0)}  # -1: a rank outside that part
    counted = collections.Counter(culprits.values())
    if set(counted) <= ended and ended:
        return
    # Each of several may have died first for those who noticed it.
    if len(counted) > 1 and not set(counted) <= storm.struck:
        storm.errors.append(f"verdicts differ after {depth} shrinks: {culprits}")
    for culprit in set(counted) - storm.struck:
        storm.errors.append(f"{culprit} is blamed after {depth} shrinks, but only {sorted(storm.struck)} were struck")


def judge_remains(storm):
    alive = []
    for pid in (pid for pid in os.listdir("/proc") if pid.isdigit() and int(pid) not in storm.helpers):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                alive += [] if re.match(r".*\) Z", file.read()) else [pid]
        except OSError:
            pass
    if alive:
        storm.errors.append(f"processes are left: {alive}")
    if os.listdir("/dev/shm"):
        storm.errors.append(f"segments are left: {os.listdir('/dev/shm')}")
    extra = set(os.listdir(storm.folder)) - {"stop", "clock", "disk", "id"} - {os.path.basename(r.log) for r in storm.ranks}
    if extra:
        storm.errors.append(f"files are left: {extra}")
    strange = [name for name in os.listdir(storm.disk) if not re.match(r"trace\.\d+(\.\d+)?$", name)]
    if strange:
        storm.errors.append(f"files are left: {strange}")
    for host in range(hosts.HOSTS):
        if hosts.listening(host):
            storm.errors.append(f"a port of host {host} is left open")
