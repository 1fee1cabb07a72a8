/*
 * shrink_internal.h: the parts of coll_comm_shrink() and coll_comm_agree(). An agreement is a
 * shrink whose list comes with a word instead of a communicator.
 *
 * Between processes the survivors agree in rounds, each led by a coordinator: the lowest rank that
 * a rank does not know to be gone and that has not kept it waiting for too long (*skipped*). Each
 * other rank dials its *parent*: the coordinator, or a rank between them in a tree that passes
 * messages on (shrink_links.c), and keeps that connection until the end:
 *
 *   r -> c   checkin         who is gone or skipped as far as r knows, what it adopted before, and
 *                            its word (agreement)
 *   c -> r   order BUILD     the list: make a communicator of these ranks, or keep their word
 *   r -> c   record          of r, for the communicator's table
 *   r -> c   report          it is made (r has *adopted* the list), or why not
 *   c -> r   order COMMIT    all have adopted it: return it
 *   c -> r   order END       nothing comes of it, for this reason
 *   c -> r   order QUIT      nothing of c, for this reason: the next one leads
 *   c -> r   order AGAIN     check in again: what r said may be too old (rule 1)
 *   c -> r   order WAIT      now and then while it waits: a silent coordinator is given up
 *
 * If a round fails, the coordinator says STOP, hears everybody's report, and begins the next round
 * with those who are left, with a higher *ballot*. If the parent is lost, a rank goes to the next
 * one, and at last to the next coordinator, and tells it the latest list and what it adopted. The
 * rules of shrink_rules.h make all who return OK return the same list.
 *
 * A rank that shrinks a communicator which came from a shrink tells ranks that still are in the
 * latter its outcome; and if it dials the listener of one that leads them, that proves the outcome.
 *
 * A growth is a shrink in which rank 0 takes in newcomers as well (grow.h). They do not know the
 * tree, so then all records go to rank 0 by an ordinary bootstrap.
 *
 * coll_comm_abort() ends all of this: shrink_abort.c.
 */
#ifndef COLLI_RECOVERY_SHRINK_INTERNAL_H
#define COLLI_RECOVERY_SHRINK_INTERNAL_H

#include <stdlib.h>

#include "libcoll/comm/comm.h"
#include "libcoll/create/create.h"
#include "libcoll/recovery/shrink_rules.h"
#include "libcoll/wireup/bootstrap/dial.h"
#include "libcoll/wireup/bootstrap/door.h"

#define SHRINK_MAGIC   0x68734c43u          /* "CLsh" */
#define SHRINK_TELL_NS (2 * COLLI_NS_PER_S) /* how long to make sure that all are told */

/* The most bytes of parts in one batch; what one rank says always fits. */
#define SHRINK_BATCH_BYTES (256u * 1024)

/* Flags of a rank, one byte each, which follow a message. */
#define SHRINK_GONE    1u
#define SHRINK_SKIPPED 2u
#define SHRINK_LISTED  4u /* in the latest list */
#define SHRINK_FOR     8u /* the order is for this rank */

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

/* What a rank says when it comes. Its latest list, if it knows one, follows: a byte per rank. */
typedef struct shrink_checkin {
  uint64_t ballot;  /* of the latest list that it knows; 0: none */
  uint64_t list;    /* comm_id of that list's communicator, or just a number */
  uint64_t adopted; /* the list that it has adopted; 0: none */
  uint64_t word;    /* SHRINK_AGREE: its own */
  uint64_t asked;   /* the ballot of the order AGAIN that this answers; 0: none */
  uint32_t renewed;
  uint32_t task;
  int32_t newcomers; /* of the latest list */
  int32_t pad;
} shrink_checkin;

typedef enum shrink_order_kind {
  SHRINK_BUILD = 1,
  SHRINK_STOP = 2, /* the round has failed */
  SHRINK_RENEW = 3,
  SHRINK_COMMIT = 4,
  SHRINK_END = 5,
  SHRINK_WAIT = 6,  /* the coordinator is alive */
  SHRINK_AGAIN = 7, /* check in again */
  SHRINK_QUIT = 8   /* the coordinator gives up: error.rank */
} shrink_order_kind;

