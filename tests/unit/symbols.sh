#!/bin/sh
# libcoll.so exports what the public headers declare, and nothing else.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
# The version node itself is an absolute symbol ("A").
nm -D --defined-only "$BUILD/libcoll.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
  sort -u >"$dir/exported"
# Every function has its own line in a header that coll.h includes.
grep -h '^COLL_API' "$SOURCE"/libcoll/include/coll/*.h | sed -n 's/.*[ *]\(coll_[a-z0-9_]*\)(.*/\1/p' |
  sort -u >"$dir/declared"
[ "$(wc -l <"$dir/declared")" -ge 100 ] || {
  echo "only these declarations were found in the headers:"
  cat "$dir/declared"
  exit 1
}
diff -u --label declared --label exported "$dir/declared" "$dir/exported"
# ctags finds each declaration, too; it would not if macros hid them.
if command -v ctags >/dev/null && ctags --version | grep -q Universal; then
  ctags -x --c-kinds=p --language-force=C -I COLL_API "$SOURCE"/libcoll/include/coll/*.h |
    awk '{ print $1 }' | sort -u >"$dir/tagged"
  comm -23 "$dir/declared" "$dir/tagged" >"$dir/hidden"
  if [ -s "$dir/hidden" ]; then
    echo "ctags does not find:"
    cat "$dir/hidden"
    exit 1
  fi
fi
# libibverbs is loaded at run time: libcoll.so must not depend on it.
if nm -D --undefined-only "$BUILD/libcoll.so" | grep -E ' _?(ibv|rdma)_'; then
  echo "libcoll.so needs these functions of libibverbs; call them through transports/verbs/verbs_lib.h"
  exit 1
fi
# The verifier and the simulated transport are for tests: neither library contains them.
if nm --defined-only "$BUILD/libcoll.so" "$BUILD/libcoll.a" | grep -E ' (sim_|colli_(v[a-z]+$|verify|expr))'; then
  echo "these belong in coll_verify, not in libcoll"
  exit 1
fi
