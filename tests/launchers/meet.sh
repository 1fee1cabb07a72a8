#!/bin/sh
# Ranks that meet at a port of rank 0's host (torchrun's and Slurm's variables, set by hand), among strangers and
# ranks of other jobs there.
. "$(dirname "$0")/support.inc"
trap 'rm -rf "$scratch"' EXIT
export COLL_LOG=error WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=9 COLL_CREATE_TIMEOUT_MS=20000

# job NAME RANK RANGE: a rank of a job that torchrun might have started.
job() {
  TORCHELASTIC_RUN_ID=$1 RANK=$2 COLL_PORT_RANGE=$3 "$rank" > "out.$1.$2" 2> "err.$1.$2"
}

# Two jobs at the same four ports (of the upper half of the range), and somebody else at the first of them, who says nothing.
mkfifo ports
python3 - > ports <<'END' &
import socket, sys
for base in range(20000, 32000, 13):
    try:
        sockets = [socket.socket() for _ in range(13)]
        for i, s in enumerate(sockets):
            s.bind(("", base + i))
    except OSError:
        continue
    first = sockets.pop(6)
    first.listen(8)
    for s in sockets:
        s.close()
    print(f"{base}-{base + 12}", flush=True)
    guests = [first.accept() for _ in range(100)]
END
stranger=$!
trap 'kill $stranger; rm -rf "$scratch"' EXIT
read -r range < ports || { echo "skipped: no free ports"; exit 77; }
for name in a b; do
  job $name 1 "$range" &
  eval "$name=$!"
done
for name in a b; do
  job $name 0 "$range" || fail "$name: $(cat err.$name.0)"
done
for name in a b; do
  eval "wait \$$name" || fail "$name: $(cat err.$name.1)"
  grep -q "1 of 2: ok" out.$name.1 || fail "$name: $(cat out.$name.1)"
done

# Nobody comes: both sides say where they waited.
export COLL_CREATE_TIMEOUT_MS=300
expect_failure "no rank 1" "1 of 2 ranks did not come to rank 0 in time: 1" env TORCHELASTIC_RUN_ID=d RANK=0 "$rank"
expect_failure "no rank 0" "rank 0 did not hand over the id in time" env TORCHELASTIC_RUN_ID=d RANK=1 "$rank"
# Another secret is another job.
export COLL_CREATE_TIMEOUT_MS=2000
TORCHELASTIC_RUN_ID=e RANK=0 COLL_SECRET=$(printf '%064d' 1) "$rank" 2> /dev/null &
expect_failure "another secret" "another job or program answers" \
  env TORCHELASTIC_RUN_ID=e RANK=1 COLL_SECRET="$(printf '%064d' 2)" "$rank"
wait $!
expect_failure "a small range" "with 8 ports or more" env COLL_PORT_RANGE=7000-7006 TORCHELASTIC_RUN_ID=d RANK=1 "$rank"
expect_failure "no rank" "this is rank -1 of 2" env TORCHELASTIC_RUN_ID=d RANK=x "$rank"
finish
