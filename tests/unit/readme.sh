#!/bin/bash
# The program in README.md, built with README.md's commands against an installed libcoll, runs.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"

# Prints the first block of README.md that is marked with a language and holds a text.
block() {
  awk -v lang="$1" -v text="$2" '
    /^```/ { if (inside) { if (index(all, text)) { printf "%s", all; exit }; inside = 0 }
             else { inside = 1; wanted = ($0 == "```" lang); all = "" } next }
    inside && wanted { all = all $0 "\n" }' "$SOURCE/README.md"
}

# Runs a program on 3 ranks and checks what they print.
expect_sum() {
  prefix/bin/collrun -n 3 "$1" | sort >out
  printf 'rank %d of 3: the sum is 3\n' 0 1 2 | diff - out
}

# A value from the CMake cache.
cached() {
  sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"
}

block c coll_allreduce >sum.c
block cmake find_package >CMakeLists.txt
command=$(block sh pkg-config | grep '^cc ')
if [ ! -s sum.c ] || [ ! -s CMakeLists.txt ]; then
  echo "README.md has no C program or no CMake project"
  exit 1
fi

cmake --install "$BUILD" --prefix "$dir/prefix" >install.log || {
  cat install.log
  exit 1
}
sanitizers=$(cached COLL_SANITIZE)
flags="-Wall -Wextra -Werror ${sanitizers:+-fsanitize=$sanitizers}"
cc=$(cached CMAKE_C_COMPILER)
pc=$(find "$dir/prefix" -name coll.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH")
export PKG_CONFIG_PATH LD_LIBRARY_PATH
[ "$(pkg-config --modversion coll)" = "$(cached CMAKE_PROJECT_VERSION)" ]

eval "${command/#cc/$cc $flags}"
expect_sum ./sum

unset LD_LIBRARY_PATH
if ! { cmake -S . -B build -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_C_COMPILER="$cc" \
  -DCMAKE_C_FLAGS="$flags" >cmake.log && cmake --build build >>cmake.log; }; then
  cat cmake.log
  exit 1
fi
expect_sum build/sum
expect_sum build/sum_static

# The lines that start small programs work unchanged (the others take long, or need hosts).
PATH=$dir/prefix/bin:$PATH
block sh coll_explain | grep -E 'coll_explain|coll_topo' >lines
[ "$(wc -l <lines)" -eq 3 ]
while read -r line; do
  eval "${line%%#*}" >out 2>&1 </dev/null || {
    echo "$line"
    cat out
    exit 1
  }
done <lines
