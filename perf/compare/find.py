"""find.py: which of the programs to compare are here."""
import os
import re
import shutil
import subprocess
import sys

import libraries


class Found:
    """The libraries that are available here, in the order of their columns."""

    def __init__(self, options):
        self.all = [libraries.Libcoll(options, False), libraries.Libcoll(options, True), libraries.Composed(options)]
        self.limits = None
        self.versions = {}

    def handover(self):
        """Microseconds to hand a cache line from one core to another, or None."""
        if not self.limits:
            return None
        text, why = libraries.run_all([[self.limits.program, "handover"]], libraries.START_S)
        values = [line.split()[1] for line in text.splitlines() if line.startswith("handover ")]
        return float(values[0]) if values and not why else None


def version_of(command):
    """The version number that a program prints."""
    done = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    number = re.search(r"\d+(\.\d+)+", done.stdout)
    return number.group(0) if number else "?"


def has_headers(compiler):
    """Whether an MPI compiler is there with its mpi.h, which comes in a package of its own."""
    return bool(shutil.which(compiler)) and subprocess.run(
        [compiler, "-E", "-include", "mpi.h", "-x", "c", os.devnull], check=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def find_mpi(options, found, name, packages, kind=libraries.Mpi):
    """Adds an MPI library, or says what to install."""
    if not shutil.which("mpirun." + name) or not has_headers("mpicc." + name):
        print(f"compare: without {name}: apt-get install {packages}", file=sys.stderr)
        return
    program = libraries.build(options, name, ["mpicc." + name, "-O2", "mpi.c"])
    if program:
        found.all.append(kind(name, options, program))
        found.versions[name] = version_of(["mpirun." + name, "--version"])


def find_ucc(options, found):
    """Adds UCC, which Debian does not have, where it was built from its sources and pkg-config finds it."""
    if not shutil.which("pkg-config") or not has_headers("mpicc.openmpi"):
        return
    asked = subprocess.run(["pkg-config", "--cflags", "--libs", "ucc"], text=True, check=False, stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)
    if asked.returncode:
        return
    words = asked.stdout.split()
    words += [f"-Wl,-rpath,{word[2:]}" for word in words if word.startswith("-L")]
    program = libraries.build(options, "ucc", ["mpicc.openmpi", "-O2", "ucc.c", *words])
    if program:
        found.all.append(libraries.Mpi("ucc", options, program))
        found.versions["ucc"] = version_of(["pkg-config", "--modversion", "ucc"])


def find_gloo(options, found):
    """Adds Gloo, or says what to install."""
    if not os.path.exists("/usr/include/gloo/config.h"):
        print("compare: without gloo: apt-get install libgloo-dev", file=sys.stderr)
        return
    program = libraries.build(options, "gloo", ["c++", "-O2", "gloo.cc", "-lgloo", "-pthread"])
    if program:
        found.all.append(libraries.Gloo("gloo", options, program))
        with open("/usr/include/gloo/config.h", encoding="utf-8") as file:
            parts = re.findall(r"#define GLOO_VERSION_\w+ (\d+)", file.read())
        found.versions["gloo"] = ".".join(parts)


def find(options):
    """Everything that is installed."""
    found = Found(options)
    for program in ("collrun", "coll_perf"):
        if not os.path.exists(os.path.join(options.build, "bin", program)):
            raise libraries.Unusable(f"no {program} in {options.build}/bin: build first (./quickstart), or name the "
                           "build folder with -b")
    find_mpi(options, found, "openmpi", "openmpi-bin libopenmpi-dev")
    find_mpi(options, found, "mpich", "mpich libmpich-dev")
    find_ucc(options, found)
    find_gloo(options, found)
    flags = ["-O3", "-march=native", "-pthread"]
    program = libraries.build(options, "limits", ["cc", *flags, "limits.c"])
    if program:
        found.limits = libraries.Limits("limit", options, program)
        if options.transport == "shm":
            found.all.append(found.limits)
    program = options.transport == "tcp" and libraries.build(options, "limits_tcp", ["cc", *flags, "limits_tcp.c"])
    if program:
        found.all.append(libraries.SocketLimits("limit", options, program))
    return found
