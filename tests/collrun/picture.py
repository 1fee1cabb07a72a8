"""Checks a picture of coll_topo: usage: picture.py FILE CLASS=COUNT... Each class has so many boxes, numbered from 0.
Boxes lie in each other or beside each other, a text lies in its box, and no text is on another."""
import itertools
import sys
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
LETTER = 0.62  # width of an average letter for each pixel of its height


def area(element):
    x, y, width, height = (float(element.get(name)) for name in ("x", "y", "width", "height"))
    return x, y, x + width, y + height


def text_area(element):
    x, y, size = (float(element.get(name)) for name in ("x", "y", "font-size"))
    width = len(element.text or "") * size * LETTER
    left = x - width / 2 if element.get("text-anchor") == "middle" else x
    return left, y - 0.8 * size, left + width, y + 0.2 * size


def inside(a, b):
    return a[0] >= b[0] and a[1] >= b[1] and a[2] <= b[2] and a[3] <= b[3]


def apart(a, b):
    return a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]


def main():
    path, *wanted = sys.argv[1:]
    root = tree.parse(path).getroot()
    whole = (0, 0, float(root.get("width")), float(root.get("height")))
    bad, boxes, texts, indices = [], [], [], {}
    for element in root.findall(SVG + "text"):
        texts.append((text_area(element), element.text))
    for group in root.findall(SVG + "g"):
        box, name = area(group.find(SVG + "rect")), group.get("class").split()[0]
        indices.setdefault(name, []).append(int(group.get("data-index")))
        boxes.append((box, f"{name} {group.get('data-index')}"))
        for element in group.findall(SVG + "text"):
            texts.append((text_area(element), element.text))
            if not inside(text_area(element), box):
                bad.append(f"\"{element.text}\" is wider than {boxes[-1][1]}")
    for item in wanted:
        name, count = item.split("=")
        if sorted(indices.get(name, [])) != list(range(int(count))):
            bad.append(f"{name}: {len(indices.get(name, []))} boxes, {count} wanted")
    for a, b in itertools.combinations(boxes, 2):
        if not apart(a[0], b[0]) and not inside(b[0], a[0]) and not inside(a[0], b[0]):
            bad.append(f"{a[1]} cuts {b[1]}")
    bad += [f"\"{a[1]}\" lies on \"{b[1]}\"" for a, b in itertools.combinations(texts, 2) if not apart(a[0], b[0])]
    bad += [f"{what} is outside" for box, what in boxes + texts if not inside(box, whole)]
    if len(root.findall(SVG + "path")) != len(indices.get("device", [])):
        bad.append("not every device has a link")
    for line in bad[:10]:
        print(line)
    return 1 if bad else 0


sys.exit(main())
