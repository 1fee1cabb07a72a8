"""page.py: the results as a page of Markdown, as it can stand in docs/gpu/performance.md."""

SOFTWARE = ("**This is the software GPU of libcoll's tests. Its times mean nothing**, and no floor is judged; only "
            "whether programs work counts.")


def size(count):
    """8 B, 64 KiB, 256 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"


def number(value, digits=2):
    """A number, or a dash."""
    return "-" if value is None else f"{value:.{digits}f}"


def time_of(us):
    """A time in microseconds."""
    return number(us, 2 if us is not None and us < 100 else 0)


def table(head, rows):
    """A table; a cell may not break it."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in line) + " |"
            for line in lines] + [""]


def machine(result):
    """Where it ran."""
    about, driver = result["machine"], result["driver"]
    lines = [f"`{result['command']}`, {about['date']}, commit {(about['commit'] or 'unknown')[:12]}"
             + (" with uncommitted changes" if about["uncommitted"] else "")
             + f". {about['processor']}, {about['cores']} cores, Linux {about['kernel']}."]
    if not driver:
        return lines + [""]
    names = [device["name"] for device in result["devices"]]
    lines.append(f"{len(names)} GPU(s): {', '.join(names)}; driver for CUDA {driver['cuda']}"
                 + (f", without {', '.join(driver['missing'])}" if driver["missing"] else "") + ".")
    if result["gpus"] == 1:
        lines.append("With one GPU, mode spin and copies between GPUs did not run.")
    return lines + [""]


def floors(result):
    """What issue 19 asks for."""
    says = {True: "met", False: "**not met**", None: "not judged"}
    rows = [[one["series"], size(one["bytes"]), number(one["value"]), f"{one['floor']:.2f} {one['kind']}",
             "not measured" if one["value"] is None else says[one["met"]]] for one in result["floors"]]
    if not rows:
        return []
    lines = ["## Floors", "", "At 256 MiB, at least so much of a copy's speed; at 8 B, at most so many launches.", ""]
    return lines + table(["all-reduce", "size", "measured", "floor", ""], rows)


def figures(result):
    """All-reduce beside the limits."""
    rows = [[row["series"], size(row["bytes"]), time_of(row["us"]), time_of(row["in_place_us"]),
             time_of(row["copy_us"]), number(row["of_copy"]), number(row["launches"], 1), time_of(row["nccl_us"]),
             number(row["of_nccl"])] for row in result["figures"]]
    if not rows:
        return []
    lines = ["## All-reduce", "",
             f"float32, sum, medians of {result['rounds']} interleaved rounds, in µs. The copy is the faster of the "
             "driver's and of a kernel's, of as many bytes as an all-reduce must read and write: the vectors of all "
             "ranks on one GPU, or 2 (n - 1) / n of a vector from the next GPU. *of copy*: its time over that of the "
             "all-reduce. *launches*: the all-reduce's time over that of an empty launch that waits for an event of "
             f"another stream, {time_of(result['launch_event_us'])} µs. *of NCCL*: NCCL's time over that of the "
             f"all-reduce. {nccl(result)}", ""]
    return lines + table(["all-reduce", "size", "time", "in place", "copy", "of copy", "launches", "NCCL", "of NCCL"],
                         rows)


def nccl(result):
    """What was compared with."""
    version = result["nccl"]["version"]
    if version is None:
        return f"NCCL did not run: {result['nccl']['why'] or 'there was no time'}."
    ranks = result["gpus"]
    alone = " NCCL refuses two ranks on one GPU, so it had one rank, whose all-reduce is a copy." if ranks == 1 else ""
    return f"NCCL {version // 10000}.{version // 100 % 100}.{version % 100} had a rank on each GPU.{alone}"


def probes(result):
    """What the driver does."""
    rows = []
    for probe in result["probes"]:
        facts = [f"{key} {value}" for key, value in probe.items()
                 if key not in ("name", "status", "why", "probe", "which", "device", "peer", "connections")]
        rows.append([probe["name"], probe["status"], "; ".join(facts) or probe["why"]])
    return ["## Probes", "", "*waits*, *kernels*: how many streams may wait for a word, or in a kernel that spins, while "
            "another stream still runs (40: more were not tried).", ""] + table(["probe", "", "found"], rows) if rows else []


def verified(result):
    """Which results were right."""
    rows = [[one["what"], one["mode"], f"{one['ranks']} {one['as']}", one["calls"], one["status"], one["why"]]
            for one in result["verified"]]
    if not rows:
        return []
    return ["## Results", "", "coll_perf verifies every element, in place and out of place.", ""] + table(
        ["what", "mode", "ranks", "calls", "", "why"], rows)


def tests(result):
    """Which test programs passed."""
    rows = [[one["name"], one["status"], str(one.get("tested", "-")), str(one.get("skipped", "-")), one["why"]]
            for one in result["tests"]]
    return ["## Tests", "", "Programs of `tests/cuda` with `TEST_GPU=real`; those that a real driver or one GPU cannot "
            "serve are skipped.", ""] + table(["program", "", "tests", "skipped", "why"], rows) if rows else []


def not_run(result):
    """What this run does not tell."""
    rows = [[step["part"], step["name"], step["status"], step["why"]] for step in result["steps"]
            if step["status"] != "passed"]
    left = result["tests_left_out"]
    lines = ["## What did not run", ""]
    if rows:
        lines += table(["part", "step", "", "why"], rows)
    if not result["software"]:
        lines += ["All that is not above never ran on hardware.", ""]
    return lines + [f"{len(left['tests'])} tests of `tests/cuda` and `tests/gpu` cannot run on a real driver: "
                    f"{left['why']}. The JSON file has their names.", ""]


def write(result, path):
    """Writes the page."""
    lines = ["# Measured on a GPU", ""]
    if result["software"]:
        lines += [SOFTWARE, ""]
    if not result["driver"]:
        lines += [f"**Nothing ran on a GPU**: {result['stopped']}", ""]
    for part in (machine, floors, figures, probes, verified, tests, not_run):
        lines += part(result)
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines).rstrip() + "\n")
