#!/usr/bin/python3
"""Builds the site: README.md, all guides, and a reference of the functions from the public headers and of the programs
from what they print with --help; with search, without a network. It needs Sphinx with MyST and Furo (Debian:
python3-sphinx, python3-myst-parser, furo), and built programs.

usage: build.py BUILD FOLDER

FOLDER: receives the site; open FOLDER/index.html."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
sys.dont_write_bytecode = True
import man  # noqa: E402 (beside this folder)
import operations  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(HERE))
LINK = re.compile(r"\[([^]\[]+)\]\(([^)#\s]+)(#[^)]*)?\)")
ABOVE = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def pages():
    """The paths of all pages, pictures and figures, from the root of the sources."""
    yield from ABOVE
    for folder, folders, names in os.walk(os.path.join(ROOT, "docs")):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".md", ".svg", ".txt")) and name != "CMakeLists.txt":
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def links_within(text, path, all_pages):
    """A page whose links lead to pages; what they say of other files of the sources stays, as a name."""
    def change(match):
        words, target, section = match[1], match[2], match[3] or ""
        if "://" in target:
            return match[0]
        found = os.path.normpath(os.path.join(os.path.dirname(path), target))
        if found + "/README.md" in all_pages:
            target += "/README.md"
        elif found not in all_pages:
            return words if words.startswith("`") else f"`{words}`"
        return f"[{words}]({target}{section})"
    return LINK.sub(change, text)


def toctree(caption, entries):
    """A part of the table of contents."""
    head = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", ":hidden:", *head, "", *entries, "```", ""])


def home(text, all_pages):
    """The first page: README.md, whose lists of pages are the table of contents."""
    out, listed = text, set()
    for heading in ("Using libcoll", "Working on libcoll"):
        part = re.search(rf"^{heading}:\n\n(.*?)(?:\n\n)", text, re.M | re.S)[1]
        entries = [target for _, target, _ in LINK.findall(part) if target in all_pages]
        listed.update(entries)
        out += toctree(heading, entries)
    # Pages below another one, or below a README.md of their folder, are listed there.
    below = {page for page in all_pages if os.path.dirname(page) + ".md" in all_pages
             or (os.path.dirname(page) + "/README.md" in all_pages and not page.endswith("/README.md"))}
    rest = [page for page in all_pages if page.endswith(".md") and page not in below | listed | set(ABOVE)]
    return out + toctree("More", rest) + toctree("Reference", ["reference/functions", "reference/programs"])


def below(path, all_pages):
    """The table of contents of a page: those in its folder, or in the folder of its name."""
    folder = os.path.dirname(path) if path.endswith("/README.md") else path[:-len(".md")]
    entries = [os.path.relpath(page, os.path.dirname(path)) for page in all_pages
               if os.path.dirname(page) == folder and page.endswith(".md") and page != path]
    return toctree(None, entries) if entries and path not in ABOVE else ""


def plain(text):
    """Text that means nothing to Markdown."""
    return re.sub(r"([\\`*_<>\[\]#|$])", r"\\\1", text)


def contract(words, page_of):
    """The contract of functions, as Markdown."""
    out = []
    for kind, lines in man.groups(words):
        if kind == "literal":
            out += ["```text", *lines, "```", ""]
            continue
        text = plain(" ".join(line.strip() for line in lines).removeprefix("- "))
        text = re.sub(r"\b(coll(?:\\_\w+?)+)\(\)",
                      lambda m: f"[{m[0]}]({page_of[m[1].replace(chr(92), '')]}.md)"
                      if m[1].replace("\\", "") in page_of else m[0], text)
        out += [("- " if kind == "item" else "") + text, ""]
    return "\n".join(out)


def functions(source):
    """The reference of functions: a page for each contract."""
    headers = os.path.join(ROOT, "libcoll/include/coll")
    main = operations.read(os.path.join(headers, "coll.h"))
    rules = operations.words_of(re.match(operations.COMMENT, main)[0]).split("\n", 1)[1]
    found = {header: man.contracts(operations.read(os.path.join(headers, header)))
             for header in re.findall(r'#include "coll/(\w+\.h)"', main)}
    page_of = {name: declared[0][1] for groups in found.values() for _, declared in groups for _, name, _ in declared}
    out = ["# Functions", "", contract(rules, page_of)]
    for header, groups in sorted(found.items()):
        out += [f"## {header}", ""]
        for words, declared in groups:
            first = declared[0][1]
            out.append(f"- [{first}]({first}.md): {plain(man.summary(words))}")
            code = "\n".join(f"{result}{name}({parameters});" for result, name, parameters in declared)
            code = code.replace("\n" + " " * len("COLL_API "), "\n")
            with open(os.path.join(source, f"{first}.md"), "w", encoding="utf-8") as file:
                file.write(f"# {first}\n\n```c\n#include <coll/coll.h>\n\n{code}\n```\n\n{contract(words, page_of)}")
        out += ["", *toctree(None, [declared[0][1] for _, declared in groups]).split("\n")]
    with open(os.path.join(source, "functions.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def programs(build, source):
    """The reference of programs."""
    out = ["# Programs", ""]
    for name, about in man.PROGRAMS.items():
        said = subprocess.run([os.path.join(build, "bin", name), "--help"], check=True, capture_output=True, text=True)
        out += [f"## {name}", "", about[0].upper() + about[1:] + ".", "", "```text", said.stdout.rstrip(), "```", ""]
    with open(os.path.join(source, "programs.md"), "w", encoding="utf-8") as file:
        file.write("\n".join(out))


def main(build, folder):
    """Collects the pages, and lets Sphinx make the site; warnings are errors."""
    all_pages = list(pages())
    with tempfile.TemporaryDirectory() as source:
        for path in all_pages:
            target = os.path.join(source, "index.md" if path == "README.md" else path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            if not path.endswith(".md"):
                shutil.copy(os.path.join(ROOT, path), target)
                continue
            text = links_within(operations.read(os.path.join(ROOT, path)), path, all_pages)
            text = home(text, all_pages) if path == "README.md" else text + below(path, all_pages)
            with open(target, "w", encoding="utf-8") as file:
                file.write(re.sub(r"\]\(((?:\.\./)*)README\.md\)", r"](\1index.md)", text)
                           if not path.startswith(("docs/collectives", "docs/decisions")) else text)
        os.makedirs(os.path.join(source, "reference"))
        functions(os.path.join(source, "reference"))
        programs(build, os.path.join(source, "reference"))
        return subprocess.run(["/usr/bin/python3", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", "-c", HERE,
                               "-d", os.path.join(source, ".doctrees"), source, folder], check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2]))
