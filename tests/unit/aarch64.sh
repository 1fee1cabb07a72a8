#!/bin/sh
# AArch64, if a cross compiler and an emulator are installed: the kernels are compiled for it and
# run, and with TEST_ALL=1 the whole library is compiled. docs/packaging/building.md says how to build
# all of it.
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

# Like the second compiler of this processor, only TEST_ALL=1 asks it about the whole library.
[ -n "${TEST_ALL-}" ] || exit 0

# Headers of other libraries are this machine's, which is good enough to compile.
mkdir "$folder/headers"
for name in hwloc hwloc.h openssl; do
  ln -s "/usr/include/$name" "$folder/headers/$name"
done
multiarch=/usr/include/$(${CC:-cc} -dumpmachine)
pmix=$(pkg-config --cflags-only-I pmix | sed 's/-I/-idirafter /g')
# Kernels that wait for each other are for GPUs only.
# shellcheck disable=SC2086
find libcoll transports topology -name "*.c" ! -name "reduce_avx*" ! -path "libcoll/gpu/kernels/meet.c" -print0 |
  xargs -0 -n 8 -P "$(nproc)" $cc $flags -O1 -fsyntax-only -I"$folder/headers" $pmix -idirafter "$multiarch"
