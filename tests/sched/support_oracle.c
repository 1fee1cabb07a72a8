/* support_oracle.c: runs schedules on real numbers in random order. */
#include "support_oracle.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"

#define PASSES       2
#define MESSAGES_MAX 16 /* under way on one connection */

/*
 * An element. `sum` tells which contributions are in it; the map x -> scale x + shift, composed
 * from left to right, in which order, whatever the parentheses; `tree` how exactly they were put
 * together.
 */
typedef struct number {
  uint64_t sum;
  uint64_t scale, shift;
  uint64_t tree;
} number;

typedef struct message {
  number value;
  int length;
  int pass;
} message;

typedef struct link_pipe {
  message queue[MESSAGES_MAX];
  int count;
} link_pipe;

typedef struct place_in_lane {
  int pass;
  int step;
  bool holds; /* the message is taken, its sending is left */
  number value;
} place_in_lane;

typedef struct world {
  const group *all;
  const colli_shape *shape; /* rank 0's */
  colli_coll coll;
  int root;
  int nchunks;
  int nscratch; /* room for each rank's */
  int passes;
  int nlanes;
  int slots;
  bool in_place;
  int late; /* barrier: this rank has not entered yet; -1: all have */
  colli_prng prng;
  number *input, *output, *scratch; /* [rank][pass][chunk], [rank][chunk] */
  const number *original;           /* what inputs held, as input */
  uint64_t lengths;                 /* seed of the lengths of chunks */
  link_pipe *pipes;                 /* [from][to][lane] */
  place_in_lane *lanes;             /* [rank][lane] */
  bool harm;
} world;

static uint64_t scramble(uint64_t a) {
  colli_prng prng = {a};
  return colli_prng_next(&prng);
}

/* left op right. */
static number combine(number left, number right) {
  return (number){left.sum + right.sum, left.scale * right.scale,
                  left.scale * right.shift + left.shift,
                  scramble(left.tree * 3 + scramble(right.tree))};
}

/* What FINAL makes of a number. */
static number complete_value(number v) {
  return (number){scramble(v.sum), scramble(v.scale), scramble(v.shift), scramble(v.tree)};
}

static number random_number(colli_prng *prng) {
  return (number){colli_prng_next(prng), colli_prng_next(prng) | 1, colli_prng_next(prng),
                  colli_prng_next(prng)};
}

static link_pipe *pipe_of(world *w, int from, int to, int lane) {
  int n = w->all->nranks;
  return &w->pipes[(from * n + to) * w->nlanes + lane];
}

/* Whether a rank has this chunk of its input. */
static bool has_input(const world *w, int rank, int chunk) {
  if (w->coll == COLLI_BROADCAST || w->coll == COLLI_SCATTER)
    return rank == w->root;
  return (w->coll != COLLI_ALLGATHER && w->coll != COLLI_GATHER) || rank == chunk;
}

/* Whether a rank has this chunk of its output. */
static bool has_output(const world *w, int rank, int chunk) {
  if (w->coll == COLLI_REDUCE || w->coll == COLLI_GATHER)
    return rank == w->root;
  if (w->coll == COLLI_EXSCAN)
    return rank > 0;
  return (w->coll != COLLI_REDUCE_SCATTER && w->coll != COLLI_SCATTER) || rank == chunk;
}

/* Where a chunk lies. In place the chunk that input and output both have is one. */
static number *memory_of(world *w, int rank, int buf, int pass, int chunk) {
  if (buf == COLLI_SCRATCH && w->all->sched[rank]->scratch_own)
    chunk /= w->nchunks;
  if (buf == COLLI_SCRATCH)
    return &w->scratch[rank * w->nscratch + chunk];
  size_t at = (size_t)((rank * PASSES + pass) * w->nchunks + chunk);
  bool both = has_input(w, rank, chunk) && (has_output(w, rank, chunk) || w->coll == COLLI_EXSCAN);
  return buf == COLLI_INPUT && !(w->in_place && both) ? &w->input[at] : &w->output[at];
}