typedef struct shrink_order {
  uint32_t kind;
  int32_t nranks;
  uint64_t ballot;
  uint64_t comm_id;  /* of the new communicator, or the list's number */
  uint64_t word;     /* SHRINK_AGREE: that of all on the list */
  int32_t newcomers; /* BUILD, RENEW: ranks behind those of the list */
  int32_t pad;
  uint8_t salt[COLL_SECRET_BYTES]; /* BUILD: its secret is made from this and the old one */
  colli_addr addrs[COLLI_MAX_ADDRS];
  coll_error error; /* END, QUIT */
} shrink_order;

typedef struct shrink_report {
  uint64_t ballot;
  boot_report report;
} shrink_report;

/* Messages to the parent are *batches* of what several ranks say: a head, a byte of flags for each
 * rank, and *parts*, each followed by its contents. */
typedef struct shrink_batch {
  uint32_t magic;
  int32_t nranks;
  int32_t aborter; /* the rank on which the shrink was aborted; -1: it was not */
  int32_t altered; /* a rank one of whose messages arrived altered; -1: none */
  uint32_t nparts;
  uint32_t bytes; /* of all parts */
} shrink_batch;

typedef enum shrink_part_kind {
  SHRINK_CHECKIN = 1,
  SHRINK_RECORD = 2, /* colli_rank_info: what others must know to make the communicator */
  SHRINK_REPORT = 4,
  SHRINK_LOST = 8, /* the sender has lost its connection to that rank, or is no longer told by it */
  SHRINK_TOLD = 16 /* that rank was sent COMMIT */
} shrink_part_kind;

typedef struct shrink_part {
  uint32_t kind;
  int32_t rank;
  uint32_t attempt; /* that rank's connections so far: parts of an earlier one are void */
  uint32_t bytes;   /* of contents */
} shrink_part;

/* A rank that has dialled this rank's listener. */
typedef struct shrink_link {
  colli_sealed conn;
  bool wanted; /* the order that is being passed on is for somebody there */
  size_t done; /* bytes of the current message */
  shrink_batch head;
  uint8_t *body; /* flags and parts, while they are read */
} shrink_link;

/* What a rank has said. Each rank knows this of itself and of those whose messages it passes on,
 * the coordinator of all. */
typedef struct shrink_member {
  bool in;          /* its checkin is here */
  int via;          /* the link through which it speaks; this rank itself, for itself */
  uint32_t attempt; /* of the latest checkin */
  shrink_checkin head;
  uint8_t *list;           /* its latest list; NULL: none */
  uint64_t asked;          /* the ballot of an order AGAIN that it has not answered; 0: none */
  bool awaited;            /* an order is for it, so it will report */
  bool ends;               /* COMMIT is for it */
  colli_rank_info *record; /* NULL: not here */
  shrink_report *report;   /* NULL: not here */
  bool told;               /* COMMIT has been sent to it */
  unsigned passed;         /* the kinds of parts that this rank has passed on */
  uint32_t lost;           /* this attempt was lost, and the parent has to be told; 0: none */
} shrink_member;

/* Forgets the record and the report of a rank, which are of one round. */
static inline void shrink_forget_round(shrink_member *m) {
  free(m->record);
  free(m->report);
  m->record = NULL;
  m->report = NULL;
}

/* The connection to the parent. */
typedef struct shrink_uplink {
  colli_sealed conn;  /* none: this rank leads, or looks for a parent */
  uint64_t hold_ns;   /* until then, what could be sent waits for more; 0: nothing waits */
  bool altered;       /* the parent was told of an altered message */
  uint64_t heard_ns;  /* when the last order came */
  shrink_order order; /* the current one, and how much of it is here: */
  size_t done, flags_done;
  bool here; /* all of it: it waits to be executed */
  uint8_t *flags;
} shrink_uplink;

