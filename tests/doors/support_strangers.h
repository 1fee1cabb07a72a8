/* support_strangers.h: processes that connect to the ports of a job and do not belong to it. */
#ifndef TESTS_SUPPORT_STRANGERS_H
#define TESTS_SUPPORT_STRANGERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What strangers say once they are connected. */
typedef enum stranger_kind {
  STRANGERS_SILENT,
  STRANGERS_GARBAGE,    /* 200 bytes of nonsense */
  STRANGERS_HALF_HELLO, /* the first bytes of a hello, and no more */
  STRANGER_KINDS
} stranger_kind;

/* Some connections, and the process that holds them. */
typedef struct strangers {
  pid_t pid;
  int hold; /* they leave when this descriptor is closed */
} strangers;

/* The ports at which this process listens; how many. Without `filtered` the kernel hands over all
 * connections to them from now on. */
int listening_ports(uint16_t *ports, int max, bool filtered);

/* Connects `count` times to a port of this host, half of them from 127.0.0.2 and the others from
 * 127.0.0.3, and holds what is not closed at the other end. Returns once all have tried. */
strangers strangers_come(uint16_t port, int count, stranger_kind kind);

/* They close their connections and end. */
void strangers_leave(strangers *who);

#endif
