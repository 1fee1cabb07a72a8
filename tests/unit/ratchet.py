#!/usr/bin/python3
"""Measures of style that may only improve. tests/unit/ratchet.txt has, for each part of the tree, the worst
values: lines of the longest file and function, most parameters of a function, deepest nesting of
statements, files of the fullest folder, words of the longest page, and the number of sleeps in tests, including
those on purpose (tests/common/waits.h). A worse value fails, with its place; a better one is reported, and
--update writes it to the file. --update never raises a number: that takes an editor, and a reason in the commit.
A few phrases that are not idiomatic English are refused altogether. (arrows.py forbids circular dependencies.)

usage: ratchet.py [--update] [SOURCE]"""
import collections
import os
import re
import sys

PARTS = {"library": ["libcoll", "transports", "topology"], "programs": ["trainer", "perf"], "tests": ["tests"],
         "docs": ["docs", "README.md"]}
FILES = {"library": (".c", ".h"), "programs": (".c", ".h", ".py"), "tests": (".c", ".h", ".py", ".sh", ".inc"),
         "docs": (".md",)}
SAYS = {"lines_a_file": "{} lines", "lines_a_function": "a function of {} lines", "parameters": "{} parameters",
        "depth": "statements {} deep", "files_a_folder": "{} files in a folder", "words_a_page": "{} words",
        "sleeps": "{} sleeps in all"}
# Phrases that were translated word for word; the brackets keep this line from matching itself.
REFUSED = re.compile(r"no [m]emory (?:for|to)\b|by [t]urns\b|how [m]anieth|could [n]ot be had|in the [p]lace of"
                     r"|is [t]old of|for [e]ver\b|\b[p]retended|\bin [v]ain\b|has to do [w]ith", re.I)
SLEEP = re.compile(r"\b(?:usleep|nanosleep|be_late|watch_for)\(|\bpoll\(NULL, 0, [1-9]|\bsleep [0-9]")
QUOTED = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)
CONTROL = re.compile(r"(?:\} )?(?:else )?(?:if|for|while|do|switch)\b")


def plain(text):
    """C without comments, strings, macros and attributes; every line stays where it was."""
    text = QUOTED.sub(lambda match: "\n" * match.group().count("\n"), text)
    text = re.sub(r"__attribute__\(\([^()]*(?:\([^()]*\))?[^()]*\)\) ?", "", text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: "\n" * match.group().count("\n"), text, flags=re.M)


def parameters(signature):
    """How many parameters a function has, by the text before its body."""
    inside = signature[signature.index("("):]
    depth, commas = 0, 0
    for i, letter in enumerate(inside):
        depth += (letter in "([") - (letter in ")]")
        commas += letter == "," and depth == 1
        if depth == 0:
            return 0 if inside[1:i].strip() in ("", "void") else commas + 1
    return 0


def functions(text):
    """The functions of a formatted C file: first line, signature, lines of the body with its last brace."""
    lines = plain(text).split("\n")
    first = None
    for number, line in enumerate(lines):
        if first is None and line[:1].isalpha():
            first = number
        if first is not None and line.endswith("{") and "(" in "".join(lines[first:number + 1]):
            last = number
            while last + 1 < len(lines) and not lines[last].startswith("}"):
                last += 1
            yield first + 1, " ".join(lines[first:number + 1]), lines[number + 1:last + 1]
            first = None
        elif line.endswith((";", "}")) or not line.strip():
            first = None


def measure_c(text):
    """The measures of a C file, each with its line."""
    for first, signature, body in functions(text):
        yield "lines_a_function", len(body) + 1, first
        yield "parameters", parameters(signature), first
        for offset, line in enumerate(body):
            if CONTROL.match(line.lstrip()):
                yield "depth", (len(line) - len(line.lstrip())) // 2, first + offset + 1


def walk(root, part):
    """The files of a part, by path from the root."""
    for tree in PARTS[part]:
        if os.path.isfile(os.path.join(root, tree)):
            yield tree
        for folder, _, names in os.walk(os.path.join(root, tree)):
            for name in sorted(names):
                if name.endswith(FILES[part]):
                    yield os.path.relpath(os.path.join(folder, name), root)


def measure(root):
    """The worst values: (part, measure) -> (number, place)."""
    worst = {}

    def take(key, number, place):
        if number > worst.get(key, (0, ""))[0]:
            worst[key] = (number, place)

    for part in PARTS:
        folders, sleeps = collections.Counter(), 0
        for path in walk(root, part):
            folders[os.path.dirname(path)] += 1
            with open(os.path.join(root, path), encoding="utf-8") as file:
                text = file.read()
            if part == "docs":
                take((part, "words_a_page"), len(text.split()), path)
                continue
            take((part, "lines_a_file"), text.count("\n"), path)
            sleeps += len(SLEEP.findall(text))
            if path.endswith((".c", ".h")):
                for name, number, line in measure_c(text):
                    take((part, name), number, f"{path}:{line}")
        if part == "tests":
            take((part, "sleeps"), sleeps, "tests")
        for folder, count in folders.items():
            take((part, "files_a_folder"), count, folder)
    return worst


def refused(root):
    """Refused phrases: (place, phrase)."""
    for path in sorted({path for part in PARTS for path in walk(root, part)}):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if match := REFUSED.search(line):
                    yield f"{path}:{number}", match.group()


def read_numbers(path):
    """The numbers of ratchet.txt."""
    numbers = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            words = line.split("#")[0].split()
            if words:
                numbers[words[0], words[1]] = int(words[2])
    return numbers


def write_numbers(path, numbers):
    """Replaces the numbers of ratchet.txt, but keeps its comments."""
    with open(path, encoding="utf-8") as file:
        kept = [line for line in file if line.startswith("#")]
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(kept)
        for (part, name), number in numbers.items():
            file.write(f"{part:9} {name:16} {number:5}\n")


def main():
    update = "--update" in sys.argv[1:]
    rest = [argument for argument in sys.argv[1:] if argument != "--update"]
    root = rest[0] if rest else os.path.join(os.path.dirname(os.path.realpath(__file__)), "../..")
    path = os.path.join(root, "tests/unit/ratchet.txt")
    numbers, worst, failed = read_numbers(path), measure(root), False
    for key, (number, place) in worst.items():
        bound = numbers.get(key)
        says = SAYS[key[1]].format(number)
        if bound is None and not update or bound is not None and number > bound:
            print(f"{place}: {says}; tests/unit/ratchet.txt allows {key[0]} {bound or 'none'}")
            failed = True
        elif bound is None or number < bound:
            print(f"{key[0]}: at most {says} now ({place}), {bound} before")
            numbers[key] = number
            if not update:
                print("    lower the number in tests/unit/ratchet.txt: tests/unit/ratchet.py --update")
    for place, phrase in refused(root):
        print(f"{place}: '{phrase}': use plain English (REFUSED in tests/unit/ratchet.py)")
        failed = True
    for key in [key for key in numbers if key not in worst]:
        print(f"tests/unit/ratchet.txt: nothing is measured for {' '.join(key)}")
        failed = True
    if update:
        write_numbers(path, numbers)
    return failed


if __name__ == "__main__":
    sys.exit(main())