/* How long a chunk is, in one partition drawn at random. */
static int length_of(const world *w, int rank, int buf, int chunk) {
  uint64_t which = (uint64_t)(chunk % w->nchunks);
  bool blocks = w->coll != COLLI_ALLREDUCE && w->coll != COLLI_BROADCAST &&
                w->coll != COLLI_REDUCE && w->coll != COLLI_SCAN && w->coll != COLLI_EXSCAN;
  if (blocks && !w->shape->varying)
    return 1;
  if (w->coll == COLLI_ALLTOALL) {
    uint64_t from = buf == COLLI_OUTPUT ? which : (uint64_t)rank;
    uint64_t to = buf == COLLI_OUTPUT ? (uint64_t)rank : which;
    /* In place what comes back is as long as what went. */
    bool turn = w->shape->in_place && from > to;
    which = turn ? to * 1000 + from : from * 1000 + to;
  }
  return (int)(scramble(w->lengths + which) >> 40);
}

/* Whether the steps in `dep` are done. */
static bool may_begin(const world *w, int rank, const place_in_lane *at, const colli_step *step) {
  const colli_sched *sched = w->all->sched[rank];
  for (int d = 0; d < 2; d++) {
    if (step->dep[d] == COLLI_NO_DEP)
      continue;
    const place_in_lane *other =
        &w->lanes[rank * COLLI_MAX_LANES + sched->steps[step->dep[d]].lane];
    if (other->pass * sched->nsteps + other->step <= at->pass * sched->nsteps + step->dep[d])
      return false;
  }
  return true;
}

/* A step's value by sched.h; `msg` is the message that it receives. */
static number evaluate(world *w, int rank, const colli_step *step, int pass, number msg) {
  bool receives = step->bits & COLLI_RECV, reduces = step->bits & COLLI_FOLD;
  number v = msg;
  if (!receives || reduces) {
    number own = *memory_of(w, rank, step->src_buf, pass, step->chunk_in);
    if (receives && reduces)
      v = step->bits & COLLI_MSG_LEFT ? combine(msg, own) : combine(own, msg);
    else if (reduces)
      v = combine(*memory_of(w, rank, step->dst_buf, pass, step->chunk_out), own);
    else
      v = own;
  }
  if (step->bits & COLLI_FINAL)
    v = complete_value(v);
  return v;
}

/* Tries to move one lane on by half a step; whether it did. */
static bool try_lane(world *w, int rank, int lane) {
  const colli_sched *sched = w->all->sched[rank];
  place_in_lane *at = &w->lanes[rank * COLLI_MAX_LANES + lane];
  if (rank == w->late || at->pass == w->passes ||
      sched->lane_first[lane] == sched->lane_first[lane + 1])
    return false;
  const colli_step *step = &sched->steps[at->step];
  bool reads = !(step->bits & COLLI_RECV) || (step->bits & COLLI_FOLD);
  int length = length_of(w, rank, reads ? step->src_buf : step->dst_buf,
                         reads ? step->chunk_in : step->chunk_out);
  bool sends = step->bits & COLLI_SEND;
  link_pipe *out = sends ? pipe_of(w, rank, step->peer_send, lane) : NULL;
  bool can_send = !sends || (out->count < MESSAGES_MAX && (!w->slots || out->count < w->slots));
  if (!at->holds) {
    message msg = {.length = length, .pass = at->pass};
    if (!may_begin(w, rank, at, step))
      return false;
    if (step->bits & COLLI_RECV) {
      link_pipe *in = pipe_of(w, step->peer_recv, rank, lane);
      if (in->count == 0 || (w->slots > 1 && !can_send))
        return false;
      msg = in->queue[0];
      memmove(&in->queue[0], &in->queue[1], (size_t)--in->count * sizeof(message));
      w->harm |= msg.pass != at->pass || (w->coll != COLLI_BARRIER && msg.length != length);
    }
    if (w->coll != COLLI_BARRIER)
      at->value = evaluate(w, rank, step, at->pass, msg.value);
    if (step->bits & COLLI_STORE)
      *memory_of(w, rank, step->dst_buf, at->pass, step->chunk_out) = at->value;
    at->holds = true;
  } else if (!can_send) {
    return false;
  }
  if (can_send) {
    if (sends)
      out->queue[out->count++] = (message){at->value, length, at->pass};
    at->holds = false;
    if (++at->step == sched->lane_first[lane + 1]) {
      at->step = sched->lane_first[lane];
      at->pass++;
    }
  }
  return true;
}

