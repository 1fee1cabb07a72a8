"""peers.py: the trainer's speed beside PyTorch's, and beside independent ranks that send nothing."""
import glob
import json
import math
import os
import statistics
import subprocess
import sys

import jobs

BATCH = 256  # over all ranks
PLAN = [("784,512,256,10", 1), ("784,512,256,10", 2), ("784,512,256,10", 4), ("784,2048,2048,10", 1),
        ("784,2048,2048,10", 2), ("784,2048,2048,10", 4)]
COLUMNS = {"libcoll": "allreduce", "apart": "the same ranks, independent, each with its part of the batch",
           "torch": "DistributedDataParallel over gloo",
           "over coll": "the same over libcoll's backend (docs/bindings/torch.md), with 2 ranks or more",
           "no sums": "the same without sums of gradients: no backend can be faster",
           "threads": "one torch process with a thread for each core (with libopenblas0-openmp, if installed)"}


def beside_peers(options):
    """Samples per second of each, interleaved: medians, and ours over theirs."""
    print(f"# {options.command}\n# samples/s, global batch {BATCH}, one BLAS thread a rank, medians of "
          f"{options.rounds} interleaved rounds; / X: libcoll over X")
    for name, about in COLUMNS.items():
        print(f"# {name}: {about}")
    print(f"{'layers':>18} {'ranks':>5} " + " ".join(f"{name:>9}" for name in COLUMNS) +
          " ".join(f"{'/ ' + name:>11}" for name in list(COLUMNS)[1:]) + " coll / gloo")
    for layers, ranks in PLAN:
        rounds = [measure(options, layers, ranks) for _ in range(options.rounds)]
        row = {name: statistics.median(one[name] for one in rounds) for name in COLUMNS}
        ratios = [row["libcoll"] / row[name] for name in list(COLUMNS)[1:]] + [row["over coll"] / row["torch"]]
        print(f"{layers:>18} {ranks:>5} " + " ".join(f"{row[name]:>9.0f}" for name in COLUMNS) +
              " ".join(f"{ratio:>11.2f}" for ratio in ratios), flush=True)


def measure(options, layers, ranks):
    """One round of a row."""
    return {"libcoll": speed_of_ours(options, layers, ranks, 1, BATCH),
            "apart": speed_of_ours(options, layers, 1, ranks, BATCH // ranks),
            "torch": speed_of_torch(options, layers, ranks, 1, "gloo"),
            "over coll": speed_of_torch(options, layers, ranks, 1, "coll") if ranks > 1 else math.nan,
            "no sums": speed_of_torch(options, layers, ranks, 1, "none") if ranks > 1 else math.nan,
            "threads": speed_of_torch(options, layers, 1, len(os.sched_getaffinity(0)), "gloo")}


def speed_of_ours(options, layers, ranks, runs, batch):
    """Samples per second of so many concurrent runs, without their first epochs."""
    words = ["--layers", layers, "--batch", str(batch), "--epochs", "3", "--lr", "0.01", "--lr-decay", "1"]
    paths = [os.path.join(options.out, f"metrics.{i}.json") for i in range(runs)]
    cores = sorted(os.sched_getaffinity(0))
    started = []
    for i, path in enumerate(paths):
        bind = ["taskset", "-c", str(cores[i % len(cores)])] if runs > 1 else []
        started.append(subprocess.Popen([*bind, *jobs.command_of(options, ranks, path, words)],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    total = 0
    for path, process in zip(paths, started):
        _, said = process.communicate(timeout=jobs.LIMIT_S)
        if process.returncode != 0:
            sys.exit(f"compare: {(said.strip().splitlines() or ['coll_train failed'])[0]}")
        with open(path, encoding="utf-8") as file:
            epochs = [line for line in map(json.loads, file) if line["type"] == "epoch"]
        os.remove(path)
        total += statistics.median(epoch["samples_per_s"] for epoch in epochs[1:])
    return total


def speed_of_torch(options, layers, ranks, threads, backend):
    """Samples per second of the same in PyTorch; NaN if the backend was not built. OpenBLAS's own threads would compete
    with torch's."""
    package = os.path.join(options.build, "torch")
    if backend == "coll" and not os.path.exists(os.path.join(package, "stamp")):
        return math.nan
    shared = glob.glob("/usr/lib/*/openblas-openmp") if threads > 1 else []
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([package, *filter(None, [os.getenv("PYTHONPATH")])]),
                   **({"LD_LIBRARY_PATH": shared[0]} if shared else {})}
    result = subprocess.run([sys.executable, os.path.join(options.here, "ddp.py"), layers, str(ranks), str(BATCH),
                             str(threads), backend], capture_output=True, text=True, timeout=jobs.LIMIT_S,
                            env=environment)
    if result.returncode != 0:
        sys.exit(f"compare: ddp.py: {(result.stderr.strip().splitlines() or ['failed'])[-1]}")
    return float(result.stdout.split()[-1])
