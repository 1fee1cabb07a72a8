#!/bin/bash
# ./check, with fake builds and tests: which tests of a Release build it runs, that with --once, as .ci/run does, each
# test that is not only for --all runs either there or with sanitizers, and with --all in both, that --without-vm leaves
# out just those in a virtual machine and says so, that it fails if fuzzing finds something and leaves nothing running
# if a test fails, and that options it does not have are refused.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/.ci" "$dir"/{libcoll,transports,topology,trainer,perf,tests/fuzz,docs}
cp "$SOURCE/check" "$dir/"
cp "$SOURCE"/.ci/{run,setup.sh,packages.txt} "$dir/.ci/"
export CALLS=$dir/calls

# fake FILE: makes a command from standard input.
fake() {
  { echo '#!/bin/bash'; cat; } >"$dir/$1"
  chmod +x "$dir/$1"
}
for tool in cmake ninja pkg-config clang-format; do fake bin/$tool <<<':'; done
# shellcheck disable=SC2016
fake tests/fuzz/run <<<'echo "fuzzed for $1 s"'
# shellcheck disable=SC2016
fake bin/ctest <<<'printf "%q " "$@" >>"$CALLS"; echo >>"$CALLS"; echo "100% tests passed"'

# expect STATUS PATTERN OPTION...: of ./check, or of $command; leaves its output in `out`, the calls of ctest in $CALLS.
command=check
expect() {
  local want=$1 pattern=$2 status=0
  shift 2
  : >"$CALLS"
  out=$(PATH=$dir/bin:$PATH "$dir/$command" "$@" 2>&1) || status=$?
  [ "$status" -eq "$want" ] && grep -qE "$pattern" <<<"$out" && return
  echo "status $status, expected $want and '$pattern': ./$command $*: $out"
  exit 1
}

# Names of tests of this build folder, by options of ctest; and those that ./check would have run.
# shellcheck disable=SC2119,SC2120
names() { ctest --test-dir "$BUILD" -N "$@" | sed -n 's/^ *Test *#[0-9]*: //p'; }
ran() {
  while read -r words; do
    eval "names ${words/--test-dir build-check\/release/}"
  done < <(grep -e '--test-dir build-check/release ' "$CALLS") | sort
}

# Whether sanitizer builds leave a test out.
not_sanitized() { sed -n '/^set(not_sanitized/,/)/p' "$SOURCE/tests/CMakeLists.txt" | tr -s ' ()' '\n' | grep -qxF "$1"; }

note='left out: the tests in a virtual machine \(--without-vm\)'
all_only=$(names -L all_only)
[ "$(wc -l <<<"$all_only")" -ge 20 ]
expect 0 'all tests passed' --no-install
if grep -qE "$note" <<<"$out"; then echo "said without cause: $note" && exit 1; fi
diff <(ran) <(names | grep -vxF "$all_only" | sort)
if grep -qE 'asan|tsan' "$CALLS"; then echo "more than the everyday tests: $(cat "$CALLS")" && exit 1; fi

expect 0 "$note" --without-vm --no-install
diff <(ran) <(names | grep -vxF "$all_only" | grep -v '^vm_' | sort)

# Each test but those is in one of the two runs, and those with sanitizers are in that build.
command=.ci/run
expect 0 'all tests passed' --no-install
sanitized=$(names -L sanitized)
diff <(ran) <(names | grep -vxF "$all_only" | grep -vxF "$sanitized" | sort)
for test in $sanitized; do
  if not_sanitized "$test" || grep -qxF "$test" <<<"$all_only"; then echo ".ci/run runs $test nowhere" && exit 1; fi
done
grep -qx 'fuzzed for 5 s' <<<"$out"
grep -qE -- '--test-dir build-check/asan .*-j[0-9]+ -L sanitized *$' "$CALLS"
grep -q 'build-check/tsan ' "$CALLS"
expect 0 "$note" --without-vm --no-install
diff <(ran) <(names | grep -v '^vm_' | grep -vxF "$all_only" | grep -vxF "$sanitized" | sort)

command=check
expect 0 'all tests passed' --all --no-install
diff <(ran) <(names | sort)
grep -qx 'fuzzed for 15 s' <<<"$out"
grep -qE -- '--test-dir build-check/asan .*-j[0-9]+ *$' "$CALLS" && grep -q 'build-check/tsan ' "$CALLS"
command=.ci/run
fake tests/fuzz/run <<<'echo "fuzz_some FAILED"; exit 1'
for options in '' --without-vm; do
  # shellcheck disable=SC2086
  expect 1 'fuzz_some FAILED' --no-install $options
  if grep -q 'all tests passed (' <<<"$out"; then echo "passed with a finding: $out" && exit 1; fi
done

# A test that fails ends what runs beside it, also children of that.
mkfifo "$dir/begun"
# shellcheck disable=SC2016
fake tests/fuzz/run <<<'tail -f /dev/null & echo $! >begun; wait'
# shellcheck disable=SC2016
fake bin/ctest <<<'[[ $* != *"-L vm"* ]] || { cat begun >"$CALLS"; exit 8; }; echo "100% tests passed"'
expect 1 'tests failed in build-check/release' --no-install
beside=$(<"$CALLS")
timeout 30 tail --pid="$beside" -f /dev/null || { kill "$beside" && echo "fuzzing goes on" && exit 1; }
command=check

for words in --without-vms --al '--no-install now' -h; do
  # shellcheck disable=SC2086
  expect 1 "unknown argument ${words##* }" $words
  grep -qF 'usage: ./check [--once | --all] [--no-install] [--without-vm]' <<<"$out"
  [ ! -s "$CALLS" ]
done
