#!/bin/sh
# Slurm's srun on four nodes (daemons on this host): ranks find each other with nothing exported, through PMIx or
# PMI-1.
# Its names of nodes are in a private /etc/hosts.
[ -n "${PRIVATE:-}" ] || PRIVATE=1 exec unshare -m "$0"
. "$(dirname "$0")/support.inc"
for program in munged slurmctld slurmd srun; do
  PATH=$PATH:/usr/sbin command -v $program > /dev/null || { echo "skipped: no $program (Debian: slurm-wlm, munge)"; exit 77; }
done
[ "$(id -u)" = 0 ] || { echo "skipped: Slurm's daemons need root"; exit 77; }
PATH=$PATH:/usr/sbin
host=$(hostname -s)

stop() {
  # shellcheck disable=SC2086
  kill $daemons 2> /dev/null
  wait
  [ "$failures" -eq 0 ] || tail -n 5 "$scratch"/*.log
  rm -rf "$scratch"
}
daemons=
trap stop EXIT
trap 'exit 1' HUP INT TERM PIPE

# Five ports that nobody uses now.
first=$(python3 - <<'END'
import socket
for base in range(21000, 30000, 7):
    try:
        sockets = [socket.socket() for _ in range(5)]
        for i, s in enumerate(sockets):
            s.bind(("", base + i))
        print(base)
        break
    except OSError:
        pass
END
)
chmod 755 "$scratch"
mkdir state
cat > slurm.conf <<END
ClusterName=lab
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$first
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge.sock
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool.%n
SlurmctldPidFile=$scratch/ctld.pid
SlurmdPidFile=$scratch/d.%n.pid
SlurmctldLogFile=$scratch/ctld.log
SlurmdLogFile=$scratch/d.%n.log
TmpFS=$scratch/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
TopologyPlugin=topology/tree
PartitionName=all Nodes=n[1-4] Default=YES
END
for i in 1 2 3 4; do
  mkdir "spool.n$i" "tmp.n$i"
  echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((first + i)) CPUs=4"
done >> slurm.conf
cat > topology.conf <<END
SwitchName=s0 Switches=s[1-2]
SwitchName=s1 Nodes=n[1-2]
SwitchName=s2 Nodes=n[3-4]
END
export SLURM_CONF=$scratch/slurm.conf
head -c 64 /dev/urandom > munge.key
chmod 400 munge.key
# daemon COMMAND...: starts it as a child, so that this script can wait for its end.
daemon() {
  "$@" > "$1.log" 2>&1 &
  daemons="$daemons $!"
}
daemon munged -F --force --key-file="$scratch/munge.key" --socket="$scratch/munge.sock" \
  --pid-file="$scratch/munge.pid" --log-file="$scratch/munge.log" --seed-file="$scratch/munge.seed"
daemon slurmctld -D -c
for i in 1 2 3 4; do daemon slurmd -D -N "n$i" -c; done

# srun waits for the daemons.
ways=pmi2
if has_pmix; then ways="pmix pmi2"; fi
for way in $ways; do
  expect_ranks "four nodes, $way" 4 srun --mpi="$way" -N 4 -n 4 "$rank"
  expect_ranks "eight ranks on two nodes, $way" 8 srun --mpi="$way" -N 2 -n 8 "$rank"
  expect_ranks "a forked child, $way" 2 srun --mpi="$way" -N 2 -n 2 "$rank" fork
done

# Without either, ranks meet on the first node, and munge seals the secret.
{ cat /etc/hosts; echo "127.0.0.1 n1 n2 n3 n4"; } > hosts
mount --bind hosts /etc/hosts || { echo "skipped: no right to mount"; exit 77; }
export COLL_MUNGE_SOCKET="$scratch/munge.sock"
expect_ranks "four nodes, none" 4 srun --mpi=none -N 4 -n 4 "$rank"
expect_ranks "one node, none" 3 srun --mpi=none -N 1 -n 3 "$rank"
# Slurm says which nodes share a switch. All are this host, so each gets an id of its own.
cat > topo.sh <<'END'
COLL_HOST_ID=$SLURM_NODEID exec "$@"
END
for pair in 0,2:"they are on two hosts, both in s0" 0,1:"they are on two hosts, both in s0/s1"; do
  timeout 60 srun --mpi=none -N 4 -n 4 sh topo.sh "$BUILD/bin/coll_topo" --explain "${pair%%:*}" > out 2> err ||
    fail "levels: status $?: $(cat err)"
  grep -qx "${pair#*:}" out || fail "levels of ${pair%%:*}: $(cat out)"
done
# Two steps of one job at once, on the same nodes.
cat > steps.sh <<'END'
for step in 1 2; do srun --mpi=none --overlap -N 2 -n 4 "$1" & done
wait
END
timeout 120 salloc -Q -N 2 -n 4 sh steps.sh "$rank" > out 2> err || fail "two steps: status $?: $(cat err)"
[ "$(grep -c 'of 4: ok' out)" = 8 ] || fail "two steps: $(cat out err)"

# Two jobs of an array at once, on the same nodes: neither starts its ranks before it has heard of the other.
mkfifo job.1 job.2
cat > array.sh <<'END'
#!/bin/sh
cd "$1" || exit 1
echo > "job.$((3 - SLURM_ARRAY_TASK_ID))" &
read -r _ < "job.$SLURM_ARRAY_TASK_ID"
exec srun --mpi="$2" -N 2 -n 4 "$3"
END
for way in $ways none; do
  timeout 120 sbatch -Q --wait --array=1-2 -N 2 -n 4 --mem=1 -o "$scratch/array.%a.out" array.sh "$scratch" "$way" "$rank" \
    > out 2> err || fail "a job array, $way: status $?: $(cat out err array.*.out)"
  for job in 1 2; do
    [ "$(grep -c 'of 4: ok' array.$job.out)" = 4 ] || fail "a job array, $way, job $job: $(cat out err array.$job.out)"
  done
done

# With --no-kill a step outlives a rank that is killed, and its ranks go on. They write into the pipe themselves, because
# srun loses what comes shortly before the step ends.
mkfifo lines
for way in $ways none; do
  timeout 120 srun --mpi="$way" --no-kill --kill-on-bad-exit=0 -N 4 -n 4 \
    sh -c 'exec "$0" > "$1"' "$BUILD/tests/hosts_survivor" "$scratch/lines" 2> err &
  step=$!
  exec 3< lines
  running=0
  while [ $running -lt 4 ] && read -r line <&3; do
    [ "$line" != running ] || running=$((running + 1))
  done
  for pid in $(pgrep -f "^$BUILD/tests/hosts_survivor"); do
    if grep -qz '^SLURM_PROCID=2$' "/proc/$pid/environ"; then kill -9 "$pid"; fi
  done
  cat <&3 > out
  wait $step
  [ "$(grep -c 'continues: 3 ranks' out)" = 3 ] || fail "a killed rank, $way: $(cat out err)"
done

# No munge: the error says what to export, and that is enough.
COLL_CREATE_TIMEOUT_MS=5000 COLL_MUNGE_SOCKET="$scratch/none.sock" expect_failure "no munge" "export COLL_SECRET" srun --mpi=none -N 2 -n 2 "$rank"
COLL_SECRET=$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n') COLL_MUNGE_SOCKET="$scratch/none.sock" \
  expect_ranks "COLL_SECRET" 2 srun --mpi=none -N 2 -n 2 "$rank"
finish
