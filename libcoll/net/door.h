/*
 * door.h: lets in who proves to know the secret, and keeps next to nothing for all others.
 *
 * Anybody may connect to a port: thousands of connections that say nothing, or nonsense.
 *
 *   SYN --> kernel --> filter: does it begin as a hello? --> queue --> guests: handshake --> caller
 *                 \--> silent, nonsense: stays in the kernel, which forgets it after a minute
 *
 * The filter is a property of the listening socket. The kernel keeps no socket for a connection
 * until a packet has passed it. Only hellos with the tag of the secret pass, and only those of the
 * kind and to the rank that this door is for, so recorded ones of other doors do not. Exceptions
 * are doors that honest processes may dial by mistake and that should answer them: ranks and
 * newcomers that were given another secret dial who listens for them, and survivors dial the port
 * of a dead rank that another job uses now. There, all hellos with another tag pass as well, from
 * when the door is first served (those from before are sent again by the peer's kernel) until too
 * many have come. None of these can fill the queue before anybody looks.
 *
 * A guest whose hello does not have the right code (auth.h) is turned away at once. A code that was
 * received before means a replayed hello. The number of guests is bounded: those that are silent,
 * meant for another door, or not wanted any more are evicted to make room, oldest first.
 *
 * If accept() fails for lack of descriptors or memory, that is like bad weather: silent guests are
 * turned away, a spare descriptor is used up, and then connections wait in the kernel until it is
 * over.
 */
#ifndef COLLI_NET_DOOR_H
#define COLLI_NET_DOOR_H

#include "libcoll/base/log.h"
#include "libcoll/net/auth.h"
#include "libcoll/net/strangers.h"

#define COLLI_DOOR_GUESTS 16
#define COLLI_DOOR_HEARD  512 /* hellos that it remembers */

/* A connection in its handshake. */
typedef struct colli_guest {
  int fd;
  uint64_t since_ns;
  colli_addr from;
  bool noted; /* its hello is among those heard */
  colli_auth auth;
} colli_guest;

typedef struct colli_door {
  int listen_fd;  /* the caller's; -1: the door is closed */
  int epoll_fd;   /* wait for this one: readable when colli_door_next() has something to do */
  int spare_fd;   /* given up when descriptors run out; -1: used up */
  bool listening; /* epoll_fd watches listen_fd */
  bool served;    /* colli_door_next() was called */
  const uint8_t *secret; /* the caller's */
  colli_hello_kind kind; /* of the hellos that are meant for this door */
  int rank;              /* to which they are; -1: any */
  unsigned long answers; /* so many peers with another secret are told so; the owner may raise it */
  /* The caller's, from before the first colli_door_next(): */
  bool tls;                                                  /* COLL_TLS=1 */
  bool (*wanted)(const void *ctx, const colli_hello *hello); /* NULL: every hello is */
  const void *wanted_ctx;
  colli_log log;
  int sys_errno;             /* why nobody can be let in; 0: all is well */
  bool in_handshake;         /* that errno is of a handshake, not of accept() */
  uint64_t failing_since_ns; /* when that began */
  uint64_t failed_ns;        /* when it was last so */
  bool logged;               /* that it is so */
  colli_strangers strangers;
  unsigned long impostors; /* said a hello without the secret */
  unsigned long nheard;
  uint64_t heard[COLLI_DOOR_HEARD]; /* codes of hellos, the last ones */
  int count;
  colli_guest guests[COLLI_DOOR_GUESTS]; /* oldest first */
} colli_door;

#define COLLI_DOOR_CLOSED ((colli_door){.listen_fd = -1, .epoll_fd = -1, .spare_fd = -1})

/* colli_net_listen() on a socket that filters, for a secret (NULL: it is not known yet). */
coll_status colli_door_listen(const char *port_range, const uint8_t secret[COLL_SECRET_BYTES],
                              int *fd, uint16_t *port, coll_error *error);

/* Sets for which hellos a listening socket filters until a door is opened at it. */
void colli_door_expect(int listen_fd, const uint8_t secret[COLL_SECRET_BYTES],
                       colli_hello_kind kind);

/* Opens a door at a listening socket, for hellos of a kind to a rank (-1: any). If the kernel
 * cannot filter, guests with other hellos are admitted, too, but evicted first. The caller keeps
 * the socket and the secret until it has closed the door. 0, or the errno of epoll_create1() or
 * epoll_ctl(). */
int colli_door_open(colli_door *door, int listen_fd, const uint8_t secret[COLL_SECRET_BYTES],
                    colli_hello_kind kind, int rank, const colli_log *log);

/* Accepts connections and advances their handshakes. True: *guest has proved that it knows the
 * secret; the caller now owns it and must answer it. Call until it returns false. */
bool colli_door_next(colli_door *door, colli_guest *guest);

/* When to call colli_door_next() even if epoll_fd is not readable; UINT64_MAX: never. */
uint64_t colli_door_wake_ns(const colli_door *door);

/* Why nobody can be let in, if it has been so for `ns`: an errno. Else 0. */
int colli_door_failure(const colli_door *door, uint64_t ns);

/* Closes the door and turns all guests away. Fine if it is closed. */
void colli_door_close(colli_door *door);

/* Says who else came since the door was opened, for the end of a message; "" if nobody did. Returns
 * text. */
const char *colli_door_strangers(const colli_door *door, char text[COLLI_STRANGERS_TEXT]);

#endif
