#!/bin/sh
# Compiles the kernels, also those that tests have for themselves, to PTX beside their sources, which is committed: clang
# of the same version gives the same bytes. No toolkit needed.
#   compile.sh           writes the .ptx files
#   compile.sh --check   compares them with what the sources give
set -eu
source=$(cd "$(dirname "$0")/../../.." && pwd)
case ${1-} in '' | --check) ;; *) echo "usage: compile.sh [--check]" >&2 && exit 2 ;; esac
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
status=0
for kernels in "$source"/libcoll/gpu/kernels/*.c "$source"/tests/gpu/ptx/*.c; do
  ptx=${kernels%.c}.ptx
  # Without -ffp-contract=off, sums of products would have other bits than on the host.
  clang-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 --cuda-path=/nonexistent -nocudainc -nocudalib \
    -Xclang -target-feature -Xclang +ptx70 -O2 -ffp-contract=off -Wall -Wextra -Werror \
    -I "$source" -I "$source/libcoll/include" -S -o "$out/ptx" "$kernels"
  sed -i '/^\t\/\/ \(begin\|end\) inline asm$/d' "$out/ptx"
  if [ -z "${1-}" ]; then
    cp "$out/ptx" "$ptx"
  elif ! cmp "$out/ptx" "$ptx"; then
    echo "$ptx is not what its source gives: run libcoll/gpu/kernels/compile.sh" >&2
    status=1
  fi
done
exit $status
