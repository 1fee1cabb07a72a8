"""libraries.py: finds, builds and starts the programs to compare: libcoll, its peers, and the limits."""
import json
import os
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
MOST_S = 1     # of a cell
START_S = 20   # of a start, beside its cells
BLOCKED = ("allgather", "reduce_scatter", "alltoall")  # each rank sends as much as it receives


class Unusable(Exception):
    """Nothing can be measured."""


def cores():
    """One processor of each core that this process may use."""
    first = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            path = f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
            with open(path, encoding="ascii") as file:
                core = file.read()
        except OSError:
            core = cpu
        first.setdefault(core, cpu)
    return list(first.values())


def stop(processes):
    """Ends running commands: first gently, so that launchers can end their ranks, then by force."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        running = [process for process in processes if process.poll() is None]
        for process in running:
            os.killpg(process.pid, how)
        try:
            for process in running:
                process.wait(3)
        except subprocess.TimeoutExpired:
            continue


def run_all(commands, seconds, environment=None):
    """Runs commands at the same time: (what they printed, None or why one failed)."""
    processes = []
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        try:
            for command in commands:
                processes.append(subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                    env={**os.environ, **(environment or {})}))
            statuses = [process.wait(seconds) for process in processes]
            why = next((f"exit status {status}" for status in statuses if status), None)
        except subprocess.TimeoutExpired:
            why = f"not done after {seconds:.0f} s"
        finally:
            stop(processes)
        out.seek(0)
        err.seek(0)
        said = [line for line in err.read().splitlines() if line.strip()]
        return out.read(), why and ": ".join([why] + said[-2:])


def read_times(name, operation, text):
    """The lines "OPERATION BYTES MICROSECONDS" of a program."""
    lines = [line.split() for line in text.splitlines()]
    return [(name, int(line[1]), float(line[2])) for line in lines
            if len(line) == 3 and line[0] == operation]


def read_exchanges(text):
    """The lines "exchange BYTES MICROSECONDS SETTING" of limits_tcp: (us, setting) of each."""
    lines = [line.split(maxsplit=3) for line in text.splitlines() if line.startswith("exchange ")]
    return [(float(us), setting) for _, _, us, setting in lines]


class Library:
    """A column of the table: `run` gives [(series, bytes, us)] and None or why it failed."""
    is_peer = True
    is_ours = False
    slowness_s = 0  # how much longer than elsewhere a run may take, for each size
    fastest = {}  # of a limit that tries several settings: (least us, setting) by (ranks, operation, bytes)

    def __init__(self, name, options, program):
        self.name, self.options, self.program = name, options, program
        self.cores = cores()

    def takes(self, operation, ranks):
        """Whether it can run that."""
        return True

    def seconds(self, sizes):
        """The time limit of a run."""
        return START_S + (4 * MOST_S + self.slowness_s) * len(sizes)

    def words(self, operation, sizes):
        """The arguments after a program's own options."""
        return ["--seconds", str(self.options.seconds), "--most", str(MOST_S), operation,
                *map(str, sizes)]


class Libcoll(Library):
    """coll_perf under collrun, with ordinary buffers or with those of coll_mem_alloc()."""
    is_peer = False
    is_ours = True

    def __init__(self, options, shared):
        super().__init__("libcoll", options, os.path.join(options.build, "bin", "coll_perf"))
        self.shared = shared

    def takes(self, operation, ranks):
        return not self.shared or (operation != "barrier" and self.options.transport == "shm")

    def run(self, operation, ranks, sizes):
        results, why = self.results(operation, ranks, sizes)
        return list(self.times(results)), why

    def results(self, operation, ranks, sizes):
        """coll_perf's times for each size, and None or why it failed."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "json")
            command = [os.path.join(self.options.build, "bin", "collrun"), "-n", str(ranks), self.program,
                       operation, "-b", ",".join(map(str, sizes)), "-w", "2", "-r", "-1", "-R",
                       str(int(self.shared)), "--json", path]
            if len(sizes) == 1:
                command += ["-e", str(sizes[0])]
            return self.read([command], path, sizes, {"COLL_TRANSPORT": self.options.transport})

    def read(self, commands, path, sizes, environment):
        """Runs commands that write JSON into a file, as results()."""
        _, why = run_all(commands, self.seconds(sizes) + 60, environment)
        if why:
            return [], why
        with open(path, encoding="utf-8") as file:
            return json.load(file)["results"], None

    def times(self, results):
        """The times in coll_perf's JSON."""
        for line in results:
            if self.shared:
                yield "libcoll-shared", line["size"], line["out_of_place"]["time_us"]
                continue
            yield "libcoll", line["size"], line["out_of_place"]["time_us"]
            if "in_place" in line:
                yield "libcoll-inplace", line["size"], line["in_place"]["time_us"]


