#!/bin/sh
# The committed PTX is what clang-14 makes of the kernels; it keeps nothing in local memory and moves 16 bytes at a
# time; ptxas, if installed, takes it for each architecture that it knows.
set -eu
kernels=$SOURCE/libcoll/gpu/kernels
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() {
  echo "$1" >&2
  exit 1
}

for ptx in "$kernels"/*.ptx; do
  grep -q '^\.version 7\.0$' "$ptx" || fail "$ptx: another version of PTX than 7.0, which drivers since CUDA 11.0 take"
  grep -q '^\.target sm_70$' "$ptx" || fail "$ptx: another target than sm_70"
  if grep -n '\.local' "$ptx"; then fail "$ptx: an array or a union ended up in local memory"; fi
  if grep -nE '^\s*(call|fma)' "$ptx"; then fail "$ptx: calls a function, or fuses a sum with a product"; fi
  awk -v file="$ptx" '
    /^\.visible \.entry/ { name = $3; loads = stores = 0 }
    /ld\.global\.v4\.u32/ { loads++ }
    /st\.global\.v4\.u32/ { stores++ }
    /^}/ && name !~ /^coll_meet/ && !(loads && stores) { print file ": " name " does not move 16 bytes at a time"; bad = 1 }
    END { exit bad }' "$ptx" >&2 || exit 1
done

if command -v ptxas >/dev/null; then
  taken=0
  for arch in $(ptxas --help | grep -oE "sm_[0-9]+" | sort -uV); do
    for ptx in "$kernels"/*.ptx; do
      if ! ptxas -arch="$arch" -v -o "$out/cubin" "$ptx" 2>"$out/said"; then
        grep -q "not defined for option 'gpu-name'" "$out/said" && break # its help names more than it knows
        fail "$ptx for $arch: $(cat "$out/said")"
      fi
      if grep -E '[1-9][0-9]* bytes (stack frame|spill)' "$out/said"; then fail "$ptx for $arch: spills registers"; fi
      taken=$((taken + 1))
    done
    # Each architecture takes seconds.
    [ "$taken" -eq 0 ] || [ "${TEST_ALL-}" ] || break
  done
  [ "$taken" -gt 0 ] || fail "ptxas knows no architecture"
fi

command -v clang-14 >/dev/null || { echo "no clang-14: whether the PTX is current was not checked" && exit 77; }
"$kernels/compile.sh" --check
