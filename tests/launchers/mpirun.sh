#!/bin/sh
# Open MPI's mpirun: ranks find each other with nothing exported, through PMIx.
. "$(dirname "$0")/support.inc"
trap 'rm -rf "$scratch"' EXIT
has_pmix || { echo "skipped: this build has no PMIx (Debian: libpmix-dev)"; exit 77; }
command -v mpirun.openmpi > /dev/null || { echo "skipped: no Open MPI (Debian: openmpi-bin)"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# mpirun keeps a folder with a socket there, whose path must be short.
export TMPDIR=/tmp

expect_ranks "four ranks" 4 mpirun.openmpi --oversubscribe -n 4 "$rank"
expect_ranks "one rank" 1 mpirun.openmpi -n 1 "$rank"
# More than check in at one rank.
expect_ranks "twenty ranks" 20 mpirun.openmpi --oversubscribe -n 20 "$rank"
expect_ranks "a forked child" 2 mpirun.openmpi --oversubscribe -n 2 "$rank" fork
expect_ranks "two programs" 3 mpirun.openmpi --oversubscribe -n 1 "$rank" : -n 2 "$rank"

# Rank 0 never shares an id. It waits for the others to give up, and they say what they waited for.
mkfifo gone.1 gone.2
cat > silent.sh <<'END'
[ "$PMIX_RANK" != 0 ] || exec cat gone.1 gone.2
"$1"
status=$?
echo > "gone.$PMIX_RANK"
exit $status
END
COLL_CREATE_TIMEOUT_MS=1000 expect_failure "no rank 0" "waiting for all ranks of the launcher's job in PMIx" \
  mpirun.openmpi --oversubscribe -n 3 sh silent.sh "$rank"

# Rank 0 cannot listen: the others learn that at once.
cat > deaf.sh <<'END'
[ "$PMIX_RANK" != 0 ] || export COLL_TCP_IFNAME=none0
exec "$1"
END
expect_failure "a deaf rank 0" "rank 0 failed; see its error" mpirun.openmpi --oversubscribe -n 3 sh deaf.sh "$rank"

# Nor can a rank at which another one checks in, which learns it at once.
cat > deaf.sh <<'END'
case $PMIX_RANK in
18) COLL_TCP_IFNAME=none0 "$1"; read -r status < heard; exit "$status" ;;
19) "$1"; echo $? > heard; exit 1 ;;
*) exec "$1" ;;
esac
END
mkfifo heard
expect_failure "a deaf rank 18" "rank 18 failed; see its error" mpirun.openmpi --oversubscribe -n 20 sh deaf.sh "$rank"

# The variables come first.
expect_failure "COLL_ROOT" "there is no secret" env COLL_ROOT=127.0.0.1:29511 mpirun.openmpi --oversubscribe -n 2 -x COLL_ROOT "$rank"
finish