class Composed(Libcoll):
    """A reduce followed by a broadcast of its result, than which an all-reduce must not take longer."""

    def __init__(self, options):
        super().__init__(options, False)

    def takes(self, operation, ranks):
        return operation == "allreduce"

    def run(self, operation, ranks, sizes):
        results, why = self.results("reduce_broadcast", ranks, sizes)
        return [("libcoll-composed", line["size"], line["out_of_place"]["time_us"]) for line in results], why


class Mpi(Library):
    """mpi.c with one of the MPI libraries, or ucc.c, whose ranks Open MPI starts."""

    def __init__(self, name, options, program):
        super().__init__(name, options, program)
        self.launcher = "mpich" if name == "mpich" else "openmpi"

    def network(self):
        """How to choose the transport: arguments for mpirun, environment."""
        tcp = self.options.transport == "tcp"
        if self.name == "ucc":
            return [], {"UCX_TLS": "tcp,self" if tcp else "sm,self"}
        if self.name == "openmpi":
            return ["--mca", "pml", "ob1", "--mca", "btl", ("tcp" if tcp else "vader") + ",self"], {}
        return [], {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"} if tcp else {}

    def run(self, operation, ranks, sizes):
        enough = ranks <= len(self.cores)
        words, environment = self.network()
        if self.launcher == "openmpi":
            # As collrun: bound also where each core gets equally many. It yields its core while it waits,
            # which helps the sooner the rank that it waits for is on the same core.
            even = enough or ranks % len(self.cores) == 0
            bind = ["--map-by", "core", "--bind-to", "core:overload-allowed"] if even else ["--bind-to", "none"]
            command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", *bind]
        else:
            command = ["mpirun.mpich", "-bind-to", "core" if enough else "none"]
        command += [*words, "-n", str(ranks), self.program, *self.words(operation, sizes)]
        text, why = run_all([command], self.seconds(sizes), environment)
        return [] if why else read_times(self.name, operation, text), why


class Gloo(Library):
    """gloo.cc: a process for each rank, which find each other in a folder. They are not bound: each has a
    thread for its sockets, which must not wait for the one that calls."""

    def command(self, rank, ranks, folder):
        """How a rank is started, without what it measures."""
        return [self.program, "--rank", str(rank), "--size", str(ranks), "--store", folder]

    def run(self, operation, ranks, sizes):
        with tempfile.TemporaryDirectory() as folder:
            commands = [self.command(rank, ranks, folder) + self.words(operation, sizes) for rank in range(ranks)]
            text, why = run_all(commands, self.seconds(sizes))
        return [] if why else read_times(self.name, operation, text), why


class Limits(Library):
    """limits.c: the limit set by the machine's memory."""
    is_peer = False

    def takes(self, operation, ranks):
        return operation != "barrier"  # which moves no bytes

    def run(self, operation, ranks, sizes):
        command = [self.program, "--ranks", str(ranks), operation, *map(str, sizes)]
        text, why = run_all([command], self.seconds(sizes))
        return [] if why else read_times("limit", operation, text), why


class SocketLimits(Library):
    """limits_tcp.c: the least time in which two ranks exchange what the operation must move."""
    is_peer = False

    def __init__(self, name, options, program):
        super().__init__(name, options, program)
        self.fastest = {}

    def takes(self, operation, ranks):
        return ranks == 2 and operation in BLOCKED + ("allreduce", "barrier")

    def run(self, operation, ranks, sizes):
        share = 2 if operation in BLOCKED else 1  # a rank keeps its own half
        text, why = run_all([[self.program, *(str(max(size // share, 1)) for size in sizes)]],
                            self.seconds(sizes))
        if why:
            return [], why
        times = []
        for size, (us, setting) in zip(sizes, read_exchanges(text)):
            times.append(("limit", size, us))
            key = (ranks, operation, size)
            self.fastest[key] = min(self.fastest.get(key, (us, setting)), (us, setting))
        return times, None


def build(options, name, command):
    """Compiles one program if it is older than its sources; its path, or None."""
    source = next(word for word in command if word.endswith((".c", ".cc")))
    if not os.path.exists(os.path.join(HERE, source)):
        print(f"compare: without {name}: no perf/compare/{source}", file=sys.stderr)
        return None
    sources = [os.path.join(HERE, file) for file in os.listdir(HERE) if file.endswith((".c", ".cc", ".h"))]
    program = os.path.join(options.build, "compare", name)
    if os.path.exists(program) and os.path.getmtime(program) > max(map(os.path.getmtime, sources)):
        return program
    os.makedirs(os.path.dirname(program), exist_ok=True)
    done = subprocess.run(command[:1] + ["-o", program] + command[1:], cwd=HERE, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode == 0:
        return program
    print(f"compare: {name} does not compile: {' '.join(command)}\n{done.stdout[-600:]}", file=sys.stderr)
    return None
