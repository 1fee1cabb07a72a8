"""steps.py: runs commands one after the other, each within its own limit of time, all within one."""
import json
import os
import signal
import subprocess
import time

TAIL = 2000     # characters of a failed step's output that are kept
RESERVE_S = 15  # for what is written at the end, and for what does not die at once


class Steps:
    """What was run, and how much time is left."""

    def __init__(self, seconds, env):
        self.end = time.monotonic() + seconds - RESERVE_S
        self.env = env
        self.records = []

    def left(self):
        """Seconds until the end of all steps."""
        return max(0.0, self.end - time.monotonic())

    def share(self, part):
        """When a group of steps must end that may take this part of the time left."""
        return time.monotonic() + part * self.left()

    def add(self, part, name, status, why="", **more):
        """Records a step."""
        record = {"part": part, "name": name, "status": status, "why": why, **more}
        self.records.append(record)
        print(f"{status:>9}  {part}: {name}" + (f" ({why.splitlines()[-1]})" if why else ""), flush=True)
        return record

    def run(self, part, name, command, limit, env=None, until=None, accept=0):
        """Runs a command, whose exit status must be `accept`; returns its record, and what it wrote to both outputs."""
        allowed = min(limit, self.left(), until - time.monotonic() if until else limit)
        words = " ".join([f"{key}={value}" for key, value in (env or {}).items()] + command)
        if allowed < 1:
            return self.add(part, name, "left out", "no time left", command=words), ("", "")
        start = time.monotonic()
        ended, out, err = execute(command, {**self.env, **(env or {})}, allowed)
        seconds = round(time.monotonic() - start, 2)
        if ended == accept:
            return self.add(part, name, "passed", command=words, seconds=seconds), (out, err)
        why = f"after {allowed:.0f} s it was killed" if ended is None else last_words(ended, err or out)
        return self.add(part, name, "failed", why, command=words, seconds=seconds, output=(out + err)[-TAIL:]), (out, err)

    def fail(self, record, why, text=""):
        """A step that seemed to pass did not."""
        record.update(status="failed", why=why)
        if text:
            record["output"] = text[-TAIL:]
        print(f"   failed  {record['part']}: {record['name']} ({why})", flush=True)


def last_words(status, text):
    """Why a command failed: its last line that says something, and is not only information."""
    lines = [line for line in text.splitlines() if line.strip() and "] info: " not in line]
    return f"status {status}: {lines[-1][:300] if lines else 'no message'}"


def execute(command, env, seconds):
    """The exit status (None: it was killed), and both outputs."""
    try:
        child = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True)
    except OSError as error:
        return 127, "", f"{command[0]}: {error.strerror}"
    try:
        out, err = child.communicate(timeout=seconds)
        return child.returncode, out, err
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
    try:
        out, err = child.communicate(timeout=10)
    except subprocess.TimeoutExpired:  # something that left the group holds the pipe, or hangs in the driver
        out, err = "", "it did not die"
    return None, out, err


def json_lines(text):
    """The objects among the lines of a text."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                found.append(json.loads(line))
            except ValueError:
                pass
    return found
