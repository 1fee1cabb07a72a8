/*
 * exchange.h: processes of one host give each other descriptors that nothing else can pass, such as
 * those of GPU memory. Each may give and take at the same time:
 *
 *   taker                              giver
 *   connect, same user?           ->   same user?
 *                 colli_auth, both ways
 *                               <-   bytes + descriptor    } at most COLLI_EXCHANGE_AHEAD more
 *   one byte: taken               ->                       } than were taken
 *
 * What a descriptor stands for has a length. A taker knows the sum, and closes when it has all. Who
 * gives up closes before that, and tells the others why in its own way. Poll-driven: nothing
 * blocks, and the caller has the deadline.
 */
#ifndef COLLI_NET_EXCHANGE_H
#define COLLI_NET_EXCHANGE_H

#include "libcoll/net/auth.h"
#include "libcoll/net/unix_socket.h"

#define COLLI_EXCHANGE_AHEAD 8 /* the kernel counts descriptors on their way as open files */

/* Where a giver listens. It travels as it is. */
typedef struct colli_exchange_place {
  uint32_t name_bytes; /* 0: nowhere */
  char name[COLLI_UNIX_NAME];
} colli_exchange_place;

/* Who takes part. */
typedef struct colli_exchange_party {
  const uint8_t *secret; /* the caller's */
  uint64_t comm_id;
  uint64_t word; /* which exchange of this communicator */
  int rank, nranks;
} colli_exchange_party;

/* What the caller does. */
typedef struct colli_exchange_calls {
  void *context;
  /* Makes a descriptor of what comes behind the first `given` bytes, and says how long that is. It
   * is closed when it is sent. -1: that is impossible, and this rank gives up. */
  int (*give)(void *context, uint64_t given, uint64_t *bytes);
  /* Uses a descriptor of a peer, which is closed then. False: this rank gives up. */
  bool (*take)(void *context, int peer, int fd, uint64_t bytes);
} colli_exchange_calls;

typedef enum colli_exchange_stage {
  COLLI_EXCHANGE_FREE,
  COLLI_EXCHANGE_DIAL,
  COLLI_EXCHANGE_AUTH,
  COLLI_EXCHANGE_OPEN
} colli_exchange_stage;

/* A connection. */
typedef struct colli_exchange_link {
  colli_exchange_stage stage;
  int fd;
  int peer;           /* incoming: -1 until it has proved who it is */
  uint64_t done, all; /* bytes given or taken so far, of how many */
  unsigned ahead;     /* given, and not yet taken */
  uint64_t since_ns;  /* incoming: when it was accepted */
  colli_auth auth;
  colli_exchange_place place; /* outgoing */
} colli_exchange_link;

typedef struct colli_exchange {
  colli_exchange_party party;
  colli_exchange_calls calls;
  uint64_t own;                /* bytes that this rank gives */
  int listen_fd;               /* -1: it gives nothing */
  int nguests;                 /* room for so many */
  colli_exchange_link *takes;  /* nranks: from each rank */
  colli_exchange_link *guests; /* nguests */
  coll_error *error;           /* the caller's: why it gave up */
} colli_exchange;

/*
 * Begins to give `own` bytes to whoever takes them, if not 0, and says where. *error gets the
 * reason when this rank gives up. Errors: NO_MEMORY, SYSTEM.
 */
coll_status colli_exchange_open(colli_exchange *exchange, const colli_exchange_party *party,
                                const colli_exchange_calls *calls, uint64_t own,
                                colli_exchange_place *place, coll_error *error);

/* Begins to take `bytes` bytes from a peer. */
void colli_exchange_take(colli_exchange *exchange, int peer, const colli_exchange_place *place,
                         uint64_t bytes);

/* Advances everything; whether anything moved. Once this rank has given up, it still gives. */
bool colli_exchange_poll(colli_exchange *exchange);

/* The first peer from which not all was taken; -1: there is none. */
int colli_exchange_lacks(const colli_exchange *exchange);

/* Ends it. Fine if it was not opened, or failed to. */
void colli_exchange_close(colli_exchange *exchange);

#endif
