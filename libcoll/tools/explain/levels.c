/*
 * levels.c: calls in streams that are divided among groups of ranks, for coll_explain: into which
 * parts, and what each does. The rule is that of libcoll/stream/levels.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "libcoll/base/param.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/levels.h"

/* The groups of a question; size is 0 if there are none. */
typedef struct groups {
  int number, size;
} groups;

/* GPUs of a host form one group, or, without peer access, one each. One of a single rank is none
 * unless it sends messages from its GPU; GPUs of one host do not. */
static groups find_groups(const question *q) {
  const int apart = q->apart ? q->gpus : 1;
  const bool alone = q->rdma && q->net.hosts == q->net.nranks;
  groups g = {q->net.hosts * apart, 0};
  if (g.number > 1 && q->net.nranks % g.number == 0 && (alone || q->net.nranks / g.number > 1))
    g.size = q->net.nranks / g.number;
  return g;
}

/* A part that a group makes, or that goes across groups. Elements are bytes there. */
static question part_of(const question *q, const groups *g, bool within, const char *name,
                        colli_coll coll, size_t bytes) {
  question part = *q;
  part.name = name;
  part.coll = coll;
  part.bytes = bytes / q->type_bytes * q->type_bytes;
  part.root = 0;
  part.net.nranks = within ? g->size : g->number;
  if (coll == COLLI_ALLGATHER) /* each rank's block is in the result already */
    part.registered &= EXPLAIN_RESULT;
  else if (coll != q->coll) /* the result is a piece, or what was registered is none of it */
    part.registered &= coll == COLLI_REDUCE_SCATTER ? EXPLAIN_INPUT : 0;
  if (within) {
    part.net.hosts = 1;
    part.gpus = q->apart ? 1 : q->gpus;
    part.apart = false;
  } else {
    part.gpus = part.net.hosts == 1 ? g->number : q->apart ? q->gpus : 1;
    part.apart = true;
  }
  return part;
}

/* How calls run within a group. */
static int mode_within(const question *q, const groups *g) {
  const question part = part_of(q, g, true, "allgather", COLLI_ALLGATHER, q->type_bytes);
  static answer a;
  gpu_call call;
  memset(&a, 0, sizeof(a));
  explain_set_up(&part, &a);
  explain_gpu_count(&part, &a, &call);
  described_free(&a);
  free(call.ranks);
  return call.mode;
}

/* Elements of the vector or of each block that are in a round, of calls that are made in rounds. */
static size_t round_of(const question *q, const groups *g) {
  return colli_levels_round(q->coll, explain_param(COLLI_PARAM_GPU_SLOT_BYTES), q->type_bytes,
                            g->number, g->size);
}

/* Whether the call is divided. */
static bool is_divided(const question *q, const answer *a, const groups *g) {
  const bool rounds = q->coll == COLLI_REDUCE || q->coll == COLLI_REDUCE_SCATTER;
  const bool taken = rounds || q->coll == COLLI_ALLREDUCE || q->coll == COLLI_BROADCAST ||
                     q->coll == COLLI_ALLGATHER;
  if (g->size == 0 || !taken || (q->varying && q->coll != COLLI_REDUCE_SCATTER))
    return false;
  if (colli_reduces(q->coll) && a->shape.order != COLLI_ORDER_ANY)
    return false;
  if (g->size == 1) {
    const question whole = part_of(q, g, false, q->name, q->coll, q->bytes);
    return explain_are_messages(&whole);
  }
  return colli_levels_is_long(q->coll, q->bytes, g->size,
                              colli_staged_part_of(explain_param(COLLI_PARAM_GPU_SLOT_BYTES))) &&
         (!rounds || round_of(q, g) > 0) && mode_within(q, g) != COLLI_GPU_STAGED;
}

/* Prints one part: where it is made, and which. */
static void print_part(const question *q, const groups *g, const char *where, bool within,
                       const char *name, colli_coll coll, size_t bytes) {
  static answer a;
  const question part = part_of(q, g, within, name, coll, bytes);
  memset(&a, 0, sizeof(a));
  explain_set_up(&part, &a);
  printf("\n%s: ", where);
  /* Between groups of one host there is shared memory, which reaches no GPU. */
  if (!within && g->number == q->net.hosts && explain_are_messages(&part))
    explain_messages(&part);
  else
    explain_gpu_part(&part, &a);
  described_free(&a);
}

