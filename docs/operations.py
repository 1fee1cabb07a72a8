#!/usr/bin/python3
"""Reads the operations of libcoll from the public headers, which declare the blocking form of each, with its
contract. The other three forms are derived from it.

usage: operations.py --check   fails if a header lacks a form or declares it differently, or if forms.c
                               does not define exactly these operations
       operations.py --write   writes the derived forms into the headers
       operations.py --list    prints one line per operation, in order: name, declarations and contract,
                               separated by tabs, with \\001 for a newline

--source=FOLDER: the root of the sources; by default that of this script."""
import difflib
import os
import re
import sys

HEADERS = ["coll_collectives.h", "coll_p2p.h"]
COMMENT = r"/\*(?:[^*]|\*(?!/))*\*/\n"
DECLARATION = re.compile(rf"({COMMENT})?COLL_API coll_status (coll_\w+)\(([^;]*)\);\n")
FORMS = re.compile(r"^(?:FORMS|MESSAGE|TYPED)\(\s*(\w+),\s*\(([^)]*)\)", re.M)
WIDTH = 100
# Each derived form: its name, the parameters that replace the last one, and its contract.
DERIVED = [
    ("coll_i{}", "coll_comm *comm, coll_request **request",
     "Starts coll_{}(); complete the request."),
    ("coll_{}_init", "coll_comm *comm, coll_request **request",
     "Makes a persistent request of coll_{}(), for coll_start()."),
    ("coll_{}_on_stream", "coll_comm *comm, void *stream",
     "coll_{}() in a stream of CUDA: see coll.h."),
]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def header_paths(root):
    """The headers that declare operations."""
    return [os.path.join(root, "libcoll/include/coll", name) for name in HEADERS]


def words_of(comment):
    """The text of a comment, without its stars."""
    lines = [re.sub(r"^ ?\*? ?", "", line).rstrip() for line in comment.strip()[2:-2].split("\n")]
    return "\n".join(lines).strip()


def split_parameters(text):
    """The parameters of a declaration, one string each."""
    return [re.sub(r"\s+", " ", parameter.strip()) for parameter in text.split(",")]


def declare(name, parameters, mark="COLL_API "):
    """A declaration, its parameters wrapped as clang-format does it."""
    start = f"{mark}coll_status {name}("
    lines = [start]
    for i, parameter in enumerate(parameters):
        piece = parameter + (", " if i + 1 < len(parameters) else ");")
        if len((lines[-1] + piece).rstrip()) > WIDTH:
            lines[-1] = lines[-1].rstrip()
            lines.append(" " * len(start))
        lines[-1] += piece
    return "\n".join(lines) + "\n"


def operations(text):
    """All blocking operations that a header declares: (name, parameters, contract, declaration)."""
    found = []
    for match in DECLARATION.finditer(text):
        parameters = split_parameters(match[3])
        if parameters[-1] == "coll_comm *comm":
            found.append((match[2][len("coll_"):], parameters, words_of(match[1] or ""), match[0]))
    return found


def derived_forms(name, parameters, **how):
    """Contract and declaration of the nonblocking, the persistent and the stream form."""
    return [(comment.format(name),
             declare(form.format(name), parameters[:-1] + last.split(", "), **how))
            for form, last, comment in DERIVED]


def complete(text):
    """A header's text with exactly the derived forms that belong there."""
    found = operations(text)
    names = {form.format(name) for name, *_ in found for form, *_ in DERIVED}
    text = DECLARATION.sub(lambda m: "" if m[2] in names else m[0], text)
    for name, parameters, _, declaration in found:
        forms = "".join(f"/* {comment} */\n{form}" for comment, form in derived_forms(name, parameters))
        text = text.replace(declaration, declaration + forms)
    return text


def check_headers(root):
    """Compares each header with what --write would make of it."""
    good = True
    for path in header_paths(root):
        text = read(path)
        wanted = complete(text)
        if text != wanted:
            good = False
            sys.stdout.writelines(difflib.unified_diff(text.splitlines(True), wanted.splitlines(True),
                                                       path, "operations.py --write"))
    return good


def check_definitions(root):
    """Compares the operations of the headers with those that forms.c defines."""
    declared = {name: parameters[:-1] for path in header_paths(root)
                for name, parameters, *_ in operations(read(path))}
    source = read(os.path.join(root, "libcoll/api/forms.c"))
    defined = {name: split_parameters(text) for name, text in FORMS.findall(source)}
    if "\ncoll_status coll_barrier(" in source:  # written out, as it has no parameters of its own
        defined["barrier"] = []
    for name in sorted(set(declared) | set(defined)):
        if declared.get(name) != defined.get(name):
            print(f"{name}: declared with {declared.get(name)}, forms.c has {defined.get(name)}")
    return declared == defined


def list_declarations(text):
    """Prints what has a page: operations with all their forms, and windows, which have one form."""
    found = {name: parameters for name, parameters, *_ in operations(text)}
    names = {form.format(name) for name in found for form, *_ in DERIVED}
    for match in DECLARATION.finditer(text):
        name = match[2][len("coll_"):]
        if match[2] in names or (name not in found and not name.startswith("window_")):
            continue
        code = declare(match[2], split_parameters(match[3]), mark="")
        if name in found:
            code += "".join(form for _, form in derived_forms(name, found[name], mark=""))
        fields = [name, code.rstrip(), words_of(match[1] or "")]
        print("\t".join(fields).replace("\n", "\001"))


def main(mode, root):
    """Runs the mode that the command line names; returns the exit status."""
    if mode == "--check":
        return 0 if check_headers(root) & check_definitions(root) else 1
    for path in header_paths(root):
        text = read(path)
        if mode == "--list":
            list_declarations(text)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(complete(text))
    return 0


if __name__ == "__main__":
    modes = [word for word in sys.argv[1:] if word in ("--check", "--write", "--list")]
    roots = [word[len("--source="):] for word in sys.argv[1:] if word.startswith("--source=")]
    if len(modes) != 1 or len(modes + roots) != len(sys.argv) - 1:
        sys.exit(__doc__)
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    sys.exit(main(modes[0], (roots or [here])[-1]))
