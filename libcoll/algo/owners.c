/*
 * owners.c: all-reduce among one rank of each host, by owners of shares.
 *
 * Shares are dealt out one by one: the next one goes to the rank that has the least for its weight
 * in colli_shape.share (the method of d'Hondt). So every rack has as many, whatever its hosts are.
 * A rank sends each chunk that it does not own to its owner, and each that it owns to all others of
 * its rack: N (1 + w (m - 2)) bytes out, and as many in, for N bytes, m ranks and a part w of the
 * shares. With racks it also combines what it owns with the owners in other racks.
 *
 * Source of the direct exchange: Thakur, Rabenseifner and Gropp, IJHPCA 19 (2005), with unequal
 * blocks; of the combination level by level: BlueConnect (allreduce_hier.c).
 */
#include "libcoll/algo/owners.h"

#include <math.h>
#include <stdlib.h>

#include "libcoll/algo/hier_layout.h"
#include "libcoll/algo/hier_part.h"

#define FINE        16  /* shares for each that is reduced ahead, */
#define SHARES_MOST 128 /* but not more in all, unless the weights need them */

/* Who owns what. */
typedef struct deal {
  colli_layout l; /* of racks */
  bool racked;    /* else all ranks are in one rack, and there is no layout */
  int racks, shares;
  int window; /* shares that are reduced, and broadcast, at once */
  int ahead;  /* windows that are reduced before the first is broadcast */
  int *owner; /* [rack][share] */
  int *owned; /* [rank] how many shares it has */
} deal;

static int rack_of(const deal *d, int rank) {
  return d->racked ? d->l.of[rank] : 0;
}

/* The weight of a rank: its number in colli_shape.share. */
static int weight_of(const colli_shape *shape, int rank) {
  return shape->share ? shape->share[rank] : 1;
}

/* How many ranks of a rack can own anything, and the sum of their weights. */
typedef struct rack_sum {
  int owners, sum;
} rack_sum;

/* Adds up the weights of each rack; NULL: out of memory. */
static rack_sum *sum_racks(const deal *d, const colli_shape *shape) {
  rack_sum *all = calloc((size_t)d->racks, sizeof(*all));
  for (int rank = 0; all && rank < shape->nranks; rank++) {
    all[rack_of(d, rank)].owners += weight_of(shape, rank) > 0;
    all[rack_of(d, rank)].sum += weight_of(shape, rank);
  }
  for (int rack = 0; all && rack < d->racks; rack++)
    if (all[rack].sum == 0)
      all[rack] = (rack_sum){1, 1};
  return all;
}

/*
 * Sets the number of shares: the sum of the largest rack's weights, if all others' divide it: then
 * nobody gets more than its weight says; else twice as many, so that it is not much more. `fine`:
 * so many that there are FINE for each that is reduced ahead, and each is a window of its own; as
 * many are reduced ahead as there are owners. False if out of memory.
 */
static bool count_shares(deal *d, const colli_shape *shape, bool fine) {
  bool even = true;
  int owners = 1, most = 1;
  rack_sum *all = sum_racks(d, shape);
  for (int rack = 0; all && rack < d->racks; rack++) {
    most = all[rack].sum > most ? all[rack].sum : most;
    owners = all[rack].owners > owners ? all[rack].owners : owners;
  }
  for (int rack = 0; all && rack < d->racks; rack++)
    even = even && most % all[rack].sum == 0;
  const int once = even ? most : 2 * most;
  const int wanted = FINE * owners < SHARES_MOST ? FINE * owners : SHARES_MOST;
  d->shares = fine ? (wanted + once - 1) / once * once : once;
  d->window = fine ? 1 : once;
  d->ahead = fine ? owners : 1;
  const bool made = all != NULL;
  free(all);
  return made;
}

/* Deals out the next share. `best` is memory for each rack. */
static void deal_share(const deal *d, const colli_shape *shape, int share, int *best) {
  for (int rack = 0; rack < d->racks; rack++)
    best[rack] = COLLI_NOBODY;
  for (int rank = 0; rank < shape->nranks; rank++) {
    int *to = &best[rack_of(d, rank)];
    if (*to == COLLI_NOBODY ||
        weight_of(shape, rank) * (d->owned[*to] + 1) > weight_of(shape, *to) * (d->owned[rank] + 1))
      *to = rank;
  }
  for (int rack = 0; rack < d->racks; rack++) {
    d->owner[rack * d->shares + share] = best[rack];
    d->owned[best[rack]]++;
  }
}

static void deal_free(deal *d) {
  free(d->owner);
  if (d->racked)
    colli_layout_free(&d->l);
}

