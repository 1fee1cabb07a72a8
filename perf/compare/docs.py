"""docs.py: writes a run into its part of docs/performance.md; what people wrote around it stays."""
import os
import re
import shutil
import sys

import report


def section(result, pictures):
    """The generated lines of one transport."""
    lines = ["```"] + report.head(result) + ["```"]
    for ranks in result.options.ranks:
        lines += ["", f"### {ranks} ranks, {result.options.transport}", ""]
        if ranks in pictures:
            lines += [f"![time against size, {ranks} ranks]({os.path.basename(pictures[ranks])})", ""]
        lines += ["```"] + report.tables(result, ranks)[1:] + ["```"]
    lines += report.foot(result)
    if result.verdicts:
        lines += ["", "Floors (`perf/compare/floors.csv`):", "", "```"] + report.floors(result)[1:] + ["```"]
    return lines


def write(result, pictures, folder):
    """Replaces the lines between this transport's markers, and the pictures."""
    path = os.path.join(folder, "performance.md")
    begin, end = (f"<!-- {word} of perf/compare/run, {result.options.transport} -->"
                  for word in ("begin", "end"))
    with open(path, encoding="utf-8") as file:
        text = file.read()
    pattern = re.escape(begin) + ".*?" + re.escape(end)
    if len(re.findall(pattern, text, re.DOTALL)) != 1:
        print(f"compare: {path} has no lines '{begin}' and '{end}'; not written", file=sys.stderr)
        return
    new = "\n".join([begin, *section(result, pictures), end])
    text = re.sub(pattern, lambda _: new, text, flags=re.DOTALL)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    for picture in pictures.values():
        shutil.copy(picture, folder)
