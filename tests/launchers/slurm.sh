#!/bin/sh
# Slurm's srun --mpi=pmix on four nodes (daemons on this host): ranks find each other with nothing exported.
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
PartitionName=all Nodes=n[1-4] Default=YES
END
for i in 1 2 3 4; do
  mkdir "spool.n$i" "tmp.n$i"
  echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((first + i)) CPUs=4"
done >> slurm.conf
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
expect_ranks "four nodes" 4 srun --mpi=pmix -N 4 -n 4 "$rank"
expect_ranks "eight ranks on two nodes" 8 srun --mpi=pmix -N 2 -n 8 "$rank"
expect_ranks "a forked child" 2 srun --mpi=pmix -N 2 -n 2 "$rank" fork
finish
