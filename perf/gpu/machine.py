"""machine.py: what there is to build and to measure with."""
import glob
import os
import platform
import shutil
import subprocess
import time

PROGRAMS = {"coll_perf": "bin/coll_perf", "collrun": "bin/collrun", "coll_topo": "bin/coll_topo",
            "gpu_probe": "perf/gpu_probe"}
# What a build needs: how to find it, and Debian's package.
NEEDED = [(["cc", "gcc", "clang"], "build-essential"), (["c++", "g++", "clang++"], "build-essential"),
          (["cmake"], "cmake"), (["make", "ninja"], "build-essential"), (["pkg-config"], "pkg-config")]
LIBRARIES = [("hwloc", "hwloc.h", "libhwloc-dev"), ("openssl", "openssl/ssl.h", "libssl-dev")]
BUILD_S = 300


def missing():
    """Packages without which nothing can be built."""
    packages = [package for names, package in NEEDED if not any(map(shutil.which, names))]
    for name, header, package in LIBRARIES:
        if shutil.which("pkg-config"):
            there = subprocess.run(["pkg-config", "--exists", name], check=False).returncode == 0
        else:
            there = os.path.exists(os.path.join("/usr/include", header))
        packages += [] if there else [package]
    return list(dict.fromkeys(packages))


def build(steps, root):
    """The folder with the programs, or None. BUILD in the environment names one that is built."""
    folder = os.environ.get("BUILD")
    if folder:
        lost = [path for path in PROGRAMS.values() if not os.path.exists(os.path.join(folder, path))]
        steps.add("build", folder, "failed" if lost else "passed",
                  f"BUILD has no {', '.join(lost)}; build all, or leave BUILD out" if lost else "")
        return None if lost else os.path.abspath(folder)
    packages = missing()
    if packages:
        steps.add("build", "what a build needs", "failed", "missing; as root: apt-get install " + " ".join(packages))
        return None
    folder = os.path.join(root, "build-gpu")
    limit = min(BUILD_S, 0.6 * steps.left())
    record, _ = steps.run("build", "cmake", ["cmake", "-S", root, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
                                             "-DCOLL_TESTS=OFF"], limit)
    if record["status"] == "passed":
        record, _ = steps.run("build", "programs", ["cmake", "--build", folder, "--parallel", str(os.cpu_count() or 1),
                                                    "--target", *PROGRAMS], limit)
    return folder if record["status"] == "passed" else None


def programs(folder):
    """The programs of a build folder, by name."""
    return {name: os.path.join(folder, path) for name, path in PROGRAMS.items()}


def answer_of(command):
    """What a command prints, or None if there is no such command or it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def processor():
    """The processor's name."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.machine()


def describe(root):
    """The machine and the commit."""
    smi = answer_of(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,compute_mode,mig.mode.current,"
                     "clocks.max.sm,clocks.max.mem", "--format=csv"])
    return {"date": time.strftime("%Y-%m-%d %H:%M:%S %z"), "processor": processor(), "cores": os.cpu_count(),
            "kernel": platform.release(), "commit": answer_of(["git", "-C", root, "rev-parse", "HEAD"]),
            "uncommitted": bool(answer_of(["git", "-C", root, "status", "--porcelain"])),
            "nvidia_smi": smi.splitlines() if smi else None}


def nccl():
    """NCCL's library: the loader's, or where Python's packages and CUDA's toolkit have it."""
    places = ["/usr/lib/*/libnccl.so.2", "/usr/local/cuda*/lib*/libnccl.so.2",
              "/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
              "/usr/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2",
              os.path.expanduser("~/.local/lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2")]
    found = [path for place in places for path in sorted(glob.glob(place))]
    return found[0] if found else "libnccl.so.2"
