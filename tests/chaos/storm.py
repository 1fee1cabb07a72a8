"""One job, what happens to it, and its end. A seed decides what happens to whom and when."""
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time

import hosts

TIMEOUT_MS, SHRINK_MS = 3000, 2000
HEARTBEAT_MS = 1500  # longer than the kernel's first retransmission of a lost SYN
CORRUPT_AT = 2048  # in the file "clock": one byte for each rank
LONGEST = 60  # seconds that a rank may take to end after the storm: several shrinks of up to seven times SHRINK_MS
LIMITS = {name: resource.getrlimit(name) for name in (resource.RLIMIT_NOFILE, resource.RLIMIT_AS)}
EVENTS = ["kill", "kill_two", "freeze", "slow", "cut", "blip", "one_way", "strangers", "no_descriptors", "no_memory",
          "full_disk", "clock_step", "join", "rejoin", "corrupt"]


class Strike:
    """When and by what which ranks were struck. Of a cut: whether it is between two hosts, and when it ended."""

    def __init__(self, name, ranks, when=None, cut=None):
        self.name, self.ranks, self.cut, self.end = name, set(ranks), cut, None
        self.when = when or time.monotonic()


class Rank:
    def __init__(self, command, number, host, log, environment):
        self.number, self.host, self.log, self.environment = number, host, log, environment
        with open(log, "wb") as out:
            self.process = subprocess.Popen(hosts.inside(host, *command), env=environment, stdout=out,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.pid = self.process.pid
        self.stopped = False

    def lives(self):
        return self.process.poll() is None

    def signal(self, number):
        if self.lives():
            os.kill(self.pid, number)
            self.stopped = number == signal.SIGSTOP

    def lines(self):
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read().splitlines()

    def where(self):
        """The ranks of the communicator where it is or was at last, or none."""
        lists = [line.split(" ")[3] for line in self.lines() if line.startswith("comm ")]
        return {int(number) for number in lists[-1].split(",")} if lists else set()

    def shrinks(self):
        """How often it has come out of a shrink, into a communicator or not."""
        return sum(line.startswith(("comm ", "left ", "unjoined ")) for line in self.lines())

    def was_left_out(self, seen):
        """Whether it has come out of a shrink since then, or of its last one."""
        return self.shrinks() > seen or any(line.startswith(("left ", "done ")) for line in self.lines())

    def is_without(self, numbers):
        """Whether it is in a communicator without these ranks, or no longer in any."""
        if any(line.startswith(("left ", "done ", "unjoined ")) for line in self.lines()):
            return True
        return bool(self.where()) and not self.where() & numbers


class Storm:
    """programs: the folder with chaos_worker and chaos_clock.so; cable: a hosts.Cable."""

    def __init__(self, seed, number, folder, kinds, programs, cable):
        self.random = random.Random(f"{seed}/{number}")
        self.folder, self.kinds, self.cable = folder, kinds, cable
        self.disk, self.stop = os.path.join(folder, "disk"), os.path.join(folder, "stop")
        self.helpers = {os.getpid(), os.getppid(), cable.process.pid}
        self.strikes = []  # what may be blamed
        self.harmed = False  # whether anything happened that is a reason to fail
        self.silence = False  # whether ranks or their network were silent for long
        self.short = set()  # who lacks descriptors or memory
        self.liar = None  # a rank that sends false messages
        self.victims = {}  # number -> signal that ended it
        self.errors, self.events, self.loans, self.fillers = [], [], [], []
        self.frames = [0, 0, 0, 0]  # on the second cable: carried, lost, repeated, swapped
        os.mkdir(self.disk)
        hosts.call("mount", "-t", "tmpfs", "-o", "size=2m", "none", self.disk)
        self.clock = os.open(os.path.join(folder, "clock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.truncate(self.clock, 4096)
        self.begin(programs, number)

    def begin(self, programs, number):
        nranks = self.founders = self.random.randint(3, 8)
        places = [self.random.randrange(hosts.HOSTS) for _ in range(nranks)]
        environment = {name: value for name, value in os.environ.items()
                       if not name.startswith(("COLL_", "ASAN_", "LSAN_"))}
        environment.update(
            COLL_NRANKS=str(nranks), COLL_ROOT=f"{hosts.address(places[0])}:{20000 + number % 10000}",
            COLL_SECRET=self.random.randbytes(32).hex(), COLL_TIMEOUT_MS=str(TIMEOUT_MS), COLL_CREATE_TIMEOUT_MS="30000",
            COLL_HEARTBEAT_MS=str(HEARTBEAT_MS), CHAOS_SHRINK_MS=str(SHRINK_MS), CHAOS_STOP=self.stop,
            CHAOS_ID=os.path.join(self.folder, "id"), CHAOS_CLOCK=os.path.join(self.folder, "clock"), LD_PRELOAD=os.path.join(programs, "chaos_clock.so"))
        if self.random.random() < 0.5:
            environment.update(COLL_TRACE=os.path.join(self.disk, "trace"), COLL_TRACE_BYTES="65536")
        self.command = [os.path.join(programs, "chaos_worker"), str(self.random.getrandbits(60))]
        self.ranks = [Rank(self.command, r, places[r], f"{self.folder}/rank{r}", dict(environment, COLL_RANK=str(r)))
                      for r in range(nranks)]

    # ---- events: each takes a little while ------------------------------------------------------------------------

    def pause(self, low, high):
        time.sleep(self.random.uniform(low, high))

    def longer_than_heartbeats(self):
        self.pause(2 * HEARTBEAT_MS / 1000 + 1, 2 * HEARTBEAT_MS / 1000 + 2)

    def victim(self, keep=2):
        """A random live rank, or None: it is dead, or too few are left."""
        choice = self.random.choice(self.ranks)
        return choice if choice.lives() and sum(r.lives() and not r.stopped for r in self.ranks) > keep else None

    def strike(self, what, *ranks, when=None, cut=None):
        """To be called before it happens, or with the time when it did. cut: a function of two hosts, whether it is
        between them."""
        name = what.split(" ")[0]
        self.silence |= name in ("freeze", "cut", "one_way", "deaf", "away")
        self.events.append(f"{what} {','.join(str(r.number) for r in ranks)}")
        self.harmed = True
        self.strikes.append(Strike(name, (r.number for r in ranks), when, cut))
        return self.strikes[-1]

    def kill(self):
        rank = self.victim()
        if rank:
            self.strike("kill", rank)
            self.victims[rank.number] = signal.SIGKILL
            rank.signal(signal.SIGKILL)

    def kill_two(self):
        self.kill()
        self.kill()

    def freeze(self):
        """Stopped until the end of the storm, and then woken or killed."""
        rank = self.victim()
        if rank:
            self.strike("freeze", rank)
            rank.signal(signal.SIGSTOP)

    def slow(self):
        """Pauses too short for any deadline."""
        rank = self.victim(0)
        for _ in range(3 if rank and not rank.stopped else 0):
            rank.signal(signal.SIGSTOP)
            self.pause(0.05, 0.3)
            rank.signal(signal.SIGCONT)
            self.pause(0.01, 0.05)
        self.events.append("slow")

    def cut(self):
        """The cable between the switches is unplugged for longer than the heartbeats allow."""
        cut = self.strike("cut", *self.ranks, cut=hosts.apart)
        hosts.switch("c0 down")
        self.longer_than_heartbeats()
        hosts.switch("c0 up")
        cut.end = time.monotonic()

    def blip(self):
        """A cable is unplugged for a moment."""
        begin = time.monotonic()
        hosts.switch("c0 down")
        self.pause(0.02, 0.3)
        hosts.switch("c0 up")
        self.events.append("blip")
        self.was_away(begin)

    def one_way(self):
        """What one host sends to another is lost; the other direction works."""
        there = sorted({r.host for r in self.ranks})
        if len(there) < 2:
            return
        source, target = self.random.sample(there, 2)
        cut = self.strike(f"one_way h{source} to h{target}:", *(r for r in self.ranks if r.host in (source, target)),
                          cut=lambda a, b: {a, b} == {source, target})
        entry = [hosts.address(target), "dev", "eth0"]
        hosts.call("ip", "-n", f"h{source}", "neigh", "replace", *entry, "lladdr", "02:00:00:00:00:01", "nud",
                   "permanent")
        self.longer_than_heartbeats()
        hosts.call("ip", "-n", f"h{source}", "neigh", "del", *entry)
        cut.end = time.monotonic()

    def was_away(self, begin):
        """The network was down since then. On a busy machine that may be long enough for ranks to be blamed."""
        if time.monotonic() - begin > HEARTBEAT_MS / 3000:
            cut = self.strike(f"away for {time.monotonic() - begin:.1f} s:", *self.ranks, when=begin, cut=hosts.apart)
            cut.end = time.monotonic()

    def on_the_other_cable(self, pause, **setting):
        begin = time.monotonic()
        self.cable.plug(**setting)
        self.was_away(begin)
        pause()
        begin = time.monotonic()
        carried = self.cable.unplug()
        self.was_away(begin)
        self.frames = [a + b for a, b in zip(self.frames, carried)]

    def deaf(self):
        """What one switch sends to the other is lost; the other direction works."""
        cut = self.strike("deaf", *self.ranks, cut=hosts.apart)
        self.on_the_other_cable(self.longer_than_heartbeats, deaf=self.random.choice([1, 2]))
        cut.end = time.monotonic()

    def duplicate(self):
        self.events.append("duplicate")
        self.on_the_other_cable(lambda: self.pause(0.5, 1), repeat=self.random.choice([5, 30, 100]))

    def reorder(self):
        self.events.append("reorder")
        self.on_the_other_cable(lambda: self.pause(0.5, 1), swap=self.random.choice([2, 10, 30]))

    def rough(self):
        """Frames between the switches are lost, repeated, swapped and late."""
        self.events.append("rough")
        self.on_the_other_cable(lambda: self.pause(0.5, 1), loss=1, repeat=5, swap=5,
                                delay_ms=self.random.choice([1, 5, 20]))

    def narrow(self):
        """A host's link gets slow, with a queue so short that packets are lost."""
        host = self.random.randrange(hosts.HOSTS)
        hosts.is_narrow(host, True)
        self.events.append(f"narrow h{host}")
        self.pause(0.3, 0.6)
        hosts.is_narrow(host, False)

    def loss(self):
        """A host loses three of a hundred packets that arrive."""
        host = self.random.randrange(hosts.HOSTS)
        hosts.loses(host, True)
        self.events.append(f"loss h{host}")
        self.pause(0.3, 0.6)
        hosts.loses(host, False)

    def strangers(self):
        """Connections with noise to every port at which a rank listens."""
        for host in sorted({r.host for r in self.ranks}):
            noise = self.random.randbytes(300)
            code = ("import socket\n"
                    f"kept = []\nfor port in {hosts.listening(host) * 5}:\n"
                    "  try:\n"
                    f"    kept.append(socket.create_connection(({hosts.address(host)!r}, port), 1))\n"
                    f"    kept[-1].sendall({noise!r}[:len(kept) * 7])\n"
                    "  except OSError: pass\n")
            self.loans.append(subprocess.Popen(hosts.inside((host + 1) % hosts.HOSTS, sys.executable, "-c", code)))
        self.events.append("strangers")

    def limit(self, what, name, value):
        rank = self.victim()
        if rank:
            self.strike(what, rank)
            self.short.add(rank.number)
            resource.prlimit(rank.pid, name, (value(rank.pid), LIMITS[name][1]))

    def no_descriptors(self):
        self.limit("no_descriptors", resource.RLIMIT_NOFILE, lambda pid: len(os.listdir(f"/proc/{pid}/fd")))

    def no_memory(self):
        def size(pid):
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[0]) * resource.getpagesize()
        self.limit("no_memory", resource.RLIMIT_AS, size)

    def full_disk(self):
        """No space where the ranks' traces are, nor in /dev/shm, until the end of the storm."""
        self.fillers += [hosts.fill(self.disk), hosts.fill("/dev/shm")]
        self.events.append("full_disk")

    def clock_step(self):
        """A rank's time of day is wrong from now on."""
        rank = self.random.randrange(len(self.ranks))
        step = self.random.choice([-1, 1]) * self.random.choice([1, 60, 86400, 10 * 365 * 86400])
        os.pwrite(self.clock, struct.pack("q", step), 8 * rank)
        self.events.append(f"clock_step {rank} {step}")

    def corrupt(self):
        """One rank sends wrong control messages with valid codes (corrupt.c), until the end of the storm."""
        if self.liar is None:
            self.liar = self.random.randrange(self.founders)
            self.strike("corrupt", self.ranks[self.liar])
            os.pwrite(self.clock, b"\1", CORRUPT_AT + self.liar)

    def join(self):
        """A newcomer, on any host. It waits a few seconds for the ranks to grow."""
        begin, count = time.monotonic(), len(self.ranks)
        rank = Rank([*self.command, "join"], -1 - count, self.random.randrange(hosts.HOSTS), f"{self.folder}/rank{count}",
                    self.ranks[0].environment)
        self.ranks.append(rank)
        self.await_event(lambda: rank.where() or not rank.lives(), LONGEST)
        for line in (line.split(" ") for line in rank.lines()):
            if line[0] == "comm":
                rank.number = int(line[3].split(",")[int(line[2])])
            elif line[0] == "unjoined" and int(line[1]) >= 0:
                # It got in, but then heard nothing from the others, and left.
                self.strikes.append(Strike("join", {int(line[1])}, begin))
        self.events.append(f"join {rank.number}")

    def rejoin(self):
        """A rank dies, and a newcomer joins."""
        self.kill()
        self.join()

    # ---- the storm ------------------------------------------------------------------------------------------------

    def await_event(self, happened, longest):
        """Waits for something that ranks do; whether it came within so many seconds."""
        deadline = time.monotonic() + longest
        while not happened():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def started(self):
        """Waits until all ranks are in the first communicator."""
        def all_in():
            return all(any(line.startswith("id 0") for line in r.lines()) for r in self.ranks)
        self.await_event(lambda: all_in() or not all(r.lives() for r in self.ranks), 40)
        if not all_in():
            self.errors.append("not all ranks have started")
        return all_in()

    def rage(self, most):
        """The storm, and its end. Afterwards judge it, then clear it."""
        try:
            if self.started():
                for _ in range(self.random.randint(1, most)):
                    self.pause(0.05, 0.5)
                    getattr(self, self.random.choice(self.kinds))()
                self.pause(0.3, 0.6)
            self.calm()
        finally:
            for rank in self.ranks:
                if rank.lives():
                    rank.process.kill()
                rank.process.wait()
            for path in set(self.fillers):
                os.unlink(path)

    def clear(self):
        os.close(self.clock)
        hosts.call("umount", self.disk)

    def calm(self):
        """Ends the storm: first the others continue without the frozen ranks, then these wake or die."""
        frozen = [r for r in self.ranks if r.stopped and r.lives()]
        numbers = {r.number for r in frozen}
        if not self.await_event(lambda: all(r.is_without(numbers) for r in self.ranks if r.lives() and not r.stopped),
                                LONGEST if frozen else 0) and frozen:
            self.errors.append(f"not all go on without {sorted(numbers)}, who are frozen")
        woken = [(r, r.shrinks()) for r in frozen]
        for rank in frozen:
            if self.random.random() < 0.5:
                self.victims[rank.number] = signal.SIGKILL
                rank.signal(signal.SIGKILL)
            else:
                rank.signal(signal.SIGCONT)
        # They learn that they were left out while the others live: see the known gaps in reliability.md.
        self.await_event(lambda: all(r.was_left_out(seen) or not r.lives() for r, seen in woken), LONGEST)
        for rank in self.ranks:  # or it would shrink again and again, and fail each time
            if rank.number in self.short and rank.lives():
                for name, (_, most) in LIMITS.items():
                    resource.prlimit(rank.pid, name, (most, most))
        if self.liar is not None:
            os.pwrite(self.clock, b"\0", CORRUPT_AT + self.liar)
        with open(self.stop, "w", encoding="ascii"):
            pass
        for stranger in self.loans:
            stranger.wait()
        deadline = time.monotonic() + LONGEST
        for rank in self.ranks:
            try:
                rank.process.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with open(f"/proc/{rank.pid}/wchan", encoding="ascii") as file:
                    self.errors.append(f"rank {rank.number} hangs ({file.read()})")
