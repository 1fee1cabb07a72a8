"""Compares the JSON of coll_topo with its text, and with what is known of a machine. usage: json_check.py WHAT FILE...
Keys that are missing or that nobody expects fail, too: programs rely on them."""
import html
import json
import os
import re
import sys

MACHINE = {"source", "package_count", "numa_node_count", "allowed_core_count", "hardware_thread_count", "memory_bytes",
           "l3_caches", "l2_caches", "cores", "devices", "nvlink_pairs"}
CORE = {"core", "package", "numa_node", "l3", "l2", "allowed", "hardware_threads"}
DEVICE = {"kind", "name", "bus", "numa_node", "package", "link_mbit"}
GPU = DEVICE | {"nearest_network_shares", "nearest_network", "nvlinks"}
HOST = {"host", "name", "level_names", "link_mbit", "ranks"}
RUN = {"version", "machine", "infiniband_and_roce", "gpus", "hosts", "levels", "beyond_levels", "ranks", "link_kinds",
       "links"}
LINK = {"from", "to", "transport", "why", "rail_count", "unconnected_rail_count", "ways", "alpha_ns",
        "beta_ns_per_byte"}


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")


def same(what, got, want):
    if got != want:
        sys.exit(f"{what}: expected {want}, got {got}")


def check_keys(machine):
    same("keys of a machine", set(machine), MACHINE)
    for core in machine["cores"]:
        same("keys of a core", set(core), CORE)
    for device in machine["devices"]:
        same("keys of a device", set(device), GPU if device["kind"] == "GPU" else DEVICE)


def nvlinks(device):
    """The text of a device's NVLinks."""
    parts = [f"{link['link_mbit'] / 1000:g} Gbit/s to " +
             (link["to_name"] if link["to_kind"] == "GPU" else f"package {link['to_index']}")
             for link in device["nvlinks"] if link["to_kind"] in ("GPU", "package")]
    switches = [link["link_mbit"] for link in device["nvlinks"] if link["to_kind"] == "switch"]
    if switches:
        parts.append(f"{sum(switches) / 1000:g} Gbit/s to {len(switches)} switch" + "es" * (len(switches) > 1))
    return "; NVLinks: " + ", ".join(parts) if parts else ""


def device_line(device):
    """A device as the text has it."""
    text = f"{device['kind']} {device['name']}"
    if device["bus"]:
        text += f" at {device['bus']}"
    if device["link_mbit"]:
        text += f", {device['link_mbit'] / 1000:g} Gbit/s"
    if device.get("nearest_network"):
        cards = ", ".join("/".join(card["names"]) or card["bus"] for card in device["nearest_network"])
        text += f", nearest network: {cards} ({device['nearest_network_shares']})"
    return text + (nvlinks(device) if device["kind"] == "GPU" else "")


def check_text(machine, text):
    """A machine and its text."""
    check_keys(machine)
    head = (f"{machine['source']}: packages {machine['package_count']}, NUMA nodes {machine['numa_node_count']}, cores "
            f"{len(machine['cores'])} ({machine['allowed_core_count']} for this process), hardware threads "
            f"{machine['hardware_thread_count']}")
    same("the first line", text[0].split(", memory")[0], head)
    memory = re.search(r", memory ([0-9.]+) GiB", text[0])
    if memory:
        same("memory", f"{machine['memory_bytes'] / (1 << 30):.1f}", f"{float(memory.group(1)):.1f}")
    for level in "l3", "l2":
        found = [line for line in text if line.startswith(f"  {level.upper()} caches: ")]
        count = int(found[0].split()[2]) if found else 0
        same(f"{level} caches", machine[f"{level}_caches"]["count"], count)
    same("allowed cores", sum(core["allowed"] for core in machine["cores"]), machine["allowed_core_count"])
    same("hardware threads", sum(len(core["hardware_threads"]) for core in machine["cores"]),
         machine["hardware_thread_count"])
    for name, count in ("package", "package_count"), ("numa_node", "numa_node_count"):
        known = {core[name] for core in machine["cores"]} - {None}
        if machine[count] and not known <= set(range(machine[count])):
            sys.exit(f"{name}: {known}")
    until = text.index("") if "" in text else len(text)
    shown = [line.strip() for line in text[:until] if re.match(r" +(network|RDMA|GPU) ", line)]
    same("devices", sorted(map(device_line, machine["devices"])), sorted(shown))


