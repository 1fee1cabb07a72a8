/* support_oracle.c: runs schedules on real numbers in random order. */
#include "support_oracle.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"

#define PASSES       2
#define MESSAGES_MAX 16 /* under way on one connection */

/* An element: `sum` tells which contributions are in it, `order` how they were put together. */
typedef struct number {
  uint64_t sum;
  uint64_t order;
} number;

typedef struct message {
  number value;
  int chunk;
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
  colli_coll coll;
  int nchunks;
  int passes;
  int nlanes;
  int slots;
  bool in_place;
  int late; /* barrier: this rank has not entered yet; -1: all have */
  colli_prng prng;
  number *input, *output, *scratch; /* [rank][pass][chunk], [rank][chunk] */
  link_pipe *pipes;                 /* [from][to][lane] */
  place_in_lane *lanes;             /* [rank][lane] */
  bool harm;
} world;

static uint64_t scramble(uint64_t a) {
  colli_prng prng = {a};
  return colli_prng_next(&prng);
}

/* left op right: sums add up, orders tell left from right. */
static number combine(number left, number right) {
  return (number){left.sum + right.sum, scramble(left.order * 3 + scramble(right.order))};
}

static link_pipe *pipe_of(world *w, int from, int to, int lane) {
  int n = w->all->nranks;
  return &w->pipes[(from * n + to) * w->nlanes + lane];
}

