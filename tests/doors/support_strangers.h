/* support_strangers.h: processes that connect to the ports of a job and do not belong to it. */
#ifndef TESTS_SUPPORT_STRANGERS_H
#define TESTS_SUPPORT_STRANGERS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What strangers say once they are connected. */
typedef enum stranger_kind {
  STRANGERS_SILENT,
  STRANGERS_GARBAGE,       /* 200 bytes of nonsense */
  STRANGERS_HALF_HELLO,    /* the first bytes of a hello, and no more */
  STRANGERS_FALSE_HELLO,   /* a whole one, but without the secret */
  STRANGERS_REPLAY,        /* some of many that they have recorded on connections of the job */
  STRANGERS_REPLAY_ROUTED, /* the same, of ranks beyond a router */
  STRANGER_KINDS
} stranger_kind;

/* Messages that strangers send, one after the other. */
typedef struct speeches {
  int count;
  size_t bytes; /* of each */
  uint8_t text[128][200];
} speeches;

/* A port, and the job whose hellos to it have been recorded. */
typedef struct speech_target {
  uint16_t port;
  const uint8_t *secret;
  uint64_t comm_id;
  int nranks;
} speech_target;

/* The messages of a kind. */
void speeches_write(speeches *words, stranger_kind kind, const speech_target *target);

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
strangers strangers_come(uint16_t port, int count, const speeches *words);

/* They close their connections and end. */
void strangers_leave(strangers *who);

#endif
