/*
 * allreduce_weighted.c: all-reduce between groups (hosts) whose links to the network are not
 * equally fast (hier.h), by owners, each of which combines a share of the vector that suits its
 * link.
 *
 * Group i owns s_i of the S = sum of s chunks. It sends each chunk that it does not own to its
 * owner, and each that it owns to all others: N (1 + s_i/S (n - 2)) bytes out, and as many in, for
 * N bytes and n groups. With equal shares these are the ring's 2 (n-1)/n N. A group whose link is
 * slow has a small share or none. Without one it is a leaf, through whose link the vector passes
 * once each way, which is the least possible: all others need its contribution, and it needs the
 * result. cost/weights.h finds the shares. Inside groups: hier.h.
 *
 * Cost: max over i of N (1 + s_i/S (n - 2)) beta_i. Two lanes, so that a slow link does not idle
 * while a group waits for results.
 * Source: the direct (bundled) exchange of Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with
 * unequal blocks; that all must send N, and together 2 (n-1) N: Patarasuk and Yuan, "Bandwidth
 * optimal all-reduce algorithms for clusters of workstations", JPDC 69 (2009).
 *
 * 4 groups with the shares 1, 1, 1, 0: the way of chunk 1; group 3 combines nothing:
 *
 *     0 --.              .--> 3
 *     2 --+--> 1   1 ----+--> 0
 *     3 --'              '--> 2
 */
#include "libcoll/algo/hier.h"

/* How many chunks a group owns. */
static int share_of(const colli_shape *shape, int group) {
  return shape->share ? shape->share[group] : 1;
}

/* One rank of those that talk to each other, one of each group. */
typedef struct owner {
  colli_builder *builder;
  const colli_shape *shape;
  int rank, n;
  int first; /* of its own chunks */
} owner;

/* The first chunk of a group. */
static int first_chunk(const colli_shape *shape, int group) {
  int first = 0;
  for (int g = 0; g < group; g++)
    first += share_of(shape, g);
  return first;
}

/* Adds a step. */
static void add(const owner *o, unsigned bits, int from, int to, colli_buf src, int chunk) {
  colli_emit(o->builder, 0, bits, (colli_way){from, to, src, COLLI_OUTPUT}, chunk);
}

/* Sends its contributions to the owners that have a chunk of this round. */
static void contribute(const owner *o, int round) {
  for (int i = 1; i < o->n; i++) {
    int to = (o->rank + o->n - i) % o->n;
    if (share_of(o->shape, to) > round)
      add(o, COLLI_SEND, COLLI_NOBODY, to, COLLI_INPUT, first_chunk(o->shape, to) + round);
  }
}

/* Combines its own chunk of this round: first what fast groups send, because the others' comes
 * last. The result goes to the others, those that own nothing first: their links have no time to
 * lose. */
static void combine(const owner *o, int round) {
  int chunk = o->first + round, made = 0, told = COLLI_NOBODY;
  for (int i = 1; i < o->n && told == COLLI_NOBODY; i++)
    if (share_of(o->shape, (o->rank + o->n - i) % o->n) == 0)
      told = (o->rank + o->n - i) % o->n;
  if (told == COLLI_NOBODY)
    told = (o->rank + o->n - 1) % o->n;
  for (int idle = 0; idle < 2; idle++)
    for (int i = 1; i < o->n; i++) {
      int from = (o->rank + i) % o->n;
      if ((share_of(o->shape, from) == 0) != idle)
        continue;
      bool last = ++made == o->n - 1;
      unsigned bits = COLLI_RECV | COLLI_FOLD | COLLI_STORE;
      add(o, bits | (last ? COLLI_FINAL | COLLI_SEND : 0), from, last ? told : COLLI_NOBODY,
          made == 1 ? COLLI_INPUT : COLLI_OUTPUT, chunk);
    }
  for (int idle = 1; idle >= 0; idle--)
    for (int i = 1; i < o->n; i++) {
      int to = (o->rank + o->n - i) % o->n;
      if (to != told && (share_of(o->shape, to) == 0) == idle)
        add(o, COLLI_SEND, COLLI_NOBODY, to, COLLI_OUTPUT, chunk);
    }
}

