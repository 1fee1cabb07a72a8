"""hosts.py: the same measurements between hosts, which are network namespaces of this machine. The links between them may
be as slow as real ones. Needs root, ip and tc (iproute2)."""
import contextlib
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile

import libraries

RATE = r"(\d+[kmg]bit)"
SHAPE = re.compile(rf"(\d+)x(\d+)(?:@{RATE}(?:,{RATE})?)?(?:/2@{RATE},(\d+)ms(?:,(\d+)%)?)?$")
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
AGENT = """#!/bin/sh
# As ssh would: runs the command on a host, which is given by its address, in a session of its own. By their IPC
# namespaces, UCX finds out which ranks share memory.
while [ "${1#-}" != "$1" ]; do shift; done
host=TAG-${1##*.}
shift
exec ip netns exec "$host" setsid --wait unshare --uts --ipc sh -c "hostname $host; $*"
"""


def bits_per_s(rate):
    """A rate as tc writes it."""
    return float(rate[:-4]) * UNITS[rate[-4:]]


class Shape:
    """HOSTSxRANKS[@RATE[,SLOW]][/2@LINE,RTTms[,LOSS%]]: how many hosts, ranks of each, and bits per second that each may
    send; the last host may send and receive only SLOW. Or half of the hosts are at another site, to which a line leads."""

    def __init__(self, text):
        match = SHAPE.match(text)
        if not match:
            raise ValueError(text)
        self.text, self.hosts, self.each, self.tc_rate, self.slow = text, int(match[1]), int(match[2]), match[3], match[4]
        self.line, self.rtt_ms, self.loss = match[5], match[6], match[7] or "0"
        if self.hosts < 2 or self.hosts > 250 or self.each < 1:
            raise ValueError(text)
        self.ranks = self.hosts * self.each

    def line_us(self, operation, size):
        """The least time in which a host can send what it must, or a site, or None. Each rank's vector crosses as part of its
        host's; headers are not counted."""
        shares = {"allreduce": 2, "reduce_scatter": 1, "allgather": 1}
        if not self.tc_rate or operation not in shares or ((self.slow or self.line) and operation != "allreduce"):
            return None
        if self.slow or self.line:  # the slow host, or each site, needs the result, and the others what it has
            return size * 8 / bits_per_s(self.slow or self.line) * 1e6 + float(self.rtt_ms or 0) * 1e3 / 2
        return shares[operation] * (self.hosts - 1) / self.hosts * size * 8 / bits_per_s(self.tc_rate) * 1e6


