/*
 * shrink_internal.h: the parts of coll_comm_shrink() and coll_comm_agree(). An agreement is a
 * shrink whose list comes with a word instead of a communicator.
 *
 * Between processes the survivors agree in rounds, each led by a coordinator: the lowest rank that
 * a rank does not know to be gone and that has not kept it waiting for too long (*skipped*).
 * Everybody dials its coordinator's shrink listener and keeps that connection until the end:
 *
 *   r -> c   checkin         who is gone or skipped as far as r knows, what it adopted before, and
 *                            its word (agreement)
 *   c -> r   order BUILD     the list: make a communicator of these ranks, or keep their word
 *   r -> c   report          it is made (r has *adopted* the list), or why not
 *   c -> r   order COMMIT    all have adopted it: return it
 *   c -> r   order END       nothing comes of it, for this reason
 *   c -> r   order WAIT      now and then while it waits: a silent coordinator is given up
 *
 * If a round fails, the coordinator says STOP, hears everybody's report, and begins the next round
 * with those who are left, with a higher *ballot*. If the coordinator is lost, the members go to
 * the next candidate and tell it the latest list and what they adopted. The rules of shrink_rules.h
 * make all who return OK return the same list.
 *
 * A rank that shrinks a communicator which came from a shrink tells ranks that still are in the
 * latter its outcome; and if it dials the listener of one that leads them, that proves the outcome.
 *
 * A growth is a shrink in which rank 0 takes in newcomers as well (grow.h).
 *
 * coll_comm_abort() ends all of this: shrink_abort.c.
 */
#ifndef COLLI_RECOVERY_SHRINK_INTERNAL_H
#define COLLI_RECOVERY_SHRINK_INTERNAL_H

#include "libcoll/comm/comm.h"
#include "libcoll/create/create.h"
#include "libcoll/recovery/shrink_rules.h"
#include "libcoll/wireup/bootstrap_dial.h"
#include "libcoll/wireup/bootstrap_door.h"

/* What ranks know about each other: flags, one byte per rank, which follow a checkin or an
 * order. */
#define SHRINK_GONE    1u
#define SHRINK_SKIPPED 2u
#define SHRINK_LISTED  4u /* in the latest list */

/* What the ranks do together. */
typedef enum shrink_task {
  SHRINK_SHRINK = 1,
  SHRINK_AGREE = 2,
  SHRINK_GROW = 3 /* of this rank only: to all others it is a shrink */
} shrink_task;

/* The public name of the call. */
static inline const char *colli_shrink_name(shrink_task task) {
  return task == SHRINK_AGREE ? "coll_comm_agree()" : "coll_comm_shrink() or coll_comm_grow()";
}

typedef struct shrink_checkin {
  uint32_t magic;
  int32_t nranks;
  uint64_t ballot;  /* of the latest list that it knows; 0: none */
  uint64_t list;    /* comm_id of that list's communicator, or just a number */
  uint64_t adopted; /* the list that it has adopted; 0: none */
  uint64_t word;    /* SHRINK_AGREE: its own */
  uint32_t renewed;
  uint32_t task;
  int32_t aborter; /* the rank on which the shrink was aborted; -1: it was not */
  uint32_t pad;
} shrink_checkin;

typedef enum shrink_order_kind {
  SHRINK_BUILD = 1,
  SHRINK_STOP = 2, /* the round has failed */
  SHRINK_RENEW = 3,
  SHRINK_COMMIT = 4,
  SHRINK_END = 5,
  SHRINK_WAIT = 6 /* the coordinator is alive */
} shrink_order_kind;

typedef struct shrink_order {
  uint32_t kind;
  int32_t nranks;
  uint64_t ballot;
  uint64_t comm_id;  /* of the new communicator, or the list's number */
  uint64_t word;     /* SHRINK_AGREE: that of all on the list */
  int32_t newcomers; /* BUILD: ranks behind those of the list */
  int32_t pad;
  uint8_t salt[COLL_SECRET_BYTES]; /* BUILD: its secret is made from this and the old one */
  colli_addr addrs[COLLI_MAX_ADDRS];
  coll_error error; /* END */
} shrink_order;

