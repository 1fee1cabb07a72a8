/* listeners.c: the listeners of ids that this process has made and not used yet. */
#include "libcoll/wireup/listeners.h"

#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/base/queue.h"

typedef struct listener {
  LIST_ENTRY(listener) link;
  uint64_t comm_id;
  uint32_t check;
  pid_t pid; /* a forked child finds its parent's, whose descriptors are closed in it */
  int fd;
} listener;

/* Of the whole process, as the lists of fork.c; its lock protects it. */
static LIST_HEAD(, listener) listeners;

bool colli_listener_keep(uint64_t comm_id, uint32_t check, int fd) {
  listener *l = malloc(sizeof(*l));
  if (!l)
    return false;
  *l = (listener){.comm_id = comm_id, .check = check, .pid = getpid(), .fd = fd};
  colli_fork_hold();
  LIST_INSERT_HEAD(&listeners, l, link);
  colli_fork_release();
  return true;
}

int colli_listener_take(uint64_t comm_id, uint32_t check) {
  const pid_t pid = getpid();
  listener *l;
  colli_fork_hold();
  LIST_FOREACH(l, &listeners, link)
    if (l->comm_id == comm_id && l->check == check && l->pid == pid)
      break;
  if (l)
    LIST_REMOVE(l, link);
  colli_fork_release();
  const int fd = l ? l->fd : -1;
  free(l);
  return fd;
}