/* Receives the results of this round from their owners. */
static void collect(const owner *o, int round) {
  for (int i = 1; i < o->n; i++) {
    int from = (o->rank + i) % o->n;
    if (share_of(o->shape, from) > round)
      add(o, COLLI_RECV | COLLI_STORE, from, COLLI_NOBODY, COLLI_OUTPUT,
          first_chunk(o->shape, from) + round);
  }
}

/* The sum of all shares. */
static int owners_nchunks(const colli_shape *shape) {
  return first_chunk(shape, shape->nranks);
}

/* How many rounds there are: each gets one chunk of every group done that still has one. */
static int count_rounds(const colli_shape *shape) {
  int rounds = 0;
  for (int group = 0; group < shape->nranks; group++)
    rounds = share_of(shape, group) > rounds ? share_of(shape, group) : rounds;
  return rounds;
}

/*
 * Round by round. One chunk of credit is enough: in a round a rank sends all its contributions
 * before it waits; each owner takes them, from the next rank on, before it sends results, and each
 * of these is taken by a rank that has combined its own chunk.
 */
static coll_status owners_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rounds = count_rounds(shape);
  colli_builder *builder = colli_builder_create(shape, owners_nchunks(shape), 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  owner o = {builder, shape, shape->rank, n, first_chunk(shape, shape->rank)};
  for (int round = 0; round < rounds; round++) {
    contribute(&o, round);
    if (share_of(shape, o.rank) > round)
      combine(&o, round);
    collect(&o, round);
  }
  return colli_builder_finish(builder, sched);
}

/* The beta of the slowest link; NULL: all are alike. */
static double slowest_link(const double *betas, int n) {
  double slowest = 0;
  for (int group = 0; betas && group < n; group++)
    slowest = betas[group] > slowest ? betas[group] : slowest;
  return slowest;
}

/* The time of the link that takes longest; each round has its latency, as results come back before
 * the next one begins. */
static double owners_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  int n = shape->nranks, all = owners_nchunks(shape);
  double longest = 0, peers = n - 1;
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  const double *betas = model->group_beta_ns_per_byte, slowest = slowest_link(betas, n);
  for (int group = 0; group < n; group++) {
    double share = share_of(shape, group), chunks = all - share + share * peers;
    double beta = model->beta_ns_per_byte * (betas ? betas[group] / slowest : 1);
    double works =
        t.slices * (2 * chunks * model->step_ns + share * peers * (t.work_reduce - model->step_ns));
    double links = chunks * t.bytes * beta;
    longest = works > longest ? works : longest;
    longest = links > longest ? links : longest;
  }
  double received = t.filled * all * peers * 2 / n, reduced = received / 2;
  colli_work work = {.steps = 2 * received, .received = received, .waits = 2, .reduced = reduced};
  return colli_cost_bound(
      t.passes * (t.filled * longest + 2 * count_rounds(shape) * model->alpha_ns), work, &t, model);
}

/* The part between groups. */
static const colli_algo owners = {
    .name = "owners",
    .coll = COLLI_ALLREDUCE,
    .orders = COLLI_GIVES_ANY,
    .nchunks = owners_nchunks,
    .emit = owners_emit,
    .cost = owners_cost,
};

static const colli_hier weighted = {
    .enter = &colli_reduce_scatter_ring,
    .across = &owners,
    .leave = &colli_allgather_ring,
    .lanes = 2,
    .split = true,
};

COLLI_HIER_FUNCTIONS(weighted, &weighted)

const colli_algo colli_allreduce_hier_weighted = {
    .name = "hier_weighted",
    .id = 142,
    .coll = COLLI_ALLREDUCE,
    .when = "hosts whose links differ: a slow one sends and gets the vector once",
    .source = "Patarasuk and Yuan 2009",
    .orders = COLLI_GIVES_ANY,
    .groups = true,
    .weighted = true,
    .nchunks = weighted_nchunks,
    .emit = weighted_emit,
    .cost = weighted_cost,
};
