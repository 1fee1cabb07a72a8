#!/bin/sh
# Each public header compiles by itself, as C11 and as C++17, with every installed compiler.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
tried=0
for header in "$SOURCE"/libcoll/include/coll/*.h; do
  name=coll/$(basename "$header")
  printf '#include "%s"\nint main(void) { return 0; }\n' "$name" >"$dir/one.c"
  cp "$dir/one.c" "$dir/one.cc"
  for cc in gcc clang; do
    command -v $cc >/dev/null || continue
    $cc -std=c11 -pedantic-errors -Wall -Wextra -Werror -I"$SOURCE/libcoll/include" -c "$dir/one.c" \
      -o "$dir/one.o"
    tried=$((tried + 1))
  done
  for cxx in g++ clang++; do
    command -v $cxx >/dev/null || continue
    $cxx -std=c++17 -pedantic-errors -Wall -Wextra -Werror -I"$SOURCE/libcoll/include" \
      -c "$dir/one.cc" -o "$dir/one.o"
    tried=$((tried + 1))
  done
done
echo "$tried compilations"
[ "$tried" -ge 4 ]
