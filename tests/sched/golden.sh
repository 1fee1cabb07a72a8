#!/bin/bash
# The algorithms' schedules are those in tests/sched/golden, so that a review sees how a change
# affects them. To update them: tests/sched/golden.sh --update [BUILD FOLDER]
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
if [ "${1:-}" = --update ]; then
  rm -rf "$here"/golden/*
  exec "${2:-build}/tests/sched_golden" "$here/golden"
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$BUILD/tests/sched_golden" "$dir"
diff -ru "$here/golden" "$dir" || {
  echo "schedules have changed; if they should have, run: tests/sched/golden.sh --update $BUILD"
  exit 1
}
