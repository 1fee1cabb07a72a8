"""hosts.py: hosts to measure between, which are network namespaces of this machine. The links between them may be as slow
as real ones. Needs root, ip and tc (iproute2)."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile

import libraries

RATE = r"\d+[kmg]bit"
SHAPE = re.compile(rf"(\d+)x(\d+)(?:@({RATE}(?:\+{RATE}){{0,3}})(?:,({RATE}))?)?(?:/2@({RATE}),(\d+)ms(?:,(\d+)%)?)?$")
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
    """HOSTSxRANKS[@RATE[+RATE ...][,SLOW]][/2@LINE,RTTms[,LOSS%]]: how many hosts, ranks of each, and bits per second that
    each may send by each of its network interfaces; the last host may send and receive only SLOW. Or half of the hosts are
    at another site, to which a line leads. Only alike hosts at one site have several interfaces."""

    def __init__(self, text):
        match = SHAPE.match(text)
        if not match:
            raise ValueError(text)
        self.text, self.hosts, self.each, self.slow = text, int(match[1]), int(match[2]), match[4]
        self.rates = match[3].split("+") if match[3] else []  # one for each interface
        self.line, self.rtt_ms, self.loss = match[5], match[6], match[7] or "0"
        if self.hosts < 2 or self.hosts > 250 or self.each < 1 or (len(self.rates) > 1 and (self.slow or self.line)):
            raise ValueError(text)
        self.ranks = self.hosts * self.each
        self.interfaces = [f"eth{number}" for number in range(max(len(self.rates), 1))]
        self.orders_differ = any(self.host_of(rank, 0) != self.host_of(rank, 1) for rank in range(self.ranks))

    def host_of(self, rank, number):
        """Where a rank runs in a round: by blocks in the first and every second one, dealt out in the others."""
        return rank // self.each if number % 2 == 0 else self.dealt()[rank % self.hosts]

    def dealt(self):
        """The hosts in the order in which they get a rank each: the first of both halves, then the second, and so on."""
        half = (self.hosts + 1) // 2
        return [host for pair in range(half) for host in (pair, pair + half) if host < self.hosts]

    def line_us(self, operation, size):
        """The least time in which a host can send what it must, or a site, or None. Each rank's vector crosses as part of its
        host's; headers are not counted."""
        shares = {"allreduce": 2, "reduce_scatter": 1, "allgather": 1}
        if not self.rates or operation not in shares or ((self.slow or self.line) and operation != "allreduce"):
            return None
        if self.slow or self.line:  # the slow host, or each site, needs the result, and the others what it has
            return size * 8 / bits_per_s(self.slow or self.line) * 1e6 + float(self.rtt_ms or 0) * 1e3 / 2
        return shares[operation] * (self.hosts - 1) / self.hosts * size * 8 / sum(map(bits_per_s, self.rates)) * 1e6


class Hosts:
    """The namespaces, while they exist: a context manager."""

    def __init__(self, shape, options):
        self.shape, self.options = shape, options
        self.tag = f"cmp{os.getpid() % 100000}"
        self.sites = 2 if shape.line else 1
        self.bridges = [f"b{number}{self.tag}" for number in range(max(self.sites, len(shape.interfaces)))]
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
            devices = [self.device(host, number) for number in range(len(self.shape.interfaces))]
            for words in (["netns", "del", self.name(host)], *(["link", "del", device] for device in devices)):
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
        return host * self.sites // self.shape.hosts

    def _add(self, host):
        name = self.name(host)
        self._do(f"ip netns add {name}", f"ip -n {name} link set lo up")
        for number in range(len(self.shape.interfaces)):
            self._plug(host, number)

    def _plug(self, host, number):
        """Gives a host one of its interfaces, each of which is in a network of its own."""
        name, device, inside = self.name(host), self.device(host, number), self.shape.interfaces[number]
        bridge = self.bridges[max(self.site_of(host), number)]
        self._do(f"ip link add {device} type veth peer name {inside} netns {name}",
                 f"ip link set {device} master {bridge} up",
                 f"ip -n {name} addr add {self.address(host, number)}/24 dev {inside}", f"ip -n {name} link set {inside} up")
        if self.options.congestion:
            self._do(f"ip -n {name} route replace 10.77.{number}.0/24 dev {inside} congctl {self.options.congestion}")
        slow = self.shape.slow if host == self.shape.hosts - 1 else None
        if self.shape.rates:
            self._limit(f"ip netns exec {name} ", inside, slow or self.shape.rates[number])
        if slow:
            self._limit("", device, slow)

    def _limit(self, inside, device, rate):
        """Limits what a device sends."""
        self._do(f"{inside}tc qdisc add dev {device} root handle 1: htb default 10",
                 f"{inside}tc class add dev {device} parent 1: classid 1:10 htb rate {rate} ceil {rate} burst 256k cburst 256k")

    def name(self, host):
        """The namespace of a host."""
        return f"{self.tag}-{host + 1}"

    def device(self, host, number):
        """The end of a host's interface that is outside of it."""
        return f"v{number}{self.tag}{host + 1}"

    @staticmethod
    def address(host, number=0):
        """The address of a host's interface."""
        return f"10.77.{number}.{host + 1}"

    def host_of(self, rank):
        """Where a rank runs in this round."""
        return self.shape.host_of(rank, self.round)

    def inside(self, host, command):
        """The command that runs a command on a host. By its name, MPICH finds out who shares memory with whom."""
        return ["ip", "netns", "exec", self.name(host), "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"',
                self.name(host), *command]
