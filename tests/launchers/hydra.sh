#!/bin/sh
# MPICH's mpiexec (Hydra): ranks find each other with nothing exported, through PMI-1.
. "$(dirname "$0")/support.inc"
trap 'rm -rf "$scratch"' EXIT
command -v mpiexec.hydra > /dev/null || { echo "skipped: no mpiexec.hydra (Debian: mpich)"; exit 77; }

for way in "" -pmi-port; do
  # shellcheck disable=SC2086
  {
    expect_ranks "four ranks $way" 4 mpiexec.hydra $way -n 4 "$rank"
    expect_ranks "one rank $way" 1 mpiexec.hydra $way -n 1 "$rank"
    expect_ranks "a forked child $way" 2 mpiexec.hydra $way -n 2 "$rank" fork
    expect_ranks "two programs $way" 3 mpiexec.hydra $way -n 1 "$rank" : -n 2 "$rank"
  }
done
# Two proxies, as on two hosts; and more than check in at one rank.
expect_ranks "two hosts" 4 mpiexec.hydra -launcher fork -hosts 127.0.0.1:2,127.0.0.2:2 -n 4 "$rank"
expect_ranks "twenty ranks" 20 mpiexec.hydra -launcher fork -hosts 127.0.0.1:10,127.0.0.2:10 -n 20 "$rank"

# Rank 0 never shares an id. It waits for the others to give up, and they say what they waited for.
mkfifo gone
cat > silent.sh <<'END'
[ "$PMI_RANK" != 0 ] || exec cat gone
"$1"
status=$?
echo > gone
exit $status
END
COLL_CREATE_TIMEOUT_MS=1000 expect_failure "no rank 0" "the launcher (PMI-1) took too long" \
  mpiexec.hydra -n 2 sh silent.sh "$rank"

# Rank 0 cannot listen: the others learn that at once.
cat > deaf.sh <<'END'
[ "$PMI_RANK" != 0 ] || export COLL_TCP_IFNAME=none0
exec "$1"
END
expect_failure "a deaf rank 0" "rank 0 failed; see its error" mpiexec.hydra -n 3 sh deaf.sh "$rank"

# A program that uses MPI as well.
mpi=$(ldconfig -p | sed -n 's/.*libmpich\.so\.12 .*=> //p' | head -n 1)
if [ -n "$mpi" ] && ! ldd "$rank" | grep -q libasan; then
  expect_failure "MPI" "this program also uses MPI" mpiexec.hydra -n 2 env LD_PRELOAD="$mpi" "$rank"
  expect_ranks "MPI, one rank" 1 mpiexec.hydra -n 1 env LD_PRELOAD="$mpi" "$rank"
fi

# The variables come first.
expect_failure "COLL_ROOT" "there is no secret" env COLL_ROOT=127.0.0.1:29511 mpiexec.hydra -n 2 "$rank"
finish