/* The longest piece of so many elements that a rank of a group has. */
static size_t piece_of(const question *q, const groups *g, size_t elements) {
  return (elements - colli_levels_piece_at(elements, g->size - 1, g->size)) * q->type_bytes;
}

/* The part of a round that is within groups, for each of them. */
static void print_each(const question *q, const groups *g, int number, const char *name,
                       size_t bytes) {
  char where[64];
  snprintf(where, sizeof(where), "%d. within each group, %d times, for each group", number,
           g->number);
  print_part(q, g, where, true, name, q->coll, bytes);
}

/* Prints the parts of a reduction that is made in rounds. */
static void print_rounds(const question *q, const groups *g) {
  const size_t elements = q->bytes / q->type_bytes, most = round_of(q, g);
  const size_t some = elements < most ? elements : most, piece = piece_of(q, g, some);
  if (elements > most)
    printf("\nIt takes %zu rounds, because there is room for one slot (%zu bytes). In a round:\n",
           (elements + most - 1) / most, explain_param(COLLI_PARAM_GPU_SLOT_BYTES));
  if (q->coll == COLLI_REDUCE) {
    print_part(q, g, "1. within each group", true, "reduce_scatter", COLLI_REDUCE_SCATTER, piece);
    print_part(q, g, "2. across groups", false, "reduce", COLLI_REDUCE, piece);
    print_part(q, g, "3. within the root's group", true, "gather", COLLI_GATHER, piece);
  } else {
    print_each(q, g, 1, q->name, some * q->type_bytes);
    print_part(q, g, "2. across groups", false, q->name, q->coll, some * q->type_bytes);
  }
}

/* Explains a divided call; false: this one is not. */
static bool explain_divided(const question *q, const answer *a) {
  const groups g = find_groups(q);
  if (!is_divided(q, a, &g))
    return false;
  const size_t piece = piece_of(q, &g, q->bytes / q->type_bytes);
  if (g.size == 1) {
    print_part(q, &g, "in streams, with a rank on each host", false, q->name, q->coll, q->bytes);
    puts("\nAll ranks meet first, for one more answer of the host.");
    return true;
  }
  printf("%s in streams of %zu bytes, %d ranks in %d groups of %d, whose GPUs reach each other but "
         "not those of\nother groups. It is divided among the ranks of a group, which are counted "
         "from 0 in each part:\n",
         q->name, q->bytes, q->net.nranks, g.number, g.size);
  if (q->coll == COLLI_ALLREDUCE) {
    print_part(q, &g, "1. within each group", true, "reduce_scatter", COLLI_REDUCE_SCATTER, piece);
    print_part(q, &g, "2. across groups", false, "allreduce", COLLI_ALLREDUCE, piece);
    print_part(q, &g, "3. within each group", true, "allgather", COLLI_ALLGATHER, piece);
  } else if (q->coll == COLLI_BROADCAST) {
    print_part(q, &g, "1. within the root's group", true, "broadcast", COLLI_BROADCAST, q->bytes);
    print_part(q, &g, "2. across groups", false, "broadcast", COLLI_BROADCAST, piece);
    print_part(q, &g, "3. within each other group", true, "allgather", COLLI_ALLGATHER, piece);
  } else if (q->coll == COLLI_ALLGATHER) {
    print_part(q, &g, "1. across groups", false, q->name, q->coll, q->bytes);
    print_each(q, &g, 2, q->name, q->bytes);
  } else {
    print_rounds(q, &g);
  }
  puts("\nThe parts follow each other, after one more answer of the host, for which all ranks have "
       "come.");
  return true;
}

void explain_gpu(const question *q, answer *a) {
  if (!explain_divided(q, a))
    explain_gpu_part(q, a);
  puts("The counts are exact for buffers in memory of the ranks' GPUs. The time compares calls and "
       "modes; it\nis not that of your machine.");
}
