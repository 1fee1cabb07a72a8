#!/usr/bin/python3
"""Writes man pages in the language mdoc(7). Section 3, from the public headers: a page for each function with its
contract; forms of an operation, and functions that share a contract, share a page. coll(7): the rules at the top of
coll.h. Section 1: what programs print with --help.

usage: man.py HEADERS FOLDER VERSION [PROGRAM ...]

HEADERS: the folder of coll.h. FOLDER: receives man1, man3 and man7. PROGRAM: paths of programs."""
import gzip
import os
import re
import subprocess
import sys
import textwrap
import time

import operations

DECLARATIONS = re.compile(rf"({operations.COMMENT})?((?:COLL_API [^;]*;\n)+)")
FUNCTION = re.compile(r"COLL_API ([^;(]*?)(coll_\w+)\(([^;]*)\);\n")
# Help texts begin with the usage; a page begins with what the program is for.
PROGRAMS = {"collrun": "start the ranks of a program that uses libcoll",
            "collctl": "show what running libcoll processes do",
            "coll_topo": "show or draw the machine, and where ranks run",
            "coll_perf": "measure collectives and messages",
            "coll_recovery": "measure how long survivors of a killed rank take to recover",
            "coll_train": "train a neural network on all ranks",
            "coll_explain": "show which algorithm is chosen for a collective, and why",
            "coll_calibrate": "measure what messages cost on this machine"}
# A line of a table in a help text: a term, and what it means.
ENTRY = re.compile(r"^( {2,}\S+(?: \S+)*)(?: {2,}(\S.*))?$")


def escape(text):
    """Text that means nothing to roff."""
    for character, name in [("\\", "\\e"), ("'", "\\(aq"), ("`", "\\(ga"), ("^", "\\(ha"), ("~", "\\(ti"), ("-", "\\-")]:
        text = text.replace(character, name)
    return re.sub(r"^\.", r"\\&.", text)


def argument(text):
    """One argument of a macro."""
    return '"' + escape(text).replace('"', "\\(dq") + '"'


def running(lines, own=()):
    """Running text: each sentence begins on a new line, lines are short, and functions are references, except those
    that the page is about (own)."""
    text = re.sub(r"[`*]([\w -]+)[`*]", r"\1", re.sub(r"\s+", " ", " ".join(lines)).strip()) # emphasis
    for sentence in re.split(r"(?<=[.!?]) +(?=[^a-z])", text):
        for part in re.split(r"([(]?(?<![^\s(])\w+\(\)[).,;:]*(?= |$))", sentence):
            reference = re.fullmatch(r"([(]?)(\w+)\(\)([).,;:]*)", part)
            if reference:
                page = reference[2].startswith("coll_") and reference[2] not in own
                called = [".Xr", reference[2], "3"] if page else [".Fn", reference[2]]
                yield " ".join([called[0], *reference[1], *called[1:], *reference[3]])
            else:
                yield from (escape(line) for line in textwrap.wrap(part.strip(), 70, break_on_hyphens=False))


def literal(lines):
    """Lines as they are."""
    return [".Bd -literal -compact", *[escape(line) for line in lines], ".Ed"]


def groups(text):
    """What a comment consists of: (kind, lines), with a kind of text, item (of a list) or literal (indented)."""
    kind, lines = None, []
    for line in text.split("\n") + [""]:
        begins = re.match(r" *- ", line)
        if not line.strip():
            new = None
        elif begins or (kind == "item" and line.startswith("  ")):
            new = "item"
        else:
            new = "literal" if line.startswith("  ") else "text"
        if lines and (new != kind or begins):
            yield kind, lines
            lines = []
        kind = new
        lines += [line] if new else []


def body(text, own=()):
    """A comment as part of a page about the functions `own`."""
    out, listed = [], False
    for kind, lines in groups(text):
        if listed != (kind == "item"):
            out.append(".El" if listed else ".Bl -bullet")
            listed = not listed
        if kind == "item":
            out += [".It", *running([lines[0].lstrip()[2:], *lines[1:]], own)]
        else:
            out += [".Pp"] if out else []
            out += literal(lines) if kind == "literal" else running(lines, own)
    return out + ([".El"] if listed else [])


def head(names, section, about, system):
    """How each page begins."""
    day = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    return [f".Dd {time.strftime('%B', day)} {day.tm_mday}, {day.tm_year}", f".Dt {names[0].upper()} {section}",
            f".Os {argument(system)}", ".Sh NAME", *[f".Nm {name} ," for name in names[:-1]], f".Nm {names[-1]}",
            f".Nd {escape(about)}"]