static number *memory(world *w, int rank, int buf, int pass, int chunk) {
  if (buf == COLLI_SCRATCH)
    return &w->scratch[rank * w->nchunks + chunk];
  size_t at = (size_t)((rank * PASSES + pass) * w->nchunks + chunk);
  bool aliased = w->in_place && (w->coll != COLLI_ALLGATHER || chunk == rank);
  return buf == COLLI_INPUT && !aliased ? &w->input[at] : &w->output[at];
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

/* What sched.h says of a step's value, its message aside. */
static number evaluate(world *w, int rank, const colli_step *step, int pass, number msg) {
  bool receives = step->bits & COLLI_RECV, reduces = step->bits & COLLI_FOLD;
  number v = msg;
  if (!receives || reduces) {
    number own = *memory(w, rank, step->src_buf, pass, step->chunk_in);
    if (receives && reduces)
      v = step->bits & COLLI_MSG_LEFT ? combine(msg, own) : combine(own, msg);
    else if (reduces)
      v = combine(*memory(w, rank, step->dst_buf, pass, step->chunk_out), own);
    else
      v = own;
  }
  if (step->bits & COLLI_FINAL)
    v = (number){scramble(v.sum), scramble(v.order)};
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
  int chunk =
      !(step->bits & COLLI_RECV) || (step->bits & COLLI_FOLD) ? step->chunk_in : step->chunk_out;
  bool sends = step->bits & COLLI_SEND;
  link_pipe *out = sends ? pipe_of(w, rank, step->peer_send, lane) : NULL;
  bool room = !sends || (out->count < MESSAGES_MAX && (!w->slots || out->count < w->slots));
  if (!at->holds) {
    message msg = {.chunk = chunk, .pass = at->pass};
    if (!may_begin(w, rank, at, step))
      return false;
    if (step->bits & COLLI_RECV) {
      link_pipe *in = pipe_of(w, step->peer_recv, rank, lane);
      if (in->count == 0 || (w->slots > 1 && !room))
        return false;
      msg = in->queue[0];
      memmove(&in->queue[0], &in->queue[1], (size_t)--in->count * sizeof(message));
      w->harm |= msg.pass != at->pass || (w->coll != COLLI_ALLGATHER && msg.chunk != chunk);
    }
    if (w->coll != COLLI_BARRIER)
      at->value = evaluate(w, rank, step, at->pass, msg.value);
    if (step->bits & COLLI_STORE)
      *memory(w, rank, step->dst_buf, at->pass, step->chunk_out) = at->value;
    at->holds = true;
  } else if (!room) {
    return false;
  }
  if (room) {
    if (sends)
      out->queue[out->count++] = (message){at->value, chunk, at->pass};
    at->holds = false;
    if (++at->step == sched->lane_first[lane + 1]) {
      at->step = sched->lane_first[lane];
      at->pass++;
    }
  }
  return true;
}

/* Moves random lanes until none can move. */
static void run(world *w) {
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

/* Judges the results of all ranks. */
static void judge(world *w, const number *original) {
  int n = w->all->nranks;
  for (int rank = 0; rank < n; rank++)
    w->harm |= !has_left(w, rank);
  for (int i = 0; i < n * n * w->nlanes; i++)
    w->harm |= w->pipes[i].count > 0;
  for (int i = 0; i < n * PASSES * w->nchunks && w->coll != COLLI_BARRIER; i++) {
    int rank = i / (PASSES * w->nchunks), pass = i / w->nchunks % PASSES, chunk = i % w->nchunks;
    number got = *memory(w, rank, COLLI_OUTPUT, pass, chunk), expected = got;
    if (w->coll == COLLI_ALLREDUCE) {
      expected = *memory(w, 0, COLLI_OUTPUT, pass, chunk);
      uint64_t sum = 0;
      for (int r = 0; r < n; r++)
        sum += original[(r * PASSES + pass) * w->nchunks + chunk].sum;
      w->harm |= got.sum != scramble(sum);
    } else {
      int source = w->coll == COLLI_BROADCAST ? w->all->sched[0]->root : chunk;
      expected = original[(source * PASSES + pass) * w->nchunks + chunk];
    }
    w->harm |= got.sum != expected.sum || got.order != expected.order;
  }
}

/* Fills memory: inputs with random numbers where the rank has any, all else with garbage. */
static void fill(world *w, number *original) {
  int n = w->all->nranks, vector = n * PASSES * w->nchunks;
  for (int i = 0; i < vector; i++) {
    w->input[i] = (number){colli_prng_next(&w->prng), colli_prng_next(&w->prng)};
    w->output[i] = (number){colli_prng_next(&w->prng), colli_prng_next(&w->prng)};
    original[i] = w->input[i];
  }
  for (int i = 0; i < n * w->nchunks; i++)
    w->scratch[i] = (number){colli_prng_next(&w->prng), colli_prng_next(&w->prng)};
  for (int i = 0; i < vector; i++) {
    int rank = i / (PASSES * w->nchunks), chunk = i % w->nchunks;
    bool has = w->coll == COLLI_ALLREDUCE ||
               (w->coll == COLLI_BROADCAST ? rank == w->all->sched[0]->root : rank == chunk);
    if (has)
      *memory(w, rank, COLLI_INPUT, i / w->nchunks % PASSES, chunk) = original[i];
    else
      w->input[i] = (number){colli_prng_next(&w->prng), colli_prng_next(&w->prng)};
  }
}

/* One run. `late` as in world. */
static bool one_run(const group *all, int slots, bool in_place, int late, uint64_t seed) {
  size_t n = (size_t)all->nranks, nchunks = (size_t)all->sched[0]->nchunks;
  world w = {.all = all,
             .coll = all->sched[0]->coll,
             .nchunks = (int)nchunks,
             .passes = all->sched[0]->coll == COLLI_BARRIER ? 1 : PASSES,
             .nlanes = all->sched[0]->nlanes,
             .slots = slots,
             .in_place = in_place,
             .late = late,
             .prng = {seed}};
  size_t vector = n * PASSES * nchunks;
  number *numbers = calloc(3 * vector + n * nchunks, sizeof(number));
  w.pipes = calloc(n * n * (size_t)w.nlanes, sizeof(*w.pipes));
  w.lanes = calloc(n * COLLI_MAX_LANES, sizeof(*w.lanes));
  if (!numbers || !w.pipes || !w.lanes)
    abort();
  w.input = numbers;
  w.output = numbers + vector;
  w.scratch = numbers + 3 * vector;
  fill(&w, numbers + 2 * vector);
  for (int rank = 0; rank < all->nranks; rank++)
    for (int l = 0; l < all->sched[rank]->nlanes; l++)
      w.lanes[rank * COLLI_MAX_LANES + l].step = all->sched[rank]->lane_first[l];
  run(&w);
  if (late >= 0) {
    /* A barrier: nobody may leave while one has not come. */
    for (int rank = 0; rank < all->nranks; rank++)
      w.harm |= rank != late && has_left(&w, rank);
    w.late = -1;
    run(&w);
  }
  judge(&w, numbers + 2 * vector);
  free(numbers);
  free(w.pipes);
  free(w.lanes);
  return w.harm;
}

bool oracle_finds_harm(const group *all, int runs, uint64_t seed) {
  static const int slot_counts[] = {1, 2, 0};
  bool barrier = all->sched[0]->coll == COLLI_BARRIER;
  int kinds = barrier ? all->nranks : 2;
  for (int run_index = 0; run_index < runs; run_index++)
    for (int s = 0; s < 3; s++)
      for (int kind = 0; kind < kinds; kind++)
        if (one_run(all, slot_counts[s], !barrier && kind, barrier ? kind : -1, ++seed))
          return true;
  return false;
}
