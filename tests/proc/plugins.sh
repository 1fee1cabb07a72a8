#!/bin/sh
# Transport plug-ins: one is built out of tree, with only the installed headers, and carries data between
# processes; others are refused with a reason; ranks must have the same ones; set-uid programs load none.
. "$(dirname "$0")/../collrun/support.inc"
perf=$BUILD/bin/coll_perf
cc=${CC:-cc}
source=$SOURCE/tests/plugins/transport_file.c
cmake --install "$BUILD" --prefix "$scratch/prefix" > install.log || fail "$(cat install.log)"

# build FILE SOURCE: compiles a plug-in.
build() {
  "$cc" -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -shared -fPIC -Iprefix/include -o "$1" "$2" || fail "$2 does not compile"
}

# change NAME SED_SCRIPT: builds NAME.so from the changed source, which must differ.
change() {
  sed "$2" "$source" > "$1.c"
  cmp -s "$source" "$1.c" && fail "$1: nothing was changed"
  build "$1.so" "$1.c"
}

# run ARGUMENTS...: verified all-reduces on three ranks; COLL_ variables come from the caller.
run() {
  "$collrun" --timeout 60 -n 3 "$perf" allreduce -b 4,8K,1M -n 5 "$@" > out 2> err
}

# refuse NAME PATH TEXT: creation fails, and says which file and why.
refuse() {
  COLL_TRANSPORT_PATH=$2 run && fail "$1: took $2"
  expect_in "$1" "INVALID_USAGE" err
  expect_in "$1: which file" "COLL_TRANSPORT_PATH=$2: " err
  expect_in "$1: why" "$3" err
}

build file.so "$source"
change other 's/\.name = "file"/.name = "other"/'
export COLL_TRANSPORT_PATH="$scratch/file.so:$scratch/other.so"

# It moves the data, alone and together with others; the tools show it.
for algo in ring recdbl dbtree; do
  COLL_TRANSPORT=file run --algo $algo || fail "$algo over the plug-in: $(cat err)"
  expect_in "$algo: results" "# Out of bounds values : 0 OK" out
done
COLL_TRANSPORT=file COLL_FAULT=seed=3,again=20,pending=20 run || fail "with faults: $(cat err)"
expect_in "faults: results" "# Out of bounds values : 0 OK" out
# show CHOICE NAME: with COLL_TRANSPORT=CHOICE all pairs use the transport NAME.
show() {
  COLL_TRANSPORT=$1 "$collrun" --timeout 60 -n 3 "$BUILD/bin/coll_topo" > out 2> err || fail "coll_topo '$1': $(cat err)"
  expect_in "choice '$1'" "$2, 6 links (the first from 0 to 1): " out
}
show "" shm # plug-ins come last,
show shm,tcp shm
show tcp,shm shm
show file,tcp file # unless they are named
show tcp,file tcp
show other,file,shm other
"$BUILD/bin/coll_explain" allreduce -n 3 -b 1M --transport file > out 2> err || fail "coll_explain: $(cat err)"
expect_in "coll_explain" "over file" out
"$BUILD/bin/coll_explain" allreduce -n 3 -b 1M --transport nothing > out 2> err && fail "coll_explain took 'nothing'"
expect_in "coll_explain: unknown" "not 'nothing'" err
COLL_TRANSPORT=nothing run && fail "took COLL_TRANSPORT=nothing"
expect_in "unknown transport" "shm,verbs,tcp,file,other" err