class Hosts:
    """The namespaces, while they exist: a context manager."""

    def __init__(self, shape, options):
        self.shape, self.options = shape, options
        self.tag = f"cmp{os.getpid() % 100000}"
        self.bridges = [f"b{site}{self.tag}" for site in range(2 if shape.line else 1)]
        self.wan = None
        self.round = 0  # of the measurement: ranks are dealt out differently in half of them

    def __enter__(self):
        if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
            raise libraries.Unusable("hosts are network namespaces, which need root, ip and tc (Debian: iproute2)")
        self.folder = tempfile.mkdtemp()
        self.agent = os.path.join(self.folder, "agent")
        with open(self.agent, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
            file.write(AGENT.replace("TAG", self.tag))
        signal.signal(signal.SIGTERM, lambda *_: exit(143))  # so that the namespaces are removed
        try:
            for bridge in self.bridges:
                self._do(f"ip link add {bridge} type bridge", f"ip link set {bridge} up")
            if self.shape.line:
                self._add_line()
            for host in range(self.shape.hosts):
                self._add(host)
        except libraries.Unusable:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in range(self.shape.hosts):
            pids = subprocess.run(["ip", "netns", "pids", self.name(host)], capture_output=True, text=True, check=False)
            for pid in pids.stdout.split():
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(int(pid), signal.SIGKILL)
            for words in (["netns", "del", self.name(host)], ["link", "del", f"v{self.tag}{host + 1}"]):
                subprocess.run(["ip", *words], capture_output=True, check=False)
        if self.wan:
            self.wan.stdin.close()
            self.wan.wait()
        for bridge in self.bridges:
            subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)
        shutil.rmtree(self.folder)

    @staticmethod
    def _do(*commands):
        for command in commands:
            done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
            if done.returncode:
                raise libraries.Unusable(f"{command}: {done.stderr.strip()}")

    def _add_line(self):
        program = libraries.build(self.options, "wan", ["cc", "-O2", "wan.c"])
        if not program:
            raise libraries.Unusable("the line between two sites is a program that could not be compiled")
        ends = [f"w{site}{self.tag}" for site in range(2)]
        self.wan = subprocess.Popen([program, *ends, str(bits_per_s(self.shape.line)), self.shape.rtt_ms, self.shape.loss],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.wan.stdout.readline() != "ready\n":
            raise libraries.Unusable("the line between two sites needs /dev/net/tun")
        for end, bridge in zip(ends, self.bridges):
            self._do(f"ip link set {end} master {bridge} up")

    def site_of(self, host):
        """The number of a host's site."""
        return host * len(self.bridges) // self.shape.hosts

    def _add(self, host):
        name, veth = self.name(host), f"v{self.tag}{host + 1}"
        self._do(f"ip netns add {name}", f"ip link add {veth} type veth peer name eth0 netns {name}",
                 f"ip link set {veth} master {self.bridges[self.site_of(host)]} up", f"ip -n {name} link set lo up",
                 f"ip -n {name} addr add {self.address(host)}/24 dev eth0", f"ip -n {name} link set eth0 up")
        if self.options.congestion:
            self._do(f"ip -n {name} route replace 10.77.0.0/24 dev eth0 congctl {self.options.congestion}")
        slow = self.shape.slow if host == self.shape.hosts - 1 else None
        if self.shape.tc_rate:
            self._limit(f"ip netns exec {name} ", "eth0", slow or self.shape.tc_rate)
        if slow:
            self._limit("", veth, slow)

    def _limit(self, inside, device, rate):
        """Limits what a device sends."""
        self._do(f"{inside}tc qdisc add dev {device} root handle 1: htb default 10",
                 f"{inside}tc class add dev {device} parent 1: classid 1:10 htb rate {rate} ceil {rate} burst 256k cburst 256k")

    def name(self, host):
        """The namespace of a host."""
        return f"{self.tag}-{host + 1}"

    @staticmethod
    def address(host):
        """The address of a host."""
        return f"10.77.0.{host + 1}"

    def host_of(self, rank):
        """Where a rank runs: by blocks, or in every second round one after the other."""
        return rank // self.shape.each if self.round % 2 == 0 else self.dealt()[rank % self.shape.hosts]

    def dealt(self):
        """The hosts in the order in which they get a rank each: the first of both halves, then the second, and so on."""
        half = (self.shape.hosts + 1) // 2
        return [host for pair in range(half) for host in (pair, pair + half) if host < self.shape.hosts]

    def inside(self, host, command):
        """The command that runs a command on a host. By its name, MPICH finds out who shares memory with whom."""
        return ["ip", "netns", "exec", self.name(host), "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"',
                self.name(host), *command]


class HostsLibcoll(libraries.Libcoll):
    """coll_perf, started as a launcher would that binds nothing."""

    def __init__(self, options, hosts):
        super().__init__(options, False)
        self.hosts = hosts
        self.port = 23000

    def results(self, operation, ranks, sizes):
        self.port += 1
        path = os.path.join(self.hosts.folder, "json")
        secret = secrets.token_hex(32)
        commands = []
        for rank in range(ranks):
            shape = self.hosts.shape
            settings = []
            if shape.slow or shape.line:  # they stand for machines of their own, else for containers of one
                settings = ["COLL_LINK_SPEED=measure", f"COLL_HOST_ID={self.hosts.name(self.hosts.host_of(rank))}"]
            elif shape.tc_rate:  # cards say how fast they are, but those of namespaces do not
                settings = [f"COLL_LINK_SPEED={shape.tc_rate}"]
            words = ["env", *settings, f"COLL_RANK={rank}", f"COLL_NRANKS={ranks}", f"COLL_SECRET={secret}",
                     f"COLL_ROOT={self.hosts.address(self.hosts.host_of(0))}:{self.port}", self.program, operation, "-b",
                     ",".join(map(str, sizes)), "-w", "2", "-r", "-1", "-R", "0", "--json", path if rank == 0 else "/dev/null"]
            commands.append(self.hosts.inside(self.hosts.host_of(rank),
                                              words + (["-e", str(sizes[0])] if len(sizes) == 1 else [])))
        return self.read(commands, path, sizes, {})


class HostsMpi(libraries.Mpi):
    """mpi.c and ucc.c, started through an agent in place of ssh."""
    environments = {
        "openmpi": {},
        "mpich": {"FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"},
        "ucc": {"UCX_TLS": "tcp,sm,self", "UCX_NET_DEVICES": "eth0"}}

    def run(self, operation, ranks, sizes):
        hosts = self.hosts
        order = range(hosts.shape.hosts) if hosts.round % 2 == 0 else hosts.dealt()
        names = [hosts.address(host) for host in order]
        if self.launcher == "openmpi":
            # It knows only that each host has enough cores, not that hosts share them.
            yields = ["--mca", "mpi_yield_when_idle", str(int(ranks > len(self.cores)))]
            command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", *yields, "--bind-to", "none", "--map-by",
                       "slot" if hosts.round % 2 == 0 else "node", "--mca", "plm_rsh_agent", hosts.agent, "--mca",
                       "btl_tcp_if_include", "eth0", "--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self", "--host",
                       ",".join(f"{name}:{hosts.shape.each}" for name in names)]
        else:
            command = ["mpirun.mpich", "-launcher", "rsh", "-launcher-exec", hosts.agent, "-localhost", names[0], "-bind-to",
                       "none", "-hosts", ",".join(names), "-ppn", str(hosts.shape.each if hosts.round % 2 == 0 else 1)]
        command += ["-n", str(ranks), self.program, *self.words(operation, sizes)]
        text, why = libraries.run_all([hosts.inside(0, command)], self.seconds(sizes), self.environments[self.name])
        return [] if why else libraries.read_times(self.name, operation, text), why


