/* shrink_door.h: a door's insides. */
#ifndef COLLI_COMM_SHRINK_DOOR_H
#define COLLI_COMM_SHRINK_DOOR_H

#include <stdatomic.h>

#include "libcoll/comm/shrink.h"

/* The listener of a process, and the secret that all who come to it must know: those of the
 * communicator that the others were made from. */
struct colli_door {
  atomic_int refs;
  int listen_fd;
  uint8_t secret[COLL_SECRET_BYTES];
};

#endif
