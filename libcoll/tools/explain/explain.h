/* explain.h: declarations that the parts of coll_explain share. */
#ifndef COLLI_TOOLS_EXPLAIN_EXPLAIN_H
#define COLLI_TOOLS_EXPLAIN_EXPLAIN_H

#include "libcoll/base/param.h"
#include "libcoll/tools/described/described.h"
#include "libcoll/tuning/parts.h"

/* What operations on GPUs are taken to cost. Nothing of it was measured. */
typedef struct gpu_costs {
  double launch_us;  /* an operation in a stream */
  double host_us;    /* until the host has answered a stream, besides */
  double meet_us;    /* until streams that spin or wait for events have met, besides */
  double link_gb;    /* a second, between GPUs, in each direction; GB = 10^9 bytes */
  double memory_gb;  /* a second, read or written in a GPU's memory */
  double copy_gb;    /* a second, between a GPU and the host */
  double network_gb; /* a second, from GPU memory to a network, and from there */
} gpu_costs;

/* Buffers that are registered, on all ranks alike. */
enum { EXPLAIN_INPUT = 1, EXPLAIN_RESULT = 2, EXPLAIN_BOTH = 3 };

/* The command line. */
typedef struct question {
  const char *name; /* of the collective */
  colli_coll coll;
  bool varying;
  bool list; /* only list its algorithms */
  described_network net;
  size_t bytes, last_bytes; /* last_bytes: of a range of sizes, or 0 */
  const char *type_name;
  coll_type type;
  size_t type_bytes;
  int root;
  int rank; /* -1: no schedule wanted */
  coll_determinism deterministic;
  bool in_place;
  const char *algo; /* NULL: what COLL_ALGO says */
  bool table;       /* a range as a table of all candidates */
  int gpus;         /* of a host, whose r-th rank is on GPU r modulo that; 0: not asked */
  int at_once;      /* ranks of a host that make such a call each with others, over its link */
  bool threads;     /* the ranks are, of one process */
  bool apart;       /* the GPUs have no peer access to each other */
  bool rdma;        /* networks' devices move messages from and to GPU memory */
  bool captured;
  unsigned registered; /* which buffers are: EXPLAIN_... */
  bool assumes;        /* costs are given */
  gpu_costs costs;
} question;

/* question.c: reads the command line; ends the program if it is bad. */
question explain_ask(int argc, char **argv);

/* assume.c: the costs without --assume; and reads "name=number,..." into others. False: it is
 * something else. */
extern const gpu_costs explain_costs;
bool explain_assume(const char *text, gpu_costs *costs);

#define EXPLAIN_TABLE_STEP 8 /* from one size of a table to the next */

/* table.c: writes a size as "64K". */
void explain_size_text(char text[32], size_t bytes);

/* Prints what each size of a range takes with each candidate. */
void explain_table(const question *q, answer *a);

/* answer.c: a number among the settings. */
size_t explain_param(colli_param_id id);

/* Sets the inputs of the choice, as programs with these settings would have them. */
void explain_set_up(const question *q, answer *a);

/* The choice for a size, with predicted_ns. */
colli_choice explain_choose(answer *a, const question *q, size_t bytes);

/* Writes a time as "12.3 us". */
void explain_time(char text[32], double ns);

/* The event model's time for a candidate in ns; negative if computing it would take too long. */
double explain_events(const colli_choice *choice, const question *q, const answer *a);

/* ---- calls in streams (gpu*.c, levels.c, messages.c) ----------------------------------------- */

/* What one rank does in a call; bytes are of memory of its own GPU, or of others. */
typedef struct gpu_rank {
  double reads, writes, reads_far;
  double operations; /* in its stream */
} gpu_rank;

/* A call in streams, as all ranks make it. */
typedef struct gpu_call {
  int mode; /* colli_gpu_mode */
  const char *reason;
  size_t slot_bytes;
  size_t piece; /* bytes of each block that are in a slot at a time */
  size_t rounds, meets;
  bool in_segments; /* each rank folds one segment of a round */
  bool party;       /* one rank does the work of all */
  bool readable;    /* some buffers are registered that others could read where they are, */
  bool in_place;    /* and they do: */
  bool reads_inputs, reads_results, in_slots;
  gpu_rank *ranks;
  double in_bytes, out_bytes; /* over the link of the GPU with most */
  double memory_bytes;        /* in the memory of the GPU with most */
  size_t parts;               /* of a staged call */
  size_t part_bytes;          /* of the vector or a block, that one of them has */
} gpu_call;

/* Finds out what a call does; the caller frees call->ranks. Ends the program if it cannot. */
void explain_gpu_count(const question *q, const answer *a, gpu_call *call);

/* What a call is taken to take. */
typedef struct gpu_time {
  double us;
  double operations;   /* of the rank with most; of a call in parts: for each of them */
  colli_choice choice; /* staged: on the host, for one part */
  colli_parts host;    /* the same, and while others are under way */
  double stream_us;    /* that a stream works for a part */
  double pace_us;      /* from one part to the next */
} gpu_time;

gpu_time explain_gpu_price(const question *q, answer *a, const gpu_call *call);

/* Explains a call that is not divided; returns its time in us. */
double explain_gpu_part(const question *q, answer *a);

/* messages.c: whether a part across groups, whose ranks are those with one place, is made of
 * messages; its time in us; and explains it. */
bool explain_are_messages(const question *part);
double explain_messages_price(const question *part);
double explain_messages(const question *part);

/* ---- levels.c: calls that are divided among groups of ranks -----------------------------------*/

#define EXPLAIN_PARTS 3

/* A part of a divided call, or a call that is not divided. */
typedef struct gpu_part {
  question q;
  const char *where;
  size_t times;  /* that it is made */
  bool messages; /* it is made of messages */
} gpu_part;

/* Into what a call is divided. */
typedef struct gpu_parts {
  int ngroups, group_size; /* 0: it is not divided */
  size_t rounds;
  int count;
  gpu_part part[EXPLAIN_PARTS];
} gpu_parts;

/* Finds the parts; one part: the call is not divided, or goes across groups of one rank. */
gpu_parts explain_gpu_divide(const question *q, const answer *a);

/* The time of a part, once, in us; *choice: of the host's algorithm, if it is staged, for each of
 * so many *pieces. */
double explain_gpu_part_price(const gpu_part *part, colli_choice *choice, size_t *pieces);

/* Operations of a stream at which all streams stop for the host: "reached", a wait and its reset;
 * "left". */
#define EXPLAIN_GATE_OPERATIONS 4

/* The time of a call in us, from that of each part: of a divided one with the stop before it. */
double explain_gpu_total(const question *q, const gpu_parts *all, const double us[EXPLAIN_PARTS]);

/* Explains a call in streams, perhaps one that is divided among groups of ranks. */
void explain_gpu(const question *q, answer *a);

/* gpu_table.c: prints what each size of a range takes, and with which algorithm. */
void explain_gpu_table(const question *q);

#endif
