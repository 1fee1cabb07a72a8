#!/usr/bin/python3
"""Measures which bugs the tests notice: changes one random operator, constant or statement of the library (a
mutant), builds it, and runs tests until one fails. A mutant that passes all tests has survived: either the change
does not matter, or a test is missing.

Everything happens in private copies of this source tree, one for each job, below --work; the tree itself is only
read. A mutant that does not compile, or whose object code did not change, does not count. A test kills a mutant
only if it fails twice in a row, so that a busy machine kills none; a test that takes too long has failed. Fast
tests, and tests that have killed mutants of the same folder before, run first. Results are appended to a file as
they come: after an interruption, the same command continues."""
import argparse
import collections
import fcntl
import glob
import hashlib
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

# What is changed by default, and which tests run its code; others would only take time.
FOLDERS = {"libcoll/exec": r"^unit_(test_(fastpath|reduce|stage|ops|plans)|plain_kernels)$|^(sim|proc)_",
           "libcoll/comm": r"^unit_test_shm_capacity$|^conformance_test_mux$|^(sim|proc)_",
           "transports/shm": r"^unit_(\w+_shm_\w+|test_shared_detach)$|^conformance_test_(shm\w*|fault)$|^proc_"}
# Not run unless asked for: tests of other transports, of the trainer, of schedules on paper; and the slowest.
NOT_RUN = r"verbs|tcp|train|_test_(param|topo|net|auth|ctrl|fault_plan|perf_rounds|calib\w+|huge)$|^sched_|^hosts_"
FLAGS = ["-G", "Ninja", "-DCMAKE_BUILD_TYPE=Mutant", "-DCMAKE_C_FLAGS_MUTANT=-O2", "-DCMAKE_CXX_FLAGS_MUTANT=-O2"]
MARK = "MUTANT_OF"       # in the environment of every test, with the job's folder: so is what a test leaves behind
MAX_BYTES = 8 << 30      # of memory or of a file: no mutant may fill the machine
GRACE_S = 10             # a test may take this long plus three times what it takes in the unchanged library

Mutant = collections.namedtuple("Mutant", "key file offset line old new kind text")
Test = collections.namedtuple("Test", "name command environment folder seconds")


# ---- mutants of a source text ---------------------------------------------------------------------------------

def blank(match):
    """Spaces that replace some text, so that everything after it keeps its position."""
    return re.sub(r"[^\n]", " ", match.group())


def code_of(text):
    """A C source with comments, preprocessor lines, strings and characters blanked out."""
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def bodies(code):
    """Where the bodies of functions lie: (start, end) of each outermost block that follows a parenthesis."""
    depth = start = 0
    for match in re.finditer(r"[{}]", code):
        if match.group() == "{":
            if depth == 0:
                start = match.start() if code[:match.start()].rstrip().endswith(")") else None
            depth += 1
        else:
            depth -= 1
            if depth == 0 and start is not None:
                yield start, match.end()


def closing(code, start):
    """Where the parenthesis ends that opens at `start`."""
    depth = 0
    for i in range(start, len(code)):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth == 0:
            return i
    return len(code) - 1


def statements(code, start, end):
    """Simple statements of a body, without the if, for or label in front: (start, end), with the semicolon."""
    depth, first = 0, start + 1
    for i in range(start + 1, end):
        depth += (code[i] == "(") - (code[i] == ")")
        if depth or code[i] not in ";{}":
            continue
        if code[i] == ";":
            while head := re.compile(r"\s*(?:(if|for|while|switch)\s*(?=\()|else\b|do\b|case\b[^:]*:|\w+:)|\s+").match(
                    code, first, i):
                first = closing(code, head.end()) + 1 if head.group(1) else head.end()
            yield first, i + 1
        first = i + 1


