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

/* What lies between groups of so many ranks, of each of which one takes part. */
static colli_network network_across(const colli_network *all, int size) {
  colli_network network = {0};
  for (int i = 0; i < all->nlevels; i++) {
    colli_level level = all->level[i];
    level.ranks = (level.ranks + size - 1) / size;
    if (level.ranks > 1)
      network.level[network.nlevels++] = level;
  }
  return network;
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
    part.net.network = (colli_network){0}; /* GPUs have links of their own */
    part.gpus = q->apart ? 1 : q->gpus;
    part.apart = false;
  } else {
    part.at_once = g->size;
    part.net.network = network_across(&q->net.network, g->size);
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

/* The longest piece of so many elements that a rank of a group has. */
static size_t piece_of(const question *q, const groups *g, size_t elements) {
  return (elements - colli_levels_piece_at(elements, g->size - 1, g->size)) * q->type_bytes;
}

/* ---- the parts ------------------------------------------------------------------------------- */

/* Adds a part that is made so many times. */
static void add_part(const question *q, const groups *g, const char *where, bool within,
                     size_t times, colli_coll coll, size_t bytes, gpu_parts *all) {
  gpu_part *part = &all->part[all->count++];
  const char *name = coll == q->coll ? q->name : colli_coll_name(coll);
  *part = (gpu_part){.q = part_of(q, g, within, name, coll, bytes), .where = where, .times = times};
  /* Between groups of one host there is shared memory, which reaches no GPU. */
  part->messages = !within && g->number == q->net.hosts && explain_are_messages(&part->q);
}

/* Adds the parts of a reduction that is made in rounds. */
static void add_rounds(const question *q, const groups *g, gpu_parts *all) {
  const size_t elements = q->bytes / q->type_bytes, most = round_of(q, g);
  const size_t some = elements < most ? elements : most, piece = piece_of(q, g, some);
  const size_t rounds = elements > most ? (elements + most - 1) / most : 1;
  all->rounds = rounds;
  if (q->coll == COLLI_REDUCE) {
    add_part(q, g, "within each group", true, rounds, COLLI_REDUCE_SCATTER, piece, all);
    add_part(q, g, "across groups", false, rounds, COLLI_REDUCE, piece, all);
    add_part(q, g, "within the root's group", true, rounds, COLLI_GATHER, piece, all);
  } else {
    add_part(q, g, "within each group", true, rounds * (size_t)g->number, q->coll,
             some * q->type_bytes, all);
    add_part(q, g, "across groups", false, rounds, q->coll, some * q->type_bytes, all);
  }
}

gpu_parts explain_gpu_divide(const question *q, const answer *a) {
  const groups g = find_groups(q);
  gpu_parts all = {.rounds = 1};
  if (!is_divided(q, a, &g)) {
    all.part[all.count++] = (gpu_part){.q = *q, .times = 1};
    return all;
  }
  const size_t piece = piece_of(q, &g, q->bytes / q->type_bytes);
  all.ngroups = g.number;
  all.group_size = g.size;
  if (g.size == 1) {
    add_part(q, &g, "in streams, with a rank on each host", false, 1, q->coll, q->bytes, &all);
  } else if (q->coll == COLLI_ALLREDUCE) {
    add_part(q, &g, "within each group", true, 1, COLLI_REDUCE_SCATTER, piece, &all);
    add_part(q, &g, "across groups", false, 1, COLLI_ALLREDUCE, piece, &all);
    add_part(q, &g, "within each group", true, 1, COLLI_ALLGATHER, piece, &all);
  } else if (q->coll == COLLI_BROADCAST) {
    add_part(q, &g, "within the root's group", true, 1, COLLI_BROADCAST, q->bytes, &all);
    add_part(q, &g, "across groups", false, 1, COLLI_BROADCAST, piece, &all);
    add_part(q, &g, "within each other group", true, 1, COLLI_ALLGATHER, piece, &all);
  } else if (q->coll == COLLI_ALLGATHER) {
    add_part(q, &g, "across groups", false, 1, q->coll, q->bytes, &all);
    add_part(q, &g, "within each group", true, (size_t)g.number, q->coll, q->bytes, &all);
  } else {
    add_rounds(q, &g, &all);
  }
  return all;
}

double explain_gpu_total(const question *q, const gpu_parts *all, const double us[EXPLAIN_PARTS]) {
  double sum = 0;
  if (all->group_size > 0)
    sum = EXPLAIN_GATE_OPERATIONS * q->costs.launch_us + q->costs.host_us;
  for (int i = 0; i < all->count; i++)
    sum += (double)all->part[i].times * us[i];
  return sum;
}

double explain_gpu_part_price(const gpu_part *part, colli_choice *choice, size_t *pieces) {
  static answer a;
  gpu_call call;
  *choice = (colli_choice){0};
  *pieces = 1;
  if (part->messages)
    return explain_messages_price(&part->q);
  memset(&a, 0, sizeof(a));
  explain_set_up(&part->q, &a);
  explain_gpu_count(&part->q, &a, &call);
  const gpu_time t = explain_gpu_price(&part->q, &a, &call);
  *choice = t.choice;
  *pieces = call.parts;
  described_free(&a);
  free(call.ranks);
  return t.us;
}

/* ---- printing -------------------------------------------------------------------------------- */

/* Prints one part: where it is made, and which. Returns its time. */
static double print_part(const gpu_parts *all, int number) {
  static answer a;
  const gpu_part *part = &all->part[number];
  const size_t in_round = part->times / all->rounds;
  double us;
  if (all->group_size > 1)
    printf("\n%d. %s", number + 1, part->where);
  else
    printf("\n%s", part->where);
  if (in_round > 1)
    printf(", %zu times, for each group", in_round);
  fputs(": ", stdout);
  memset(&a, 0, sizeof(a));
  explain_set_up(&part->q, &a);
  us = part->messages ? explain_messages(&part->q) : explain_gpu_part(&part->q, &a);
  described_free(&a);
  return us;
}

/* Prints the time of all parts. */
static void print_total(const question *q, const gpu_parts *all, const double us[EXPLAIN_PARTS]) {
  char text[32];
  printf("\nThe parts follow each other in the stream, each when the one before has ended, after "
         "one more answer of the\nhost, for which all ranks have come. So their times add up:\n"
         "time = %d * launch + host",
         EXPLAIN_GATE_OPERATIONS);
  for (int i = 0; i < all->count; i++)
    printf(" + %s%d.", all->part[i].times > 1 ? "times * " : "", i + 1);
  printf("\n  = %d * %g us + %g us", EXPLAIN_GATE_OPERATIONS, q->costs.launch_us, q->costs.host_us);
  for (int i = 0; i < all->count; i++) {
    explain_time(text, us[i] * 1e3);
    if (all->part[i].times > 1)
      printf(" + %zu * %s", all->part[i].times, text);
    else
      printf(" + %s", text);
  }
  explain_time(text, explain_gpu_total(q, all, us) * 1e3);
  printf("\n  = %s in all under these assumptions\n", text);
}

/* Explains a divided call. */
static void print_divided(const question *q, const gpu_parts *all) {
  double us[EXPLAIN_PARTS];
  if (all->group_size > 1)
    printf("%s in streams of %zu bytes, %d ranks in %d groups of %d, whose GPUs reach each other "
           "but not those of\nother groups. It is divided among the ranks of a group, which are "
           "counted from 0 in each part:\n",
           q->name, q->bytes, q->net.nranks, all->ngroups, all->group_size);
  if (all->rounds > 1)
    printf("\nIt takes %zu rounds, because there is room for one slot (%zu bytes). In a round:\n",
           all->rounds, explain_param(COLLI_PARAM_GPU_SLOT_BYTES));
  for (int i = 0; i < all->count; i++)
    us[i] = print_part(all, i);
  print_total(q, all, us);
}

void explain_gpu(const question *q, answer *a) {
  const gpu_parts all = explain_gpu_divide(q, a);
  if (all.group_size > 0)
    print_divided(q, &all);
  else
    (void)explain_gpu_part(q, a);
  puts("The counts are exact for buffers in memory of the ranks' GPUs. The time compares calls and "
       "modes; it\nis not that of your machine.");
}
