#!/bin/bash
# Completion in bash: options, words of an option, collectives, commands, and the options of a program behind collrun.
. "$SOURCE/tests/install/support.inc"
. "$SOURCE/libcoll/tools/completion.bash"
set +e +o pipefail # as in the shells that it is for
PATH=$BUILD/bin:$PATH

# completes "WORDS OF A LINE" WANTED...: what the last word becomes, with all WANTED among it.
completes() {
  local wanted
  # shellcheck disable=SC2206
  COMP_WORDS=($1)
  [[ $1 != *" " ]] || COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _coll_complete "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
  shift
  for wanted in "$@"; do
    [[ " ${COMPREPLY[*]} " == *" $wanted "* ]] || {
      echo "line ${BASH_LINENO[0]}: no '$wanted' among: ${COMPREPLY[*]}"
      exit 1
    }
  done
}

# only N: so many possibilities were found.
only() {
  [ ${#COMPREPLY[@]} -eq "$1" ] || {
    echo "line ${BASH_LINENO[0]}: not $1 possibilities: ${COMPREPLY[*]}"
    exit 1
  }
}
completes "collrun --keep" --keep-going
only 1
completes "collrun --bind " core numa none
only 3
completes "collrun -n 4 coll_per" coll_perf
completes "collrun -n 4 coll_perf allred" allreduce
only 1
completes "collrun -n 4 coll_perf --perc" --percentiles
completes "coll_perf " allreduce reduce_scatterv sendrecv reduce_broadcast
completes "coll_perf allreduce --max" --maxbytes
only 1
completes "coll_explain all" allreduce allgather alltoall
completes "collctl " list show dump
completes "collctl --j" --json
completes "coll_train --optimizer " sgd adam
only 2
completes "coll_topo --xml $SOURCE/LICEN" "$SOURCE/LICENSE"
only 1
