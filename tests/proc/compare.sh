#!/bin/bash
# perf/compare/run: a tiny run's table, CSV, JSON and exit status, bad usage, and with made-up samples
# its ratios, floors, marks of noise and the part of the docs that it writes.
set -u
python=/usr/bin/python3
[ -x $python ] || { echo "no $python"; exit 77; }
compare=$SOURCE/perf/compare/run
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

fail() {
  echo "FAILED: $*"
  tail -n 8 "$out/log" "$out/err"
  failed=1
}

# refuse WORD ARGUMENT...: it must fail, and print WORD.
refuse() {
  word=$1
  shift
  "$compare" "$@" >"$out/log" 2>"$out/err" && fail "accepted: $*"
  grep -q -- "$word" "$out/err" || fail "'$word' is not said of: $*"
}

"$compare" -b "$BUILD" --out "$out" --ops allreduce,gather --sizes 64,64K -n 2 --rounds 1 >"$out/log" 2>"$out/err" ||
  fail "exit status $?"
# series WORD: the CSV has a time for each operation and size of it.
series() {
  for cell in allreduce,64 allreduce,65536 gather,64 gather,65536; do
    grep -Eq "^shm,2,$cell,$1,1,[0-9.]*[1-9]" "$out/compare.csv" || fail "no time of $1 for $cell"
  done
}
for wanted in libcoll libcoll-inplace libcoll-shared limit; do series $wanted; done
for mpi in openmpi mpich; do
  if command -v mpirun.$mpi >/dev/null && mpicc.$mpi -E -include mpi.h -x c /dev/null >/dev/null 2>&1; then
    series $mpi
  fi
done
if [ -e /usr/include/gloo/config.h ]; then series gloo; fi
if pkg-config --exists ucc 2>/dev/null; then series ucc; fi
for cell in 64 65536; do # it has no column
  grep -Eq "^shm,2,allreduce,$cell,libcoll-composed,1,[0-9.]*[1-9]" "$out/compare.csv" ||
    fail "no time of reduce and broadcast for $cell"
done
grep -q "cells with a peer" "$out/log" || fail "no summary"
$python -c 'import json, sys
cells = json.load(open(sys.argv[1]))["cells"]
assert len(cells) == 4 and all(cell["median_us"]["libcoll"] > 0 for cell in cells)' "$out/compare.json" ||
  fail "JSON content"

# Over TCP the limit is the fastest use of sockets that was tried; the tables name it.
"$compare" -b "$BUILD" --out "$out/tcp" -t tcp --ops allreduce,alltoall --sizes 8,64K --rounds 1 -n 2 \
  >"$out/log" 2>"$out/err" || fail "exit status $? over TCP"
for cell in allreduce,8 allreduce,65536 alltoall,8 alltoall,65536; do
  grep -Eq "^tcp,2,$cell,limit,1,[0-9.]*[1-9]" "$out/tcp/compare.csv" || fail "no limit over TCP for $cell"
  grep -Eq "^ *${cell#*,} ${cell%,*}: [124] sockets?, [0-9]+ KiB a call" "$out/log" ||
    fail "no word which sockets were the limit of $cell"
done
"$BUILD/compare/limits_tcp" 4 40000 >"$out/log" 2>"$out/err" || fail "exit status $? of limits_tcp"
for bytes in 4 40000; do
  awk -v bytes=$bytes '$1 == "tried" && $2 == bytes { count++; if (!least || $3 < least) least = $3 }
    $1 == "exchange" && $2 == bytes { limit = $3 }
    END { exit !(count >= 24 && limit == least) }' "$out/log" || fail "the limit of $bytes bytes is not the least tried"
done
"$BUILD/compare/limits_tcp" 0 >"$out/log" 2>&1 && fail "limits_tcp takes 0 bytes"

# Between hosts: the limit is the line, and nothing is left over.
refuse "invalid shape" --hosts 4
refuse "invalid shape" --hosts 1x4
refuse "decides on -n" --hosts 2x1 -n 2
refuse "no floors for 3x3" --hosts 3x3 --floors
for wrong in 4x2+4x2 4x2@1gbit+ 4x2@1gbit+1gbit,1mbit 4x2@1gbit+1gbit/2@1mbit,2ms; do refuse "invalid shape" --hosts $wrong; done

# between SHAPE ARGUMENT...: all-reduces between such hosts, of which nothing may be left over.
between() {
  "$compare" -b "$BUILD" --out "$out/hosts" --ops allreduce --hosts "$@" >"$out/log" 2>"$out/err" &
  local pid=$!
  wait $pid || fail "exit status $? between hosts $1"
  ip netns list | grep -q "^cmp$((pid % 100000))-" && fail "namespaces of $1 are left over"
  ip link show | grep -q "cmp$((pid % 100000))" && fail "links of $1 are left over"
}
# timed RANKS BYTES SERIES ROUND: the CSV has its time.
timed() {
  grep -Eq "^hosts,$1,allreduce,$2,$3,$4,[0-9.]*[1-9]" "$out/hosts/compare.csv" || fail "no time of $3 for $2 bytes between hosts"
}

