/* explain.h: declarations that the parts of coll_explain share. */
#ifndef COLLI_TOOLS_EXPLAIN_EXPLAIN_H
#define COLLI_TOOLS_EXPLAIN_EXPLAIN_H

#include "libcoll/base/param.h"
#include "libcoll/tools/described/described.h"

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

/* table.c: prints what each size of a range takes with each candidate. */
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

/* ---- gpu.c, gpu_print.c, levels.c: calls in streams
 * -----------------------------------------------------
 */

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
} gpu_call;

/* Finds out what a call does; the caller frees call->ranks. Ends the program if it cannot. */
void explain_gpu_count(const question *q, const answer *a, gpu_call *call);

/* messages.c: whether a part across groups, whose ranks are those with one place, is made of
 * messages; and explains it. */
bool explain_are_messages(const question *part);
void explain_messages(const question *part);

/* Explains a call that is not divided. */
void explain_gpu_part(const question *q, answer *a);

/* levels.c: explains a call in streams, perhaps one that is divided among groups of ranks. */
void explain_gpu(const question *q, answer *a);

#endif
