#!/bin/sh
# Compiles the kernels to PTX, which is committed: clang of the same version gives the same bytes. No toolkit needed.
#   compile.sh           writes the .ptx files
#   compile.sh --check   compares them with what the sources give
#   compile.sh --to DIR  writes them to a folder instead
set -eu
here=$(cd "$(dirname "$0")" && pwd)
source=$(cd "$here/../../.." && pwd)
to=$here
case ${1-} in
  --check) to=$(mktemp -d) && trap 'rm -rf "$to"' EXIT ;;
  --to) to=$2 ;;
  '') ;;
  *) echo "usage: compile.sh [--check | --to DIR]" >&2 && exit 2 ;;
esac
status=0
for kernels in "$here"/*.c; do
  name=$(basename "$kernels" .c)
  # Without -ffp-contract=off, sums of products would have other bits than on the host.
  clang-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 --cuda-path=/nonexistent -nocudainc -nocudalib \
    -Xclang -target-feature -Xclang +ptx70 -O2 -ffp-contract=off -Wall -Wextra -Werror \
    -I "$source" -I "$source/libcoll/include" -S -o "$to/$name.ptx" "$kernels"
  sed -i '/^\t\/\/ \(begin\|end\) inline asm$/d' "$to/$name.ptx"
  if [ "${1-}" = --check ] && ! cmp "$to/$name.ptx" "$here/$name.ptx"; then
    echo "$name.ptx is not what $name.c gives: run libcoll/gpu/kernels/compile.sh" >&2
    status=1
  fi
done
exit $status
