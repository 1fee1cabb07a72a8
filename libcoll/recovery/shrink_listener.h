/* shrink_listener.h: a door's insides. */
#ifndef COLLI_RECOVERY_SHRINK_LISTENER_H
#define COLLI_RECOVERY_SHRINK_LISTENER_H

#include <stdatomic.h>

#include "libcoll/recovery/shrink.h"

/* The listener of a process, and the secret that all who come to it must know: those of the
 * communicator that the others were made from. */
struct colli_shrink_listener {
  atomic_int refs;
  int listen_fd;
  uint8_t secret[COLL_SECRET_BYTES];
};

#endif