typedef struct shrink_report {
  uint64_t ballot;
  boot_report report;
} shrink_report;

/* A higher rank that has dialled this rank's listener. */
typedef struct shrink_conn {
  colli_sealed conn;
  bool in;     /* its checkin is here: head and flags */
  size_t done; /* bytes of the current message */
  bool headed; /* `head` is complete */
  shrink_checkin head;
  shrink_report report;
  bool said; /* `report` is complete */
  uint8_t flags[];
} shrink_conn;

/* The state of one call. */
typedef struct shrink {
  boot b; /* rank, nranks and secret are those of the old communicator */
  colli_id id;
  boot_shortage shortage;
  boot_dial dial; /* to the leader */
  coll_comm *comm;
  colli_settings *settings;
  shrink_task task;
  uint64_t word; /* SHRINK_AGREE: this rank's */
  coll_shrink_quorum quorum;
  uint64_t patience_ns; /* create_timeout_ms */
  uint64_t limit_ns;    /* this call ends by then */
  bool *gone, *skipped; /* by rank */
  int altered;          /* a rank one of whose messages arrived altered; -1: none */
  int astray;           /* a rank that made another call (task); -1: none */
  int aborter;          /* the rank on which this call was aborted; -1: it was not */
  uint64_t verdict_ns;  /* if it was: how long to wait for what the leader says */
  uint64_t ballot;      /* of the latest list known here, as are these: */
  uint64_t list;        /* its comm_id */
  bool renewed;
  bool proved;      /* some rank is known to have returned with that list */
  bool *listed;     /* its members */
  uint64_t adopted; /* the list that this rank has adopted: that one, an earlier one, 0: none */
  coll_comm *child; /* made from it, or: */
  colli_agreed agreed;
  colli_door door;
  colli_entrance *entrance; /* of newcomers that this rank may take in; NULL: of none */
  int called;               /* the first ones there are told to build */
  shrink_conn **conns;      /* by rank; NULL: not here */
} shrink;

/* ---- common (shrink_common.c) ---------------------------------------------------------------- */

/* The lowest rank that may coordinate: this one or a lower one. */
int shrink_candidate(const shrink *s);

/* Handles the control links of the old communicator. Only meanwhile is this thread inside the
 * communicator's family, so that others may work there. */
void shrink_listen(shrink *s);

/* The same, and accepts connections to the listener. */
void shrink_tend(shrink *s);

/* Adds everything that shrink_tend() handles, and waits for an event until `until_ns`. */
void shrink_wait(shrink *s, uint64_t until_ns);

/* Begins to collect descriptors to wait for. */
void shrink_wait_begin(shrink *s);

/* Begins to dial a rank's listener. */
void shrink_dial(shrink *s, boot_dial *dial, int rank);

/* Advances dialling: COLL_T_DONE, COLL_T_AGAIN, COLL_ERR_PEER_LOST if that rank is gone, or
 * COLL_ERR_AUTH if what it sent was altered. */
int shrink_dial_step(shrink *s, boot_dial *dial);

/* Sends a message, head and flags, within a second; false on failure. */
bool shrink_send(const shrink *s, colli_sealed *conn, const void *head, size_t bytes,
                 const uint8_t *flags, size_t flag_bytes);

/* Sends this rank's checkin, if that can be done. */
void shrink_send_checkin(const shrink *s, colli_sealed *conn);

/* Closes a rank's connection to this rank. */
void shrink_drop(shrink *s, int rank);

/* Records the latest list from an order or checkin. */
void shrink_take_list(shrink *s, uint64_t ballot, uint64_t list, bool renewed,
                      const uint8_t *flags);

/* ---- dialling many ranks (shrink_probe.c) ---------------------------------------------------- */

#define SHRINK_PROBES 16 /* at a time */

