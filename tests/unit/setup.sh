#!/bin/bash
# .ci/setup.sh on a fake system: what is installed, and the messages if that fails.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/bin" "$dir/log" "$dir/.ci"
cp "$SOURCE/.ci/setup.sh" "$dir/.ci/"
cat >"$dir/.ci/packages.txt" <<'END'
# a comment about build things
build one  # why
build two  # why
check three  # why
END

# fake NAME: makes a command from standard input.
fake() {
  { echo '#!/bin/bash'; cat; } >"$dir/bin/$1"
  chmod +x "$dir/bin/$1"
}

# Sets up a fake system on which nothing is installed and everything works, as root.
fresh_system() {
  rm -f "$dir"/bin/*
  for tool in bash awk grep tail basename cat mkdir seq; do ln -s "$(command -v $tool)" "$dir/bin/$tool"; done
  export HAVE='' KNOWN=' one two three ' UPDATE=0 INSTALL=0 USER_ID=0 SUDO=0 CALLS=$dir/calls
  : >"$CALLS"
  fake dpkg-query <<<'[[ $HAVE == *" ${!#} "* ]] && echo -n installed'
  fake apt-cache <<<'[[ $KNOWN == *" $2 "* ]] && echo "  Candidate: 1.0" || echo "  Candidate: (none)"; seq 20000'
  fake apt-get <<<'echo "$*" >>"$CALLS"; [[ " $* " == *" update "* ]] && exit $UPDATE; exit $INSTALL'
  fake id <<<'echo $USER_ID'
  fake sudo <<<'[ "$1" = -n ] && exit $SUDO; [ "$1" = -v ] && exit 1; shift; "$@"'
}

# Installs the packages for the named kinds, and leaves output and status in `out` and `status`.
install() {
  status=0
  out=$(cd "$dir" && PATH="$dir/bin" bash -c \
    'set -euo pipefail; log_dir=log; . .ci/setup.sh; install_packages "$@"' quickstart "$@" \
    2>&1 </dev/null) || status=$?
}

# expect STATUS TEXT...: checks `status` and `out`.
expect() {
  [ "$status" -eq "$1" ] || { echo "line ${BASH_LINENO[0]}: status $status: $out"; exit 1; }
  shift
  for text in "$@"; do
    [[ $out == *"$text"* ]] || { echo "line ${BASH_LINENO[0]}: no '$text' in: $out"; exit 1; }
  done
}

fresh_system
HAVE=' one two ' install build
expect 0
[ ! -s "$CALLS" ] # nothing missing: apt-get is not even asked

HAVE=' one ' install build check
expect 0 'installing two three'
grep -q 'install two three$' "$CALLS"

USER_ID=1000 install build
expect 0 'installing one two'

USER_ID=1000 SUDO=1 install build
expect 1 'FAILED' 'sudo refuses' 'apt-get install one two'

rm "$dir/bin/sudo"
USER_ID=1000 install build
expect 1 'FAILED' 'no sudo' 'apt-get install one two'

UPDATE=100 KNOWN='' install build
expect 1 'apt-get update failed' 'check the network'

UPDATE=100 INSTALL=100 install build
expect 1 'could not be fetched' 'check the network'

UPDATE=100 install build # an unreachable source of something else does no harm
expect 0

KNOWN=' one ' install build
expect 1 'has the package two' 'universe'

INSTALL=100 install build
expect 1 'apt-get install failed' 'apt-get install one two'

rm "$dir/bin/apt-get"
install build
expect 1 'no apt-get' 'one two' '--no-install'
