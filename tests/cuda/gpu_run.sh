#!/bin/bash
# perf/gpu/run on the fake driver: it has every part, finds what is wrong, and says that its times mean nothing.
. "$(dirname "$0")/../common/perf.inc"
run=$SOURCE/perf/gpu/run probe=$BUILD/perf/gpu_probe
mkdir "$out/lib" "$out/none"
ln -s "$BUILD/tests/plugins/fake_gpu.so" "$out/lib/libcuda.so.1"
ln -s /dev/null "$out/none/libcuda.so.1"
export LD_LIBRARY_PATH=$out/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} GPU_DEVICES=2 BUILD

check "two GPUs" "$run" --short --seconds 400 --out "$out/two" --nccl "$BUILD/tests/plugins/fake_nccl.so"
python3 - "$out/two/gpu.json" <<'END_PYTHON' || failed=1
import json, sys
run = json.load(open(sys.argv[1]))
assert run["software"] and run["gpus"] == 2 and run["status"] == 0 and len(run["devices"]) == 2, run
bad = [step for step in run["steps"] if step["status"] != "passed"]
assert not bad, bad
found = {probe["name"]: probe for probe in run["probes"]}
for pair in "one GPU", "GPU 0 and 1":
    assert found[f"memory of another process, {pair}"]["written"], found
    for which in "host", "write", "wait":
        assert found[f"stream memory operations, {which}, {pair}"]["ended"], found
for queues in 1, 2, 8, 32:  # all but one may be blocked
    probe = found[f"{queues} hardware queues"]
    assert probe["waits"] == probe["kernels"] == queues - 1, probe
assert found["two processes switch"]["copy_both_us"] > 0, found
for name in "compiled by the driver", "from the driver's cache":
    assert found["kernels " + name]["load_ms"] > 0, found
verified = {(one["mode"], one["as"], one["calls"]) for one in run["verified"]}
assert verified >= {("meet", "threads", "stream"), ("ordered", "processes", "graph"), ("spin", "threads", "stream"),
                    ("spin", "processes", "graph"), ("staged", "threads", "blocking")}, verified
assert any(one["what"] == "all types and operations" for one in run["verified"]), run["verified"]
assert {one["mode"] for one in run["verified"] if "killed" in one["what"]} == {"ordered", "spin"}, run["verified"]
rows = {(row["mode"], row["as"], row["calls"], row["bytes"]): row for row in run["figures"]}
for mode, how in ("meet", "threads"), ("ordered", "processes"), ("spin", "processes"), ("spin", "threads"):
    short, long = rows[mode, how, "stream", 8], rows[mode, how, "stream", 16384]
    assert abs(short["launches"] - short["us"] / run["launch_event_us"]) < 1e-6, short
    assert abs(long["of_copy"] - long["copy_us"] / long["us"]) < 1e-6, long
    assert (long["of_nccl"] or 0) > 0 or mode != "spin", long
assert run["nccl"]["version"] == 22809, run["nccl"]
assert len(run["floors"]) == 4 and all(one["met"] is None and one["value"] for one in run["floors"]), run["floors"]
assert "tests/cuda/test_faults.c" in run["tests_left_out"]["tests"], run["tests_left_out"]
assert "tests/cuda/test_graphs.c" not in run["tests_left_out"]["tests"], run["tests_left_out"]
assert [one["status"] for one in run["tests"]] == ["passed"] * 2 and run["tests"][0]["passed"] == 3, run["tests"]
assert "GPU" in run["topology"], run["topology"]
END_PYTHON
cp "$out/two/gpu.md" "$out/log"
has "This is the software GPU" "Its times mean nothing" "not judged" "## Floors" "## All-reduce" "## Probes" "## Results" "## Tests" \
  "NCCL 2.28.9 had a rank on each GPU" "cannot run on a real driver"

# What fails is found: each part by itself, as a whole run takes seconds.
refuse "other processes get no memory" "cuIpcGetMemHandle failed .*801" env GPU_NO_IPC=1 "$probe" ipc
refuse "no driver call works" "failed with error 999, CUDA_ERROR_UNKNOWN" env GPU_FAIL=20 "$probe" limits
refuse "an unknown part" "bad usage: 'dance'" "$probe" dance
refuse "NCCL computes something else" "sums of 8 bytes are 3 and 3" env FAKE_NCCL=wrong "$probe" nccl --library \
  "$BUILD/tests/plugins/fake_nccl.so"
