/*
 * serve.h: the ranks that check in at this one: in a star all others, in a tree its children, each
 * with those below it. They are taken in, and told the outcome.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_SERVE_H
#define COLLI_WIREUP_BOOTSTRAP_SERVE_H

#include "libcoll/wireup/bootstrap/roles.h"
#include "libcoll/wireup/bootstrap/time.h"

/* An authenticated connection. */
typedef struct serve_conn {
  colli_sealed conn;
  int rank;
  boot_range below; /* that rank, and all that check in through it */
  int poll_index;   /* in boot->polls; -1: not in it yet */
  bool came;        /* it has said who it is: it does not come again */
  bool checked_in;  /* the records have arrived */
  bool ready;       /* and so has the report that all of them are */
  int waits_for;    /* another rank, as it has said last; -1: it has not */
  boot_checkin checkin;
  size_t checkin_done;
  colli_rank_info *records; /* of `below`, until they have been entered */
  boot_report report;
  size_t done;      /* bytes of the current message */
  size_t rest_done; /* of the bounds of the others below it, which follow a report */
  bool answers;     /* it has asked for the time, and `report`, the answer, is being sent */
  size_t answer_done;
  bool gets_table; /* it is rank 0, and this is being sent: */
  boot_report head;
  size_t head_done, table_done;
} serve_conn;

/* What a rank knows of those that check in at it. Arrays are of boot.place.below, in that order. */
typedef struct boot_server {
  boot *b;
  boot_links *links;
  colli_door door;
  serve_conn **conns;
  int count, capacity;
  int ranks;            /* below this one, and itself */
  colli_rank_info *all; /* their records */
  bool *is_in;          /* has checked in */
  boot_bounds *ahead;   /* how far this rank's clock is ahead of theirs */
  boot_bounds *told;    /* how far the root's is, once there is an outcome */
  int checked_in;       /* how many of `ranks` have */
  int ready;            /* how many of the children are */
  int tls_differs;      /* a rank whose COLL_TLS differs from ours; -1: none is known */
  uint64_t give_up_ns;  /* when the first rank does */
  uint64_t deadline_ns; /* by when all must be done, so that it hears of a failure before */
} boot_server;

/* Begins to take in ranks at a listener, which stays the caller's. NULL: boot->error says why. */
boot_server *boot_server_open(boot *b, boot_links *links, int listen_fd);

/* Takes in who has come, and reads what they say. COLL_OK, or why this has failed. */
coll_status boot_server_step(boot_server *s);

/* Fails if it is too late for what has not come yet. */
coll_status boot_server_check_late(const boot_server *s);

/* Whether the records of all ranks below this one are here; and whether all those are ready. */
bool boot_server_is_full(const boot_server *s);
bool boot_server_is_ready(const boot_server *s);

/* At the server of all: makes the table of all records, and begins to send it to rank 0, from which
 * it goes down the tree of control links. */
coll_status boot_server_give_table(boot_server *s);

/* Adds what it waits for. */
void boot_server_watch(boot_server *s);

/*
 * Tells every rank the outcome, with the root's time, and returns it, or that a shortage here kept
 * it from a rank. A failure is also announced for a moment to ranks that have yet to connect;
 * otherwise they would find a closed port and not know why.
 */
coll_status boot_server_tell(boot_server *s, coll_status status, const boot_time *time);

/* Tells every rank that the rank `lost` is, and has told no outcome. */
void boot_server_tell_doubt(boot_server *s, int lost);

void boot_server_close(boot_server *s);

/* ---- for all parts of it -------------------------------------------------------------------- */

/* Lets in who has come. */
void boot_server_accept(boot_server *s);

/* Closes a connection. */
void boot_server_drop(boot_server *s, int i);

/* Sends the rest of table and answer; whether any is left. Reading finds out what is broken. */
bool boot_server_send(const boot_server *s, serve_conn *conn);

/* By when all ranks below this one must have checked in; at the root, be ready. */
uint64_t boot_server_late_ns(const boot_server *s);

/* A rank says for whom it waits (late.h). */
void boot_server_take_wait(const boot_server *s, serve_conn *conn);

/* Answers a question for the time. */
void boot_server_answer_time(const boot_server *s, serve_conn *conn);

#endif
