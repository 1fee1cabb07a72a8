/*
 * reports.h: what the other ranks of a family have said of themselves: where they wait, and which
 * failure stopped them. By rank of the base. Who is to blame can be outside the communicator in
 * which a rank waits, so the family keeps the reports of all its communicators.
 */
#ifndef COLLI_COMM_REPORTS_H
#define COLLI_COMM_REPORTS_H

#include "coll/coll_transport.h"
#include "libcoll/wireup/ctrl.h"

#define COLLI_REPORT_TEXT 240

/* What a rank of its host has seen of a rank that does not answer: failure/witness.h. */
typedef struct colli_seen {
  uint64_t at_ns;     /* 0: nothing yet */
  uint64_t looked_ns; /* when somebody last tried */
  uint64_t entered;   /* number of the last collective that it has entered there */
  coll_tag tag;       /* of the operation that it has ended last there, */
  uint32_t since_ms;  /* and how long ago that was then */
  bool ended;         /* it has ended any */
  uint32_t pending;   /* its operations in flight anywhere */
  uint8_t state;      /* of its process, as in proc(5) */
} colli_seen;

/* A rank waits in a communicator, or others wait for it there. */
typedef struct colli_report {
  struct colli_report *next;
  uint64_t uid;      /* of the communicator */
  uint64_t heard_ns; /* when it last said that it waits; 0: never */
  uint64_t again_ns; /* after which it says so again, if it still does */
  bool inside;       /* in a call; otherwise an operation is in flight there */
  bool idle;         /* it does not wait anywhere, but is alive */
  int nwaits;
  int waits[COLLI_CTRL_MORE + 1]; /* for these ranks */
  char name[COLLI_NAME];          /* of the communicator */
  char text[COLLI_REPORT_TEXT];   /* the operation */
  colli_seen seen;
} colli_report;

/* A failure has reached a rank's caller, who may therefore not come where others wait for it. */
typedef struct colli_affected {
  int root; /* the rank that is to blame */
  coll_status status;
  char name[COLLI_NAME]; /* of the communicator that failed */
  char message[sizeof(((coll_error *)0)->message)];
} colli_affected;

/* One rank's. */
typedef struct colli_rank_reports {
  colli_report *waits;      /* NULL: none yet */
  colli_affected *affected; /* NULL: by none yet */
} colli_rank_reports;

/*
 * Those of all ranks, and the failure of which this rank heard first, until it has heard nothing of
 * it for a while. A rank that leaves or falls silent meanwhile is presumed to be affected too: when
 * ranks stop listening, they pass no reports on any more.
 */
typedef struct colli_reports {
  colli_affected recent;
  uint64_t recent_ns; /* when this rank last heard of it; 0: there is none */
  uint64_t asked_ns;  /* when a rank last asked who waits where; 0: never */
  colli_rank_reports at[];
} colli_reports;

/* Makes those of `nranks` ranks; NULL if out of memory. */
colli_reports *colli_reports_create(int nranks);

/* The report of a rank on a communicator; makes one if there is none. NULL if out of memory. */
colli_report *colli_reports_get(colli_reports *reports, int rank, uint64_t uid);

/* Keeps that a failure has reached msg->origin, which therefore no longer waits there. */
void colli_reports_note_affected(colli_reports *reports, const colli_ctrl_msg *msg);

/* Keeps a failure that rank `root` has caused. Another one is forgotten if it was not heard of
 * since `old_ns`. */
void colli_reports_note_recent(colli_reports *reports, int root, const char *name,
                               const coll_error *error, uint64_t now_ns, uint64_t old_ns);

void colli_reports_free(colli_reports *reports, int nranks);

#endif