def check_table(machine, text):
    """NVLinks between GPUs."""
    start = next((i for i, line in enumerate(text) if line.startswith("Gbit/s over NVLinks")), None)
    pairs = {(pair["from"], pair["to"]): pair for pair in machine["nvlink_pairs"]}
    if start is None:
        same("NVLinks", pairs, {})
        return
    names = text[start + 1].split()
    for line in text[start + 2:start + 2 + len(names)]:
        row, *cells = line.split()
        for name, cell in zip(names, cells):
            pair = pairs.pop((row, name), {"direct_mbit": 0, "switched_mbit": 0})
            over = pair["switched_mbit"] if not pair["direct_mbit"] else 0
            same(f"{row} {name}", cell, "-" if row == name else f"switch:{over / 1000:g}" if over else
                 f"{pair['direct_mbit'] / 1000:g}")
    same("more NVLinks", pairs, {})


def check_ranks(top, text):
    shown = [re.findall(r"\b[0-9]+", line) for line in text if line.startswith("  rank ")]
    found = [[str(place[key]) for key in ("rank", "core", "l3", "numa_node", "package") if place[key] is not None]
             for place in top["ranks"]]
    same("cores of ranks", found, shown)


def machine(path, text):
    top, text = load(path), lines(text)
    same("version", top["version"], 1)
    check_text(top["machine"], text)
    check_table(top["machine"], text)
    check_ranks(top, text)


