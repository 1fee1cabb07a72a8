"""tests.py: the programs of tests/cuda on this machine's driver, as far as a real one has what they need."""
import glob
import os
import re

LIMIT_S = 120
# The most telling first.
NAMES = ("direct_bits graphs programs order registered virtual lost lost_midway direct_streams register parts "
         "parts_blocks deadlock queues broken calls ranks direct direct_use staged streams").split()
FEW = ["graphs", "deadlock"]
# The second and third are settings of the tests' software GPU, which then hides its memory as a real one does.
ENVIRONMENT = {"TEST_GPU": "real", "GPU_HIDDEN": "1", "GPU_QUEUES": "128"}
LEFT_OUT = ("they use what only the tests' software GPU has (refusals and failures of the driver, pairs of GPUs without "
            "peer access, a network that reaches its memory), test that GPU itself, or are scripts of this machine's build")


def left_out(root):
    """The tests that cannot run on hardware."""
    names = [os.path.relpath(path, root) for folder in ("cuda", "gpu")
             for kind in ("test_*.c", "plain_*.c", "*.sh")
             for path in glob.glob(os.path.join(root, "tests", folder, kind))]
    runs = {f"tests/cuda/test_{name}.c" for name in NAMES}
    return {"why": LEFT_OUT, "tests": sorted(set(names) - runs)}


def count(out):
    """How many tests of a program passed, and how many it skipped."""
    numbers = re.findall(r"Tested: (\d+) \| Passing: (\d+)", out)
    skipped = len(re.findall(r"^\[SKIP\]", out, re.MULTILINE))
    return {"tested": int(numbers[-1][0]), "passed": int(numbers[-1][1]), "skipped": skipped} if numbers else {}


def run(steps, folder, small):
    """Runs those that the build folder has; returns what they said."""
    until, found = steps.share(0.5), []
    for name in FEW if small else NAMES:
        path = os.path.join(folder, "tests", f"cuda_test_{name}")
        if not os.path.exists(path):
            continue
        record, (out, err) = steps.run("test", f"tests/cuda/test_{name}.c", [path, "--verbose"], LIMIT_S, ENVIRONMENT,
                                       until)
        counts = count(out + err)
        if record["status"] == "passed" and not counts.get("tested"):
            steps.fail(record, "it has run no test", out + err)
        found.append({"name": record["name"], "status": record["status"], "why": record["why"], **counts})
    return found
