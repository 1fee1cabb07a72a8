#!/bin/bash
# The binary interface of libcoll.so is that of docs/packaging/libcoll.abi, which is updated on purpose, with --update:
#
#   tests/install/abi.sh --update BUILD_FOLDER
set -euo pipefail
update=
if [ "${1-}" = --update ]; then
  update=yes BUILD=$2 SOURCE=$(dirname "$(dirname "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")")")
fi
kept=$SOURCE/docs/packaging/libcoll.abi
command -v abidw >/dev/null || {
  echo "left out: there is no abidw (package abigail-tools)"
  exit 77
}
[ "$(uname -m)" = x86_64 ] || {
  echo "left out: the snapshot is for x86_64"
  exit 77
}
# Without what is not in the public headers, and without lines and folders, which change often.
describe() {
  abidw --headers-dir "$SOURCE/libcoll/include/coll" --drop-private-types --drop-undefined-syms --no-show-locs --no-corpus-path \
    --no-comp-dir-path --type-id-style hash "$BUILD/libcoll.so" |
    sed -E "s,path='[^']*/(libcoll|transports|topology)/,path='\1/,"
}
if [ -n "$update" ]; then
  describe >"$kept"
  exit
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
describe >"$folder/now"
abidiff "$kept" "$folder/now" || {
  echo "the binary interface has changed; if this is intended: tests/install/abi.sh --update $BUILD"
  exit 1
}