refuse "NCCL refuses" "ncclCommInitRank failed with result 5: the fake NCCL refuses" env FAKE_NCCL=refuses "$probe" nccl \
  --library "$BUILD/tests/plugins/fake_nccl.so"
refuse "no NCCL" "NCCL cannot be loaded" "$probe" nccl --library "$out/none/libnccl.so.2"

# Without a GPU or a driver there is a page, too, and it says so.
for lib in lib none; do
  [ $lib = lib ] && word="cuInit failed with error 100, CUDA_ERROR_NO_DEVICE" || word="driver cannot be loaded"
  refuse "no GPU or no driver" "$word" env LD_LIBRARY_PATH="$out/$lib" GPU_DEVICES=0 "$run" --out "$out/none/out"
  cp "$out/none/out/gpu.md" "$out/log"
  has "Nothing ran on a GPU.*$word"
done
BUILD=$out refuse "no programs" "BUILD has no bin/coll_perf" "$run" --out "$out/none/out"

# Failed and endless steps are recorded, and the others run. Ratios, floors and results are judged.
PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$SOURCE/perf/gpu python3 - <<'END_PYTHON' || failed=1
import os
import figures, lost, page, steps, tests, verify
run = steps.Steps(45, dict(os.environ))
ends = [run.run("part", name, command, limit)[0] for name, command, limit in (
    ("fails", ["sh", "-c", "echo why >&2; echo 'libcoll [0] info: no' >&2; exit 3"], 9), ("endless", ["sleep", "100"], 1),
    ("absent", ["/no/program"], 9), ("works", ["true"], 9))]
assert [one["status"] for one in ends] == ["failed", "failed", "failed", "passed"], ends
assert ends[0]["why"] == "status 3: why" and "killed" in ends[1]["why"], ends
assert steps.Steps(15, {}).run("part", "late", ["true"], 9)[0]["status"] == "left out"

big, launch = figures.COPY_BYTES, ("launch_event", 0, 0)
name = figures.label("meet", 2, "threads", "stream")
def floors(us, copy_us, short_us, counts=True):
    times = {(name, 2, big): us, ("copy", 2, big): copy_us, (name, 2, 8): short_us, launch: 5.0}
    rows = figures.tables([times, times], [("meet", 2, "threads", "stream", {})], [8, big])
    return [one["met"] for one in figures.judge(rows, counts)]
assert floors(100, 91, 15) == [True, True]
assert floors(100, 89, 15.1) == [False, False]
assert floors(100, 91, 15, False) == [None, None]
rows = figures.tables([], [("ordered", 2, "processes", "stream", {})], [8, big])
assert [one["met"] for one in figures.judge(rows, True)] == [None, None]

right = "mode meet\n" + "# Out of bounds values : 0 OK\n" * 2
said = "stay in GPU memory, mode meet"
assert verify.problem(right, said, "meet", 2) is None
assert "3 tables" in verify.problem(right, said, "meet", 3)
assert "mode meet instead of spin" in verify.problem(right, said, "spin", 2)
assert "staged" in verify.problem(right + "staged through host memory", "", "meet", 2)
dead = "coll_perf: rank {}: COLL_ERR_PEER_LOST: rank 1 (host a, pid 2) is lost\n"
assert lost.problem(said + "\n" + dead.format(0) + dead.format(2), "meet", 3) is None
assert "1 of 2" in lost.problem(said + "\n" + dead.format(0) * 2, "meet", 3)
assert "instead of spin" in lost.problem(said + "\n" + dead.format(0) + dead.format(2), "spin", 3)
assert tests.count("[SKIP] a::b: no\n[====] Synthesis: Tested: 4 | Passing: 3 | Failing: 1") == {
    "tested": 4, "passed": 3, "skipped": 1}
assert tests.count("killed") == {}
assert page.size(8) == "8 B" and page.size(big) == "256 MiB" and page.number(None) == "-"
END_PYTHON
exit $failed
