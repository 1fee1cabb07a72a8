/*
 * ctrl.h: control links. Between processes they are the authenticated sockets that bootstrap made
 * (binary tree plus ring neighbours), two for a link between hosts that share two networks; between
 * ranks of one process, mailboxes. They carry a few small messages: who is lost, who waits for
 * whom. Messages of one link arrive in order, and a link never blocks.
 */
#ifndef COLLI_WIREUP_CTRL_H
#define COLLI_WIREUP_CTRL_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "libcoll/base/log.h"

typedef enum colli_ctrl_kind {
  COLLI_CTRL_FAILED = 1, /* the communicator is revoked; `error` says why. peer not -1: that rank is
                            lost, and all communicators that it is in are revoked */
  COLLI_CTRL_WAITING = 2, /* origin is in the operation of `sequence` and `signature`, and waits for
                             `peer` and `more` */
  COLLI_CTRL_GOODBYE = 3, /* the sender leaves as planned */
  COLLI_CTRL_ABSENT = 4,  /* answers WAITING of `peer`: rank more[0], for which it waits, does not
                             have this communicator (any more), or has left altogether */
  COLLI_CTRL_ANSWER = 5,  /* origin, for which others wait, has entered `sequence` collectives, and
                             finished `signature` last; peer not -1: that rank has, as origin sees */
  COLLI_CTRL_BEAT = 6,    /* asks the neighbour's kernel for an answer; links drop it */
  COLLI_CTRL_AFFECTED = 7, /* the communicator has failed, and origin's caller has learned it, or is
                              about to; `error` and `root` say why */
  COLLI_CTRL_ABORTED = 8,  /* shrink or agreement `sequence` of the communicator is over, because
                              coll_comm_abort() was called on rank `peer` meanwhile */
  COLLI_CTRL_KNOCK = 9,    /* asks `peer` to connect with origin; passed on to that rank only */
  COLLI_CTRL_SHORT = 10,   /* in shrink or agreement `sequence` of the communicator, rank `peer` ran
                              short of descriptors or memory: `error` */
  COLLI_CTRL_SPARE = 11,   /* asks the neighbour where it listens for line `pending` of the link, or
                              answers: at port `sequence`; links keep it for themselves */
  COLLI_CTRL_LAST_KIND = COLLI_CTRL_SPARE
} colli_ctrl_kind;

#define COLLI_CTRL_MORE 9
#define COLLI_NAME      64 /* bytes of a communicator's name, with the end */

/* Ranks are those of the base communicator, except for those that `error` names. */
typedef struct colli_ctrl_msg {
  uint32_t kind;
  int32_t origin;  /* the rank that made the message; ranks forward messages of others */
  uint64_t serial; /* counts the origin's messages, so that each is handled once */
  uint64_t uid;    /* the communicator to which it refers; 0: the base */
  int32_t peer;    /* WAITING: the rank that origin waits for, or -1 */
  int32_t nmore;
  int32_t more[COLLI_CTRL_MORE]; /* WAITING: further ranks that origin waits for; ABSENT: one */
  int32_t root; /* FAILED, AFFECTED: the rank to blame, maybe in no communicator of origin's; -1:
                   no single one */
  uint32_t again_ms; /* WAITING: when origin will say so again, if it still does */
  uint32_t once;     /* WAITING: goes over the links of the tree alone, once to each rank */
  uint32_t ask;      /* WAITING: all who wait somewhere shall say so now */
  uint32_t inside;   /* WAITING: a thread of origin is in a call there */
  uint32_t silent;   /* FAILED with a peer: nothing is heard from it; 0: its process is gone */
  uint64_t sequence;
  uint64_t signature[3]; /* the tag of the operation that origin is in, or finished last */
  uint32_t since_ms;     /* how long ago it last moved, or was finished */
  uint32_t ended;        /* ANSWER: that rank has finished an operation */
  uint32_t state;        /* ANSWER with a peer: what its process does, as in proc(5) */
  uint32_t pending;      /* ANSWER with a peer: its operations in flight */
  char name[COLLI_NAME]; /* WAITING, AFFECTED: of the communicator */
  coll_error error; /* FAILED, AFFECTED, SHORT; WAITING: `message` describes the operation, or is
                       empty if origin waits nowhere */
  uint64_t number; /* counts what goes over one link between processes, so that it is taken once; 0:
                      BEAT */
} colli_ctrl_msg;

typedef struct colli_ctrl colli_ctrl;

/* What colli_ctrl_poll() found. */
typedef enum colli_ctrl_event {
  COLLI_CTRL_NOTHING,
  COLLI_CTRL_MESSAGE, /* *msg is filled; *peer is the neighbour it came from */
  COLLI_CTRL_CLOSED,  /* *peer's kernel ended the link without a goodbye, so that process is gone;
                       *sys_errno says why, or is 0 */
  COLLI_CTRL_SILENT   /* *peer is silent; its process may be alive; *sys_errno says why */
} colli_ctrl_event;

/* Whether two ranks are parent and child in the tree that some of the links form. */
bool colli_ctrl_tree_joined(int a, int b);

/* The neighbour that is next on the way to another rank: that one itself, or along the tree. */
int colli_ctrl_toward(const colli_ctrl *ctrl, int rank);

/* The ranks to which this one has links. Fills neighbours (8 at most) and returns their number. */
int colli_ctrl_neighbours(const colli_ctrl *ctrl, int *neighbours);

/* Queues a copy of a message to a neighbour, or drops it if the link is closed. Sends what it
 * can. */
void colli_ctrl_send(colli_ctrl *ctrl, int neighbour, const colli_ctrl_msg *msg);

/* Returns the next event, and sends queued messages. Call until it returns NOTHING. */
colli_ctrl_event colli_ctrl_poll(colli_ctrl *ctrl, int *peer, colli_ctrl_msg *msg, int *sys_errno);

/* Whether a queued message still has to be sent; polling sends it. */
bool colli_ctrl_unsent(const colli_ctrl *ctrl);

/* A descriptor (epoll or eventfd) that is readable when there are events to poll, or -1. */
int colli_ctrl_fd(const colli_ctrl *ctrl);

/*
 * Sends queued messages for at most timeout_ms, and closes all links so that sent messages arrive:
 * it shuts them down and waits, within that time, until peers have acknowledged everything.
 */
void colli_ctrl_close(colli_ctrl *ctrl, int timeout_ms);

/*
 * Control for `nranks` ranks of one process: ctrls[r] is rank r's. Links form the same tree. With
 * events, colli_ctrl_fd() works, at the cost of a descriptor per rank; without (simulator) it
 * returns -1.
 */
coll_status colli_ctrl_create_local(colli_ctrl **ctrls, int nranks, bool events, coll_error *error);

#endif
