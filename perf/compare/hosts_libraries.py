"""hosts_libraries.py: the libraries to compare between hosts: how each is started there, and the limits beside them."""
import os
import re
import secrets

import cells
import libraries
from hosts import bits_per_s


def declared(rates):
    """The setting for network interfaces with these rates: cards say how fast they are, but those of namespaces do not."""
    return [f"COLL_LINK_SPEED={sum(map(bits_per_s, rates)) / 1e6:.9g}mbit"] if rates else []


class HostsLibcoll(libraries.Libcoll):
    """coll_perf, started as a launcher would that binds nothing."""
    first_port = 23000

    def __init__(self, options, hosts):
        super().__init__(options, False)
        self.hosts = hosts
        self.port = self.first_port

    def settings(self, host):
        """What a host's ranks are told of its links."""
        shape = self.hosts.shape
        if shape.slow or shape.line:  # they stand for machines of their own, else for containers of one
            return ["COLL_LINK_SPEED=measure", f"COLL_HOST_ID={self.hosts.name(host)}"]
        return declared(shape.rates)

    def results(self, operation, ranks, sizes):
        self.port += 1
        path = os.path.join(self.hosts.folder, "json")
        secret = secrets.token_hex(32)
        commands = []
        for rank in range(ranks):
            host = self.hosts.host_of(rank)
            words = ["env", *self.settings(host), f"COLL_RANK={rank}", f"COLL_NRANKS={ranks}", f"COLL_SECRET={secret}",
                     f"COLL_ROOT={self.hosts.address(self.hosts.host_of(0))}:{self.port}", self.program, operation, "-b",
                     ",".join(map(str, sizes)), "-w", "2", "-r", "-1", "-R", "0", "--json", path if rank == 0 else "/dev/null"]
            commands.append(self.hosts.inside(host, words + (["-e", str(sizes[0])] if len(sizes) == 1 else [])))
        return self.read(commands, path, sizes, {})


class OneInterface(HostsLibcoll):
    """The same with each host's first network interface alone."""
    first_port = 25000

    def __init__(self, options, hosts):
        super().__init__(options, hosts)
        self.name = "libcoll-one-nic"

    def settings(self, host):
        return [f"COLL_TCP_IFNAME=={self.hosts.shape.interfaces[0]}", *declared(self.hosts.shape.rates[:1])]

    def run(self, operation, ranks, sizes):
        results, why = self.results(operation, ranks, sizes)
        return [(self.name, line["size"], line["out_of_place"]["time_us"]) for line in results], why


class HostsMpi(libraries.Mpi):
    """mpi.c and ucc.c, started through an agent in place of ssh."""
    environments = {"openmpi": {}, "mpich": {"FI_PROVIDER": "tcp", "UCX_TLS": "tcp,self"}, "ucc": {"UCX_TLS": "tcp,sm,self"}}

    def environment(self):
        """What UCX is told. Without this, UCX divides only long messages."""
        interfaces = self.hosts.shape.interfaces
        devices = {"UCX_NET_DEVICES": ",".join(interfaces)}
        if len(interfaces) > 1:
            devices |= {f"UCX_MAX_{what}_RAILS": str(len(interfaces)) for what in ("EAGER", "RNDV")}
        return self.environments[self.name] | (devices if self.name != "openmpi" else {})

    def run(self, operation, ranks, sizes):
        hosts = self.hosts
        order = range(hosts.shape.hosts) if hosts.round % 2 == 0 else hosts.shape.dealt()
        names = [hosts.address(host) for host in order]
        if self.launcher == "openmpi":
            # It knows only that each host has enough cores, not that hosts share them.
            yields = ["--mca", "mpi_yield_when_idle", str(int(ranks > len(self.cores)))]
            command = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", *yields, "--bind-to", "none", "--map-by",
                       "slot" if hosts.round % 2 == 0 else "node", "--mca", "plm_rsh_agent", hosts.agent, "--mca",
                       "btl_tcp_if_include", ",".join(hosts.shape.interfaces), "--mca", "pml", "ob1", "--mca", "btl",
                       "tcp,vader,self", "--host", ",".join(f"{name}:{hosts.shape.each}" for name in names)]
        else:
            command = ["mpirun.mpich", "-launcher", "rsh", "-launcher-exec", hosts.agent, "-localhost", names[0], "-bind-to",
                       "none", "-hosts", ",".join(names), "-ppn", str(hosts.shape.each if hosts.round % 2 == 0 else 1)]
        command += ["-n", str(ranks), self.program, *self.words(operation, sizes)]
        text, why = libraries.run_all([hosts.inside(0, command)], self.seconds(sizes), self.environment())
        return [] if why else libraries.read_times(self.name, operation, text), why