/* Whether a rank is to be dialled, or still to be. */
typedef bool shrink_wanted(const shrink *s, int rank);

/* A rank that is dialled in order to learn whether it is gone, and to send it a checkin. */
typedef struct shrink_probe {
  int rank; /* -1: none */
  uint64_t until_ns;
  boot_dial dial;
} shrink_probe;

typedef struct shrink_probes {
  shrink_probe at[SHRINK_PROBES];
  shrink_wanted *wanted;
  uint64_t each_ns; /* then the next rank is dialled */
  int next;         /* the rank to continue with; 0: from the beginning */
} shrink_probes;

void shrink_probes_begin(shrink_probes *p, shrink_wanted *wanted, uint64_t each_ns);

/* Moves them on; false once each wanted rank has been dialled. */
bool shrink_probes_step(shrink *s, shrink_probes *p);

void shrink_probes_watch(shrink *s, const shrink_probes *p);
void shrink_probes_end(shrink_probes *p);

/* Tells the ranks to which the control links may not lead that the call was aborted. */
void shrink_tell_abort(shrink *s);

/* ---- aborts (shrink_abort.c) ----------------------------------------------------------------- */

/* Whether coll_comm_abort() was called here since the call began. */
bool colli_shrink_was_aborted(const coll_comm *comm);

/* Fails because coll_comm_abort() was called on rank `aborter`. */
coll_status colli_shrink_fail_aborted(const coll_comm *comm, int aborter, shrink_task task,
                                      coll_error *error);
coll_status shrink_fail_aborted(const shrink *s);

/* Another rank reports that the call was aborted on `aborter`, if that is a rank. */
void shrink_note_abort(shrink *s, int aborter);

/* Notes whether it was aborted, here or elsewhere, and passes that on. */
void shrink_hear_abort(shrink *s);

/* ---- shrink_build.c -------------------------------------------------------------------------- */

/* Adopts the list in `order`: creates its communicator, with lifelines to other ranks, or keeps its
 * word. */
coll_status shrink_adopt(shrink *s, const shrink_order *order, int listen_fd, const int *fds,
                         const int *ranks, int nfds);

/* shrink_adopt() at the coordinator, with lifelines to all others. */
coll_status shrink_adopt_leading(shrink *s, const shrink_order *order, int listen_fd);

/* The secret of the new communicator, derived from that of the shrink listeners. NULL: out of
 * memory. */
colli_secret *shrink_new_secret(const colli_secret *known, const uint8_t salt[COLL_SECRET_BYTES]);

/* ---- the two roles --------------------------------------------------------------------------- */

/* Leads rounds until the end (shrink_lead.c). */
coll_status shrink_lead(shrink *s);

/* Follows rank `leader` (shrink_follow.c). *over: the shrink ends with the returned status;
 * otherwise it is the next candidate's turn. */
coll_status shrink_follow(shrink *s, int leader, bool *over);

/* ---- between processes (shrink_agree.c) ------------------------------------------------------ */

/* What comes out of it. */
typedef struct shrink_outcome {
  coll_comm *child;    /* SHRINK_SHRINK */
  colli_agreed agreed; /* SHRINK_AGREE */
} shrink_outcome;

/* Agrees with the other survivors on a child, or on a word. settings->error reports a failure. */
coll_status colli_shrink_agree(coll_comm *comm, colli_settings *settings, shrink_task task,
                               uint64_t word, shrink_outcome *outcome);

/* ---- growing (grow.c) ------------------------------------------------------------------------ */

/* Before a growth: whether this communicator can grow. One of a single rank gets a listener. */
coll_status colli_grow_prepare(coll_comm *comm, colli_settings *settings);

/* ---- threads (shrink_local.c) ---------------------------------------------------------------- */

/* The same for a rank that is a thread. */
coll_status colli_shrink_local(coll_comm *comm, colli_settings *settings, shrink_task task,
                               uint64_t word, shrink_outcome *outcome);

#endif