/* Deals out the shares; false if out of memory. */
static bool deal_make(deal *d, const colli_shape *shape, bool fine) {
  colli_shape plain = *shape;
  plain.share = NULL; /* the layout's would be of racks */
  plain.layouts = NULL;
  *d = (deal){.racked = shape->ngroups > 1, .racks = 1};
  if (d->racked && !colli_layout_make(&d->l, &plain, false))
    return false;
  d->racks = d->racked ? d->l.ngroups : 1;
  const bool counted = count_shares(d, shape, fine);
  const size_t all = (size_t)d->racks * (size_t)d->shares;
  if (counted)
    d->owner = calloc(all + (size_t)d->racks + (size_t)shape->nranks, sizeof(*d->owner));
  if (d->owner) {
    int *best = d->owner + all;
    d->owned = best + d->racks;
    for (int share = 0; share < d->shares; share++)
      deal_share(d, shape, share, best);
  } else {
    deal_free(d);
  }
  return d->owner != NULL;
}

/* Who combines a share across racks. */
static colli_shape across_of(deal *d, const colli_shape *shape, int share) {
  colli_shape plain = *shape;
  plain.root = 0;
  for (int rack = 0; rack < d->racks; rack++)
    d->l.peers[rack] = d->owner[rack * d->shares + share];
  return colli_layout_across(&d->l, &plain, d->l.peers);
}

/* How. */
static const colli_algo *across_algo(const colli_shape *among) {
  return among->ngroups > 1 ? &colli_allreduce_hier_levels_split : &colli_allreduce_recdbl;
}

/* Of how many chunks a share has to be. */
static int chunks_each(deal *d, const colli_shape *shape) {
  if (!d->racked)
    return 1;
  const colli_shape among = across_of(d, shape, 0);
  return colli_part_own(across_algo(&among), &among);
}

/* ---- the steps ------------------------------------------------------------------------------- */

/* One rank of a rack. */
typedef struct owner {
  colli_whole whole;
  const colli_shape *shape;
  deal d;
  const int *whose;  /* [share] rank of the own rack */
  int each;          /* chunks of a share */
  int size, place;   /* of the rack, and of the rank in it */
  const int *member; /* [place] rank; NULL: it is the place */
} owner;

/* The i-th rank of the rack behind the own one. */
static int behind(const owner *o, int i) {
  const int place = (o->place + i) % o->size;
  return o->member ? o->member[place] : place;
}

/* Whether a rank owns nothing. */
static bool is_idle(const owner *o, int rank) {
  return o->d.owned[rank] == 0;
}

/* Adds a step. */
static void add(const owner *o, unsigned bits, int from, int to, colli_buf src, int chunk) {
  colli_emit(o->whole.builder, 0, bits, (colli_way){from, to, src, COLLI_OUTPUT}, chunk);
}

/* Combines a chunk of its own: first what fast hosts send, because the others' comes last. */
static void combine(const owner *o, int chunk) {
  int made = 0;
  for (int idle = 0; idle < 2; idle++)
    for (int i = 1; i < o->size; i++) {
      const int from = behind(o, i);
      if (is_idle(o, from) != idle)
        continue;
      const bool final = ++made == o->size - 1 && !o->d.racked;
      add(o, COLLI_RECV | COLLI_FOLD | COLLI_STORE | (final ? COLLI_FINAL : 0), from, COLLI_NOBODY,
          made == 1 ? COLLI_INPUT : COLLI_OUTPUT, chunk);
    }
}

/* Sends a result to the others: first to those that own nothing, whose links have no time to lose.
 */
static void tell(const owner *o, int chunk) {
  for (int idle = 1; idle >= 0; idle--)
    for (int i = 1; i < o->size; i++) {
      const int to = behind(o, o->size - i);
      if (is_idle(o, to) == idle)
        add(o, COLLI_SEND, COLLI_NOBODY, to, COLLI_OUTPUT, chunk);
    }
}

/* The share that a rank of the rack has in this turn of a window; -1: none. */
static int share_at(const owner *o, int rank, int window, int turn) {
  const int first = window * o->d.window;
  for (int share = first; share < first + o->d.window; share++)
    if (o->whose[share] == rank && turn-- == 0)
      return share;
  return -1;
}

/* How many turns a window has: as many as some rank of the rack has shares. */
static int count_turns(const owner *o, int window) {
  int turns = 0;
  for (int i = 0; i < o->size; i++)
    while (share_at(o, behind(o, i), window, turns) >= 0)
      turns++;
  return turns;
}

/* Reduces the shares of a window in the rack. One chunk of credit is enough: for each turn and
 * piece a rank sends all its contributions before it waits. */