if [ "$(id -u)" = 0 ] && ip netns add "probe$$" 2>/dev/null && ip netns del "probe$$"; then
  between 2x2@500mbit+500mbit --sizes 4,64K --rounds 2
  for round in 1 2; do
    for bytes in 4 65536; do
      for series in libcoll libcoll-one-nic; do timed 4 $bytes $series $round; done
    done
  done
  grep -q "^hosts,4,allreduce,65536,limit,1,524.288" "$out/hosts/compare.csv" || fail "the limit of a line"
  grep -q "of lim shared    blocks     dealt  order" "$out/log" || fail "no times by the order of ranks"
  $python -c 'import json, sys
for cell in json.load(open(sys.argv[1]))["cells"]:
    assert cell["libcoll_order_us"].keys() == {"blocks", "dealt"} and 0 < cell["ratios"]["order"]["median"] <= 1
    assert cell["ratios"]["one_nic"]["median"] > 0' "$out/hosts/compare.json" || fail "JSON content between hosts"
  # All interfaces carry the same, or the first one all of it. A few bytes are the kernel's own.
  $python -B - "$SOURCE/perf/compare" "$BUILD" >"$out/log" 2>&1 <<'PYTHON' || fail "what interfaces carry"
import sys, types
sys.path.insert(0, sys.argv[1])
import hosts, hosts_libraries
options = types.SimpleNamespace(build=sys.argv[2], congestion="reno", transport="hosts")
with hosts.Hosts(hosts.Shape("2x1@200mbit+200mbit"), options) as places:
    for kind, second in ((hosts_libraries.HostsLibcoll, True), (hosts_libraries.OneInterface, False)):
        times, why = kind(options, places).run("allreduce", 2, [4 << 20] * 3)
        carried = [int(open(f"/sys/class/net/{places.device(1, n)}/statistics/rx_bytes").read()) for n in range(2)]
        print(kind, times, why, carried)
        before = [0, 0] if second else before
        first, other = (now - then for now, then in zip(carried, before))
        assert times and first > 1 << 20 and (other * 3 > first if second else other < 1 << 16)
        before = carried
PYTHON
  if [ -c /dev/net/tun ]; then
    between 2x1@1gbit/2@100mbit,2ms --sizes 64K --rounds 2
    for series in libcoll sockets one-socket limit; do timed 2 65536 $series 1; done
    grep -q "order" "$out/log" && fail "an order of ranks where there is only one"
  fi
else
  "$compare" -b "$BUILD" --out "$out/hosts" --hosts 2x1 --sizes 4 >"$out/log" 2>&1 && fail "hosts without the right"
fi

refuse "no collrun" -b "$out"
refuse "is none of" --ops allgathering
refuse "invalid" -n 1
refuse "invalid" --rounds 0
refuse "invalid" --sizes 4Q

$python -B - "$SOURCE/perf/compare" "$out" >"$out/log" 2>&1 <<'PYTHON' || fail "made-up samples"
import os, sys, types
sys.path.insert(0, sys.argv[1])
import json
import cells, docs, hosts, hosts_libraries, libraries, measure, report

peer = types.SimpleNamespace(name="peer", is_peer=True, fastest={})
options = types.SimpleNamespace(command="run", transport="shm", hosts=None, ranks=[2], ops=["allreduce"], sizes=[4, 8192])
found = types.SimpleNamespace(all=[peer], versions={"peer": "1"})

def result(peers, handover=(1, 1, 1), ours=(1, 1, 1), size=4):
    samples = measure.Samples()
    samples.rounds = 3
    for r in range(3):
        samples.handover[2, "allreduce", r] = handover[r]
        samples.put((2, "allreduce", size), "libcoll", r, ours[r])
        samples.put((2, "allreduce", size), "peer", r, peers[r])
    floors = [("peer", ["allreduce"], [2], "shm", [(4, 1.5), (8192, 3)])]
    return cells.Result(options, found, samples, floors)

