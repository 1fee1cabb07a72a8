#!/bin/bash
# SASS of the GPU kernels in a build: which architectures it is for, that it is the same bytes each time and names no
# folder, and builds without it.
set -euo pipefail
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

fail() {
  echo "$1" >&2
  exit 1
}

# cached NAME: a value that this build was configured with.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$BUILD/CMakeCache.txt"; }

# configure VALUE: configures another build for these architectures; what it says is in $out/said.
configure() {
  rm -rf "$out/build"
  cmake -S "$SOURCE" -B "$out/build" -DCOLL_TESTS=OFF -DCOLL_CUDA_ARCHITECTURES="$1" "${@:2}" >"$out/said" 2>&1
}

# says WORDS: the last configure said this.
says() { tr -s '\n ' ' ' <"$out/said" | grep -q -- "$1" || fail "configure does not say '$1': $(cat "$out/said")"; }

# Without SASS: nothing in the library but PTX.
configure "" || fail "no architectures: $(cat "$out/said")"
says "GPU kernels: PTX, .*COLL_CUDA_ARCHITECTURES is empty"
[ ! -e "$out/build/gpu" ] || fail "no architectures, but: $(ls "$out/build/gpu")"
cc -c -I "$SOURCE" -I "$SOURCE/libcoll/include" -o "$out/code.o" "$SOURCE/libcoll/gpu/code.c"
nm "$out/code.o" | grep -q ' colli_gpu_ptx_meet$' || fail "code.c does not have the PTX"
! nm "$out/code.o" | grep ' colli_gpu_sass_[a-z0-9]*$' | grep -v '_architectures$' || fail "SASS from nowhere"
configure auto -DCOLL_PTXAS=OFF || fail "no ptxas: $(cat "$out/said")"
says "GPU kernels: PTX, .*no ptxas or no fatbinary"
! configure 90 -DCOLL_PTXAS=OFF || fail "an architecture without ptxas is accepted"
says "COLL_CUDA_ARCHITECTURES=90 is impossible: no ptxas"

ptxas=$(cached COLL_PTXAS) fatbinary=$(cached COLL_FATBINARY)
[ -x "$ptxas" ] && [ -x "$fatbinary" ] || { echo "left out: SASS, because this build found no ptxas" && exit 77; }
for wrong in 33 90x "80;12345"; do
  ! configure "$wrong" || fail "$wrong is accepted"
  says "does not know sm_"
done
configure "80;90" || fail "two architectures: $(cat "$out/said")"
says "GPU kernels: SASS for sm_80, 90 ("
built=$(grep -o 'COLLI_GPU_SASS=[^-]*' "$BUILD/compile_commands.json" | grep -oE '[0-9]+') ||
  { echo "left out: this build's SASS, for it has none" && exit 77; }

# Images are the same wherever they are built.
compress=(--compress-all)
! "$fatbinary" --help | grep -q -- --compress-mode || compress+=(--compress-mode=speed)
files=(copy fold_loc meet)
[ -z "${TEST_ALL-}" ] || files=(copy fold_float fold_float8 fold_int fold_loc meet)
for name in "${files[@]}"; do
  images=()
  for arch in $built; do
    "$ptxas" -arch="sm_$arch" -o "$out/$arch" "$SOURCE/libcoll/gpu/kernels/$name.ptx"
    cmp "$out/$arch" "$BUILD/gpu/$name.sm_$arch.cubin" || fail "$name for sm_$arch is not the same the second time"
    images+=("--image3=kind=elf,sm=$arch,file=$out/$arch")
  done
  "$fatbinary" --create="$out/image" -64 "${compress[@]}" "${images[@]}"
  cmp "$out/image" "$BUILD/gpu/$name.fatbin" || fail "$name.fatbin is not the same the second time"
  for folder in "$BUILD" "$SOURCE" "$HOME"; do
    [ "$folder" = / ] || ! grep -qaF "$folder" "$BUILD/gpu/$name.fatbin" || fail "$name.fatbin names $folder"
  done
done
