/*
 * owners.c: all-reduce among one rank of each host, by owners of shares.
 *
 * Shares are dealt out one by one: the next one gets the rank that has the least for its weight in
 * colli_shape.share (the method of d'Hondt). So every rack has as many, whatever its hosts are. A
 * rank sends each chunk that it does not own to its owner, and each that it owns to all others of
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

#define FINE 4 /* shares for each that is gathered ahead, at least */

/* Who owns what. */
typedef struct deal {
  colli_layout l; /* of racks */
  bool racked;    /* else all ranks are in one rack, and there is no layout */
  int racks, shares;
  int ahead;  /* with racks: how many shares are gathered before the first is spread */
  int *owner; /* [rack][share] */
  int *turn;  /* [rack][share] how many lower ones the owner has */
} deal;

static int rack_of(const deal *d, int rank) {
  return d->racked ? d->l.of[rank] : 0;
}

/* The weight of a rank: its number in colli_shape.share. */
static int weight_of(const colli_shape *shape, int rank) {
  return shape->share ? shape->share[rank] : 1;
}

/* How many ranks of a rack can own anything, and the sum of their weights. */
typedef struct crew {
  int owners, sum;
} crew;

static crew crew_of(const deal *d, const colli_shape *shape, int rack) {
  crew all = {0, 0};
  for (int rank = 0; rank < shape->nranks; rank++)
    if (rack_of(d, rank) == rack) {
      all.owners += weight_of(shape, rank) > 0;
      all.sum += weight_of(shape, rank);
    }
  return all.sum > 0 ? all : (crew){1, 1};
}

/*
 * Sets the number of shares: the sum of the weights. With racks the largest one's, if all others'
 * divide it: then nobody gets more than its weight says; else twice as many, so that it is not much
 * more; and so many times that, that few are gathered ahead.
 */
static void count_shares(deal *d, const colli_shape *shape) {
  bool even = true;
  d->shares = 1;
  d->ahead = 0;
  for (int rack = 0; rack < d->racks; rack++) {
    const crew all = crew_of(d, shape, rack);
    d->shares = all.sum > d->shares ? all.sum : d->shares;
    d->ahead = all.owners > d->ahead ? all.owners : d->ahead;
  }
  for (int rack = 0; rack < d->racks; rack++)
    even = even && d->shares % crew_of(d, shape, rack).sum == 0;
  const int once = even ? d->shares : 2 * d->shares, wanted = d->racked ? FINE * d->ahead : 1;
  d->shares = (wanted + once - 1) / once * once;
}

/* Deals out the next share: `best` is memory for each rack, `owned` has what each rank got. */
static void deal_share(const deal *d, const colli_shape *shape, int share, int *best, int *owned) {
  for (int rack = 0; rack < d->racks; rack++)
    best[rack] = COLLI_NOBODY;
  for (int rank = 0; rank < shape->nranks; rank++) {
    int *to = &best[rack_of(d, rank)];
    if (*to == COLLI_NOBODY ||
        weight_of(shape, rank) * (owned[*to] + 1) > weight_of(shape, *to) * (owned[rank] + 1))
      *to = rank;
  }
  for (int rack = 0; rack < d->racks; rack++) {
    d->owner[rack * d->shares + share] = best[rack];
    d->turn[rack * d->shares + share] = owned[best[rack]]++;
  }
}

static void deal_free(deal *d) {
  free(d->owner);
  if (d->racked)
    colli_layout_free(&d->l);
}