/* The state of one call. */
typedef struct shrink {
  boot b; /* rank, nranks and secret are those of the old communicator */
  colli_id id;
  boot_shortage shortage;
  boot_dial dial; /* to the parent */
  coll_comm *comm;
  colli_rank_info own; /* this rank's record there */
  colli_settings *settings;
  shrink_task task;
  uint64_t word; /* SHRINK_AGREE: this rank's */
  coll_shrink_quorum quorum;
  uint64_t patience_ns; /* create_timeout_ms */
  uint64_t limit_ns;    /* this call ends by then */
  unsigned tries;       /* how often a call was tried again after a shortage */
  bool *gone, *skipped; /* by rank */
  bool *slow;           /* by rank: does not answer at once, so it is no parent */
  int altered;          /* a rank one of whose messages arrived altered; -1: none */
  bool starved;         /* could not take what another rank said, however often it tried */
  int astray;           /* a rank that made another call (task); -1: none */
  int aborter;          /* the rank on which this call was aborted; -1: it was not */
  uint64_t verdict_ns;  /* if it was: how long to wait for what the coordinator says */
  uint64_t ballot;      /* of the latest list known here, as are these: */
  uint64_t list;        /* its comm_id */
  bool renewed;
  int newcomers;    /* ranks behind its members */
  bool proved;      /* some rank is known to have returned with that list */
  bool *listed;     /* its members */
  uint64_t adopted; /* the list that this rank has adopted: that one, an earlier one, 0: none */
  coll_comm *child; /* made from it, or: */
  colli_agreed agreed;
  colli_door door;
  colli_entrance *entrance; /* of newcomers that this rank may take in; NULL: of none */
  int called;               /* the first ones there are told to build */
  uint32_t attempt;         /* how many parents this rank has had */
  shrink_uplink up;
  uint64_t *met;          /* a bit for each rank that has had a link or has spoken, and this one: of
                           * thousands, most meet few */
  shrink_link **links;    /* by rank; NULL: none */
  shrink_member *members; /* by rank */
} shrink;

/* The first rank from `rank` on that this one has met; nranks: there is none. */
static inline int shrink_next(const shrink *s, int rank) {
  for (int word = rank / 64; s->met && word <= (s->b.nranks - 1) / 64; word++) {
    const uint64_t met = s->met[word] & (word == rank / 64 ? ~0ull << rank % 64 : ~0ull);
    if (met)
      return 64 * word + __builtin_ctzll(met);
  }
  return s->b.nranks;
}

static inline bool shrink_has_met(const shrink *s, int rank) {
  return s->met[rank / 64] >> rank % 64 & 1;
}

static inline void shrink_meet(shrink *s, int rank) {
  COLLI_ASSERT_RANK(rank >= 0 && rank < s->b.nranks, s->b.rank);
  s->met[rank / 64] |= 1ull << rank % 64;
}

/* ---- common (shrink_common.c) ---------------------------------------------------------------- */

/* Changes the records in the table of a communicator that has just been made: its progress thread,
 * if it has one, reads them already. False: out of memory. */
bool colli_shrink_change_records(coll_comm *child, colli_rank_change_fn change, void *ctx);

/* The lowest rank that may coordinate: this one or a lower one. */
int shrink_candidate(const shrink *s);

/* Handles the control links of the old communicator. Only meanwhile is this thread inside the
 * communicator's family, so that others may work there. */
void shrink_listen(shrink *s);

/* Whether a hello at the listener may be one of a rank that needs an answer now; ctx: a shrink. */
bool shrink_wants(const void *ctx, const colli_hello *hello);

/* The same, accepts connections to the listener, and reads what they bring. */
void shrink_tend(shrink *s);

/* Adds everything that shrink_tend() handles, and waits for an event until `until_ns`. */
void shrink_wait(shrink *s, uint64_t until_ns);

/* The same without the listener: those who dial it now may belong to the next shrink. */
void shrink_wait_inside(shrink *s, uint64_t until_ns);

/* Begins to collect descriptors to wait for. */
void shrink_wait_begin(shrink *s);

/* Begins to dial a rank's listener. */
void shrink_dial(shrink *s, boot_dial *dial, int rank);

/* Advances dialling: COLL_T_DONE, COLL_T_AGAIN, COLL_ERR_PEER_LOST if that rank is gone, or
 * COLL_ERR_AUTH if what it sent was altered. */
int shrink_dial_step(shrink *s, boot_dial *dial);

/* Whether `status`, which s->b.error describes, is a shortage, of this rank or another. */
bool shrink_ran_short(const shrink *s, coll_status status);

/* Records the latest list from an order or checkin. */
void shrink_take_list(shrink *s, uint64_t ballot, uint64_t list, bool renewed, int newcomers,
                      const uint8_t *flags);

/* Adopts the latest list that any rank here knows. */
void shrink_take_latest(shrink *s);

/* ---- shortages (shrink_short.c) -------------------------------------------------------------- */

/* After a call that failed: whether to try it again now, because it lacked something that may be
 * there by now. If so, some time has passed. Otherwise what it lacked counts as short for good. */
bool shrink_try_again(shrink *s, int sys_errno);

/* Allocates, and tries again after a shortage. NULL: it lasts. */
void *shrink_alloc(shrink *s, size_t bytes);

