/* select.c: which algorithm, and how large its chunks are. */
#include <string.h>

#include "libcoll/algo/algo.h"

#define CHUNK_BYTES_MIN 4096 /* the smallest chunk that the choice tries */

/* The partition that an algorithm gets for a wanted chunk size. */
void colli_choice_partition(const colli_algo *algo, const colli_shape *shape, size_t count,
                            size_t elem_bytes, const colli_limits *limits, colli_partition *out) {
  int nchunks = algo->nchunks(shape);
  bool exact = colli_exact(shape->coll);
  if (shape->coll == COLLI_BARRIER)
    count = 0;
  colli_partition_make(out, exact ? count * (size_t)shape->nranks : count, elem_bytes, nchunks,
                       exact, limits);
}

/* Inserts a candidate where it belongs by cost; equal ones keep their order. */
static int insert(colli_choice *list, int length, int room, const colli_choice *candidate) {
  int at = length;
  while (at > 0 && list[at - 1].predicted_ns > candidate->predicted_ns)
    at--;
  if (at >= room)
    return length;
  int kept = length < room ? length : room - 1;
  memmove(&list[at + 1], &list[at], (size_t)(kept - at) * sizeof(*list));
  list[at] = *candidate;
  return kept + 1;
}

/* Whether two partitions of one vector are the same. */
static bool same_cut(const colli_partition *a, const colli_partition *b) {
  return a->region == b->region && a->piece == b->piece && a->slice == b->slice &&
         a->passes == b->passes;
}

/* The best chunk size of one algorithm. */
static void best_chunk(const colli_algo *algo, const colli_shape *shape, size_t count,
                       size_t elem_bytes, const colli_limits *limits, const colli_model *model,
                       colli_choice *best) {
  size_t most = limits->slot_bytes * (limits->slot_count > 1 ? limits->slot_count / 2 : 1);
  if (limits->chunk_bytes && limits->chunk_bytes < most)
    most = limits->chunk_bytes;
  colli_limits wanted = *limits;
  wanted.chunk_bytes = most;
  *best = (colli_choice){.algo = algo};
  colli_partition last = {0};
  for (bool first = true;; first = false) {
    colli_choice tried = {.algo = algo, .chunk_bytes = wanted.chunk_bytes};
    colli_choice_partition(algo, shape, count, elem_bytes, &wanted, &tried.partition);
    /* A short vector is one chunk whatever is wanted; for many ranks a cost takes its time. */
    bool known = !first && same_cut(&tried.partition, &last);
    last = tried.partition;
    if (!known)
      tried.predicted_ns = algo->cost(shape, &tried.partition, elem_bytes, model);
    if (first || (!known && tried.predicted_ns < best->predicted_ns))
      *best = tried;
    size_t power = (size_t)1 << (63 - __builtin_clzll(wanted.chunk_bytes));
    size_t smaller = power < wanted.chunk_bytes ? power : power / 2;
    if (!algo->pipelined || smaller < CHUNK_BYTES_MIN)
      return;
    wanted.chunk_bytes = smaller;
  }
}

/* The algorithm and chunk size with the lowest cost. */
int colli_select(const colli_shape *shape, size_t count, size_t elem_bytes,
                 const colli_limits *limits, const colli_model *model, const char *force,
                 colli_choice *choice, colli_choice *candidates, int max_candidates) {
  int considered = 0, listed = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if (!colli_algo_can(*algo, shape) || (force[0] && strcmp(force, (*algo)->name) != 0))
      continue;
    bool fits = shape->nranks >= (*algo)->ranks_min &&
                (!(*algo)->ranks_max || shape->nranks <= (*algo)->ranks_max);
    if (!force[0] && !fits)
      continue;
    colli_choice best;
    best_chunk(*algo, shape, count, elem_bytes, limits, model, &best);
    if (considered++ == 0 || best.predicted_ns < choice->predicted_ns)
      *choice = best;
    if (candidates)
      listed = insert(candidates, listed, max_candidates, &best);
  }
  return candidates ? listed : considered;
}
