#!/bin/bash
# ./check, with fake builds and tests: which tests of a Release build it runs, that --all runs all of
# them with all their cases, and other builds' tests, as .ci/run does, that --without-vm leaves out just those in a
# virtual machine and says so, that it fails if fuzzing finds something and leaves nothing running if a test fails, and
# that options it does not have are refused.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/.ci" "$dir"/{libcoll,transports,topology,trainer,perf,tests/fuzz,docs}
cp "$SOURCE/check" "$dir/"
cp "$SOURCE"/.ci/{run,setup.sh,packages.txt} "$dir/.ci/"
export CALLS=$dir/calls
unset TEST_ALL # of ./check --all, which may run this

# fake FILE: makes a command from standard input.
fake() {
  { echo '#!/bin/bash'; cat; } >"$dir/$1"
  chmod +x "$dir/$1"
}
for tool in cmake ninja pkg-config clang-format; do fake bin/$tool <<<':'; done
# shellcheck disable=SC2016
fake tests/fuzz/run <<<'echo "fuzzed for $1 s"'
# shellcheck disable=SC2016
fake bin/ctest <<<'printf "%q " "$@" >>"$CALLS"; echo "# ${TEST_ALL-}" >>"$CALLS"; echo "100% tests passed"'

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

note='left out: the tests in a virtual machine \(--without-vm\)'
expect 0 'all tests passed' --no-install
if grep -qE "$note" <<<"$out"; then echo "said without cause: $note" && exit 1; fi
diff <(ran) <(names | grep -vE '^(vm_(run|programs|perf|verbs_hosts)|chaos_storms|install_(abi|musl|packages|site))$' | sort)
if grep -qE 'asan|tsan|# 1' "$CALLS"; then echo "more than the everyday tests: $(cat "$CALLS")" && exit 1; fi

expect 0 "$note" --without-vm --no-install
diff <(ran) <(names | grep -vE '^(vm_|(chaos_storms|install_(abi|musl|packages|site))$)' | sort)

command=.ci/run
expect 0 'all tests passed' --no-install
diff <(ran) <(names | sort)
grep -qx 'fuzzed for 15 s' <<<"$out"
for build in asan tsan; do grep -q "build-check/$build .*# 1" "$CALLS"; done
expect 0 "$note" --without-vm --no-install
diff <(ran) <(names | grep -v '^vm_' | sort)
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
fake bin/ctest <<<'[[ $* != *"-L vm" ]] || { cat begun >"$CALLS"; exit 8; }; echo "100% tests passed"'
expect 1 'tests failed in build-check/release' --no-install
beside=$(<"$CALLS")
timeout 30 tail --pid="$beside" -f /dev/null || { kill "$beside" && echo "fuzzing goes on" && exit 1; }
command=check

for words in --without-vms --al '--no-install now' -h; do
  # shellcheck disable=SC2086
  expect 1 "unknown argument ${words##* }" $words
  grep -qF 'usage: ./check [--all] [--no-install] [--without-vm]' <<<"$out"
  [ ! -s "$CALLS" ]
done
