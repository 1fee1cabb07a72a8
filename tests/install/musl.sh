#!/bin/bash
# The library compiles with musl's headers, if musl-gcc is installed. Not tested: linking and
# running it (Debian has neither hwloc nor libcrypto for musl).
set -euo pipefail
cd "$SOURCE"
command -v musl-gcc >/dev/null || {
  echo "left out: there is no musl-gcc (package musl-tools)"
  exit 77
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Headers of the kernel and of other libraries are this machine's, which is good enough to compile.
mkdir "$folder/headers"
for name in hwloc hwloc.h openssl infiniband rdma linux asm-generic; do
  ln -s "/usr/include/$name" "$folder/headers/$name"
done
# Their folders are spread over two.
multiarch=/usr/include/$(${CC:-cc} -dumpmachine)
mkdir "$folder/machine"
ln -s "$multiarch/asm" "$multiarch/openssl" "$multiarch/hwloc" "$folder/machine"
find libcoll transports topology -name '*.c' ! -name 'reduce_avx*' ! -name reduce_neon.c ! -name pmix.c \
  ! -path libcoll/gpu/kernels/meet.c -print0 |
  xargs -0 -n 16 -P "$(nproc)" musl-gcc -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -D_GNU_SOURCE -I. \
    -Ilibcoll/include -isystem "$folder/headers" -isystem "$folder/machine" -fsyntax-only