static void reduce_window(const owner *o, int window) {
  const int turns = count_turns(o, window);
  for (int turn = 0; turn < turns; turn++)
    for (int piece = 0; piece < o->each; piece++) {
      for (int i = 1; i < o->size; i++) {
        const int to = behind(o, o->size - i), share = share_at(o, to, window, turn);
        if (share >= 0)
          add(o, COLLI_SEND, COLLI_NOBODY, to, COLLI_INPUT, share * o->each + piece);
      }
      const int own = share_at(o, o->shape->rank, window, turn);
      if (own >= 0)
        combine(o, own * o->each + piece);
    }
}

/* Combines its shares of a window with their owners in other racks, in rising order: so the lowest
 * that is not combined yet has owners that have ended all lower ones. */
static coll_status cross_racks(owner *o, int window) {
  coll_status status = COLL_OK;
  for (int turn = 0, share; o->d.racked && status == COLL_OK; turn++) {
    share = share_at(o, o->shape->rank, window, turn);
    if (share < 0)
      break;
    colli_part across = {.among = across_of(&o->d, o->shape, share),
                         .ranks = o->d.l.peers,
                         .first = share * o->each,
                         .chunks = o->each,
                         .in = o->size > 1 ? COLLI_OUTPUT : COLLI_INPUT,
                         .out = COLLI_OUTPUT,
                         .complete = true};
    across.algo = across_algo(&across.among);
    status = colli_part_add(&o->whole, &across);
  }
  return status;
}

/* Broadcasts the results of a window in the rack. */
static void broadcast_window(const owner *o, int window) {
  const int turns = count_turns(o, window);
  for (int turn = 0; turn < turns; turn++)
    for (int piece = 0; piece < o->each; piece++) {
      const int own = share_at(o, o->shape->rank, window, turn);
      if (own >= 0)
        tell(o, own * o->each + piece);
      for (int i = 1; i < o->size; i++) {
        const int from = behind(o, i), share = share_at(o, from, window, turn);
        if (share >= 0)
          add(o, COLLI_RECV | COLLI_STORE, from, COLLI_NOBODY, COLLI_OUTPUT,
              share * o->each + piece);
      }
    }
}

/* Adds all steps of a rank, window by window, of which some are reduced ahead, so that links are
 * used in both ways. All ranks do all of this in the same order, and receive in each part what is
 * sent in it; so who is furthest behind waits for nobody who is further. */
static coll_status add_steps(owner *o) {
  const int windows = o->d.shares / o->d.window;
  coll_status status = COLL_OK;
  for (int window = 0; window < windows + o->d.ahead && status == COLL_OK; window++) {
    if (window >= o->d.ahead) {
      status = cross_racks(o, window - o->d.ahead);
      broadcast_window(o, window - o->d.ahead);
    }
    if (window < windows)
      reduce_window(o, window);
  }
  return status;
}

static int count_chunks(const colli_shape *shape, bool fine) {
  deal d;
  if (!deal_make(&d, shape, fine))
    return 1; /* out of memory; emitting will fail, too */
  const int chunks = d.shares * chunks_each(&d, shape);
  deal_free(&d);
  return chunks;
}

static coll_status emit(const colli_shape *shape, bool fine, colli_sched **sched) {
  owner o = {.shape = shape, .size = shape->nranks, .place = shape->rank};
  *sched = NULL;
  if (!deal_make(&o.d, shape, fine))
    return COLL_ERR_NO_MEMORY;
  const int rack = o.d.racked ? o.d.l.group : 0;
  o.whose = o.d.owner + rack * o.d.shares;
  if (o.d.racked) {
    o.size = o.d.l.size[rack];
    o.place = o.d.l.position;
    o.member = o.d.l.inside;
  }
  o.each = chunks_each(&o.d, shape);
  o.whole.nchunks = o.d.shares * o.each;
  o.whole.builder = colli_builder_create(shape, o.whole.nchunks, 0, 1);
  coll_status status = o.whole.builder ? add_steps(&o) : COLL_ERR_NO_MEMORY;
  deal_free(&o.d);
  if (status != COLL_OK) {
    colli_builder_discard(o.whole.builder);
    return status;
  }
  colli_builder_scratch(o.whole.builder, o.whole.rows * o.whole.nchunks);
  return colli_builder_finish(o.whole.builder, sched);
}

/* ---- the cost -------------------------------------------------------------------------------- */

/* What is priced. */
typedef struct priced {
  deal d;
  colli_terms t;
  colli_model near;    /* in a rack */
  const double *links; /* beta of each rank's; NULL: alike */
  double slowest;      /* of those */
  int each;            /* chunks of a share */
} priced;

/* The beta of the slowest link; NULL: all are alike. */
static double slowest_link(const double *betas, int n) {
  double slowest = 0;
  for (int rank = 0; betas && rank < n; rank++)
    slowest = betas[rank] > slowest ? betas[rank] : slowest;
  return slowest;
}

