#!/usr/bin/python3
"""Which folder may include which. docs/architecture.md has a table of folders and, for each, the folders whose
headers its files may include. This test fails if a file includes anything else, if the table allows what no
file uses, if folders of the table form a circle, and if files do: by what they include, and by which file
defines what another one calls (read from the object files of a build).

usage: arrows.py SOURCE [BUILD]"""
import collections
import os
import re
import subprocess
import sys

TREES = ["libcoll", "transports", "topology", "trainer", "perf"]
# Headers of libraries that are loaded at run time or wrapped: only these files may include them.
ONLY_IN = {r"hwloc": r"topology/hwloc[a-z_]*\.c", r"openssl/": r"libcoll/(base|net)/",
           r"infiniband/": r"transports/verbs/", r"cuda": r"libcoll/gpu/", r"pmix": r"libcoll/create/pmix\.c"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)


def read_table(path):
    """The table's rows: folder -> (folders or headers that its files may include)."""
    table = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            names = re.findall(r"`([^`]+)`", cells[0]) if len(cells) == 3 else []
            if not names or not names[0].split("/")[0] in TREES:
                continue
            for name in names:
                table[name] = re.findall(r"`([^`]+)`", cells[2])
    return table


def sources(root):
    """All C files of the trees, by path from the root."""
    for tree in TREES:
        for folder, _, names in os.walk(os.path.join(root, tree)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def folder_of(path, table):
    """The row that a file belongs to: itself, or the nearest folder above it."""
    while path and path not in table:
        path = os.path.dirname(path)
    return path


def resolve(root, path, name):
    """The file that an #include in quotes names, from the root; None if it is not of this project."""
    for folder in (os.path.dirname(path), "", "libcoll/include"):
        found = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(root, found)):
            return found
    return None


def circles(edges):
    """Strongly connected components of more than one node (Tarjan)."""
    number, low, stack, on_stack, found = {}, {}, [], set(), []

    def visit(node):
        number[node] = low[node] = len(number)
        stack.append(node)
        on_stack.add(node)
        for other in sorted(edges.get(node, ())):
            if other not in number:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in on_stack:
                low[node] = min(low[node], number[other])
        if low[node] == number[node]:
            part = []
            while not part or part[-1] != node:
                part.append(stack.pop())
                on_stack.discard(part[-1])
            if len(part) > 1:
                found.append(sorted(part))

    for node in sorted(edges):
        if node not in number:
            visit(node)
    return found


def check_includes(root, table, problems):
    """Every #include against the table; returns which file includes which."""
    includes, used = collections.defaultdict(set), collections.defaultdict(set)
    for path in sources(root):
        folder = folder_of(path, table)
        if not folder:
            problems.append(f"{path} has no folder in the table")
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        for quote, name in INCLUDE.findall(text):
            for library, place in ONLY_IN.items():
                if re.match(library, name) and not re.match(place, path):
                    problems.append(f"{path} must not include {name}")
            target = resolve(root, path, name) if quote == '"' or name.startswith("coll/") else None
            if not target:
                if quote == '"':
                    problems.append(f'{path} includes "{name}", which is not there')
                continue
            includes[path].add(target)
            other = folder_of(target, table)
            allowed = [a for a in table[folder] if target == a or (target + "/").startswith(a + "/")
                       or other == a]
            used[folder].update(allowed)
            if other != folder and not allowed:
                problems.append(f"{path} (folder {folder}) must not include {target}")
    for folder, allowed in table.items():
        for name in allowed:
            if name not in used[folder]:
                problems.append(f"the table lets {folder} include {name}, but no file of it does")
    return includes


def object_sources(root, build):
    """Object files of libraries and programs, tests left out: (object, source from the root)."""
    for folder, _, names in os.walk(build):
        if "/tests/" in folder + "/" or ".dir" not in folder:
            continue
        for name in names:
            if not name.endswith(".c.o"):
                continue
            path = os.path.join(folder, name)
            inside = path.split(".dir/", 1)[1][:-2]
            prefix = os.path.relpath(path.split("/CMakeFiles/", 1)[0], build)
            source = os.path.normpath(os.path.join("" if prefix == "." else prefix, inside))
            if os.path.isfile(os.path.join(root, source)):  # not a leftover of an older tree
                yield path, source


def calls(root, build):
    """Which source file calls (or names) what another one defines: caller -> callee -> symbols."""
    defines, needs = {}, collections.defaultdict(set)
    sources_of = dict(object_sources(root, build))
    listing = subprocess.run(["nm", "-A", *sources_of], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        path, _, entry = line.rpartition(":")
        words = entry.split()
        if len(words) == 2 and words[0] in "Uw":
            needs[sources_of[path]].add(words[1])
        elif len(words) == 3 and words[1] in "TDBRVWC" and words[2] != "main":
            defines[words[2]] = sources_of[path]
    edges = collections.defaultdict(lambda: collections.defaultdict(list))
    for source, symbols in needs.items():
        for symbol in sorted(symbols):
            if symbol in defines and defines[symbol] != source:
                edges[source][defines[symbol]].append(symbol)
    return edges


def folders_below(folder, folders):
    """All folders that a folder may include, directly or through others."""
    below, todo = set(), [folder]
    while todo:
        for other in folders.get(todo.pop(), ()):
            if other not in below:
                below.add(other)
                todo.append(other)
    return below


def check_calls(edges, table, folders, problems):
    """Calls may go only where includes may: no file declares a function of a higher folder by hand."""
    for caller, callees in edges.items():
        folder = folder_of(caller, table)
        below = folders_below(folder, folders)
        for callee, symbols in callees.items():
            hidden = [s for s in symbols if not s.startswith("coll_")]  # the others are public
            if hidden and folder_of(callee, table) not in below | {folder}:
                problems.append(f"{caller} (folder {folder}) must not call {callee}: {', '.join(hidden)}")


def main():
    root = os.path.realpath(sys.argv[1])
    table = read_table(os.path.join(root, "docs/architecture.md"))
    problems = []
    if not table:
        problems.append("docs/architecture.md has no table of folders")
    includes = check_includes(root, table, problems)
    folders = {folder: {folder_of(a, table) for a in allowed} - {folder} for folder, allowed in table.items()}
    for part in circles(folders):
        problems.append("folders in a circle: " + ", ".join(part))
    for part in circles(includes):
        problems.append("files that include each other in a circle: " + ", ".join(part))
    if len(sys.argv) > 2:
        edges = calls(root, sys.argv[2])
        if len(edges) < 100:
            problems.append(f"only {len(edges)} object files were found in {sys.argv[2]}")
        check_calls(edges, table, folders, problems)
        for part in circles(edges):
            problems.append("files that call each other in a circle: " + ", ".join(part))
            for caller in part:
                for callee in sorted(set(edges[caller]) & set(part)):
                    problems.append(f"    {caller} -> {callee}: {', '.join(edges[caller][callee])}")
    print("\n".join(problems))
    return 1 if problems else 0


sys.exit(main())