def summary(words):
    """One line about a function: the first sentence of its contract, or as much of it as fits."""
    first = re.split(r"(?<=[\w)\]])[.:;] ", re.sub(r"\s+", " ", words) + " ", maxsplit=1)[0].strip()
    while (len(first) > 90 or first[-1] in ")]") and "," in first:
        first = first[:first.rindex(",")]
    return first if len(first) <= 90 else first[:first.rindex(" ", 0, 90)]


def contracts(text):
    """What a header declares: (contract, [(result, name, parameters) of each function that it is for])."""
    found = []
    derived = {form.format(name) for name, *_ in operations.operations(text) for form, _, _ in operations.DERIVED}
    for match in DECLARATIONS.finditer(text):
        declared = FUNCTION.findall(match[2])
        if declared and declared[0][1] in derived: # declared behind the blocking form
            found[-1][1].extend(declared)
        elif declared:
            found.append((operations.words_of(match[1] or ""), declared))
    return found


def function_page(words, declared, system):
    """The page of functions that share a contract."""
    own = [name for _, name, _ in declared]
    lines = head(own, 3, summary(words), system)
    lines += [".Sh LIBRARY", "Collective communication (libcoll, \\-lcoll)", ".Sh SYNOPSIS", ".In coll/coll.h"]
    for result, name, parameters in declared:
        lines += [f".Ft {argument(result.strip())}", f".Fo {name}"]
        lines += [f".Fa {argument(one)}" for one in operations.split_parameters(parameters)] + [".Fc"]
    lines += [".Sh DESCRIPTION", *body(words, own)]
    if len(declared) > 1 and declared[-1][1].endswith("_on_stream"):
        lines += [".Pp", "The other forms are nonblocking, persistent and ordered on a stream of CUDA:", ".Xr coll 7",
                  "explains them, and has the errors that every form can return."]
    return lines + [".Sh SEE ALSO", ".Xr coll 7"]


def program_page(path, system):
    """The page of a program."""
    name = os.path.basename(path)
    said = subprocess.run([path, "--help"], check=True, capture_output=True, text=True).stdout.rstrip().split("\n")
    start = next(i for i, line in enumerate(said) if line.lower().startswith("usage: "))
    end = start + 1
    while said[end].startswith(" " * 7):
        end += 1
    usage = [line[len("usage: "):] for line in said[start:end]]
    lines = head([name], 1, PROGRAMS[name], system) + [".Sh SYNOPSIS", *literal(usage), ".Sh DESCRIPTION"]
    table, text = False, []
    for line in said[end:] + [""]:
        entry = ENTRY.match(line)
        if entry and table and line.startswith(" " * 9): # goes on with the line above
            lines += running([line])
            continue
        if text and (entry or not line):
            lines += [".Pp", *running(text)]
            text = []
        if table and not entry:
            lines.append(".El")
            table = False
        if entry:
            lines += [] if table else [".Bl -tag -width Ds"]
            table = True
            lines += [f".It {argument(entry[1].strip())}", *running([entry[2] or ""])]
        elif line:
            text.append(line)
    after = lines.index(".Sh DESCRIPTION") + 1
    if lines[after] == ".Pp":
        del lines[after]
    return lines + [".Sh SEE ALSO", ".Xr coll 7"]


def write(folder, section, name, lines):
    """Writes a page, compressed so that the same text has the same bytes."""
    path = os.path.join(folder, f"man{section}")
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, f"{name}.{section}.gz"), "wb") as file:
        file.write(gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0))


def main(headers, folder, version, programs):
    """Writes all pages."""
    system = f"libcoll {version}"
    for path in programs:
        write(folder, 1, os.path.basename(path), program_page(path, system))
    rules = operations.words_of(re.match(operations.COMMENT, operations.read(os.path.join(headers, "coll.h")))[0])
    about, rules = rules.removeprefix("coll.h: ").split("\n", 1)
    write(folder, 7, "coll", head(["coll"], 7, about.rstrip("."), system) + [".Sh DESCRIPTION", *body(rules)])
    for header in sorted(re.findall(r'#include "coll/(\w+\.h)"', operations.read(os.path.join(headers, "coll.h")))):
        for words, declared in contracts(operations.read(os.path.join(headers, header))):
            name = declared[0][1]
            if not words:
                sys.exit(f"{header}: {name} has no comment")
            write(folder, 3, name, function_page(words, declared, system))
            for _, other, _ in declared[1:]:
                alias = os.path.join(folder, "man3", f"{other}.3.gz")
                if os.path.lexists(alias):
                    os.remove(alias)
                os.symlink(f"{name}.3.gz", alias)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
