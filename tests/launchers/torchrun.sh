#!/bin/sh
# torchrun: ranks find each other with nothing exported, beside MASTER_PORT.
. "$(dirname "$0")/support.inc"
trap 'rm -rf "$scratch"' EXIT
torchrun=/usr/bin/torchrun
[ -x $torchrun ] || { echo "skipped: no torchrun (Debian: python3-torch)"; exit 77; }

# Debian's torch 1.13 cannot read 0, its own default for these two, with its own Python 3.11.
run="$torchrun --redirects 9:1 --tee 9:1 --monitor_interval 0.2 --no_python --nproc_per_node 2"

# A rank that fails in the first round: torchrun starts both again.
cat > again.sh <<'END'
[ "$TORCHELASTIC_RESTART_COUNT$RANK" != 01 ] || exit 3
exec "$1"
END
# shellcheck disable=SC2086
warning="torchrun passes no secret"
expect_ranks "static" 2 $run --master_port "$(free_port)" "$rank"
grep -qF "$warning" err || fail "no word that there is no secret: $(cat err)"
COLL_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n') COLL_CREATE_TIMEOUT_MS=20000 \
  expect_ranks "restarted" 2 $run --standalone --max_restarts 1 sh again.sh "$rank"
if grep -qF "$warning" err; then fail "a warning although there is a secret"; fi
finish
