#!/bin/sh
# Who includes whom: docs/architecture.md tells why. A header named without a folder is a neighbour.
set -eu
cd "$SOURCE"
failed=0

# arrows FOLDER ALLOWED: files right in FOLDER include, in quotes, only what matches ALLOWED.
arrows() {
  for file in "$1"/*.[ch]; do
    [ -e "$file" ] || continue
    bad=$(sed -n 's/^ *# *include *"\([^"]*\/[^"]*\)".*/\1/p' "$file" | grep -vE "^($2)" || true)
    [ -z "$bad" ] || {
      echo "$file must not include: $bad"
      failed=1
    }
  done
}

# includes_only_in NAME FILES: the system header NAME is included nowhere but in FILES.
includes_only_in() {
  bad=$(grep -rlE "^ *# *include *[<\"]$1" --include='*.[ch]' libcoll transports topology trainer perf |
    grep -vE "^$2" || true)
  [ -z "$bad" ] || {
    echo "$1 must not be included in: $bad"
    failed=1
  }
}

base='coll/|libcoll/base/'
arrows libcoll/include/coll 'coll/'
arrows libcoll/base "$base"
arrows libcoll/sched "$base|libcoll/sched/"
arrows libcoll/algo "$base|libcoll/sched/|libcoll/algo/"
arrows libcoll/exec "$base|libcoll/sched/|libcoll/algo/algo.h|libcoll/exec/"
# comm reaches transports through the registry; COLL_FAULT asks it to put the decorator before them.
arrows libcoll/comm "coll/|libcoll/|topology/topology.h|transports/registry.h|transports/hook/fault.h"
arrows topology "$base|topology/"
arrows transports "$base|transports/"
for folder in transports/*/; do
  folder=${folder%/}
  case $folder in
  # A decorator stands in front of any transport, and knows their tables.
  transports/hook) arrows "$folder" "$base|$folder/|transports/[a-z]+/[a-z]+\.h" ;;
  # Its connections are made and watched over connections of the TCP transport.
  transports/verbs) arrows "$folder" "$base|$folder/|transports/tcp/tcp.h" ;;
  *) arrows "$folder" "$base|transports/stream/|$folder/" ;;
  esac
done
arrows trainer 'coll/coll.h|trainer/'
arrows perf 'coll/coll.h|perf/'

includes_only_in 'hwloc' 'topology/hwloc[a-z_]*\.c'
includes_only_in 'openssl/' 'libcoll/base/'
includes_only_in 'infiniband/' 'transports/verbs/'
includes_only_in 'cuda' 'transports/cuda/'
exit $failed
