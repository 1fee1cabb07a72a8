#!/bin/sh
# coll_train --json: every line on standard output is a JSON object with the fields that docs/trainer.md
# describes, no more and no fewer, for each strategy.
set -u
command -v python3 >/dev/null || { echo "train_json.sh: no python3"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
exec python3 - "$folder" <<'PYTHON'
import json
import os
import random
import re
import struct
import subprocess
import sys

folder, build, source = sys.argv[1], os.environ["BUILD"], os.environ["SOURCE"]


def fail(text):
    """Ends the test."""
    sys.exit(f"train_json.sh: {text}")


def write_data():
    """Small images of noise, brighter for higher labels."""
    random.seed(1)
    for name, count in (("train", 96), ("t10k", 32)):
        labels = bytes(i % 4 for i in range(count))
        pixels = bytes(50 * label + random.randrange(50) for label in labels for _ in range(36))
        with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">4I", 0x803, count, 6, 6) + pixels)
        with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">2I", 0x801, count) + labels)


def documented():
    """Fields of the table of metrics: the lines they are in, and the strategies; none: all."""
    with open(f"{source}/docs/trainer.md", encoding="utf-8") as file:
        table = file.read().split("## Metrics\n")[1].split("\n## ")[0]
    fields = {}
    for names, where, meaning in re.findall(r"^\| (`.*?) \| (\w+) \| (.*) \|$", table, re.M):
        owners = re.findall(r"`([^`]+)`", meaning.split(":")[0]) if meaning.startswith("`") else []
        for name in re.findall(r"`([^`]+)`", names):
            fields[name] = (("epoch", "final") if where == "both" else (where,), owners)
    return fields


def run(*options):
    """The lines of a run, which must be JSON."""
    command = [f"{build}/bin/collrun", "-n", "3", f"{build}/bin/coll_train", "--data", folder, "--layers", "36,8,8,4",
               "--epochs", "2", "--batch", "16", "--json", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if result.returncode or result.stderr:
        fail(f"{options}: status {result.returncode}, {result.stderr!r}")
    try:
        return [json.loads(line, parse_constant=lambda name: fail(f"{options}: {name}"))
                for line in result.stdout.splitlines()]
    except ValueError as error:
        fail(f"{options}: {error}: {result.stdout!r}")


def check(strategy, fields, lines):
    """Two epochs and the end, with the documented fields."""
    if [line.get("type") for line in lines] != ["epoch", "epoch", "final"]:
        fail(f"{strategy}: {lines}")
    for line in lines:
        wanted = {name for name, (where, owners) in fields.items()
                  if line["type"] in where and (not owners or strategy in owners)}
        if set(line) != wanted:
            fail(f"{strategy}: in {line['type']} only one of code and docs has {sorted(set(line) ^ wanted)}")
    if [line["epoch"] for line in lines[:2]] != [1, 2] or lines[2]["epochs"] != 2:
        fail(f"{strategy}: epochs are not numbered: {lines}")
    for name in fields:
        if name not in ("type", "seconds") and name in lines[2] and lines[2][name] != lines[1].get(name, lines[2][name]):
            fail(f"{strategy}: {name} of the end is not that of the last epoch")


def check_stages(stages, micro):
    """No stage works on what it cannot have yet."""
    if len(stages) != 3 or any(len(stage[way]) != micro for stage in stages for way in ("forward", "backward")):
        fail(f"not 3 stages of {micro} micro-batches: {stages}")
    for i in range(micro):
        way = [stage["forward"][i] for stage in stages] + [stage["backward"][i] for stage in reversed(stages)]
        if any(begin > end for begin, end in way) or any(a[1] > b[0] for a, b in zip(way, way[1:])):
            fail(f"micro-batch {i} is at two places at once, or goes back in time: {way}")


write_data()
fields = documented()
text = subprocess.run([f"{build}/bin/coll_train", "--help"], check=True, capture_output=True, text=True).stdout
strategies = [line.split()[0] for line in text.split("strategies:\n")[1].splitlines() if line.strip()]
for strategy in strategies:
    check(strategy, fields, run("--strategy", strategy, *(["--pipeline", "3"] if strategy == "grid" else [])))
for schedule in ("gpipe", "1f1b"):
    check_stages(run("--strategy", "pipeline", "--micro-batches", "5", "--pipeline-schedule", schedule)[1]["stages"], 5)
if "stages" in run("--strategy", "pipeline", "--micro-batches", "86")[1]:
    fail("516 passes are listed")
final = run("--wire", "int8", "--metrics", f"{folder}/metrics")[2]
if (final["ranks"], final["wire"], final["layers"], final["strategy"]) != (3, "int8", [36, 8, 8, 4], "allreduce"):
    fail(f"the run is described as {final}")
with open(f"{folder}/metrics", encoding="utf-8") as file:
    if json.loads(file.readlines()[2]) != final:
        fail("the file of --metrics has other lines")
print(f"train_json.sh: {len(strategies)} strategies, {len(fields)} fields")
PYTHON
