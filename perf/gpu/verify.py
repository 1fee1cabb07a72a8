"""verify.py: coll_perf's own verification of all collectives, types, operations and modes on GPU memory."""
import os
import re

LIMIT_S = 90
COLLECTIVES = ("allreduce reduce reduce_scatter reduce_scatterv scan exscan broadcast allgather allgatherv gather "
               "gatherv scatter scatterv alltoall alltoallv barrier sendrecv reduce_broadcast").split()
FEW = ["allreduce", "reduce_scatterv", "alltoall"]
REDUCTIONS = ["allreduce", "reduce_scatterv", "scan"]
SIZES, SIZES_SMALL = "4,128,4K,128K,4M", "4,1K"
CALLS = {"stream": [], "graph": ["-G", "3"], "blocking": ["-z", "1"]}


def one_gpu():
    """The environment in which there is only the first GPU; the second setting is the software GPU's."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {"CUDA_VISIBLE_DEVICES": visible, "GPU_DEVICES": "1"}


def layouts(gpus, small):
    """(mode, ranks, as what, environment): where ranks are."""
    one = one_gpu()
    yield "meet", 3, "threads", one
    yield "ordered", 3, "processes", one
    if gpus > 1:
        ranks = min(gpus, 4)
        yield "spin", ranks, "threads", {}
        yield "spin", ranks, "processes", {}
    if small:
        return
    yield "ordered", 3, "threads", one
    yield "staged", 3, "threads", one
    yield "staged", 3, "processes", one
    if gpus > 1:
        yield "ordered", ranks, "processes", {}


def plan(gpus, small):
    """All runs, the most telling first: what is measured, and with which options."""
    sizes = ["-b", SIZES_SMALL if small else SIZES, "-n", "2", "-w", "1", "-r", "-1"]
    types = ["-d", "all", "-o", "all", "-b", "300,300" if small else "300,64K", "-n", "1", "-w", "0"]
    spots = list(layouts(gpus, small))
    for calls in ("stream", "graph"):
        for spot in spots:
            yield spot, calls, "all collectives", FEW if small and calls == "graph" else COLLECTIVES, sizes
    for spot in spots[:1] if small else spots:
        yield spot, "stream", "all types and operations", ["allreduce"] if small else REDUCTIONS, types
    if not small:
        yield spots[0], "graph", "all types and operations", ["allreduce"], types
    blocking = ("staged", 2 if small else 3, "threads", {})
    yield blocking, "blocking", "all collectives", FEW if small else COLLECTIVES, sizes
    if not small:
        yield blocking, "blocking", "all types and operations", ["allreduce"], types


def command_of(programs, ranks, how, words):
    """coll_perf with its ranks."""
    if how == "threads":
        return [programs["coll_perf"], *words, "--memory", "cuda", "-t", str(ranks)]
    return [programs["collrun"], "-n", str(ranks), programs["coll_perf"], *words, "--memory", "cuda"]


def mode_of(text):
    """In which mode operations ran, by what libcoll and coll_perf say."""
    modes = set(re.findall(r"stay in GPU memory, mode (\w+)", text))
    if "staged through host memory" in text:
        modes.add("staged")
    return " and ".join(sorted(modes)) or "none"


def problem(out, err, mode, tables):
    """What is wrong although the program succeeded, or None."""
    right = out.count("values : 0 OK")
    if right != tables:
        return f"{tables} tables should be without wrong values, but {right} are"
    ran = mode_of(out + err)
    return None if ran == mode else f"it ran in mode {ran} instead of {mode}"


def run(steps, programs, gpus, small):
    """Runs all; returns a list of what was verified."""
    until, found = steps.share(0.45), []
    for (mode, ranks, how, env), calls, what, collectives, words in plan(gpus, small):
        name = f"{what}, {mode}, {ranks} {how}, {calls}"
        command = command_of(programs, ranks, how, [*collectives, *words, *CALLS[calls], "-T", "20"])
        env = {**env, "COLL_GPU_MODE": mode, "COLL_LOG": "info"}
        record, (out, err) = steps.run("verify", name, command, LIMIT_S, env, until)
        why = problem(out, err, mode, len(collectives)) if record["status"] == "passed" else None
        if why:
            steps.fail(record, why, err + out)
        found.append({"what": what, "mode": mode, "ranks": ranks, "as": how, "calls": calls,
                      "collectives": collectives, "status": record["status"], "why": record["why"]})
    return found
