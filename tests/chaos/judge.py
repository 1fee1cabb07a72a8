"""Judges a storm: what its ranks reported, and what they left behind."""
import collections
import os
import re

import hosts

# Seconds from the first rank's report of a failure until the notice has reached all others. In 20 failures with 60 to 80
# runnable processes on two cores the last one reported at most 0.41 s later, and the first one 0.28 s after a kill.
SPREAD = 0.5
# What a rank says of a failure; when: in seconds of time.monotonic().
Report = collections.namedtuple("Report", "rank kind status culprit when message")


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
            judge_verdict(storm, said, depth, members, children)
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


def reports_of(said, depth):
    """What each rank said of the failure of a communicator."""
    return {rank: Report(rank, line[3], line[4], int(line[5]), float(line[6]), " ".join(line[7:]))
            for rank, lines in said.items() for line in lines if line[:2] == ["fail", str(depth)]}


def first_of(reports):
    """When the first rank knew of a failure."""
    return min((report.when for report in reports.values()), default=0)


def judge_verdict(storm, said, depth, members, children):
    """Whom the ranks that continued together blamed. Each must have had a reason (judge_culprit). They may name
    different ones only if all these were struck before the first failure could be known everywhere."""
    reports = reports_of(said, depth)
    revoked = {rank for rank, report in reports.items() if report.kind == "half"}
    ended = {rank for rank, lines in said.items() if any(line[:2] == ["done", str(depth)] for line in lines)}
    verdicts = [report for rank, report in reports.items() if rank in children
                and (report.status != "COLL_ERR_ABORTED" or report.culprit not in revoked)
                and (report.kind != "half" or report.culprit >= 0)]  # -1: a rank outside that part
    # Cuts that were over before this communicator was made do not count.
    made = max((first_of(reports_of(said, d)) for d in range(depth)), default=0)
    strikes = [strike for strike in storm.strikes if strike.end is None or strike.end > made]
    for report in verdicts:
        if report.culprit not in ended:
            judge_culprit(storm, depth, members, report, strikes)
    named, known = {report.culprit for report in verdicts}, first_of(reports) + SPREAD
    together = ended.union(*(strike.ranks for strike in strikes if strike.when <= known))
    if len(named) > 1 and not named <= together:
        storm.errors.append(f"verdicts differ after {depth} shrinks, although of {sorted(named)} only "
                            f"{sorted(named & together)} were struck before the first failure was known: "
                            f"{ {report.rank: report.culprit for report in verdicts} }")


def judge_culprit(storm, depth, members, report, strikes):
    """Whether a rank may blame another: a member that was struck before; if only by a cut, one on the other side of it
    from who noticed."""
    where = f"rank {report.rank} blames {report.culprit} after {depth} shrinks"
    known = [int(number) for number in members[report.rank][1].split(",")]
    host = {rank.number: rank.host for rank in storm.ranks}
    before = [strike for strike in strikes if strike.when <= report.when and report.culprit in strike.ranks]
    earlier = [(strike.when, rank) for strike in strikes if strike.name == "kill" for rank in strike.ranks
               if rank in known and before and strike.when + 2 * SPREAD < min(other.when for other in before)]
    noticed = re.search(r"(?:control link|connection) to rank (\d+)", report.message)
    witnesses = [known[int(noticed[1])]] if noticed and report.kind != "half" else known
    if report.culprit not in known:
        storm.errors.append(f"{where}, which is not a member: {report.message}")
    elif not before:
        storm.errors.append(f"{where}, which was not struck before: {report.message}")
    elif earlier:
        storm.errors.append(f"{where}, although rank {min(earlier)[1]} had been killed long before: {report.message}")
    elif not any(strike.cut is None or strike.cut(host[rank], host[report.culprit])
                 for strike in before for rank in witnesses if rank in host):
        storm.errors.append(f"{where}, which was not cut from {witnesses}: {report.message}")


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