key = (2, "allreduce", 4)
good = result((2, 9, 4), ours=(1, 3, 1))
ratio = good.ratio(key, "peer")
assert (ratio.least, ratio.median, ratio.most) == (2, 3, 4)
assert good.verdicts[0].passed and good.verdicts[0].clear and not good.unclear(key)
assert "ahead in 1, behind in 0; 0 (~)" in report.foot(good)[1]
assert result((2, 2, 2), handover=(1, 1.6, 1)).unclear(key)
assert result((0.5, 2, 2)).unclear(key) and result((1.4, 2, 2)).unclear(key)
missed = result((1.2, 1.3, 1.4))
assert not missed.unclear(key) and len(missed.clearly_missed()) == 1
assert not result((1.2, 1.4, 1.6)).clearly_missed()
assert "miss  allreduce, 2 ranks, 4 bytes: 1.30" in "\n".join(report.floors(missed))
for size, floor in ((0, 1.5), (1024, 1.5), (8192, 3), (1 << 30, 3)):
    assert result((2, 2, 2), size=size).floor((2, "allreduce", size)) == floor
between = types.SimpleNamespace(transport="hosts", hosts=hosts.Shape("2x1"))
floors = [(what, ["allreduce"], [shape], "hosts", [(4, floor)])
          for what, shape, floor in (("peer", "2x1", 2), ("limit", "2x1", 0.5), ("peer", "4x1", 9))]
samples = result((1.3, 1.3, 1.3)).samples
for r in range(3):
    samples.put(key, "limit", r, 0.9)
judged = cells.Result(between, found, samples, floors)
assert [(v.what, v.passed) for v in judged.verdicts] == [("peer", False), ("limit", True)]
assert "floor 2; the limit reaches 1.44" in "\n".join(report.floors(judged))

def orders(ours, floors=(), others=()):
    samples = measure.Samples()
    samples.rounds, samples.seconds = len(ours), 0
    for r, us in enumerate(ours):
        samples.put(key, "libcoll", r, us)
        for series, them in others:
            samples.put(key, series, r, them)
    where = types.SimpleNamespace(command="run", transport="hosts", hosts=hosts.Shape("2x2"))
    return cells.Result(where, found, samples, [(what, ["allreduce"], ["2x2"], "hosts", [(4, floor)]) for what, floor in floors])

worse = orders((100, 107, 102, 109))
assert worse.order_medians(key) == {"blocks": 101, "dealt": 108}
assert [(v.what, v.passed, v.clear) for v in worse.verdicts] == [("order", False, False)], "102 and 107 are less than 5 % apart"
assert report.tables(worse)[-1].endswith(" 101.0     108.0   0.94~")
worse = orders((109, 100, 111, 102))
assert worse.clearly_missed() and worse.ratio(key, "order").median == 101 / 110
assert "miss  allreduce, 2 ranks, 4 bytes: 0.92 (0.90 .. 0.94), floor 0.95" in "\n".join(report.floors(worse))
assert report.tables(worse)[-1].endswith(" 110.0     101.0   0.92")
assert not orders((109, 100)).clearly_missed() and not orders((109, 100)).verdicts[0].passed
assert orders((100, 103, 104, 99)).verdicts[0].passed
assert orders((300, 100, 100, 100, 102)).order_medians(key)["blocks"] == 101, "the first round is cold"
assert not orders((100,)).verdicts and not hosts.Shape("2x1").orders_differ and hosts.Shape("3x1").orders_differ
report.write_json(worse, os.path.join(sys.argv[2], "orders.json"))
assert json.load(open(os.path.join(sys.argv[2], "orders.json")))["cells"][0]["libcoll_order_us"] == {"blocks": 110, "dealt": 101}

either = (("peer", 3), ("or one_socket", 0.7))
for peers, socket, passed in ((310, 10, True), (100, 80, True), (100, 60, False)):
    judged = orders((100, 100, 100, 100), either, (("peer", peers), ("one-socket", socket)))
    assert [(v.what, v.passed, v.clear) for v in judged.verdicts] == [("peer", passed, True), ("order", True, True)]
    told = "\n".join(report.floors(judged))
    assert ("1 pass, of which 1 by its alternative, 0 miss" in told) == (socket == 80)
    assert ("  instead  allreduce, 2 ranks, 4 bytes: 1.00 (1.00 .. 1.00), floor 3; or" in told) == (socket == 80)
assert "miss  allreduce, 2 ranks, 4 bytes: 1.00 (1.00 .. 1.00), floor 3; or one socket between the sites over libcoll: 0.60 (0.60" in \
    "\n".join(report.floors(judged))
assert "floor 3; or one socket between the sites over libcoll: it has no time" in \
    "\n".join(report.floors(orders((100, 100), either, (("peer", 100),))))
report.write_json(judged, os.path.join(sys.argv[2], "either.json"))
assert json.load(open(os.path.join(sys.argv[2], "either.json")))["cells"][0]["floors"][0]["or"] == \
    {"what": "one_socket", "floor": 0.7, "passed": False}