/* Moves random lanes until none can move. */
static void run_ranks(world *w) {
  int total = w->all->nranks * COLLI_MAX_LANES;
  for (bool moved = true; moved && !w->harm;) {
    moved = false;
    int start = (int)colli_prng_below(&w->prng, (uint64_t)total);
    /* Now and then a lane runs far ahead of the others. */
    int burst = colli_prng_below(&w->prng, 4) == 0 ? 8 : 1;
    for (int i = 0; i < total && !moved; i++) {
      int which = (start + i) % total, rank = which / COLLI_MAX_LANES;
      int lane = which % COLLI_MAX_LANES;
      for (int b = 0; b < burst && lane < w->all->sched[rank]->nlanes; b++)
        moved |= try_lane(w, rank, lane);
    }
  }
}

/* Whether a rank has done all its steps. */
static bool has_left(const world *w, int rank) {
  const colli_sched *sched = w->all->sched[rank];
  for (int l = 0; l < sched->nlanes; l++)
    if (sched->lane_first[l] < sched->lane_first[l + 1] &&
        w->lanes[rank * COLLI_MAX_LANES + l].pass < w->passes)
      return false;
  return true;
}

/* What a rank gave for a chunk. */
static number input_of(const world *w, int rank, int pass, int chunk) {
  return w->original[(rank * PASSES + pass) * w->nchunks + chunk];
}

/* Ranks first .. last from left to right. */
static number from_left(const world *w, int first, int last, int pass, int chunk) {
  number v = input_of(w, first, pass, chunk);
  for (int rank = first + 1; rank <= last; rank++)
    v = combine(v, input_of(w, rank, pass, chunk));
  return v;
}

/* Seats first .. first + count - 1 of the tree that order.h defines, of which `pairs` are pairs. */
static number by_tree(const world *w, int first, int count, int pairs, int pass, int chunk) {
  if (count > 1)
    return combine(by_tree(w, first, count / 2, pairs, pass, chunk),
                   by_tree(w, first + count / 2, count / 2, pairs, pass, chunk));
  if (first < pairs)
    return from_left(w, 2 * first, 2 * first + 1, pass, chunk);
  return input_of(w, first + pairs, pass, chunk);
}

/* Whether a rank's output chunk is not what it must be. */
static bool is_wrong(world *w, int rank, int pass, int chunk) {
  int n = w->all->nranks, power = 1;
  number got = *memory_of(w, rank, COLLI_OUTPUT, pass, chunk), expected;
  bool scan = w->coll == COLLI_SCAN || w->coll == COLLI_EXSCAN;
  bool exact = w->shape->order == COLLI_ORDER_TREE || w->shape->order == COLLI_ORDER_LEFT;
  while (2 * power <= n)
    power *= 2;
  if (scan)
    expected = from_left(w, 0, w->coll == COLLI_SCAN ? rank : rank - 1, pass, chunk);
  else if (w->coll == COLLI_ALLREDUCE || w->coll == COLLI_REDUCE || w->coll == COLLI_REDUCE_SCATTER)
    expected = complete_value(w->shape->order == COLLI_ORDER_TREE
                                  ? by_tree(w, 0, power, n - power, pass, chunk)
                                  : from_left(w, 0, n - 1, pass, chunk));
  else if (w->coll == COLLI_BROADCAST || w->coll == COLLI_SCATTER)
    return got.tree != input_of(w, w->root, pass, chunk).tree;
  else if (w->coll == COLLI_ALLTOALL)
    return got.tree != input_of(w, chunk, pass, rank).tree;
  else
    return got.tree != input_of(w, chunk, pass, chunk).tree;
  if (got.sum != expected.sum || (exact && got.tree != expected.tree))
    return true;
  if ((scan || w->shape->order != COLLI_ORDER_ANY) &&
      (got.scale != expected.scale || got.shift != expected.shift))
    return true;
  return w->coll == COLLI_ALLREDUCE && got.tree != memory_of(w, 0, COLLI_OUTPUT, pass, chunk)->tree;
}

