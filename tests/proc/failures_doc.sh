#!/bin/bash
# The program in docs/failures.md, unchanged, survives the death of a rank.
. "$SOURCE/tests/collrun/support.inc"

awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$SOURCE/docs/failures.md" >program.c
grep -q coll_comm_shrink program.c || fail "docs/failures.md has no program"
sanitizers=$(sed -n 's/^COLL_SANITIZE:[A-Z]*=//p' "$BUILD/CMakeCache.txt")
cc=$(sed -n 's/^CMAKE_C_COMPILER:[A-Z]*=//p' "$BUILD/CMakeCache.txt")
"$cc" -Wall -Wextra -Werror ${sanitizers:+-fsanitize=$sanitizers} -I "$SOURCE/libcoll/include" \
  program.c -L "$BUILD" -lcoll -o program || fail "the program does not compile"

for transport in shm tcp; do
  COLL_LOG=none COLL_TRANSPORT=$transport LD_LIBRARY_PATH=$BUILD \
    "$collrun" --keep-going -n 4 ./program >out 2>err
  expect "$transport: status" 0 $?
  sort out >sorted
  printf 'rank %s of 3; the sum is 3\n' '0 is now 0' '2 is now 1' '3 is now 2' | diff - sorted ||
    fail "$transport: $(cat err)"
done
finish
