"""Four hosts at two switches, in network namespaces that nothing outside can see, and faults of their network."""
import os
import shutil
import subprocess
import sys

HOSTS = 4  # hosts 0 and 1 are at switch 0, hosts 2 and 3 at switch 1; the cable between them is c0-c1
LOSS = "numgen random mod 100 < 3 drop"
NARROW = ["root", "tbf", "rate", "20mbit", "burst", "5kb", "limit", "30kb"]


def say(text):
    print(text, flush=True)


def skip(reason):
    say(f"skipped: {reason}")
    sys.exit(77)


def works(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def call(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def switch(*links):
    """Sets links up or down, one right after the other: "c0 down"."""
    subprocess.run(["ip", "-batch", "-"], input="".join(f"link set {link}\n" for link in links), text=True, check=True)


def inside(host, *command):
    return ["ip", "netns", "exec", f"h{host}", *command]


def address(host):
    return f"10.79.0.{host + 1}"


def apart(host, other):
    """Whether the cable between the switches is between two hosts."""
    return host // 2 != other // 2


def listening(host):
    """The ports at which processes of a host listen."""
    table = subprocess.run(inside(host, "cat", "/proc/net/tcp"), stdout=subprocess.PIPE, check=True).stdout
    return [int(line.split()[1].split(":")[1], 16) for line in table.decode().splitlines()[1:] if line.split()[3] == "0A"]


def build():
    """Makes the hosts, and a small /dev/shm of their own."""
    call("mount", "-t", "tmpfs", "none", "/run")
    call("mount", "-t", "tmpfs", "-o", "size=8m", "none", "/dev/shm")
    call("ip", "link", "add", "c0", "type", "veth", "peer", "name", "c1")
    for number in 0, 1:
        call("ip", "link", "add", f"s{number}", "type", "bridge")
        switch(f"s{number} up", f"c{number} master s{number} up")
    for host in range(HOSTS):
        call("ip", "netns", "add", f"h{host}")
        call("ip", "link", "add", f"v{host}", "type", "veth", "peer", "name", "eth0", "netns", f"h{host}")
        call("ip", "link", "set", f"v{host}", "master", f"s{host // 2}", "up")
        call("ip", "-n", f"h{host}", "addr", "add", address(host) + "/24", "dev", "eth0")
        for link in "lo", "eth0":
            call("ip", "-n", f"h{host}", "link", "set", link, "up")


def loses(host, begin):
    """Starts or stops dropping 3 % of the packets that arrive at a host."""
    if not begin:
        return works(*inside(host, "nft", "delete", "table", "inet", "storm"))
    chain = ["chain", "inet", "storm", "in"]
    return (shutil.which("nft") is not None and works(*inside(host, "nft", "add", "table", "inet", "storm"))
            and works(*inside(host, "nft", "add", *chain, "{ type filter hook input priority 0; }"))
            and works(*inside(host, "nft", "add", "rule", *chain[1:], *LOSS.split())))


def is_narrow(host, begin):
    """Makes the link to a host slow or fast again; a slow link's queue is so short that packets are lost."""
    return works("tc", "qdisc", "add" if begin else "del", "dev", f"v{host}", *(NARROW if begin else ["root"]))


def can(what):
    """Whether the kernel can do loses() or is_narrow()."""
    there = what(0, True)
    what(0, False)
    return there


class Cable:
    """A second cable between the switches, which a program carries: chaos_cable. It is plugged in instead of the
    first one while frames are to be lost, repeated, swapped or delayed."""

    def __init__(self, program, seed):
        self.process = subprocess.Popen([program, "t0", "t1", str(seed)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.works = self.process.stdout.readline() == "ready\n"
        if self.works:
            switch("t0 master s0", "t1 master s1")

    def plug(self, loss=0, repeat=0, swap=0, delay_ms=0, deaf=0):
        self.tell(loss, repeat, swap, delay_ms, deaf)
        switch("c0 down", "t0 up", "t1 up")

    def unplug(self):
        """Returns how many frames came, and how many of them were lost, repeated, swapped."""
        switch("t0 down", "t1 down", "c0 up")
        return self.tell(0, 0, 0, 0, 0)

    def tell(self, *numbers):
        self.process.stdin.write(" ".join(map(str, numbers)) + "\n")
        self.process.stdin.flush()
        return [int(number) for number in self.process.stdout.readline().split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def fill(folder):
    """Fills the file system of a folder; returns the file that takes up the space."""
    path = os.path.join(folder, "full")
    with open(path, "wb", buffering=0) as file:
        try:
            while file.write(bytes(65536)):
                pass
        except OSError:
            pass
    return path