assert [v.what for v in orders((100,), either, (("one-socket", 80),)).verdicts] == ["one_socket"]
nics = hosts.Shape("4x2@500mbit+500mbit")
assert nics.interfaces == ["eth0", "eth1"] and nics.line_us("allreduce", 1e6) == hosts.Shape("4x2@1gbit").line_us("allreduce", 1e6)
assert hosts_libraries.declared(nics.rates) == ["COLL_LINK_SPEED=1000mbit"]
assert not orders((100,), (("one_nic", 1.8),), (("libcoll-one-nic", 170),)).verdicts[0].passed
known = cells.read_floors(os.path.join(sys.argv[1], "floors_hosts.csv"))
assert all(hosts.Shape(shape) for line in known for shape in line[2])
assert {line[0].removeprefix("or ") for line in known} <= cells.WHAT.keys()
assert all(above[1:4] == line[1:4] for above, line in zip(known, known[1:]) if line[0].startswith("or "))
eight = hosts.Hosts(hosts.Shape("8x1/2@1mbit,2ms"), None)
assert [eight.host_of(rank) for rank in range(8)] == list(range(8))
eight.round = 1
assert [eight.site_of(eight.host_of(rank)) for rank in range(8)] == [0, 1] * 4
pairs = hosts_libraries.PairSockets("sockets", None, None, eight)
assert all(eight.site_of(pairs.host_of(rank)) != eight.site_of(pairs.host_of(rank + 4)) for rank in range(4))
one = hosts_libraries.OneSocket("one-socket", None, None, eight, [])
assert [eight.site_of(one.host_of(rank)) for rank in range(2)] == [0, 1]
lossy = types.SimpleNamespace(hosts=hosts.Shape("8x1@1gbit/2@200mbit,20ms,1%"), sizes=[1 << 10, 1 << 22, 1 << 26])
assert hosts_libraries.sizes_of_one_socket(known, lossy) == [1 << 22]
assert hosts_libraries.sizes_of_one_socket([], lossy) == lossy.sizes
assert hosts_libraries.slowness_s(lossy.hosts, [1 << 22]) > 6 * 8, "six operations of one socket, with Cubic"

class Ran(libraries.Library):
    def run(self, operation, ranks, sizes):
        ran.append((rounds.round, self.name))
        return [], None

ran, rounds = [], types.SimpleNamespace(shape=hosts.Shape("2x2@1gbit"), round=0)
asked = types.SimpleNamespace(hosts=rounds.shape, rounds=8, budget=None, ranks=[4], ops=["allreduce"], sizes=[4], largest=None)
measure.measure(asked, types.SimpleNamespace(all=[Ran(name, None, None) for name in "ab"], handover=lambda: None), rounds)
assert sorted((number % 2, name) for number, name in ran[::2]) == [(0, "a")] * 2 + [(0, "b")] * 2 + [(1, "a")] * 2 + [(1, "b")] * 2
slow = result((3000, 3000, 3000), ours=(100, 100, 100))
assert measure.is_hopeless(slow.samples, peer, key)
assert not measure.is_hopeless(result((3000, 1, 1), ours=(1000, 1, 1)).samples, peer, key)

path = os.path.join(sys.argv[2], "performance.md")
marks = [f"<!-- {word} of perf/compare/run, {t} -->\n" for t in ("shm", "tcp") for word in ("begin", "end")]
with open(path, "w") as file:
    file.write("above\n" + marks[0] + "outdated\n" + marks[1] + "between\n" + marks[2] + "kept\n" + marks[3] + "below\n")
docs.write(good, {}, sys.argv[2])
text = open(path).read()
assert "outdated" not in text and "best peer / libcoll, 2 ranks" in text and "allreduce          3.00       -" in text
assert "allreduce, 2 ranks" in open(os.path.join(sys.argv[2], "performance-shm.txt")).read()
assert text.startswith("above\n" + marks[0]) and text.endswith(marks[1] + "between\n" + marks[2] + "kept\n" + marks[3] + "below\n")

assert libraries.run_all([["sleep", "9"]], 0.1)[1].startswith("not done after")
assert libraries.run_all([["sh", "-c", "echo why >&2; exit 3"]], 5)[1] == "exit status 3: why"
sockets = types.SimpleNamespace(name="limit", is_peer=False, fastest={key: (1.5, "1 socket, 64 KiB a call")})
limited = cells.Result(options, types.SimpleNamespace(all=[peer, sockets], versions={}), good.samples, [])
assert report.limits(limited)[2] == "         4 allreduce: 1 socket, 64 KiB a call" and report.limits(good) == []
assert libraries.read_exchanges("tried 4 9 x\nexchange 4 8.5 2 sockets, in turns\n") == [(8.5, "2 sockets, in turns")]
assert libraries.read_times("x", "reduce", "noise\nreduce 8 1.5\n") == [("x", 8, 1.5)]
PYTHON
exit $failed