# What replaces what, by regular expression; a group is what is replaced, if there is one.
SWAPS = [("relation", r" (<=?|>=?|==|!=) ", {"<": ["<="], "<=": ["<"], ">": [">="], ">=": [">"], "==": ["!="],
                                             "!=": ["=="]}),
         ("arithmetic", r" ([+-]|<<|>>) ", {"+": ["-"], "-": ["+"], "<<": [">>"], ">>": ["<<"]}),
         ("arithmetic", r"\+\+|--| [+-]= ", {"++": ["--"], "--": ["++"], " += ": [" -= "], " -= ": [" += "]}),
         ("bits", r" ([|&]) | [|&]= ", {"|": ["&"], "&": ["|"], " |= ": [" &= "], " &= ": [" |= "]}),
         ("logic", r" (&&|\|\|) ", {"&&": ["||"], "||": ["&&"]}),
         ("truth", r"\b(?:true|false)\b", {"true": ["false"], "false": ["true"]}),
         ("jump", r"\b(break|continue);", {"break": ["continue"], "continue": ["break"]}),
         ("memory order", r"\b(?:memory_order|__ATOMIC)_(acquire|release|acq_rel|seq_cst|ACQUIRE|RELEASE|ACQ_REL"
          r"|SEQ_CST)\b", {w: ["relaxed" if w.islower() else "RELAXED"] for w in
                           "acquire release acq_rel seq_cst ACQUIRE RELEASE ACQ_REL SEQ_CST".split()}),
         ("status", r"\breturn (COLL_\w+);", collections.defaultdict(lambda: ["COLL_OK"],
                                                                   COLL_OK=["COLL_ERR_INTERNAL"]))]
DELETABLE = re.compile(r"(?:\(void\))?(?:[a-z_]\w*\(|\*?[\w.\[\]>-]+(?:\([^()]*\))? (?:[-+|&^*/]|<<|>>)?= |"
                       r"(?:\+\+|--)|[\w.\[\]>-]+(?:\+\+|--);)")
UNTOUCHED = re.compile(r"\b\w*(?:assert|_log|LOG_|log_|_unused)\w*\(")  # texts and checks for people


def mutations(path, text):
    """All mutants of one file."""
    code = code_of(text)
    found, alike = [], collections.Counter()

    def add(start, end, new, kind):
        line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
        source = text.splitlines()[line - 1]
        key = f"{path}:{column}:{source.strip()}:{new}"  # stays when other lines change
        alike[key] += 1
        found.append(Mutant(f"{key}#{alike[key]}", path, start, line, text[start:end], new, kind, source))

    for start, end in bodies(code):
        for kind, pattern, table in SWAPS:
            for match in re.compile(pattern).finditer(code, start, end):
                group = 1 if match.lastindex else 0
                for new in table[match.group(group)]:
                    add(*match.span(group), new, kind)
        for match in re.compile(r"(?<![\w.])(\d+)([uUlL]*)\b(?!\.)").finditer(code, start, end):
            value = int(match.group(1), 8 if match.group(1).startswith("0") else 10)
            for near in {value - 1, value + 1} - {-1}:
                add(*match.span(1), str(near), "constant")
        for match in re.compile(r"\b(?:if|while) (?=\()").finditer(code, start, end):
            last = closing(code, match.end())
            add(match.end(), last + 1, "(!" + text[match.end():last + 1] + ")", "negation")
        for first, last in statements(code, start, end):
            if DELETABLE.match(code, first, last):
                gone = text[first:last]
                add(first, last, ";" + "\n" * gone.count("\n"), "deletion")
        quiet = [s for s in statements(code, start, end) if UNTOUCHED.search(code, *s)]
        found = [m for m in found if not any(a <= m.offset < b for a, b in quiet)]
    return found


def all_mutants(root, folders):
    found = []
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(root, folder, "**/*.[ch]"), recursive=True)):
            found += mutations(os.path.relpath(path, root), pathlib.Path(path).read_text(encoding="utf-8"))
    return found


def shown(mutant):
    """The changed line as a reader of a diff wants it."""
    if mutant.kind == "deletion":
        return "deleted: " + " ".join(mutant.old.split())
    at = " ".join(mutant.text.split())
    if mutant.kind == "negation":
        return "negated: " + " ".join(mutant.old.split())
    return f"{mutant.old.strip()} -> {mutant.new.strip()} in: {at}"


# ---- one copy of the tree ----------------------------------------------------------------------------------------

def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def limit_resources():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_BYTES, MAX_BYTES))


