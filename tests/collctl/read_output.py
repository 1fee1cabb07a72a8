#!/usr/bin/python3
"""Checks what collctl printed about the job of tests/collctl/show.sh.

usage: read_output.py json FILE RANKS | prometheus FILE RANKS
       read_output.py rails JSON PROMETHEUS RANK    of any job: rank RANK has lost half of its rails to all others, each of
                                                    them half of those to it, and nobody any other; -1: nobody any at all"""
import json
import re
import sys

SAMPLE = re.compile(r'^([a-z_]+)\{((?:[a-z]+="(?:[^"\\\n]|\\.)*",?)*)\} (\S+)$')
LABEL = re.compile(r'([a-z]+)="((?:[^"\\\n]|\\.)*)"')


def check_json(text, nranks):
    """A dump of the whole job."""
    top = json.loads(text)
    assert top["version"] == 1 and len(top["jobs"]) == 1, top.keys()
    job = top["jobs"][0]
    assert job["nranks"] == nranks and [p["rank"] for p in job["processes"]] == list(range(nranks))
    for process in job["processes"]:
        assert process["communicators"] == 3 and len(process["links"]) == nranks
        assert all(link["transport"] == ("self" if link["rank"] == process["rank"] else "shm")
                   for link in process["links"])
        assert all(link["rails"] == link["lost_rails"] == 0 for link in process["links"])
    comms = {comm["name"]: comm for comm in job["communicators"]}
    assert sorted(comms) == ["dp", "even half", 'odd "half"', "world"], sorted(comms)
    late = nranks - 1
    for member in comms["dp"]["ranks"]:
        assert member["seen"] and len(member["operations"]) == 64, member
        assert member["messages"] == 0 and len(member["sent_bytes"]) == nranks
        assert sum(member["sent_bytes"]) > 100 * 4096 and member["sent_bytes"][member["rank"]] == 0
        if member["rank"] == late:
            assert member["collectives"] == 101 and member["pending"] == []
            assert member["last"]["operation"] == "broadcast #101 (1 KiB int32)", member["last"]
            assert member["late"].startswith(f"rank {late} (host "), member["late"]
        else:
            pending, = member["pending"]
            assert member["collectives"] == 102 and pending["number"] == 102 and pending["collective"]
            assert pending["begun_s_ago"] > 0 and "status" not in pending and "late" not in member
    assert [len(comms[name]["ranks"]) for name in ("even half", 'odd "half"')] == [nranks // 2] * 2
    for member in comms["world"]["ranks"]:
        assert member["messages"] == 2, member
        names = [op["operation"] for op in member["operations"] if not op["collective"]]
        partner = member["rank"] ^ 1
        assert names == [f"send (4 B int32), rank {partner}", f"recv (4 B int32), rank {partner}"], names
        assert all(op["status"] == "COLL_OK" for op in member["operations"])


def check_prometheus(text, nranks):
    """Each metric has its help and type before its samples, and no sample comes twice."""
    typed, seen, values = None, set(), {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("#"):
            _, kind, name, _ = line.split(" ", 3)
            assert (kind, name) not in seen and kind in ("HELP", "TYPE"), line
            seen.add((kind, name))
            typed = name if kind == "TYPE" else None
            continue
        match = SAMPLE.match(line)
        assert match and match[1] == typed and match.groups()[:2] not in seen, line
        seen.add((match[1], match[2]))
        labels = dict(LABEL.findall(match[2]))
        assert {"job", "communicator", "rank", "host", "pid"} <= set(labels), line
        values[match[1], labels["communicator"], labels["rank"]] = float(match[3])
    late = str(nranks - 1)
    assert values["libcoll_collectives_total", "dp", "0"] == 102
    assert values["libcoll_collectives_total", "dp", late] == 101
    assert values["libcoll_pending_operations", "dp", "0"] == 1
    assert values["libcoll_pending_operations", "dp", late] == 0
    assert values["libcoll_oldest_operation_seconds", "dp", "0"] > 0
    assert values["libcoll_messages_total", "world", "1"] == 2
    assert values["libcoll_revoked", "world", "0"] == 0
    assert values["libcoll_sent_bytes_total", "dp", late] > 100 * 4096
    assert ("libcoll_collectives_total", 'odd \\"half\\"', "1") in values


def check_rails(dump, metrics, cut):
    """Both formats say which ranks have lost rails to which."""
    job, = json.loads(dump)["jobs"]
    found = set()
    for process in job["processes"]:
        for link in (link for link in process["links"] if link["rails"]):
            rank, peer, rails, lost = process["rank"], link["rank"], link["rails"], link["lost_rails"]
            assert rails % 2 == 0 and lost == (rails // 2 if cut in (rank, peer) else 0), (rank, link)
            found |= {("", rank, peer, rails), ("lost_", rank, peer, lost)}
    samples = re.findall(r'^libcoll_(lost_|)rails\{job="[0-9a-f]+",rank="(\d+)",host="[^"]+",pid="\d+",peer="(\d+)"\} (\d+)$',
                         metrics, re.M)
    assert {(kind, *map(int, numbers)) for kind, *numbers in samples} == found, (samples, found)
    assert len(samples) == len(found) and {rank for _, rank, _, _ in found} == set(range(job["nranks"])), found


if __name__ == "__main__":
    if sys.argv[1] == "rails":
        with open(sys.argv[2], encoding="ascii") as first, open(sys.argv[3], encoding="ascii") as second:
            check_rails(first.read(), second.read(), int(sys.argv[4]))
        sys.exit()
    with open(sys.argv[2], encoding="ascii") as file:
        {"json": check_json, "prometheus": check_prometheus}[sys.argv[1]](file.read(), int(sys.argv[3]))
