"""jobs.py: runs of the trainer, and what each of their epochs came to."""
import collections
import json
import os
import statistics
import subprocess
import sys

Condition = collections.namedtuple("Condition", "name options launcher")
LIMIT_S = 600  # of one run


class Run:
    """One run: its epochs as the metrics file has them, with what has added up until their ends."""

    def __init__(self, strategy, condition, epochs):
        self.strategy, self.condition, self.epochs = strategy, condition, epochs
        seconds = sent = samples = 0
        for epoch in epochs:
            seconds += epoch["seconds"]
            sent += epoch["sent_bytes"]
            samples += epoch["seconds"] * epoch["samples_per_s"]
            epoch.update(wall_s=seconds, sent_so_far=sent, samples=samples)

    @property
    def accuracy(self):
        return self.epochs[-1]["test_accuracy"]

    @property
    def samples_per_s(self):
        return self.epochs[-1]["samples"] / self.epochs[-1]["wall_s"]

    def seconds_to(self, accuracy):
        """When the test accuracy was reached first, or None."""
        return next((e["wall_s"] for e in self.epochs if e["test_accuracy"] >= accuracy), None)


def shaped(rate):
    """Words in front of the launcher: a network of its own whose only link is slow."""
    return ["unshare", "--net", "sh", "-c",
            f"ip link set lo up && tc qdisc add dev lo root tbf rate {rate} burst 256k limit 64m && exec \"$@\"", "sh",
            "env", "COLL_TRANSPORT=tcp"]


def all_strategies(options):
    """The strategies that coll_train knows."""
    text = subprocess.run([os.path.join(options.build, "bin", "coll_train"), "--help"], check=True,
                          capture_output=True, text=True).stdout
    return [line.split()[0] for line in text.split("strategies:\n")[1].splitlines() if line.strip()]


def train(options, strategy, condition):
    """One run; None if this strategy cannot do it."""
    metrics = os.path.join(options.out, "metrics.json")
    binaries = os.path.join(options.build, "bin")
    command = [*condition.launcher, os.path.join(binaries, "collrun"), "-n", str(options.ranks),
               os.path.join(binaries, "coll_train"), "--quiet", "--metrics", metrics, "--strategy", strategy,
               "--epochs", str(options.epochs), *condition.options, *options.more]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if result.returncode != 0:
        why = (result.stderr.strip().splitlines() or ["no message"])[0]
        print(f"compare: {strategy}, {condition.name}: left out: {why}", file=sys.stderr)
        return None
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.remove(metrics)
    return Run(strategy, condition.name, [line for line in lines if line["type"] == "epoch"])


def median_run(runs):
    """The run whose time is the median."""
    return sorted(runs, key=lambda run: run.epochs[-1]["wall_s"])[len(runs) // 2]


def run_all(options, conditions):
    """The median run of each strategy under each condition."""
    names = options.strategies.split(",") if options.strategies else all_strategies(options)
    found = collections.defaultdict(list)
    for condition in conditions:
        for turn in range(options.rounds):
            for name in names:
                if turn > 0 and not found[name, condition.name]:
                    continue
                run = train(options, name, condition)
                if run:
                    found[name, condition.name].append(run)
                    print(f"{condition.name}: {name}: {100 * run.accuracy:.2f} %, "
                          f"{run.samples_per_s:.0f} samples/s", flush=True)
    runs = [median_run(same) for same in found.values() if same]
    if not runs:
        sys.exit("compare: no strategy could be run")
    return runs


def beside_peers(options):
    """Samples per second beside PyTorch, interleaved; medians and their ratio."""
    plan = [("784,512,256,10", 1), ("784,512,256,10", 2), ("784,512,256,10", 4), ("784,2048,2048,10", 1),
            ("784,2048,2048,10", 2)]
    print(f"# {options.command}\n# samples/s, global batch 256, one BLAS thread a rank, medians of "
          f"{options.rounds} interleaved rounds")
    print(f"{'layers':>18} {'ranks':>5} {'libcoll':>9} {'torch':>9} {'ratio':>6}")
    for layers, ranks in plan:
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(speed_of_ours(options, layers, ranks))
            theirs.append(speed_of_torch(options, layers, ranks))
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"{layers:>18} {ranks:>5} {mine:>9.0f} {other:>9.0f} {mine / other:>6.2f}", flush=True)


def speed_of_ours(options, layers, ranks):
    """Samples per second of the strategy allreduce, without its first epoch."""
    options.ranks, options.epochs = ranks, 3
    options.more = ["--layers", layers, "--batch", "256", "--lr", "0.01", "--lr-decay", "1"]
    run = train(options, "allreduce", Condition("beside torch", [], []))
    if not run:
        sys.exit(1)
    return statistics.median(epoch["samples_per_s"] for epoch in run.epochs[1:])


def speed_of_torch(options, layers, ranks):
    """Samples per second of the same with DistributedDataParallel over gloo."""
    result = subprocess.run([sys.executable, os.path.join(options.here, "ddp.py"), layers, str(ranks), "256"],
                            capture_output=True, text=True, timeout=LIMIT_S)
    if result.returncode != 0:
        sys.exit(f"compare: ddp.py: {(result.stderr.strip().splitlines() or ['failed'])[-1]}")
    return float(result.stdout.split()[-1])
