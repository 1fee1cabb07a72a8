/* shrink_short.c: shortages of descriptors and memory in a shrink that may pass. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "libcoll/recovery/shrink_internal.h"

#define TRIES    100u /* again, in one shrink */
#define PAUSE_MS 10   /* before each */

bool shrink_try_again(shrink *s, int sys_errno) {
  if (!colli_errno_is_shortage(sys_errno))
    return false;
  if (s->tries >= TRIES) {
    boot_note_errno(&s->b, sys_errno, true);
    return false;
  }
  s->tries++;
  poll(NULL, 0, PAUSE_MS);
  return true;
}

void *shrink_alloc(shrink *s, size_t bytes) {
  void *memory;
  do
    memory = calloc(1, bytes);
  while (!memory && shrink_try_again(s, ENOMEM));
  return memory;
}
