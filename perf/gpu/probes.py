"""probes.py: asks the driver what libcoll relies on, each question in a process of its own."""
import os
import tempfile

import steps as steps_

LIMIT_S = 40
QUEUES = [1, 2, 8, 32]
SWITCH_BYTES, SWITCH_BYTES_SMALL = 16 << 20, 65536


def questions(gpus, small):
    """(name, arguments, environment) of all probes but those of the compiler."""
    pairs = [(0, 0)] + ([(0, 1)] if gpus > 1 else [])
    for device, peer in pairs:
        where = ["--device", str(device), "--peer", str(peer)]
        between = f"GPU {device} and {peer}" if peer != device else "one GPU"
        yield f"memory of another process, {between}", ["ipc", *where], {}
        for which in ("host", "write", "wait"):
            yield f"stream memory operations, {which}, {between}", ["memops", "--which", which, *where], {}
    for count in QUEUES:
        # The second is the setting of the tests' software GPU.
        env = {"CUDA_DEVICE_MAX_CONNECTIONS": str(count), "GPU_QUEUES": str(count)}
        yield f"{count} hardware queues", ["queues"], env
    size = SWITCH_BYTES_SMALL if small else SWITCH_BYTES
    yield "two processes switch", ["switch", "--bytes", str(size), "--ms", "5" if small else "50"], {}


def ask(steps, program, name, arguments, env, until):
    """Runs a probe; returns what it found, with its name and status."""
    record, (out, _) = steps.run("probe", name, [program, *arguments], LIMIT_S, env, until)
    lines = steps_.json_lines(out)
    if record["status"] == "passed" and not lines:
        steps.fail(record, "it printed nothing")
    found = lines[0] if lines else {}
    return {"name": name, "status": record["status"], "why": record["why"], **found}


def run(steps, program, gpus, small):
    """All probes."""
    until = steps.share(0.35)
    found = [ask(steps, program, name, arguments, env, until) for name, arguments, env in questions(gpus, small)]
    with tempfile.TemporaryDirectory() as cache:
        for name in ("kernels compiled by the driver", "kernels from the driver's cache"):
            env = {"CUDA_CACHE_PATH": os.path.join(cache, "cache")}
            found.append(ask(steps, program, name, ["jit"], env, until))
    return found
