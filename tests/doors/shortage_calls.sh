#!/bin/sh
# Every call of the library to something outside is one that test_shortage makes fail, or is listed
# in shortage_left_out.txt, with the reason.
set -eu
here=$SOURCE/tests/doors
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
  grep -oE '(CALL|GIVES_BACK)\([A-Za-z0-9_]+' "$here/support_shortage.h" "$here/support_leaks.h" |
    sed 's/.*(//'
  grep -v '^#' "$here/shortage_left_out.txt" | tr -s ' ' '\n'
} | sort -u >"$work/known"
nm "$BUILD/libcoll.a" 2>/dev/null >"$work/symbols"
awk 'NF == 2 && ($1 == "U" || $1 == "w") {print $2}' "$work/symbols" | sort -u >"$work/used"
awk 'NF == 3 {print $3}' "$work/symbols" | sort -u >"$work/own"
[ "$(wc -l <"$work/used")" -gt 100 ] || { echo "nm shows next to nothing of libcoll.a"; exit 1; }
comm -23 "$work/used" "$work/own" | comm -23 - "$work/known" |
  grep -vE '^__aarch64_|^__stack_chk' >"$work/new" || true
if [ -s "$work/new" ]; then
  echo "These calls may fail, but doors_test_shortage does not try that. Add them to the table of"
  echo "tests/doors/support_shortage.h, or to tests/doors/shortage_left_out.txt with the reason:"
  cat "$work/new"
  exit 1
fi
