#!/bin/bash
# ./check, with builds and tests that are pretended: which tests of a Release build it runs, that
# --without-vm leaves out just those in a virtual machine and says so, and that options it does not
# have are refused.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/.ci" "$dir"/{libcoll,transports,topology,trainer,perf,tests}
cp "$SOURCE/check" "$dir/"
cp "$SOURCE/.ci/setup.sh" "$SOURCE/.ci/packages.txt" "$dir/.ci/"
export CALLS=$dir/calls

# fake NAME: makes a command from standard input.
fake() {
  { echo '#!/bin/bash'; cat; } >"$dir/bin/$1"
  chmod +x "$dir/bin/$1"
}
for tool in cmake ninja pkg-config clang-format; do fake $tool <<<':'; done
# shellcheck disable=SC2016
fake ctest <<<'printf "%q " "$@" >>"$CALLS"; echo >>"$CALLS"; echo "100% tests passed"'

# expect STATUS PATTERN OPTION...: of ./check; leaves its output in `out`, the calls of ctest in $CALLS.
expect() {
  local want=$1 pattern=$2 status=0
  shift 2
  : >"$CALLS"
  out=$(PATH=$dir/bin:$PATH "$dir/check" "$@" 2>&1) || status=$?
  [ "$status" -eq "$want" ] && grep -qE "$pattern" <<<"$out" && return
  echo "status $status, expected $want and '$pattern': ./check $*: $out"
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
diff <(ran) <(names | sort)

expect 0 "$note" --without-vm --no-install
diff <(ran) <(names | grep -v '^vm_' | sort)

for words in --without-vms '--no-install now' -h; do
  # shellcheck disable=SC2086
  expect 1 "unknown argument ${words##* }" $words
  grep -qF 'usage: ./check [--no-install] [--without-vm]' <<<"$out"
  [ ! -s "$CALLS" ]
done