class HostsGloo(libraries.Gloo):
    """gloo.cc on each host; it has a single network interface."""

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
    first_port = 21000

    def __init__(self, name, options, program, hosts):
        super().__init__(name, options, program)
        self.hosts = hosts
        self.fastest = {}
        self.port = self.first_port

    def takes(self, operation, ranks):
        return operation == "allreduce" and self.hosts.shape.each == 1 and ranks <= 64  # MOST_RANKS of moves.h

    def host_of(self, rank):
        """The host of a rank."""
        return self.hosts.host_of(rank)

    def commands(self, ranks, words, groups=1):
        """The command of each rank; rank r is in group r % groups."""
        self.port += ranks
        hosts = [self.host_of(rank) for rank in range(ranks)]
        addresses = ",".join(self.hosts.address(host) for host in hosts)
        return [self.hosts.inside(host, [self.program, "--rank", str(rank), "--addresses", addresses, "--port", str(self.port),
                                          "--congestion", self.congestion, "--groups", str(groups), *words])
                for rank, host in enumerate(hosts)]

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

    def host_of(self, rank):
        return rank  # in all rounds, so that both ranks of a group are at different sites

    def takes(self, operation, ranks):
        return super().takes(operation, ranks) and ranks % 2 == 0

    def run(self, operation, ranks, sizes):
        pairs = ranks // 2
        parts = [max(size // pairs // 4, 1) * 4 for size in sizes]
        text, why = libraries.run_all(self.commands(ranks, self.words(operation, parts), pairs), self.seconds(sizes))
        times = {} if why else {part: us for _, part, us in libraries.read_times(self.name, operation, text)}
        return [(self.name, size, times[part]) for size, part in zip(sizes, parts) if part in times], why


class OneSocket(PairSockets):
    """sockets.c on the first host of each site: one socket between them, over which both exchange the whole vector."""
    first_port = 22000

    def __init__(self, name, options, program, hosts, sizes):
        super().__init__(name, options, program, hosts)
        self.sizes = sizes

    def host_of(self, rank):
        return self.hosts.shape.dealt()[rank]

    def takes(self, operation, ranks):
        return operation == "allreduce"

    def run(self, operation, ranks, sizes):
        """Only sizes that have a floor, as losses make it slow, and each alone, so that none costs another its time."""
        times, whys = [], []
        for size in sizes:
            if size in self.sizes:
                found, why = super().run(operation, 2, [size])
                times += found
                whys += [f"{size} bytes: {why}"] if why else []
        return times, "; ".join(whys) or None


KINDS = {"openmpi": HostsMpi, "mpich": HostsMpi, "ucc": HostsMpi, "gloo": HostsGloo}


def sizes_of_one_socket(floors, options):
    """The sizes to measure one socket with: those that it is an alternative for; all where nothing gives floors."""
    steps = [line[4] for line in floors if line[0] == "or one_socket" and options.hosts.text in line[2]]
    sizes = [max(size // 4, 1) * 4 for size in options.sizes]  # whole floats, as they are measured
    return [size for size in sizes if not steps or any(cells.floor_of(of, size) is not None for of in steps)]


def slowness_s(shape, sizes):
    """How much longer than inside a machine a run may take, for each size. With losses, one stream gets a small part of
    the line, some operations of which are tried first."""
    line_us = (shape.line_us("allreduce", max(sizes)) or 0) * len(shape.interfaces)  # of those who use one
    return (20 if shape.loss == "0" else 400) * line_us * 1e-6


def set_up(found, hosts, options, floors):
    """The libraries that were found, on these hosts."""
    shape = hosts.shape
    several = len(shape.interfaces) > 1
    found.all = [HostsLibcoll(options, hosts)] + [KINDS[library.name](library.name, options, library.program)
                                                  for library in found.all if library.name in KINDS]
    if several:
        found.all.append(OneInterface(options, hosts))
    if shape.rates:
        found.all.append(Line("limit", options, None))
    if shape.line or not shape.rates:
        program = libraries.build(options, "sockets", ["cc", "-O3", "-march=native", "sockets.c"])
        if program and shape.line:
            found.all += [PairSockets("sockets", options, program, hosts),
                          OneSocket("one-socket", options, program, hosts, sizes_of_one_socket(floors, options))]
        elif program:
            found.all.append(HostsSockets("limit", options, program, hosts))
    for library in found.all:
        library.hosts = hosts
        library.slowness_s = slowness_s(shape, options.sizes)