def known(folder):
    """What was read off four machine files by hand; see tests/machines/test_places.c."""
    dgx = load(os.path.join(folder, "dgxh100.json"))["machine"]
    gpus = [device for device in dgx["devices"] if device["kind"] == "GPU"]
    same("GPUs", [gpu["nearest_network"] for gpu in gpus],
         [[{"bus": f"0000:{bus}:00.0", "names": [f"mlx5_{i}", f"ib{i}"]}]
          for i, bus in enumerate(["18", "40", "4f", "5e", "9a", "c0", "ce", "dc"])])
    same("shared", {gpu["nearest_network_shares"] for gpu in gpus}, {"same switch"})
    same("rates", {device["link_mbit"] for device in dgx["devices"] if device["kind"] == "RDMA"}, {400000})
    same("nodes", [gpu["numa_node"] for gpu in gpus], [0] * 4 + [1] * 4)
    dgx = load(os.path.join(folder, "nvidiaDGX2.json"))["machine"]
    same("links", [[link["to_kind"] for link in gpu["nvlinks"]] for gpu in dgx["devices"]], [["switch"] * 6] * 16)
    same("speed", {link["link_mbit"] for gpu in dgx["devices"] for link in gpu["nvlinks"]}, {200000})
    same("switches", [len({link["to_index"] for gpu in dgx["devices"][i:i + 8] for link in gpu["nvlinks"]})
                      for i in (0, 8)], [6, 6])
    same("pairs", {(pair["from"], pair["to"]): pair["switched_mbit"] for pair in dgx["nvlink_pairs"]},
         {(f"nvml{a}", f"nvml{b}"): 1200000 for a in range(16) for b in range(16) if a != b and a // 8 == b // 8})
    power = load(os.path.join(folder, "power8gpudistances.json"))["machine"]
    same("POWER8", [gpu["nvlinks"] for gpu in power["devices"]],
         [[{"to_kind": "GPU", "to_name": f"nvml{i ^ 1}", "link_mbit": 320000},
          {"to_kind": "package", "to_index": i // 2, "link_mbit": 320000}]
          for i in range(4)])
    xeon = load(os.path.join(folder, "32em64t-2n8c2t-pci-wholeio.json"))["machine"]
    same("core 8", xeon["cores"][8], {"core": 8, "package": 1, "numa_node": 1, "l3": 1, "l2": 8, "allowed": True,
                                      "hardware_threads": [8, 24]})
    same("caches", xeon["l3_caches"], {"count": 2, "bytes": 20 << 20})


def here(path, _):
    top = load(path)
    same("keys", set(top), {"version", "machine", "infiniband_and_roce", "gpus", "ranks"})
    same("keys of GPUs", set(top["gpus"]), {"cuda_version", "why_none", "why_no_nvlinks", "list", "pairs"})
    if not top["infiniband_and_roce"] or not (top["gpus"]["why_none"] or top["gpus"]["list"]):
        sys.exit("nothing is said of devices")


def unbound(path):
    same("cores of ranks", load(path)["ranks"],
         [{"rank": rank, "core": None, "l3": None, "numa_node": None, "package": None} for rank in range(5)])


def check_groups(top):
    """Levels divide the ranks, each inside the next."""
    ranks = list(range(len(top["ranks"])))
    for level in top["levels"]:
        same("groups", sorted(rank for group in level["groups"] for rank in group), ranks)
    for inner, outer in zip(top["levels"], top["levels"][1:]):
        for group in inner["groups"]:
            if not any(set(group) <= set(other) for other in outer["groups"]):
                sys.exit(f"{group} is not inside a group")
    for i, host in enumerate(top["hosts"]):
        same("ranks of a host", host["ranks"], [rank["rank"] for rank in top["ranks"] if rank["host"] == i])


def cluster(path, text):
    top, text = load(path), lines(text)
    same("keys", set(top), {"version", "source", "machines", "hosts", "levels", "beyond_levels", "ranks"})
    check_groups(top)
    for i, one in enumerate(top["machines"]):
        check_keys(one)
        same("source", one["source"], f"machine {i}")
    rows = [line.split() for line in text if re.match(r"[0-9]+ ", line)]
    found = []
    for rank in top["ranks"]:
        host = top["hosts"][rank["host"]]
        same("keys of a host", set(host), HOST | {"machine"})
        found.append([str(rank["rank"]), host["name"], str(host["machine"]), str(rank["core"]),
                      f"{host['link_mbit']:.4g}", "/".join(host["level_names"])])
    same("ranks", found, rows)
    # tests/machines/README.md says what they are.
    sizes = {"fat_tree": [8, 32, 128], "two_sites": [4, 32]}[os.path.basename(path).split(".")[0]]
    same("sizes of groups", [{len(group) for group in level["groups"]} for level in top["levels"]],
         [{size} for size in sizes])
    same("names", [level["level_name_count"] for level in top["levels"]], [0, 2, 1] if len(sizes) == 3 else [0, 1])
    same("costs", [level["beta_ns_per_byte"] for level in top["levels"]] + [top["beyond_levels"]["beta_ns_per_byte"]],
         [0.05, 0.25, 0.25, 0.32] if len(sizes) == 3 else [0.05, 0.8, 8])


def check_links(top, text):
    """The table of transports, the reasons and the ways."""
    rows = {int(line.split()[0]): line.split()[1:] for line in text if re.match(r" +[0-9]+ .*(shm|tcp|-)$", line)}
    for link in top["links"]:
        same("keys of a link", set(link), LINK)
        same("transport", link["transport"], rows[link["from"]][link["to"]])
        if link["transport"] == "tcp" and not 1 <= link["rail_count"] <= 4:
            sys.exit(f"rails: {link}")
        if (link["rail_count"] is None) != (link["ways"] == []):
            sys.exit(f"ways: {link}")
    reasons = [f"  {kind['transport']}, {kind['link_count']} link{'s' * (kind['link_count'] != 1)} (the first from "
               f"{kind['first_from']} to {kind['first_to']}): {kind['why']}" for kind in top["link_kinds"]]
    first = text.index("why") + 1
    same("reasons", reasons, text[first:text.index("", first)])
    same("links", sum(kind["link_count"] for kind in top["link_kinds"]), len(top["links"]))


def run(path, text):
    top, text = load(path), lines(text)
    same("keys", set(top), RUN)
    check_text(top["machine"], text)
    check_groups(top)
    same("ranks", len(top["ranks"]), 16)
    same("links", len(top["links"]), 16 * 15)
    same("groups", [level["groups"] for level in top["levels"]],
         [[list(range(i, i + size)) for i in range(0, 16, size)] for size in (2, 4, 8)])
    same("levels", [host["level_names"] for host in top["hosts"]],
         [[f"site{i // 4}", f"rack{i // 2}"] for i in range(8)])
    same("between sites", top["beyond_levels"], {"alpha_ns": 1e7, "beta_ns_per_byte": 40})
    same("a pair of sites", {(link["alpha_ns"], link["beta_ns_per_byte"]) for link in top["links"]
                             if link["from"] // 8 != link["to"] // 8}, {(1e7, 40)})
    same("transports", {(link["from"] // 2 == link["to"] // 2, link["transport"]) for link in top["links"]},
         {(True, "shm"), (False, "tcp")})
    for host in top["hosts"]:
        same("keys of a host", set(host), HOST | {"link_source"})
    check_links(top, text)


def saved(path, other):
    """A run and what it has saved say the same."""
    one, two = load(path), load(other)
    same("levels", one["levels"], two["levels"])
    same("between groups", one["beyond_levels"], two["beyond_levels"])
    for key in "name", "level_names", "link_mbit", "ranks":
        same(key, [host[key] for host in one["hosts"]], [host[key] for host in two["hosts"]])
    same("ranks", [rank["host"] for rank in one["ranks"]], [rank["host"] for rank in two["ranks"]])


def messages(path, picture, collective, size):
    """What a picture shows, and no other keys besides those that `path` has without messages."""
    top = load(path)
    sent = top["messages"]
    if "ranks" not in top:
        same("keys of a network that does not run", set(top), {"version", "messages"})
    with open(picture, encoding="utf-8") as file:
        svg = file.read()
    same("keys", set(sent), {"collective", "bytes", "algorithm", "box_level", "boxes", "pairs", "level_bytes"})
    same("the operation", [sent["collective"], sent["bytes"]], [collective, int(size)])
    if f"{collective} of {size} bytes" not in svg or f": {sent['algorithm']}<" not in svg:
        sys.exit(f"the picture has another algorithm than {sent['algorithm']}")
    names = [str(box["first_rank"]) if box["name"] is None else box["name"] for box in sent["boxes"]]
    same("boxes", [box["box"] for box in sent["boxes"]], list(range(len(names))))
    same("level", sent["box_level"] is None, all(box["name"] is None for box in sent["boxes"]))
    for pair in sent["pairs"]:
        same("keys of a pair", set(pair), {"from", "to", "bytes", "rail_count", "unconnected_rail_count"})
    lines_of_pairs = [f"{names[pair['from']]} to {names[pair['to']]}: {pair['bytes']:.0f} bytes" +
                      (f" over {pair['rail_count']} rails" if (pair["rail_count"] or 0) > 1 else "")
                      for pair in sent["pairs"]]
    same("pairs", sorted(lines_of_pairs), sorted(html.unescape(title) for title in
                                                 re.findall("<path class=[^>]*><title>([^<]*)<", svg)))
    same("inside", [int(box["inside_bytes"]) for box in sent["boxes"] if sent["box_level"] is not None],
         [int(inside) for inside in re.findall(r"<title>(\d+) bytes inside<", svg)])
    total = sum(pair["bytes"] for pair in sent["pairs"]) + sum(box["inside_bytes"] for box in sent["boxes"])
    same("in all", sum(sent["level_bytes"]), total)
    same("ranks", sum(box["rank_count"] for box in sent["boxes"]), max(box["first_rank"] + box["rank_count"]
                                                                      for box in sent["boxes"]))


def many(path):
    top = load(path)
    same("links of pairs", top["links"], [])
    same("kinds", sum(kind["link_count"] for kind in top["link_kinds"]), 33 * 32)


def gpus(path):
    """What gpus.sh expects of the same four GPUs."""
    top = load(path)["gpus"]
    pairs = {(pair["from"], pair["to"]): pair for pair in top["pairs"]}
    same("version", top["cuda_version"], "12.4")
    same("access", [pairs[0, to]["access"] for to in (1, 2, 3)], [True, True, False])
    same("speed", [pairs[0, to]["speed_rank"] for to in (1, 2, 3)], [0, 0, None])
    same("links", [pairs[3, to]["nvlink_count"] for to in (0, 1, 2)], [0, 0, 1])
    same("to switches", [gpu["switch_nvlink_count"] for gpu in top["list"]], [1, 2, 1, 2])
    same("to others", [gpu["other_nvlink_count"] for gpu in top["list"]], [0, 0, 1, 0])
    same("modes", [pairs[2, to]["mode"] for to in range(4)], ["spin", "staged", "ordered", "spin"])
    same("why", pairs[1, 2]["why"], "peer access in one direction only")
    same("UUID", top["list"][0]["uuid"], "GPU-5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a00")


{"machine": machine, "known": known, "here": here, "unbound": unbound, "cluster": cluster, "run": run, "saved": saved,
 "messages": messages, "many": many, "gpus": gpus}[sys.argv[1]](*sys.argv[2:])
