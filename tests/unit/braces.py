#!/usr/bin/python3
"""Finds braces around a single one-line statement, if every branch of the same if is one.
Lines are taken as clang-format writes them; after --fix let it format the files again.

usage: braces.py [--fix] FILE..."""
import re
import sys

CONTROL = re.compile(r"(if|for|while|[A-Z]+_FOREACH) ?\(")


def indent(line):
    return len(line) - len(line.lstrip())


def is_short(lines, end):
    """Whether the brace that ends line `end` opens a block of an if, for or while of one short statement."""
    body, close = lines[end + 1:end + 2], lines[end + 2:end + 3]
    if not close or not close[0].strip().startswith("}") or not body[0].endswith(";"):
        return False
    depth, start = indent(close[0]), end
    while start > 0 and indent(lines[start]) > depth:
        start -= 1  # a condition may take several lines
    header = re.sub(r"^} else ?", "", lines[start].strip())
    return (indent(lines[start]) == depth and not CONTROL.match(body[0].strip())
            and (CONTROL.match(header) is not None or header == "{"))


def chains(lines):
    """Each statement whose bodies are all one line: the lines of its opening braces."""
    for first, line in enumerate(lines):
        if not line.endswith("{") or line.strip().startswith("}"):
            continue
        opening = [first]
        while is_short(lines, opening[-1]):
            closing = lines[opening[-1] + 2].strip()
            if closing == "}":
                yield opening
                break
            if not closing.endswith("{"):  # the next condition goes on, or its body has no braces
                break
            opening.append(opening[-1] + 2)


def without(lines, opening):
    """The lines of a file without the braces that these lines open."""
    for line in opening:
        lines[line] = re.sub(r" ?\{$", "", lines[line])
        lines[line + 2] = re.sub(r"\} ?", "", lines[line + 2], count=1)
    closed = {line + 2 for line in opening if not lines[line + 2].strip()}
    return [line for number, line in enumerate(lines) if number not in closed]


def main(arguments):
    fix = arguments[:1] == ["--fix"]
    found = 0
    for path in arguments[fix:]:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        opening = [line for chain in chains(lines) for line in chain]
        found += len(opening)
        if fix and opening:
            with open(path, "w", encoding="utf-8") as file:
                file.write("\n".join(without(lines, opening)))
        for line in [] if fix else opening:
            print(f"{path}:{line + 1}: braces around one line: {lines[line].strip()}")
    return 1 if found and not fix else 0


sys.exit(main(sys.argv[1:]))
