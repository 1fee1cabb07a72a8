/* timeline.c: computes when a rank finishes its steps. */
#include "libcoll/algo/timeline.h"

#include <math.h>

#include "libcoll/base/assert.h"

#define PASSES_RUN 4 /* by then the ranks have found their pace */

static double later(double a, double b) {
  return a > b ? a : b;
}

/* A rank that has not begun. */
colli_timeline colli_timeline_make(const colli_terms *terms, const colli_model *model) {
  return (colli_timeline){
      .filled = terms->filled,
      .slices = terms->slices,
      .step = model->step_ns,
      .fold = terms->work_reduce,
      .bytes = terms->bytes / terms->slices,
      .link = terms->copy_hop - model->step_ns - model->alpha_ns,
      .alpha = model->alpha_ns,
  };
}

void colli_timeline_aim(colli_timeline *at, colli_pair_cost link) {
  at->alpha = link.alpha_ns;
  at->link = at->bytes * link.beta_ns_per_byte;
}

/* The rank works on a chunk whose slices arrive at `in`; returns when the first slice is done. */
static double handle_chunk(colli_timeline *at, colli_flight in, double work) {
  COLLI_ASSERT(at->slices >= 1 && at->now >= 0);
  double first = later(at->now, in.first) + work;
  at->now = later(later(at->now, in.first) + at->slices * work, in.last + work);
  return first;
}

/* Sends the chunk that was just handled, whose first slice is ready at `first`. */
static colli_flight forward_chunk(colli_timeline *at, double first) {
  colli_flight out = {later(at->out, first) + at->link, 0};
  at->out = later(out.first + (at->slices - 1) * at->link, at->now + at->link);
  out.first += at->alpha;
  out.last = at->out + at->alpha;
  return out;
}

static const colli_flight at_hand = {0, 0};

/* Sends a chunk that is there. */
colli_flight colli_timeline_send(colli_timeline *at) {
  return forward_chunk(at, handle_chunk(at, at_hand, at->step));
}

/* Sends what it receives. */
colli_flight colli_timeline_forward(colli_timeline *at, colli_flight in) {
  return forward_chunk(at, handle_chunk(at, in, at->step));
}

/* Reduces what it receives with its own value, and sends the result. */
colli_flight colli_timeline_fold_forward(colli_timeline *at, colli_flight in) {
  return forward_chunk(at, handle_chunk(at, in, at->fold));
}

/* Receives a chunk. */
void colli_timeline_receive(colli_timeline *at, colli_flight in) {
  handle_chunk(at, in, at->step);
}

/* Receives and reduces a chunk. */
void colli_timeline_fold(colli_timeline *at, colli_flight in) {
  handle_chunk(at, in, at->fold);
}

/* Copies or reduces a chunk in its own memory. */
void colli_timeline_copy(colli_timeline *at) {
  handle_chunk(at, at_hand, at->fold);
}

/* A rank of a scan after some rounds, and when its next message arrives. */
typedef struct scanning {
  colli_timeline at;
  colli_flight sent;
} scanning;

/*
 * A rank after the rounds with distances below `distance`. Low ranks have nothing to wait for in
 * late rounds, so ranks are not equally far. This follows all ranks on which this one depends,
 * fewer than `distance`.
 */
static scanning scan_to(int rank, int distance, const scanning *begun) {
  COLLI_ASSERT(rank >= 0 && distance >= 1);
  if (distance == 1)
    return *begun;
  int from = rank - distance / 2;
  scanning after = scan_to(rank, distance / 2, begun);
  if (from < 0)
    after.sent = colli_timeline_send(&after.at);
  else
    after.sent = colli_timeline_fold_forward(&after.at, scan_to(from, distance / 2, begun).sent);
  return after;
}

/*
 * The number of messages for which the last rank waits in so many passes, directly or indirectly. A
 * rank waits only for lower ones, so a chain of waits, 2^k ranks long in round k, ends at rank 0
 * whatever the number of passes.
 */
static double waits_of(int n, double passes, bool shifted) {
  double waits = 0, ranks = n - 1;
  for (int distance = 1; distance < n; distance *= 2) {
    for (int times = distance == 1 && shifted ? 2 : 1; times > 0; times--) {
      double more = passes * distance < ranks ? passes : floor(ranks / distance);
      waits += more;
      ranks -= more * distance;
    }
  }
  return waits;
}

/* Scan by doubling: when the last rank ends. */
double colli_timeline_doubling(int n, double passes, colli_timeline fresh, bool shifted) {
  COLLI_ASSERT(n > 1 && passes >= 1);
  int among = shifted ? n - 1 : n, rounds = colli_log2_up(among);
  scanning begun = {.at = fresh};
  begun.sent = colli_timeline_send(&begun.at);
  if (shifted)
    begun.sent = colli_timeline_forward(&begun.at, begun.sent);
  double first = scan_to(among - 1, 1 << rounds, &begun).at.now;
  /* The rank with the most work: the last, or the one before it, which also begins. */
  bool both = rounds > 0 && among - 2 >= 1 << (rounds - 1);
  double work = rounds * fresh.fold + (both + shifted) * fresh.step;
  double way = (rounds + (shifted && (rounds > 0 || n == 2))) * fresh.link;
  double more = waits_of(n, passes, shifted) - waits_of(n, 1, shifted);
  /* While the first slice of a message is in flight, the sender works on the others. */
  double wait = later(0, fresh.alpha + fresh.link - (fresh.slices - 1) * fresh.fold);
  return first + (passes - 1) * fresh.slices * later(work, way) + more * wait;
}

/* When the last of the ranks ends. */
static double latest_end(const colli_timeline *at) {
  double end = 0;
  for (int i = 0; i < COLLI_TIMELINES; i++)
    end = later(end, at[i].now);
  return end;
}

/* The cost of an algorithm. */
double colli_timeline_cost(const colli_shape *shape, const colli_partition *partition,
                           size_t elem_bytes, const colli_model *model, colli_work work,
                           void (*pass)(colli_timeline *at, const colli_shape *shape,
                                        const void *ctx),
                           const void *ctx) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return shape->in_place ? 0 : colli_cost_alone(partition, &t);
  colli_timeline at[COLLI_TIMELINES];
  for (int i = 0; i < COLLI_TIMELINES; i++)
    at[i] = colli_timeline_make(&t, model);
  double end = 0, before = 0;
  int run = 0;
  for (; run < PASSES_RUN && run < t.passes; run++) {
    before = end;
    pass(at, shape, ctx);
    end = latest_end(at);
  }
  return colli_cost_bound(end + (t.passes - run) * (end - before), work, &t, model);
}