class HostsGloo(libraries.Gloo):
    """gloo.cc on each host."""

    def command(self, rank, ranks, folder):
        host = self.hosts.host_of(rank)
        return self.hosts.inside(host, [*super().command(rank, ranks, folder), "--address", self.hosts.address(host)])


class Line(libraries.Library):
    """The least time that the links allow."""
    is_peer = False

    def takes(self, operation, ranks):
        return self.hosts.shape.line_us(operation, 1) is not None

    def run(self, operation, ranks, sizes):
        return [("limit", size, self.hosts.shape.line_us(operation, size)) for size in sizes], None


class HostsSockets(libraries.Library):
    """sockets.c on each host: what plain sockets allow where links have no rate."""
    is_peer = False
    congestion = "reno"  # as libcoll chooses inside a machine

    def __init__(self, name, options, program, hosts):
        super().__init__(name, options, program)
        self.hosts = hosts
        self.fastest = {}
        self.port = 21000

    def takes(self, operation, ranks):
        return operation == "allreduce" and self.hosts.shape.each == 1 and ranks <= 64  # MOST_RANKS of moves.h

    def place(self, rank):
        """The host of a rank."""
        return self.hosts.host_of(rank)

    def commands(self, ranks, words, groups=1):
        """The command of each rank; rank r is in group r % groups."""
        self.port += ranks
        places = [self.place(rank) for rank in range(ranks)]
        addresses = ",".join(self.hosts.address(place) for place in places)
        return [self.hosts.inside(place, [self.program, "--rank", str(rank), "--addresses", addresses, "--port", str(self.port),
                                          "--congestion", self.congestion, "--groups", str(groups), *words])
                for rank, place in enumerate(places)]

    def run(self, operation, ranks, sizes):
        text, why = libraries.run_all(self.commands(ranks, self.words(operation, sizes)), self.seconds(sizes))
        times, found = [] if why else libraries.read_times(self.name, operation, text), {}
        for (_, size, us), setting in zip(times, re.findall(r"^setting \d+ (.*)$", text or "", re.MULTILINE)):
            found[ranks, operation, size] = (us, setting)  # of a size that warms up, the last time counts
        for key, (us, setting) in found.items():
            self.fastest[key] = min(self.fastest.get(key, (us, setting)), (us, setting))
        return times, why


class PairSockets(HostsSockets):
    """sockets.c on pairs of hosts, one of each site, which each reduce a part: what must cross the line, and no more."""
    congestion = "usual"

    def place(self, rank):
        return rank  # in all rounds, so that both ranks of a group are at different sites

    def takes(self, operation, ranks):
        return super().takes(operation, ranks) and ranks % 2 == 0

    def run(self, operation, ranks, sizes):
        pairs = ranks // 2
        parts = [max(size // pairs // 4, 1) * 4 for size in sizes]
        text, why = libraries.run_all(self.commands(ranks, self.words(operation, parts), pairs), self.seconds(sizes))
        times = {} if why else {part: us for _, part, us in libraries.read_times(self.name, operation, text)}
        return [(self.name, size, times[part]) for size, part in zip(sizes, parts) if part in times], why


KINDS = {"openmpi": HostsMpi, "mpich": HostsMpi, "ucc": HostsMpi, "gloo": HostsGloo}


def place(found, hosts, options):
    """The libraries that were found, on these hosts."""
    found.all = [HostsLibcoll(options, hosts)] + [KINDS[library.name](library.name, options, library.program)
                                                  for library in found.all if library.name in KINDS]
    if hosts.shape.tc_rate:
        found.all.append(Line("limit", options, None))
    if hosts.shape.line or not hosts.shape.tc_rate:
        program = libraries.build(options, "sockets", ["cc", "-O3", "-march=native", "sockets.c"])
        if program:
            found.all.append(PairSockets("sockets", options, program, hosts) if hosts.shape.line
                             else HostsSockets("limit", options, program, hosts))
    line_us = hosts.shape.line_us("allreduce", max(options.sizes))
    for library in found.all:
        library.hosts = hosts
        library.slowness_s = 20 * (line_us or 0) * 1e-6
