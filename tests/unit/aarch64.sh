#!/bin/sh
# AArch64, if a cross compiler and an emulator are installed: the kernels are compiled for it and
# run. tests/install/aarch64.sh does so with everything, which takes long.
set -eu
cd "$SOURCE"
cc=aarch64-linux-gnu-gcc
for tool in $cc qemu-aarch64-static; do
  command -v $tool >/dev/null || {
    echo "left out: there is no $tool (packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user-static)"
    exit 77
  }
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
flags="-std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -D_GNU_SOURCE -I. -Ilibcoll/include"

# shellcheck disable=SC2086
$cc $flags -O3 -ffp-contract=off -fno-trapping-math -static -o "$folder/kernels" tests/unit/plain_kernels.c \
  tests/unit/support_reduce.c libcoll/base/prng.c libcoll/exec/reduce.c libcoll/exec/reduce_portable.c \
  libcoll/exec/reduce_neon.c -lm
qemu-aarch64-static "$folder/kernels" >"$folder/said"
cat "$folder/said"
grep -q '^neon: same bits$' "$folder/said"
# shellcheck disable=SC2086
$cc $flags -O2 -static -o "$folder/crc32c" tests/conformance/plain_crc32c.c transports/check/check_crc32c.c libcoll/base/prng.c
qemu-aarch64-static "$folder/crc32c" | grep -q "^crc32c: same values$"
