/* collctl.h: collctl's parts. It reads the status pages of processes (libcoll/status), groups them
 * by job, and prints them. */
#ifndef COLLI_TOOLS_COLLCTL_COLLCTL_H
#define COLLI_TOOLS_COLLCTL_COLLCTL_H

#include <stdio.h>

#include "libcoll/call/tag.h"
#include "libcoll/status/copy.h"

enum { CTL_FAILED = 1, CTL_USAGE = 2 };

typedef enum ctl_command { CTL_LIST, CTL_SHOW, CTL_DUMP } ctl_command;
typedef enum ctl_format { CTL_TEXT, CTL_JSON, CTL_PROMETHEUS } ctl_format;

typedef struct ctl_options {
  ctl_command command;
  ctl_format format;
  int pid;          /* 0: of any process */
  const char *name; /* of a communicator; NULL: any */
} ctl_options;

/* A communicator, put together from the pages of its ranks. */
typedef struct ctl_comm {
  uint64_t uid;
  const char *name;
  int nranks;
  const colli_status_rank **info; /* nranks: what the others know of each */
  colli_status_head **pages;      /* nranks: NULL: not seen */
  colli_status_comm **members;    /* nranks: NULL: not seen */
} ctl_comm;

/* A base and all that was made from it. */
typedef struct ctl_family {
  uint64_t comm_id;
  int nranks;
  colli_status_head **pages; /* by rank of the base: NULL: not seen */
  const colli_status_rank *ranks;
  ctl_comm *comms;
  int ncomms;
} ctl_family;

typedef struct ctl_view {
  ctl_family *families;
  int nfamilies;
  colli_status_head **copies;
  int ncopies;
} ctl_view;

/* ---- options.c ------------------------------------------------------------------------------- */

/* Reads the command line. 0; -1 after --help; or an exit status, once it has printed why. */
int ctl_options_read(int argc, char **argv, ctl_options *options);

/* ---- view.c ---------------------------------------------------------------------------------- */

/* Reads all pages, and puts together what the options ask for. 0, or an exit status, once it has
 * printed why. */
int ctl_view_make(ctl_view *view, const ctl_options *options);

/* Puts together view->copies, which were checked: communicators of that name (NULL: all). Returns
 * how many there are. */
int ctl_view_put_together(ctl_view *view, const char *name);

void ctl_view_free(ctl_view *view);

/* ---- state.c: what a rank does --------------------------------------------------------------- */

/* An operation of the flight record. */
typedef struct ctl_op {
  const colli_flight *flight; /* NULL: there is none */
  const char *name;           /* point-to-point: "send", ...; collectives: NULL */
} ctl_op;

/* The next operation of a record, the oldest first: *place begins at 0; NULL at the end. */
ctl_op ctl_next_op(const colli_status_comm *comm, int *place);

/* The oldest that is in flight; the one that ended last. */
ctl_op ctl_oldest_pending(const colli_status_comm *comm);
ctl_op ctl_last_ended(const colli_status_comm *comm);

/* How many are in flight. */
int ctl_count_pending(const colli_status_comm *comm);

/* "allreduce #1042 (4 MiB float32 sum)"; "recv (8 B int32), rank 2" */
#define CTL_OP_TEXT (COLLI_TAG_TEXT + 64)
const char *ctl_op_text(ctl_op op, char text[CTL_OP_TEXT]);

/* "running", "sleeping", "stopped", ... */
const char *ctl_state_name(uint8_t state);

/* Whether a rank has not entered a collective that others are in. If so, writes which ranks wait
 * for it, and its last operation. */
#define CTL_LATE_TEXT 1024
bool ctl_is_late(const ctl_comm *comm, int rank, char text[CTL_LATE_TEXT]);

/* ---- text.c, json.c, prometheus.c ------------------------------------------------------------ */

void ctl_print_text(const ctl_view *view, ctl_command command, FILE *out);
void ctl_print_json(const ctl_view *view, ctl_command command, FILE *out);
void ctl_print_prometheus(const ctl_view *view, FILE *out);

#endif