class Copy:
    """A private copy of the source tree, and its build folder."""

    def __init__(self, root, options, job):
        folder = os.path.join(options.work, str(job))
        self.options = options
        self.folder, self.source, self.build = folder, os.path.join(folder, "source"), os.path.join(folder, "build")
        self.temporary = os.path.join(folder, "tmp")
        os.makedirs(self.temporary, exist_ok=True)
        names = run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]).stdout
        for name in names.split("\0"):
            source, target = os.path.join(root, name), os.path.join(self.source, name)
            if not os.path.isfile(source):
                continue  # deleted, and not committed yet
            os.makedirs(os.path.dirname(target), exist_ok=True)
            text = pathlib.Path(source).read_bytes()
            if name == "CMakeLists.txt":
                text = text.replace(b"-O3", b"-O1")  # kernels: three times faster to compile
            if not os.path.exists(target) or pathlib.Path(target).read_bytes() != text:
                pathlib.Path(target).write_bytes(text)  # also undoes what an interrupted mutant left here
                shutil.copymode(source, target)

    def prepare(self, targets):
        """Builds targets of the unchanged library."""
        launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        self.environment = dict(os.environ, CCACHE_DIR=os.path.join(self.options.work, "ccache"),
                                CCACHE_BASEDIR=self.folder, CCACHE_NOHASHDIR="1", **{MARK: self.folder})
        done = run(["cmake", "-S", self.source, "-B", self.build, *FLAGS, *launcher,
                    f"-DCOLL_SANITIZE={self.options.sanitize}"], env=self.environment)
        if done.returncode == 0:
            done = self.ninja(*targets)
        if done.returncode != 0:
            sys.exit(f"mutate.py: the unchanged library cannot be built in {self.build}:\n{done.stdout[-3000:]}")
        self.environment["CCACHE_READONLY"] = "1"  # what a mutant changed is compiled only once when it is back
        self.objects = self.hash_objects()

    def ninja(self, *targets):
        width = max((os.cpu_count() or 1) // self.options.jobs, 1)
        return run(["ninja", "-C", self.build, f"-j{width}", *targets], env=self.environment)

    def hash_objects(self):
        hashes = {}
        pattern = os.path.join(self.build, "CMakeFiles/coll_objects.dir/**/*.o")
        for path in glob.glob(pattern, recursive=True):
            hashes[path] = hashlib.sha256(pathlib.Path(path).read_bytes()).digest()
        return hashes

    def tests(self):
        """The programs that ctest would run here, by name."""
        listed = run(["ctest", "--test-dir", self.build, "--show-only=json-v1"]).stdout
        for test in json.loads(listed[listed.index("{"):])["tests"]:
            values = {p["name"]: p["value"] for p in test["properties"]}
            program = os.path.basename(test.get("command", [""])[-1])
            if program == test["name"]:  # not a script
                pairs = dict(p.split("=", 1) for p in values.get("ENVIRONMENT", []))
                yield Test(test["name"], test["command"], pairs, values["WORKING_DIRECTORY"], 0.0)

    def end_leftovers(self):
        """Ends all processes that carry this copy's mark, and removes their files."""
        mark = f"{MARK}={self.folder}".encode()
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark not in pathlib.Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                    continue
                os.kill(int(entry), signal.SIGKILL)
                os.unlink(f"/tmp/criterion_{entry}.sock")
            except OSError:
                pass  # it has ended, is not ours, or had no such file
        shutil.rmtree(self.temporary, ignore_errors=True)
        os.makedirs(self.temporary, exist_ok=True)

    def run_test(self, test, limit_s):
        """Runs a test: its exit status, or "timeout"; and how long it took."""
        environment = dict(os.environ, **test.environment, **{MARK: self.folder}, TMPDIR=self.temporary,
                           CRITERION_FAIL_FAST="1")
        began = time.monotonic()
        process = subprocess.Popen(test.command, cwd=test.folder, env=environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                                   preexec_fn=limit_resources)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = "timeout"
        self.end_leftovers()
        process.wait()
        return status, time.monotonic() - began

    def judge(self, mutant, order):
        """Verdict on a mutant: ("killed", test, how), ("survived", None, tests that failed once), or what does
        not count. order(done) names the next test."""
        path = pathlib.Path(self.source, mutant.file)
        before = path.read_bytes()
        text, end = before.decode(), mutant.offset + len(mutant.old)
        assert text[mutant.offset:end] == mutant.old, mutant
        try:
            path.write_bytes((text[:mutant.offset] + mutant.new + text[end:]).encode())
            if self.ninja("coll_objects").returncode != 0:
                return "does not compile", None, ""
            if self.hash_objects() == self.objects:
                return "same code", None, ""
            return self.run_tests(order)
        finally:
            path.write_bytes(before)

    def run_tests(self, order):
        unsteady = []
        for test in order:
            if self.ninja(test.name).returncode != 0:
                return "does not compile", None, test.name  # a header that only tests include as it was
            limit_s = 3 * test.seconds + GRACE_S
            status, _ = self.run_test(test, limit_s)
            if status == 0:
                continue
            status, _ = self.run_test(test, limit_s)
            if status != 0:
                return "killed", test.name, "timeout" if status == "timeout" else f"status {status}"
            unsteady.append(test.name)
        return "survived", None, " ".join(unsteady)


# ---- a campaign ----------------------------------------------------------------------------------------------------

class Campaign:
    """Mutants in their random order, verdicts, and the tests; shared by the jobs."""

    def __init__(self, options, root):
        self.options, self.root, self.lock = options, root, threading.Lock()
        self.first, self.last = {}, {}   # verdicts by mutant: the first one, and the newest
        self.tests, self.kills = [], collections.Counter()
        if os.path.exists(options.results):
            with open(options.results, encoding="utf-8") as file:
                for line in file:
                    self.take(json.loads(line))

    def take(self, record):
        key = record["key"]
        self.first.setdefault(key, record)
        self.last[key] = record
        if record["verdict"] == "killed":
            self.kills[self.folder_of(record["file"]), record["test"]] += 1

    def folder_of(self, path):
        return max((f for f in self.options.folder if path.startswith(f)), key=len, default=os.path.dirname(path))

    def counted(self):
        return [r for r in self.last.values() if r["verdict"] in ("killed", "survived")]

    def measure(self, copy, names):
        """Which tests pass in the unchanged library, and how long each takes; kept for the next time."""
        path = pathlib.Path(self.options.work, "times.json")
        times = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        for test in names:
            if test.name not in times:
                status, seconds = copy.run_test(test, 2 * self.options.max_seconds + GRACE_S)
                if status != 0:
                    why = {77: "which this machine cannot run", "timeout": "which takes too long"}
                    print(f"left out: {test.name}, {why.get(status, f'which fails without any change ({status})')}")
                    continue
                times[test.name] = round(seconds, 2)
                path.write_text(json.dumps(times, indent=0), encoding="utf-8")
            if times[test.name] > self.options.max_seconds:
                print(f"left out: {test.name}, which takes {times[test.name]:.0f} s")
            else:
                self.tests.append(test._replace(seconds=times[test.name]))
        print(f"{len(self.tests)} tests, {sum(t.seconds for t in self.tests):.0f} s without any change", flush=True)

    def order(self, mutant, tests):
        """Tests by what they cost, linking included, for each mutant of the folder that they have killed."""
        folder = self.folder_of(mutant.file)
        able = [t for t in tests if re.search(FOLDERS.get(folder, ""), t.name)]
        return sorted(able, key=lambda t: (t.seconds + 0.3) / (1 + self.kills[folder, t.name]))

    def judge(self, copy, tests, mutant):
        began = time.monotonic()
        verdict, test, how = copy.judge(mutant, self.order(mutant, tests))
        record = dict(mutant._asdict(), verdict=verdict, test=test, how=how,
                      seconds=round(time.monotonic() - began, 1))
        with self.lock:
            self.take(record)
            with open(self.options.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            what = f"{verdict} by {test}, {how}" if test and verdict == "killed" else f"{verdict} {how}".strip()
            print(f"[{len(self.counted())}] {mutant.file}:{mutant.line}: {shown(mutant)}: {what}", flush=True)

    def work(self, copy, todo, enough):
        tests = {t.name: t.seconds for t in self.tests}
        mine = [t._replace(seconds=tests[t.name]) for t in copy.tests() if t.name in tests]
        while True:
            with self.lock:
                if not todo or enough():
                    return
                mutant = todo.pop(0)
            self.judge(copy, mine, mutant)

    def report(self):
        """Share killed for each folder, and the survivors with some lines around each."""
        print("\nfolder              counted  killed  (timeouts)  survived  killed at first  not compiled  same code")
        for folder in [*self.options.folder, ""]:
            rows = [r for r in self.last.values() if not folder or self.folder_of(r["file"]) == folder]
            of = collections.Counter(r["verdict"] for r in rows)
            counted = of["killed"] + of["survived"]
            at_first = sum(self.first[r["key"]]["verdict"] == "killed" for r in rows)
            late = sum(r["how"] == "timeout" for r in rows)
            share, before = (f"{n * 100 / max(counted, 1):.1f} %" for n in (of["killed"], at_first))
            print(f"{folder or 'all':19} {counted:7} {share:>7} {late:11} {of['survived']:9} {before:>16} "
                  f"{of['does not compile']:13} {of['same code']:10}")
        survivors = sorted((r for r in self.last.values() if r["verdict"] == "survived"),
                           key=lambda r: (r["file"], r["line"]))
        for record in survivors:
            mutant = Mutant(*(record[f] for f in Mutant._fields))
            once = f" (failed once: {record['how']})" if record["how"] else ""
            print(f"\nsurvived: {mutant.file}:{mutant.line}: {mutant.kind}: {shown(mutant)}{once}")
            lines = pathlib.Path(self.root, mutant.file).read_text(encoding="utf-8").splitlines()
            if lines[mutant.line - 1:mutant.line] != [mutant.text]:
                continue  # the source has changed since
            for number in range(max(mutant.line - 4, 0), min(mutant.line + 3, len(lines))):
                print(f"{'>' if number + 1 == mutant.line else ' '} {number + 1:4} {lines[number]}")


def parse_options(root):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="*", default=list(FOLDERS), help="folders to change (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="selects the mutants (default: %(default)s)")
    parser.add_argument("--number", type=int, default=200, help="number of valid mutants (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants to test in parallel (default: %(default)s)")
    parser.add_argument("--tests", default="", metavar="REGEX", help="run only these tests")
    parser.add_argument("--max-seconds", type=float, default=30, help="leave out slower tests (default: %(default)s)")
    parser.add_argument("--work", default=os.path.join(root, "build-mutate"), metavar="FOLDER",
                        help="folder for copies and builds, about 300 MB per job (default: %(default)s)")
    parser.add_argument("--results", metavar="FILE", help="(default: WORK/seed-SEED.jsonl)")
    parser.add_argument("--again", choices=["survived", "timeout"],
                        help="run those that survived again, after tests were added or with slower ones; or those "
                        "killed by a timeout, after the machine was busy")
    parser.add_argument("--only", default="", metavar="REGEX", help="with --again: only those whose FILE:LINE matches")
    parser.add_argument("--sanitize", default="", metavar="LIST", help="build with address,undefined, say: finds "
                        "leaks and stray accesses; give it a --work of its own, and --results of the first campaign")
    parser.add_argument("--list", action="store_true", help="print the first mutants, and run nothing")
    parser.add_argument("--report", action="store_true", help="summarise the results file, and run nothing")
    options = parser.parse_args()
    options.folder = [f.rstrip("/") for f in options.folder]
    options.work = os.path.abspath(options.work)
    options.results = options.results or os.path.join(options.work, f"seed-{options.seed}.jsonl")
    return options


def choose(campaign, options, root):
    """The mutants to run: those of the seed without a verdict, or some of those that have one."""
    todo = all_mutants(root, options.folder)
    if options.again:
        names = {key: (r["verdict"], r["how"]) for key, r in campaign.last.items()}
        wanted = [m for m in todo if options.again in names.get(m.key, ())
                  and re.search(options.only, f"{m.file}:{m.line}")]
        print(f"{len(wanted)} mutants to run again", flush=True)
        return wanted
    random.Random(options.seed).shuffle(todo)
    return [m for m in todo if m.key not in campaign.last]


def main():
    root = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    options = parse_options(root)
    campaign = Campaign(options, root)
    todo = choose(campaign, options, root)
    for mutant in todo[:options.number] if options.list else []:
        print(f"{mutant.file}:{mutant.line}: {mutant.kind}: {shown(mutant)}")
    if options.list or options.report:
        return campaign.report() if options.report else None
    os.makedirs(options.work, exist_ok=True)
    lock = open(os.path.join(options.work, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"mutate.py: another campaign runs in {options.work}; wait for it, or choose another --work")
    copies = [Copy(root, options, job) for job in range(options.jobs)]

    def interrupted(*_):
        campaign.lock.acquire()  # for good: what fails because of this is no verdict
        for copy in copies:
            copy.end_leftovers()
        print("mutate.py: interrupted; the same command continues from here", flush=True)
        os._exit(130)

    signal.signal(signal.SIGINT, interrupted)
    signal.signal(signal.SIGTERM, interrupted)
    for copy in copies:
        copy.prepare(["coll_objects"])
        names = [t for t in copy.tests() if (re.search(options.tests, t.name) if options.tests
                                             else not re.search(NOT_RUN, t.name))]
        copy.prepare([t.name for t in names])
        if copy is copies[0]:
            campaign.measure(copy, names)

    def enough():
        return not options.again and len(campaign.counted()) >= options.number

    threads = [threading.Thread(target=campaign.work, args=(copy, todo, enough)) for copy in copies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    campaign.report()
    return None


if __name__ == "__main__":
    sys.exit(main())
