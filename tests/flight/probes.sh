#!/bin/bash
# libcoll.so has the USDT probes that docs/tracing.md names, if it was built where <sys/sdt.h> is.
set -euo pipefail
grep -q '^HAVE_USDT:INTERNAL=1' "$BUILD/CMakeCache.txt" || {
  echo "skipped: built without <sys/sdt.h> (Debian: systemtap-sdt-dev)"
  exit 77
}
readelf -n "$BUILD/libcoll.so" | awk '$1 == "Provider:" { provider = $2 } $1 == "Name:" { print provider ":" $2 }' |
  sort -u >"$BUILD/tests/probes.got"
sed -n 's/^| `\(coll:[a-z]*\)`.*/\1/p' "$SOURCE/docs/tracing.md" | sort -u | diff - "$BUILD/tests/probes.got"
[ "$(wc -l <"$BUILD/tests/probes.got")" = 4 ]
