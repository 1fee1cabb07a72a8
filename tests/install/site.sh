#!/bin/bash
# docs/site/build.py makes the site without warnings; its links lead to pages and sections that are there; each function
# has a page, and search finds it.
. "$SOURCE/tests/install/support.inc"
/usr/bin/python3 -c 'import furo, myst_parser, sphinx' 2>/dev/null || {
  echo "left out: there is no Sphinx with MyST and Furo (packages python3-sphinx, python3-myst-parser, furo)"
  exit 77
}
quietly /usr/bin/python3 "$SOURCE/docs/site/build.py" "$BUILD" site
/usr/bin/python3 - "$SOURCE" <<'END'
import glob, html.parser, os, re, sys, urllib.parse
import sphinx.search.en

class Page(html.parser.HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.names = [], set()
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif name == "id":
                self.names.add(value)

pages = {os.path.normpath(path): Page(path) for path in glob.glob("site/**/*.html", recursive=True)}
lost = 0
for path, page in pages.items():
    for link in page.links:
        target, section = urllib.parse.urldefrag(link)
        if urllib.parse.urlparse(target).scheme:
            continue
        found = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(target).split("?")[0])) if target else path
        if not os.path.exists(found) or (section and found in pages and section not in pages[found].names):
            print(f"{path} points to {link}, which is not there")
            lost += 1
with open("site/searchindex.js", encoding="utf-8") as file:
    index = file.read()
declared = set()
for header in glob.glob(sys.argv[1] + "/libcoll/include/coll/*.h"):
    with open(header, encoding="utf-8") as file:
        declared.update(re.findall(r"^COLL_API .*?\b(coll_\w+)\(", file.read(), re.M))
stemmer = sphinx.search.en.SearchEnglish({})  # the index has stems of words
for name in declared:
    if stemmer.stem(name) not in index:
        print(f"search does not find {name}")
        lost += 1
if len(pages) < 150 or len(declared) < 100:
    sys.exit(f"only {len(pages)} pages and {len(declared)} functions")
sys.exit(1 if lost else 0)
END
