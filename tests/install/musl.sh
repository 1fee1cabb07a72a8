#!/bin/bash
# libcoll compiles with musl, and works with it: with an OpenSSL built for musl from Debian's source package, programs are
# linked statically and with the shared library, and ranks talk through shared memory, TCP and TLS.
# Not built: what needs hwloc, OpenBLAS or Criterion, which Debian has for glibc only.
. "$SOURCE/tests/install/support.inc"
command -v musl-gcc >/dev/null || {
  echo "left out: there is no musl-gcc (package musl-tools)"
  exit 77
}

# Headers of the kernel and of other libraries are this machine's, which is good enough. Their folders are spread over two.
multiarch=/usr/include/$(cc -dumpmachine)
mkdir headers others
ln -s /usr/include/{linux,asm-generic,infiniband,rdma} "$multiarch/asm" headers
ln -s /usr/include/{hwloc,hwloc.h,openssl} others
mkdir machine
ln -s "$multiarch"/{openssl,hwloc} machine

# All sources, those that are not linked below, too.
compile() {
  (
    cd "$SOURCE"
    find libcoll transports topology -name '*.c' ! -name 'reduce_avx*' ! -name reduce_neon.c ! -name pmix.c \
      ! -path libcoll/gpu/kernels/meet.c -print0 |
      xargs -0 -n 16 -P "$(nproc)" musl-gcc -std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes -Werror -D_GNU_SOURCE \
        -I. -Ilibcoll/include -isystem "$scratch/headers" -isystem "$scratch/others" -isystem "$scratch/machine" \
        -fsyntax-only
  )
}

# Gets the source package of OpenSSL, in ./openssl, with lists of sources of our own: most machines have none. A mirror may
# lack the latest version for a while, so older ones are tried, too.
get_openssl() {
  local file version
  mkdir -p apt/parts apt/lists/partial apt/cache/archives/partial
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.{list,sources}; do
    [ ! -e "$file" ] || sed -E 's/^Types:.*/Types: deb-src/; s/^deb(-src)?([[:space:]])/deb-src\2/' "$file" \
      >"apt/parts/$(basename "$file")"
  done
  local options=(-o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$PWD/apt/parts"
    -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o Acquire::Retries=1
    -o Acquire::http::Timeout=20)
  apt-get "${options[@]}" update || return 1
  for version in $(apt-cache "${options[@]}" showsrc openssl | sed -n 's/^Version: //p' | sort -rV); do
    apt-get "${options[@]}" --download-only source "openssl=$version" || continue
    dpkg-source --extract "openssl_${version#*:}.dsc" openssl && return
  done
  return 1
}

# Builds in ./openssl what libcoll needs of it; all else only takes time.
build_openssl() {
  quietly env --chdir=openssl CC=musl-gcc ./Configure "linux-$(uname -m)" no-shared no-tests no-engine no-dso no-module no-legacy no-deprecated \
    no-async no-autoload-config no-cmp no-cms no-ct no-ocsp no-ts no-srp no-dtls no-aria no-bf no-camellia no-cast no-des \
    no-idea no-rc2 no-rc4 no-seed no-sm2 no-sm3 no-sm4 no-blake2 no-md4 no-mdc2 no-rmd160 no-whirlpool no-dsa no-ec2m \
    -O1 -idirafter "$scratch/headers"
  quietly make -C openssl -j"$(nproc)" build_generated libcrypto.a libssl.a
}

compile
# It takes minutes, so it is kept in the build folder. The name says for which musl it was built.
musl=$(dpkg-query -W -f '${Version}' musl-dev)
kept=$BUILD/musl/openssl-for-$musl
if [ ! -e "$kept" ]; then
  get_openssl >apt.log 2>&1 || {
    tail -3 apt.log
    echo "left out: linking and running, for lack of OpenSSL's source package"
    exit 77
  }
  build_openssl
  mkdir -p "$kept.new"
  cp -r openssl/include openssl/lib{crypto,ssl}.a "$kept.new"
  mv "$kept.new" "$kept"
fi

# Programs are static. pkg-config would find libraries for glibc.
PKG_CONFIG_LIBDIR=/nonexistent quietly cmake -S "$SOURCE" -B build -G Ninja -DCMAKE_C_COMPILER=musl-gcc \
  -DCMAKE_C_COMPILER_LAUNCHER="$(cached CMAKE_C_COMPILER_LAUNCHER)" -DCMAKE_C_FLAGS="-idirafter $scratch/headers" \
  -DCMAKE_EXE_LINKER_FLAGS=-static -DOPENSSL_INCLUDE_DIR="$kept/include" \
  -DOPENSSL_CRYPTO_LIBRARY="$kept/libcrypto.a" -DOPENSSL_SSL_LIBRARY="$kept/libssl.a" -DCOLL_HWLOC=OFF -DCOLL_TESTS=OFF \
  -DCOLL_TRAINER=OFF -DCOLL_PYTHON=OFF -DCOLL_TORCH_PYTHON=OFF -DCOLL_CUDA_ARCHITECTURES= -DCOLL_WERROR=ON \
  -DCMAKE_C_FLAGS_RELEASE=-O1
quietly cmake --build build
# The examples use the shared library, and run under a collrun that is static.
mkdir examples
for example in mean ring overlap threads; do
  musl-gcc -std=gnu11 -I "$SOURCE/libcoll/include" "$SOURCE/docs/examples/$example.c" -L build -lcoll \
    -Wl,-rpath,"$scratch/build" -o examples/$example
done
BUILD=$scratch/build
for file in build/libcoll.so examples/mean build/bin/collrun; do
  if readelf -d "$file" | grep -E 'NEEDED.*\[(libc\.so\.6|libcrypto|libssl|ld-linux)'; then
    echo "$file is not linked with musl alone"
    exit 1
  fi
done

run_examples examples
for settings in COLL_TRANSPORT=shm COLL_TRANSPORT=tcp "COLL_TRANSPORT=tcp COLL_TLS=1" \
  "COLL_TRANSPORT=tcp COLL_TLS=1 COLL_PROGRESS=on"; do
  # coll_perf compares all results with what they must be.
  # shellcheck disable=SC2086
  quietly env $settings build/bin/collrun -n 4 build/bin/coll_perf allreduce alltoall -b 4,64K -n 5
  grep -q '^# Out of bounds values : 0 OK' output.log
done
COLL_TRANSPORT=tcp COLL_TLS=1 quietly build/bin/collrun -n 4 examples/mean
quietly build/bin/coll_perf allreduce -t 4 -b 1K -e 1K -n 5 -o all
build/bin/coll_topo >output.log
grep -q 'without hwloc' output.log