/* Judges the results of all ranks. untouched: what outputs held before. */
static void judge(world *w, const number *untouched) {
  int n = w->all->nranks;
  for (int rank = 0; rank < n; rank++)
    w->harm |= !has_left(w, rank);
  for (int i = 0; i < n * n * w->nlanes; i++)
    w->harm |= w->pipes[i].count > 0;
  for (int i = 0; i < n * PASSES * w->nchunks && w->coll != COLLI_BARRIER; i++) {
    int rank = i / (PASSES * w->nchunks), pass = i / w->nchunks % PASSES, chunk = i % w->nchunks;
    w->harm |= has_output(w, rank, chunk) ? is_wrong(w, rank, pass, chunk)
                                          : w->output[i].tree != untouched[i].tree;
  }
}

/* Fills memory: inputs with random numbers where the rank has any, all else with garbage. */
static void fill_input(world *w, number *original) {
  int n = w->all->nranks, vector = n * PASSES * w->nchunks;
  for (int i = 0; i < vector; i++) {
    original[i] = random_number(&w->prng);
    w->input[i] = random_number(&w->prng);
    w->output[i] = random_number(&w->prng);
  }
  for (int i = 0; i < n * w->nscratch; i++)
    w->scratch[i] = random_number(&w->prng);
  for (int i = 0; i < vector; i++) {
    int rank = i / (PASSES * w->nchunks), chunk = i % w->nchunks;
    if (has_input(w, rank, chunk))
      *memory_of(w, rank, COLLI_INPUT, i / w->nchunks % PASSES, chunk) = original[i];
  }
  w->original = original;
  w->lengths = colli_prng_next(&w->prng);
}

/* One run. `late` as in world. */
static bool one_run(const group *all, int slots, bool in_place, int late, uint64_t seed) {
  size_t n = (size_t)all->nranks, nchunks = (size_t)all->sched[0]->nchunks;
  world w = {.all = all,
             .shape = &all->sched[0]->shape,
             .coll = all->sched[0]->coll,
             .root = all->sched[0]->root,
             .nscratch = 2 * (int)nchunks + 32,
             .nchunks = (int)nchunks,
             .passes = all->sched[0]->coll == COLLI_BARRIER ? 1 : PASSES,
             .nlanes = all->sched[0]->nlanes,
             .slots = slots,
             .in_place = in_place,
             .late = late,
             .prng = {seed}};
  size_t vector = n * PASSES * nchunks;
  number *numbers = calloc(4 * vector + n * (size_t)w.nscratch, sizeof(number));
  w.pipes = calloc(n * n * (size_t)w.nlanes, sizeof(*w.pipes));
  w.lanes = calloc(n * COLLI_MAX_LANES, sizeof(*w.lanes));
  if (!numbers || !w.pipes || !w.lanes)
    abort();
  w.input = numbers;
  w.output = numbers + vector;
  w.scratch = numbers + 4 * vector;
  fill_input(&w, numbers + 2 * vector);
  memcpy(numbers + 3 * vector, w.output, vector * sizeof(number));
  for (int rank = 0; rank < all->nranks; rank++)
    for (int l = 0; l < all->sched[rank]->nlanes; l++)
      w.lanes[rank * COLLI_MAX_LANES + l].step = all->sched[rank]->lane_first[l];
  run_ranks(&w);
  if (late >= 0) {
    /* A barrier: no rank may leave before all have come. */
    for (int rank = 0; rank < all->nranks; rank++)
      w.harm |= rank != late && has_left(&w, rank);
    w.late = -1;
    run_ranks(&w);
  }
  judge(&w, numbers + 3 * vector);
  free(numbers);
  free(w.pipes);
  free(w.lanes);
  return w.harm;
}

bool oracle_finds_harm(const group *all, int runs, uint64_t seed) {
  static const int slot_counts[] = {1, 2, 0};
  bool barrier = all->sched[0]->coll == COLLI_BARRIER;
  bool exchange = all->sched[0]->coll == COLLI_ALLTOALL;
  int kinds = barrier ? all->nranks : exchange ? 1 : 2;
  for (int run_index = 0; run_index < runs; run_index++)
    for (int s = 0; s < 3; s++)
      for (int kind = 0; kind < kinds; kind++)
        if (one_run(all, slot_counts[s],
                    exchange ? all->sched[0]->shape.in_place : !barrier && kind,
                    barrier ? kind : -1, ++seed))
          return true;
  return false;
}
