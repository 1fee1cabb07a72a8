"""lost.py: a process is killed while its streams and those of the others meet: the others must end, and name it."""
import re

import verify

LIMIT_S, DEADLINE_S = 60, 10   # of the step, and of an operation
KILLED_AFTER_S, KILLED_AFTER_S_SMALL = 10, 2  # by then all ranks meet; the driver has compiled the kernels before
LOST = 1
# Rank 1 runs under timeout(1).
SHELL = 'if [ "$COLL_RANK" = {} ]; then exec timeout -s KILL {} "$@"; fi; exec "$@"'


KILLED = 137  # collrun's status then


def problem(text, mode, ranks):
    """What is wrong although the others ended, or None."""
    if verify.mode_of(text) != mode:
        return f"it ran in mode {verify.mode_of(text)} instead of {mode}"
    told = set(re.findall(rf"^coll_perf: (rank \d+): COLL_ERR_PEER_LOST: rank {LOST} ", text, re.MULTILINE))
    return None if len(told) == ranks - 1 else f"{len(told)} of {ranks - 1} others said that rank {LOST} is lost"


def run(steps, programs, gpus, small):
    """Kills a rank in each mode of processes; returns what happened."""
    found = []
    after = KILLED_AFTER_S_SMALL if small else KILLED_AFTER_S
    for mode, ranks, env in [("ordered", 3, verify.one_gpu())] + ([("spin", min(gpus, 3), {})] if gpus > 1 else []):
        words = ["allreduce", "-b", "64", "-e", "64", "-n", "100000000", "-w", "0", "-c", "0", "-T", str(DEADLINE_S)]
        perf = [programs["coll_perf"], *words, "--memory", "cuda"]
        command = [programs["collrun"], "--keep-going", "-n", str(ranks), "sh", "-c", SHELL.format(LOST, after), "sh", *perf]
        env = {**env, "COLL_GPU_MODE": mode, "COLL_LOG": "info"}
        record, (out, err) = steps.run("verify", f"a rank is killed, {mode}", command, LIMIT_S, env, accept=KILLED)
        why = problem(out + err, mode, ranks) if record["status"] == "passed" else None
        if why:
            steps.fail(record, why, out + err)
        found.append({"what": "a rank is killed, the others end and name it", "mode": mode, "ranks": ranks,
                      "as": "processes", "calls": "stream", "status": record["status"], "why": record["why"]})
    return found
