#!/bin/sh
# Machine files with a million objects, and with as many as fit into the longest file that is read, end in one line that
# says what is wrong, and in a status that is not 0; a file as long that only has notes more is read.
set -u
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

# write OBJECTS LINE: a machine of one core with so many objects more, as LINE has them: %d is a number of each.
write() {
  python3 - "$1" "$2" > "$out/large.xml" <<'END'
import sys
known = 'cpuset="0x1" complete_cpuset="0x1" nodeset="0x1" complete_nodeset="0x1"'
print('<?xml version="1.0" encoding="UTF-8"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">')
print(f'<object type="Machine" os_index="0" {known} allowed_cpuset="0x1" allowed_nodeset="0x1" gp_index="1">')
print(f'<object type="NUMANode" os_index="0" {known} gp_index="2"/><object type="PU" os_index="0" {known} gp_index="3"/>')
for number in range(4, 4 + int(sys.argv[1])):
    print(sys.argv[2].replace("%known", known) % number)
print("</object></topology>")
END
}

# look WHAT: what coll_topo makes of it; $status.
look() {
  "$BUILD/bin/coll_topo" --input "$out/large.xml" -n 1 > "$out/out" 2> "$out/err"
  status=$?
  echo "$1: $(wc -c < "$out/large.xml") bytes, status $status: $(cat "$out/err")"
}

# refuses WHAT TEXT
refuses() {
  look "$1"
  [ "$status" -gt 0 ] && [ "$status" -lt 126 ] && [ "$(wc -l < "$out/err")" = 1 ] && [ ! -s "$out/out" ] &&
    grep -q "$2" "$out/err" || { echo "FAILED: $1: a line with '$2' and a status are expected"; failed=1; }
}

write 1000000 '<object type="PU" os_index="%d"/>'
refuses "a million objects" "bytes, more than the 16777216 that are allowed"
# How long hwloc takes for these depends on the machine; that its time ends is tested by tests/unit/test_topo.c.
write 136000 '<object type="PU" os_index="0" %known gp_index="%d"/>'
[ "$(wc -c < "$out/large.xml")" -le 16777216 ] || { echo "FAILED: the next file should be shorter"; failed=1; }
look "136,000 processors"
if [ "$status" != 0 ] || [ -s "$out/err" ]; then
  [ "$status" -lt 126 ] && [ "$(wc -l < "$out/err")" = 1 ] && grep -q "large.xml is damaged: " "$out/err" ||
    { echo "FAILED: 136,000 processors: the machine or a line is expected"; failed=1; }
fi

# A GPU with NVLinks to 1,100 objects.
python3 - "$SOURCE/tests/machines/power8gpudistances.xml" > "$out/large.xml" << 'END'
import re, sys
text = open(sys.argv[1]).read()
count = 1101
matrix = (f'<distances2hetero nbobjs="{count}" kind="25" name="NVLinkBandwidth">'
          + "".join(f'<indexes length="{len(x)}">{x}</indexes>' for x in ["OSDev:332 "] + ["Core:2 "] * (count - 1))
          + f'<u64values length="{2 * count * count}">{"1 " * count * count}</u64values></distances2hetero>')
print(re.sub(r"(?s)<distances2hetero.*?NVLinkBandwidth.*?</distances2hetero>", lambda _: matrix, text))
END
refuses "1,100 NVLinks" "it has more NVLinks than any machine"
write 400000 '<object type="Misc" gp_index="%d"/>'
look "400,000 notes"
[ "$status" = 0 ] && [ ! -s "$out/err" ] && grep -q "hardware threads 1" "$out/out" || {
  echo "FAILED: 400,000 notes: the machine is expected: $(cat "$out/out")"
  failed=1
}
exit $failed
