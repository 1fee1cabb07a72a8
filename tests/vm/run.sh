#!/bin/bash
# tests/vm/run itself: its exit statuses, input and output, its device, and its messages about guests
# that do not boot, which are failures. Only a machine without qemu or other programs skips the test.
set -u
run=$SOURCE/tests/vm/run
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0

# expect STATUS PATTERN ARGUMENT...: of tests/vm/run, with $path.
path=$PATH
expect() {
  local status=$1 pattern=$2 is=0
  shift 2
  PATH=$path "$run" "$@" >"$dir/log" 2>&1 || is=$?
  if [ $is = 77 ] && [ "$status" != 77 ]; then cat "$dir/log" && exit 77; fi
  [ $is = "$status" ] && grep -qE "$pattern" "$dir/log" && return
  echo "FAILED: status $is, expected $status and '$pattern', of: $*"
  cat "$dir/log"
  failed=1
}

expect 3 "^locked: unlimited, address: 10.78.0.1$" --out "$dir/out" --seconds 240 \
  sh -c 'echo "locked: $(ulimit -l), address: $ADDRESS"; tests/vm_ticks >$OUT/ticks; echo result >$OUT/file
    bash $SOURCE/tests/vm/device.sh && exit 3'
[ "$(cat "$dir/out/file")" = result ] || { echo "FAILED: nothing in the output folder" && failed=1; }
# The guest's clock uses a counter that it shares with the host: both must agree to a thousandth.
if here=$("$BUILD/tests/vm_ticks") && there=$(cat "$dir/out/ticks") &&
  [ $(((there - here) * (there > here ? 1 : -1))) -gt $((here / 1000)) ]; then
  echo "FAILED: the guest counts $there ticks in a millisecond, the machine $here" && failed=1
fi
expect 124 "^begun$" --seconds 2 sh -c 'echo begun; sleep 60'

mkdir "$dir/build" && cp -r "$BUILD/vm" "$dir/build/"
echo nothing.ko >>"$dir/build/vm/root/modules/load"
expect 125 "guest 0 did not boot: .*nothing.ko" --build "$dir/build" true
echo "no kernel" >"$dir/build/vm/vmlinuz"
expect 125 "guest 0 did not boot: .*booting the kernel" --build "$dir/build" true
echo "other modules" >"$dir/build/vm/complete"
mkdir "$dir/bin"
printf '#!/bin/sh\necho "E: no such host" && exit 100\n' >"$dir/bin/apt-get"
chmod +x "$dir/bin/apt-get"
path=$dir/bin:$PATH
expect 125 "could not be fetched: E: no such host" --build "$dir/build" true
for tool in bash dirname readlink; do ln -s "$(command -v $tool)" "$dir/bin/"; done
path=$dir/bin
expect 77 "skipped: needs qemu" true
exit $failed
