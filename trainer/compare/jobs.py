"""jobs.py: runs of the trainer, and the results of their epochs."""
import collections
import json
import os
import subprocess
import sys

Condition = collections.namedtuple("Condition", "name options launcher")
LIMIT_S = 600  # of one run
ALONE = "one rank"  # sends nothing: the baseline for the strategies' accuracy


class Run:
    """One run: its epochs from the metrics file, with running totals at the end of each."""

    def __init__(self, strategy, condition, turn, epochs):
        self.strategy, self.condition, self.turn, self.epochs = strategy, condition, turn, epochs
        seconds = sent = samples = 0
        for epoch in epochs:
            seconds += epoch["seconds"]
            sent += epoch["sent_bytes"]
            samples += round(epoch["seconds"] * epoch["samples_per_s"])
            epoch.update(wall_s=seconds, sent_so_far=sent, samples=samples)

    @property
    def accuracy(self):
        return self.epochs[-1]["test_accuracy"]

    @property
    def samples_per_s(self):
        return self.epochs[-1]["samples"] / self.epochs[-1]["wall_s"]

    def seconds_to(self, accuracy):
        """Seconds until the test accuracy was first reached, or None."""
        return next((e["wall_s"] for e in self.epochs if e["test_accuracy"] >= accuracy), None)

    def share(self, name):
        """A share of the ranks' time over all epochs: 0 to 1."""
        return sum(e[name] * e["seconds"] for e in self.epochs) / self.epochs[-1]["wall_s"]


def shaped(rate):
    """Words in front of the launcher: a network namespace whose only link is slow."""
    return ["unshare", "--net", "sh", "-c",
            f"ip link set lo up && tc qdisc add dev lo root tbf rate {rate} burst 256k limit 64m && exec \"$@\"", "sh",
            "env", "COLL_TRANSPORT=tcp"]


def all_strategies(options):
    """The strategies that coll_train knows."""
    text = subprocess.run([os.path.join(options.build, "bin", "coll_train"), "--help"], check=True,
                          capture_output=True, text=True).stdout
    return [line.split()[0] for line in text.split("strategies:\n")[1].splitlines() if line.strip()]


def command_of(options, ranks, metrics, words):
    """The command that starts the trainer on so many ranks."""
    binaries = os.path.join(options.build, "bin")
    return [os.path.join(binaries, "collrun"), "-n", str(ranks), os.path.join(binaries, "coll_train"), "--quiet",
            "--metrics", metrics, *words]


def train(options, strategy, condition, turn):
    """One run; None if this strategy cannot do it. Each round has its own seed, so that the rounds show the variation
    between seeds, too."""
    metrics = os.path.join(options.out, "metrics.json")
    ranks, name = (1, "allreduce") if strategy == ALONE else (options.ranks, strategy)
    command = [*condition.launcher, *command_of(options, ranks, metrics, [
        "--strategy", name, "--epochs", str(options.epochs), "--seed", str(turn), *condition.options,
        *options.more])]
    result = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if result.returncode != 0:
        why = (result.stderr.strip().splitlines() or ["no message"])[0]
        print(f"compare: {strategy}, {condition.name}: left out: {why}", file=sys.stderr)
        return None
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    os.remove(metrics)
    return Run(strategy, condition.name, turn, [line for line in lines if line["type"] == "epoch"])


def run_all(options, conditions):
    """All runs by condition, then by strategy: a list with one run a round. Undisturbed, one rank comes first."""
    names = options.strategies.split(",") if options.strategies else all_strategies(options)
    found = {condition.name: collections.defaultdict(list) for condition in conditions}
    for condition in conditions:
        for turn in range(1, options.rounds + 1):
            for name in [ALONE, *names] if condition is conditions[0] else names:
                if turn > 1 and name not in found[condition.name]:
                    continue
                run = train(options, name, condition, turn)
                if run:
                    found[condition.name][name].append(run)
                    print(f"{condition.name}: {name}: {100 * run.accuracy:.2f} %, "
                          f"{run.samples_per_s:.0f} samples/s", flush=True)
    if all(name == ALONE for strategies in found.values() for name in strategies):
        sys.exit("compare: no strategy could be run")
    return {condition: strategies for condition, strategies in found.items() if strategies}
