/* copy.h: copies of a few bytes without a call, for messages that are sent by the million. */
#ifndef COLLI_BASE_COPY_H
#define COLLI_BASE_COPY_H

#include <stdint.h>
#include <string.h>

#include "coll/coll_transport.h"

#define COLLI_COPY_SMALL 32u

/* Copies at most COLLI_COPY_SMALL bytes. */
static inline void colli_copy_small(void *to, const void *from, size_t bytes) {
  uint8_t *t = to;
  const uint8_t *f = from;
  if (bytes >= 16) {
    memcpy(t, f, 16);
    memcpy(t + bytes - 16, f + bytes - 16, 16);
  } else if (bytes >= 8) {
    memcpy(t, f, 8);
    memcpy(t + bytes - 8, f + bytes - 8, 8);
  } else if (bytes >= 4) {
    memcpy(t, f, 4);
    memcpy(t + bytes - 4, f + bytes - 4, 4);
  } else {
    for (size_t i = 0; i < bytes; i++)
      t[i] = f[i];
  }
}

/* Copies any number of bytes; with 0, both pointers may be NULL. */
static inline void colli_copy(void *to, const void *from, size_t bytes) {
  if (__builtin_expect(bytes <= COLLI_COPY_SMALL, 1))
    colli_copy_small(to, from, bytes);
  else
    memcpy(to, from, bytes);
}

/* Copies a tag that may just have been made. A copy of 16 bytes at a time would have to wait until
 * its words, and all that was written before them, have left the processor's store buffer. */
static inline void colli_copy_tag(coll_tag *to, const coll_tag *from) {
  uint64_t first = from->word[0], second = from->word[1], third = from->word[2];
  __asm__("" : "+r"(first), "+r"(second), "+r"(third)); /* or compilers make it one copy */
  to->word[0] = first;
  to->word[1] = second;
  to->word[2] = third;
}

#endif