/* Deals out the shares; false if out of memory. */
static bool deal_make(deal *d, const colli_shape *shape) {
  colli_shape plain = *shape;
  plain.share = NULL; /* the layout's would be of racks */
  *d = (deal){.racked = shape->ngroups > 1, .racks = 1};
  if (d->racked && !colli_layout_make(&d->l, &plain))
    return false;
  d->racks = d->racked ? d->l.ngroups : 1;
  count_shares(d, shape);
  const size_t all = (size_t)d->racks * (size_t)d->shares;
  d->owner = calloc(2 * all + (size_t)d->racks + (size_t)shape->nranks, sizeof(*d->owner));
  if (d->owner) {
    int *best = d->owner + 2 * all, *owned = best + d->racks;
    d->turn = d->owner + all;
    for (int share = 0; share < d->shares; share++)
      deal_share(d, shape, share, best, owned);
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
  const int *turn;   /* [share] of that rank */
  int each;          /* chunks of a share */
  int size, place;   /* of the rack, and of the rank in it */
  const int *member; /* [place] rank; NULL: it is the place */
} owner;

/* The i-th rank of the rack behind the own one. */
static int behind(const owner *o, int i) {
  const int place = (o->place + i) % o->size;
  return o->member ? o->member[place] : place;
}

/* The share that a rank of the rack has in this turn; -1: none. */
static int share_at(const owner *o, int rank, int turn) {
  for (int share = 0; share < o->d.shares; share++)
    if (o->whose[share] == rank && o->turn[share] == turn)
      return share;
  return -1;
}

static bool is_idle(const owner *o, int rank) {
  return share_at(o, rank, 0) < 0;
}

/* Adds a step. */
static void add(const owner *o, unsigned bits, int from, int to, colli_buf src, int chunk) {
  colli_emit(o->whole.builder, 0, bits, (colli_way){from, to, src, COLLI_OUTPUT}, chunk);
}

/* Combines a chunk of its own: first what fast hosts send, because the others' comes last. `told`
 * gets the result while it is made; NOBODY: it is not the last one. */
static void combine(const owner *o, int chunk, int told) {
  int made = 0;
  for (int idle = 0; idle < 2; idle++)
    for (int i = 1; i < o->size; i++) {
      const int from = behind(o, i);
      if (is_idle(o, from) != idle)
        continue;
      const bool last = ++made == o->size - 1 && told != COLLI_NOBODY;
      add(o, COLLI_RECV | COLLI_FOLD | COLLI_STORE | (last ? COLLI_FINAL | COLLI_SEND : 0), from,
          last ? told : COLLI_NOBODY, made == 1 ? COLLI_INPUT : COLLI_OUTPUT, chunk);
    }
}

/* Sends a result to the others, but not to `told`: first to those that own nothing, whose links
 * have no time to lose. */
static void tell(const owner *o, int chunk, int told) {
  for (int idle = 1; idle >= 0; idle--)
    for (int i = 1; i < o->size; i++) {
      const int to = behind(o, o->size - i);
      if (to != told && is_idle(o, to) == idle)
        add(o, COLLI_SEND, COLLI_NOBODY, to, COLLI_OUTPUT, chunk);
    }
}

/* The first that is told a result: one that owns nothing, if there is any. */
static int first_told(const owner *o) {
  for (int i = 1; i < o->size; i++)
    if (is_idle(o, behind(o, o->size - i)))
      return behind(o, o->size - i);
  return behind(o, o->size - 1);
}

/* In one rack, turn by turn. One chunk of credit is enough: in a turn a rank sends all its
 * contributions before it waits; each owner takes them, from the next rank on, before it sends
 * results, and each of these is taken by a rank that has combined its own chunk. */
static void add_turn(const owner *o, int turn) {
  const int own = share_at(o, o->shape->rank, turn), told = first_told(o);
  for (int i = 1; i < o->size; i++) {
    const int to = behind(o, o->size - i), chunk = share_at(o, to, turn);
    if (chunk >= 0)
      add(o, COLLI_SEND, COLLI_NOBODY, to, COLLI_INPUT, chunk);
  }
  if (own >= 0) {
    combine(o, own, told);
    tell(o, own, told);
  }
  for (int i = 1; i < o->size; i++) {
    const int from = behind(o, i), chunk = share_at(o, from, turn);
    if (chunk >= 0)
      add(o, COLLI_RECV | COLLI_STORE, from, COLLI_NOBODY, COLLI_OUTPUT, chunk);
  }
}

/* A share is combined in the rack. */
static void gather_share(const owner *o, int share) {
  const bool own = o->whose[share] == o->shape->rank;
  for (int chunk = share * o->each; chunk < (share + 1) * o->each; chunk++)
    if (own)
      combine(o, chunk, COLLI_NOBODY);
    else
      add(o, COLLI_SEND, COLLI_NOBODY, o->whose[share], COLLI_INPUT, chunk);
}

/* Its owner combines it with those in the other racks. */
static coll_status cross_racks(owner *o, int share) {
  if (o->whose[share] != o->shape->rank)
    return COLL_OK;
  colli_part across = {.among = across_of(&o->d, o->shape, share),
                       .ranks = o->d.l.peers,
                       .first = share * o->each,
                       .chunks = o->each,
                       .in = o->size > 1 ? COLLI_OUTPUT : COLLI_INPUT,
                       .out = COLLI_OUTPUT,
                       .complete = true};
  across.algo = across_algo(&across.among);
  return colli_part_add(&o->whole, &across);
}

/* The result goes to all of the rack. */
static void spread_share(const owner *o, int share) {
  const bool own = o->whose[share] == o->shape->rank;
  for (int chunk = share * o->each; chunk < (share + 1) * o->each; chunk++)
    if (own)
      tell(o, chunk, COLLI_NOBODY);
    else
      add(o, COLLI_RECV | COLLI_STORE, o->whose[share], COLLI_NOBODY, COLLI_OUTPUT, chunk);
}

/* In several racks, share by share, of which some are gathered ahead, so that links are used in
 * both ways. All ranks do all of this in the same order, and receive in each part what is sent in
 * it; so who is furthest behind never waits, and one chunk of credit is enough. */
static coll_status add_shares(owner *o) {
  coll_status status = COLL_OK;
  for (int share = 0; share < o->d.shares + o->d.ahead && status == COLL_OK; share++) {
    if (share >= o->d.ahead) {
      status = cross_racks(o, share - o->d.ahead);
      spread_share(o, share - o->d.ahead);
    }
    if (share < o->d.shares)
      gather_share(o, share);
  }
  return status;
}

/* Adds all steps of a rank. */
static coll_status add_steps(owner *o) {
  if (o->d.racked)
    return add_shares(o);
  int turns = 0; /* as many as some rank has shares */
  for (int share = 0; share < o->d.shares; share++)
    turns = o->turn[share] >= turns ? o->turn[share] + 1 : turns;
  for (int turn = 0; turn < turns; turn++)
    add_turn(o, turn);
  return COLL_OK;
}

static int owners_nchunks(const colli_shape *shape) {
  deal d;
  if (!deal_make(&d, shape))
    return 1; /* out of memory; emitting will fail, too */
  const int chunks = d.shares * chunks_each(&d, shape);
  deal_free(&d);
  return chunks;
}

static coll_status owners_emit(const colli_shape *shape, colli_sched **sched) {
  owner o = {.shape = shape, .size = shape->nranks, .place = shape->rank};
  *sched = NULL;
  if (!deal_make(&o.d, shape))
    return COLL_ERR_NO_MEMORY;
  const int rack = o.d.racked ? o.d.l.group : 0;
  o.whose = o.d.owner + rack * o.d.shares;
  o.turn = o.d.turn + rack * o.d.shares;
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

/* What is counted over all ranks. */
typedef struct sums {
  double longest;  /* ns of a pass, of the link or rank that takes longest */
  double received; /* chunks of all ranks */
  int most;        /* shares that a rank owns */
} sums;

/* What a message costs in a rack. */
static colli_pair_cost cost_inside(const deal *d, const colli_shape *shape,
                                   const colli_model *model) {
  const colli_pair_cost near = {model->near_alpha_ns, model->near_beta_ns_per_byte};
  if (d->racked && shape->ninner > 0 && model->inner[0].beta_ns_per_byte > 0)
    return model->inner[0];
  if (d->racked && near.beta_ns_per_byte > 0)
    return near;
  return (colli_pair_cost){model->alpha_ns, model->beta_ns_per_byte};
}

/* The beta of the slowest link; NULL: all are alike. */
static double slowest_link(const double *betas, int n) {
  double slowest = 0;
  for (int rank = 0; betas && rank < n; rank++)
    slowest = betas[rank] > slowest ? betas[rank] : slowest;
  return slowest;
}

/* Adds up a rank's part of what happens in its rack. */
static void add_rank(const deal *d, int rank, int size, int each, double beta, const colli_terms *t,
                     const colli_model *model, sums *all) {
  const int *whose = d->owner + rack_of(d, rank) * d->shares;
  int shares = 0;
  for (int share = 0; share < d->shares; share++)
    shares += whose[share] == rank;
  const double own = (double)shares * each, peers = size - 1;
  const double chunks = peers > 0 ? (double)d->shares * each + own * (peers - 1) : 0;
  const double works =
      t->slices * (2 * chunks * model->step_ns + own * peers * (t->work_reduce - model->step_ns));
  const double links = chunks * t->bytes * beta;
  all->longest = works > all->longest ? works : all->longest;
  all->longest = links > all->longest ? links : all->longest;
  all->received += chunks;
  all->most = shares > all->most ? shares : all->most;
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
  colli_model far = *model;
  far.link_beta_ns_per_byte = NULL;
  for (int level = 1; level < shape->ninner; level++)
    far.inner[level - 1] = model->inner[level];
  among.coll = COLLI_ALLREDUCE;
  cut.nchunks = colli_part_own(algo, &among);
  return most * algo->cost(&among, &cut, elem_bytes, &far);
}

/* The time of the link that takes longest; each turn has its latency, as results come back before
 * the next one begins. */
static double owners_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  deal d;
  sums all = {0, 0, 0};
  if (!deal_make(&d, shape))
    return INFINITY;
  const int n = shape->nranks, each = chunks_each(&d, shape);
  const colli_terms t = colli_terms_make(partition, elem_bytes, model);
  const colli_pair_cost near = cost_inside(&d, shape, model);
  const double *betas = model->link_beta_ns_per_byte, slowest = slowest_link(betas, n);
  for (int rank = 0; rank < n; rank++)
    add_rank(&d, rank, d.racked ? d.l.size[rack_of(&d, rank)] : n, each,
             near.beta_ns_per_byte * (betas ? betas[rank] / slowest : 1), &t, model, &all);
  const double across = cost_across(&d, shape, all.most, partition, elem_bytes, model);
  const double received = t.filled * all.received / n;
  const colli_work work = {
      .steps = 2 * received, .received = received, .waits = 2, .reduced = received / 2};
  const double critical = t.passes * (t.filled * all.longest + 2 * all.most * near.alpha_ns);
  deal_free(&d);
  return colli_cost_bound(critical + across, work, &t, model);
}

const colli_algo colli_allreduce_owners = {
    .name = "owners",
    .coll = COLLI_ALLREDUCE,
    .orders = COLLI_GIVES_ANY,
    .nchunks = owners_nchunks,
    .emit = owners_emit,
    .cost = owners_cost,
};