/* The beta of a rank's link. */
static double link_beta(const priced *p, int rank) {
  return p->near.beta_ns_per_byte * (p->links ? p->links[rank] / p->slowest : 1);
}

/* How many ranks are with this one in its rack. */
static int count_peers(const priced *p, int rank, int nranks) {
  return (p->d.racked ? p->d.l.size[rack_of(&p->d, rank)] : nranks) - 1;
}

/* The chunks that a rank receives, and sends. */
static double count_moved(const priced *p, int rank, int nranks) {
  const int peers = count_peers(p, rank, nranks);
  const double own = (double)p->d.owned[rank] * p->each;
  return peers > 0 ? (double)p->d.shares * p->each + own * (peers - 1) : 0;
}

/* What its link or its own work take for that. */
static double moving_ns(const priced *p, int rank, int nranks, const colli_model *model) {
  const double chunks = count_moved(p, rank, nranks), step = model->step_ns;
  const double combined = (double)p->d.owned[rank] * p->each * count_peers(p, rank, nranks);
  return fmax(chunks * p->t.bytes * link_beta(p, rank),
              p->t.slices * (2 * chunks * step + combined * (p->t.work_reduce - step)));
}

/* What the busiest owner does with other racks. */
static double cost_across(deal *d, const colli_shape *shape, int most,
                          const colli_partition *partition, size_t elem_bytes,
                          const colli_model *model) {
  if (!d->racked)
    return 0;
  colli_shape among = across_of(d, shape, 0);
  const colli_algo *algo = across_algo(&among);
  colli_partition cut = *partition;
  colli_model far = colli_hier_far_model(model, shape);
  far.link_beta_ns_per_byte = NULL;
  among.coll = COLLI_ALLREDUCE;
  cut.nchunks = colli_part_own(algo, &among);
  const size_t whole = cut.region * (size_t)cut.nchunks;
  cut.count = cut.count < whole ? cut.count : whole;
  return most * algo->cost(&among, &cut, elem_bytes, &far);
}

/* The time of the link that takes longest; each share that a rank owns has its latency. If the
 * vector is cut finely, a replay tells more, and this is asked only if memory has run out. */
static double cost(const colli_shape *shape, bool fine, const colli_partition *partition,
                   size_t elem_bytes, const colli_model *model) {
  priced p;
  const int n = shape->nranks;
  double longest = 0, received = 0, most = 0;
  if (!deal_make(&p.d, shape, fine))
    return INFINITY;
  p.each = chunks_each(&p.d, shape);
  p.t = colli_terms_make(partition, elem_bytes, model);
  p.near = p.d.racked ? colli_hier_near_model(model, shape) : *model;
  p.links = model->link_beta_ns_per_byte;
  p.slowest = slowest_link(p.links, n);
  for (int rank = 0; rank < n; rank++) {
    longest = fmax(longest, moving_ns(&p, rank, n, model));
    received += count_moved(&p, rank, n) / n;
    most = fmax(most, p.d.owned[rank]);
  }
  const double pass = p.t.filled * longest + 2 * most * p.near.alpha_ns;
  const double across = cost_across(&p.d, shape, (int)most, partition, elem_bytes, model);
  const colli_work work = {.steps = 2 * p.t.filled * received,
                           .received = p.t.filled * received,
                           .waits = 2,
                           .reduced = p.t.filled * received / 2};
  deal_free(&p.d);
  return colli_cost_bound(p.t.passes * pass + across, work, &p.t, model);
}

/* Defines an algorithm, which cuts the vector finely or not. */
#define OWNERS(which, fine)                                                                        \
  static int which##_nchunks(const colli_shape *shape) {                                           \
    return count_chunks(shape, fine);                                                              \
  }                                                                                                \
  static coll_status which##_emit(const colli_shape *shape, colli_sched **sched) {                 \
    return emit(shape, fine, sched);                                                               \
  }                                                                                                \
  static double which##_cost(const colli_shape *shape, const colli_partition *partition,           \
                             size_t elem_bytes, const colli_model *model) {                        \
    return cost(shape, fine, partition, elem_bytes, model);                                        \
  }                                                                                                \
  const colli_algo colli_allreduce_##which = {                                                     \
      .name = #which,                                                                              \
      .coll = COLLI_ALLREDUCE,                                                                     \
      .orders = COLLI_GIVES_ANY,                                                                   \
      .groups = true, /* which its formula knows */                                                \
      .nchunks = which##_nchunks,                                                                  \
      .emit = which##_emit,                                                                        \
      .cost = which##_cost,                                                                        \
  };

OWNERS(owners, false)
OWNERS(owners_fine, true)
