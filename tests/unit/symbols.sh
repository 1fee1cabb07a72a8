#!/bin/sh
# libcoll.so exports what the public header declares, and nothing else.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The version node itself is an absolute symbol ("A").
nm -D --defined-only "$BUILD/libcoll.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
  sort -u >"$dir/exported"
# What the headers declare once macros are expanded: each declaration begins with the visibility.
echo '#include <coll/coll.h>' | cc -E -P -I"$SOURCE/libcoll/include" - | tr '\n' ' ' |
  grep -o 'visibility("default"))) [^;(]*(' | sed -n 's/.*[ *]\(coll_[a-z_]*\)($/\1/p' |
  sort -u >"$dir/declared"
[ "$(wc -l <"$dir/declared")" -ge 100 ] || {
  echo "only these declarations were found in the headers:"
  cat "$dir/declared"
  exit 1
}
diff -u --label declared --label exported "$dir/declared" "$dir/exported"
# libibverbs is loaded at run time: the library must not need it to be loaded itself.
if nm -D --undefined-only "$BUILD/libcoll.so" | grep -E ' _?(ibv|rdma)_'; then
  echo "libcoll.so needs these functions of libibverbs; call them through transports/verbs/verbs_lib.h"
  exit 1
fi
# The verifier and the simulated world are for tests: they are in neither library.
if nm --defined-only "$BUILD/libcoll.so" "$BUILD/libcoll.a" | grep -E ' (sim_|colli_(v[a-z]+$|verify|expr))'; then
  echo "these belong into coll_verify, not into libcoll"
  exit 1
fi