# Libraries that are not transports.
change abi 's/COLL_TRANSPORT_ABI,/COLL_TRANSPORT_ABI + 1,/'
change short 's/\.size = sizeof(coll_transport_ops)/.size = offsetof(coll_transport_ops, wake)/'
change lacks '/\.slot_peek = /d'
change half 's/^static const coll_transport_ops table/static void half(coll_endpoint *ep, uint32_t region) {\
  (void)(ep \&\& region);\
}\
&/; s/\.wake = file_nothing,/& .region_remove = half,/'
change unfinished 's/^static const coll_transport_ops table/static int unfinished(coll_endpoint *ep, uint32_t region, size_t *offset, size_t *bytes) {\
  return ep \&\& region \&\& offset \&\& bytes;\
}\
&/; s/\.wake = file_nothing,/& .unfinished_work = unfinished,/'
change named 's/\.name = "file"/.name = "no,name"/'
change taken 's/\.name = "file"/.name = "tcp"/'
change null 's/return &table;/return table.size ? NULL : \&table;/'
change symbol 's/coll_transport_plugin(void) {/another_function(void) {/; s/coll_transport_plugin(), peer/NULL, peer/'
echo "no library" > text.so
refuse "wrong ABI" "$scratch/abi.so" "its abi is 3, not 2"
refuse "short table" "$scratch/short.so" "its table's size is"
refuse "missing function" "$scratch/lacks.so" "transport 'file' has no slot_peek()"
refuse "half a group" "$scratch/half.so" "only one of region_add() and region_remove()"
refuse "shared work without offers" "$scratch/unfinished.so" "only one of offer_work() and unfinished_work()"
refuse "bad name" "$scratch/named.so" "its name 'no,name' is not"
refuse "name taken" "$scratch/taken.so" "its name, 'tcp', belongs to another transport already"
refuse "no table" "$scratch/null.so" "returned NULL"
refuse "missing symbol" "$scratch/symbol.so" "exports no coll_transport_plugin"
refuse "missing file" "$scratch/nowhere.so" "cannot be loaded"
refuse "no library" "$scratch/text.so" "cannot be loaded"
mkfifo fifo.so # a dynamic loader that opened it would wait
refuse "FIFO" "$scratch/fifo.so" "not a regular file"
COLL_TRANSPORT_PATH="$scratch/file.so:$scratch/file.so" run && fail "took one plug-in twice"
expect_in "twice" "its name, 'file', belongs to another transport already" err

# Ranks with different plug-ins: the message names both.
OTHER=$scratch/file.so "$collrun" --timeout 60 -n 3 sh -c \
  '[ "$COLL_RANK" != 2 ] || export COLL_TRANSPORT_PATH="$OTHER"; exec "$0" allreduce -b 4' "$perf" > out 2> err \
  && fail "took different lists"
expect_in "different lists" "MISMATCH" err
expect_in "different lists: one" "has the transports shm,verbs,tcp,file,other" err
expect_in "different lists: other" "has shm,verbs,tcp,file; set COLL_TRANSPORT_PATH" err

# A set-uid program must not run code that its caller chose. /tmp may be mounted with nosuid.
chmod 755 "$scratch" && cp "$perf" perf && cp "$(command -v id)" id && chmod u+s perf id
as_nobody() {
  setpriv --reuid=65534 --regid=65534 --clear-groups -- "$@"
}
if [ "$(id -u)" != 0 ] || ! as_nobody true 2> /dev/null; then
  echo "not tested: set-uid programs, which need root and setpriv"
elif [ "$(as_nobody ./id -u)" != 0 ]; then
  echo "not tested: set-uid programs, which this file system does not allow"
else
  export COLL_TRANSPORT_PATH=/nowhere.so COLL_TUNER=/nowhere.so
  as_nobody "$perf" allreduce -b 4 -t 2 > out 2> err && fail "took plug-ins that are not there"
  expect_in "not set-uid" "COLL_TRANSPORT_PATH=/nowhere.so: cannot be loaded" err
  export COLL_CALIBRATION=/nowhere COLL_SECRET_FILE=/nowhere COLL_TRACE=/nowhere/trace COLL_PROFILER=/nowhere.so
  export COLL_LEVELS=file:/nowhere
  as_nobody ./perf allreduce -b 4 -t 2 > out 2> err || fail "set-uid: $(cat err)"
  expect "set-uid: said once" 1 "$(grep -c "more rights than its caller" err)"
  for name in COLL_TRANSPORT_PATH COLL_TUNER COLL_CALIBRATION COLL_SECRET_FILE COLL_TRACE COLL_PROFILER COLL_LEVELS; do
    expect_in "set-uid: $name" "$name" err
  done
  unset COLL_TRANSPORT_PATH COLL_TUNER COLL_CALIBRATION COLL_SECRET_FILE COLL_TRACE COLL_PROFILER COLL_LEVELS
  # Nor read what the caller could not read.
  secret=$(printf '%064d' 1)
  echo "$secret" > private && chmod 600 private
  COLL_RANK=1 COLL_NRANKS=2 COLL_ROOT=127.0.0.1:9 COLL_SECRET_FILE=$scratch/private as_nobody ./perf allreduce -b 4 \
    > out 2> err && fail "set-uid: created a communicator alone"
  expect_in "set-uid: private file" "there is no secret" err
fi
finish