/* ---- who tells whom (shrink_links.c) --------------------------------------------------------- */

/* The rank that this one dials: `candidate`, or a rank between them in the tree. */
int shrink_parent(const shrink *s, int candidate);

/* Whether a rank passes on the messages of `rank`, if all live. */
bool shrink_is_below(int rank, int passes);

/* How many ranks pass on its messages, if rank 0 leads and all live, and one more. */
unsigned shrink_depth(int rank);

/* Keeps a rank's new connection in place of the previous one, which it has abandoned. False: out of
 * memory. */
bool shrink_link_open(shrink *s, int rank, colli_auth *auth);

/* Closes a rank's connection to this rank. Those who speak through it are not here any more. */
void shrink_link_drop(shrink *s, int rank);
void shrink_links_drop(shrink *s);

/* Whether all ranks that speak through this one and were sent COMMIT have been told, by all ranks
 * between. */
bool shrink_all_told(const shrink *s);

/* Forgets what a rank has said. If it lives, it checks in again. */
void shrink_member_drop(shrink *s, int rank);

/* Reads what the links bring. */
void shrink_links_read(shrink *s);

/* Receives the rest of a message as colli_sealed_pull() does, and tries again after a shortage. */
int shrink_pull(shrink *s, colli_sealed *conn, void *msg, size_t bytes, size_t *done);

/* Sends a message, head and flags. False if that fails, or nothing moves for a second; if a part of
 * it was sent, the connection is over. */
bool shrink_send(shrink *s, colli_sealed *conn, const void *head, size_t bytes,
                 const uint8_t *flags, size_t flag_bytes);

/* Passes an order on to those on whom SHRINK_FOR is set, as far as this rank reaches them. */
void shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags);

/* ---- shrink_up.c: what goes to the parent ---------------------------------------------------- */

/* Sends this rank's checkin on a connection that is used for nothing else. */
void shrink_send_checkin(shrink *s, colli_sealed *conn);

/* Puts down what this rank itself says: its checkin, record, report. `asked`: the ballot of the
 * order that told it to check in; 0: none did. */
void shrink_say_checkin(shrink *s, uint64_t asked);
bool shrink_say_record(shrink *s, const colli_rank_info *record);
bool shrink_say_report(shrink *s, const shrink_report *report);

/* Passes on to the parent what is ready for it. False: the connection broke. */
bool shrink_pass_up(shrink *s);

/* When to look again whether something is ready. */
uint64_t shrink_pass_up_ns(const shrink *s);

/* Receives the next order from the parent, passes it on, and leaves it in s->up: COLL_T_DONE,
 * COLL_T_AGAIN, or an errno. */
int shrink_hear_order(shrink *s);

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

/* Adopts the list in `order`: creates its communicator, or keeps its word. `listen_fd`: of rank 0
 * of a communicator that grows; -1: none. */
coll_status shrink_adopt(shrink *s, const shrink_order *order, int listen_fd);

/* The secret of the new communicator, derived from that of the shrink listeners. NULL: out of
 * memory. */
colli_secret *shrink_new_secret(const colli_secret *known, const uint8_t salt[COLL_SECRET_BYTES]);

/* ---- shrink_reasons.c ------------------------------------------------------------------------ */

/* Fails because those who take a list are too few, or because rank `astray` makes another call. */
coll_status shrink_fail_few(shrink *s, const bool *takes);
coll_status shrink_fail_astray(const shrink *s);

/* Fails because this rank is `starved`: others would wait for what it does not pass on. */
coll_status shrink_fail_starved(shrink *s);

/* Notes that the rank of s->b.error ran short, as the error says. */
void shrink_note_short(shrink *s);

/* If this rank fails because others seem late or lost, but one of them has told that it ran short,
 * that is the error. Returns its status. */
coll_status shrink_explain(shrink *s, coll_status status);

/* At the end of a call with `status`: if this rank ran short, and therefore fails or may have left
 * others out, tells them over the control links. */
void shrink_tell_shortage(shrink *s, coll_status status);

/* ---- the two roles --------------------------------------------------------------------------- */

/* Leads rounds until the end (shrink_lead.c). */
coll_status shrink_lead(shrink *s);

/* Follows through rank `parent` (shrink_follow.c). *over: the shrink ends with the returned status;
 * otherwise it is the next parent's turn. */
coll_status shrink_follow(shrink *s, int parent, bool *over);

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
