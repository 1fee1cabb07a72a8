# shellcheck shell=bash
# Functions of ./quickstart and ./check. To be sourced by bash, with the current folder the
# project's root and `log_dir` set.

export DEBIAN_FRONTEND=noninteractive LC_ALL=C
started=$SECONDS

# libcoll settings in the caller's environment would change what is shown and tested.
for name in $(compgen -e COLL_); do unset "$name"; done

# Prints a heading with the time since the start.
say() {
  printf '\n== %s (%d s)\n' "$1" $((SECONDS - started))
}

# Ends the script: what failed, and what to do.
fail() {
  printf '\n%s: FAILED: %s\n' "$(basename "$0")" "$1" >&2
  shift
  printf '  what to do: %s\n' "$@" >&2
  exit 1
}

mkdir -p "$log_dir" || fail "the folder $PWD cannot be written to by $(id -un)" \
  "run this as the folder's owner, or in a copy of your own"

# Prints the names of the packages for "build", or for "build check".
packages_for() {
  local kind
  for kind in "$@"; do
    awk -v kind="$kind" '$1 == kind { print $2 }' .ci/packages.txt
  done
}

# Prints which of the named packages are not installed.
missing_of() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
      printf '%s\n' "$package"
  done
}

# Chooses how to run commands as root: sets `as_root`, or fails.
find_root() {
  as_root=
  [ "$(id -u)" -eq 0 ] && return
  command -v sudo >/dev/null ||
    fail "packages must be installed, but you are not root and there is no sudo" \
      "let an administrator run: apt-get install $1" "then run this again"
  # Without a terminal sudo cannot ask for a password.
  if ! sudo -n true 2>/dev/null && ! { [ -t 0 ] && sudo -v; }; then
    fail "packages must be installed, but sudo refuses" \
      "let an administrator run: apt-get install $1" "then run this again"
  fi
  as_root="sudo DEBIAN_FRONTEND=noninteractive"
}

# Installs missing packages for "build", or for "build check".
install_packages() {
  local wanted missing package update_failed='' log="$log_dir/packages.log"
  mapfile -t wanted < <(packages_for "$@")
  if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
    fail "this system has no apt-get: it is neither Debian nor Ubuntu" \
      "install the equivalents of these packages: ${wanted[*]}" \
      "then run this again with --no-install"
  fi
  mapfile -t missing < <(missing_of "${wanted[@]}")
  [ ${#missing[@]} -gt 0 ] || return 0
  find_root "${missing[*]}"
  say "installing ${missing[*]}"
  $as_root apt-get -o DPkg::Lock::Timeout=120 -o APT::Update::Error-Mode=any -q update \
    >"$log" 2>&1 || update_failed=yes
  for package in "${missing[@]}"; do
    # apt-cache show also succeeds for names that only other packages mention, so look for a candidate.
    [[ $(apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[!\(]* ]] && continue
    tail -5 "$log" >&2
    [ -z "$update_failed" ] ||
      fail "apt-get update failed (last lines above; all in $log), and package $package is unknown without it" \
        "check the network (and the proxy settings of apt), then run this again"
    fail "no package source of this system has the package $package" \
      "on Ubuntu enable universe (add-apt-repository universe); else see what replaces it in .ci/packages.txt" \
      "then run this again"
  done
  $as_root apt-get -o DPkg::Lock::Timeout=120 -q -y --no-install-recommends install "${missing[@]}" \
    >>"$log" 2>&1 && return 0
  tail -15 "$log" >&2
  [ -z "$update_failed" ] ||
    fail "packages could not be fetched (last lines above; all in $log)" \
      "check the network (and the proxy settings of apt), then run this again"
  fail "apt-get install failed (last lines above; all in $log)" \
    "see what it says; to try by hand: apt-get install ${missing[*]}" "then run this again"
}

# Configures and builds: folder, target, then options of cmake. Prints the errors if it fails.
build() {
  local folder=$1 target=$2 log
  shift 2
  log="$log_dir/build-$(basename "$folder").log"
  for tool in cmake ninja pkg-config; do
    command -v $tool >/dev/null || fail "there is no $tool" "run this without --no-install, or install it"
  done
  # A folder that was copied or moved contains wrong paths; cmake would refuse it.
  if [ -f "$folder/CMakeCache.txt" ] &&
    ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$PWD" "$folder/CMakeCache.txt"; then
    rm -rf "$folder"
  fi
  cmake -S . -B "$folder" -G Ninja "$@" >"$log" 2>&1 && cmake --build "$folder" --target "$target" >>"$log" 2>&1 && return 0
  grep -E -A6 'error|FAILED|Error' "$log" | head -40 >&2
  fail "building in $folder failed (first errors above; all in $log)" \
    "if a package is missing, run this without --no-install" \
    "if $folder is from an older state: rm -rf $folder, then run this again"
}
