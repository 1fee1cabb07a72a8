/*
 * predict.c: replays the schedules of all ranks as events.
 *
 * A rank does one thing at a time: a slice of a step takes step_ns (half of it is its own work
 * where colli_model_turns() holds, which counts where cores are shared) and, if it is reduced or
 * copied locally, gamma per byte. A rank has one outgoing port: a message occupies it for beta per
 * byte and arrives alpha later. Near alpha and beta hold inside a group of ranks, the far ones
 * between groups or without groups. A message between hosts also occupies the link out of one host
 * and the link into the other, which their ranks share. A sender continues at once as long as the
 * connection has free slots; a slot is free again when its slice has been handled.
 */
#include <math.h>
#include <stdlib.h>

#include "libcoll/cost/host_links.h"
#include "libcoll/cost/predict.h"
#include "libcoll/sched/check.h"
#include "libcoll/sched/conns.h"

/* A connection: when its slices arrive and its slots are free again, as rings of slot_count. */
typedef struct wire {
  double *arrives;
  double *frees;
  uint64_t sent;
  uint64_t taken;
} wire;

typedef struct lane {
  int pass;
  int step;
  size_t done; /* elements of the step's chunk */
  double at;   /* when its last slice ended */
} lane;

typedef struct rank {
  double busy;       /* until when it works */
  double out;        /* until when its way out is taken */
  double *step_ends; /* [step]: when it last ended */
  lane lane[COLLI_MAX_LANES];
} rank;

/* A lane that is ready to continue at a time. Of the lanes that wait for their rank, the one that
 * has waited longest goes first, so that none starves. */
typedef struct event {
  double at;
  double since;
  int32_t rank;
  int32_t lane;
} event;

/* A host's link to the network: until when its ways out and in are taken. */
typedef struct host_link {
  double out, in;
} host_link;

typedef struct replay {
  const colli_sched *const *scheds;
  const colli_partition *part;
  const colli_model *model;
  int nranks;
  double elem_bytes;
  unsigned slots;
  rank *ranks;
  host_link *links; /* [host]; NULL: each rank has a link of its own */
  double *ends;     /* the memory of all step_ends */
  colli_conns conns;
  wire *wires;
  double *times; /* the memory of all wires' rings */
  event *heap;
  size_t events;
  bool *waiting; /* [rank][lane]: has no event; another lane must wake it */
  double work;   /* of all ranks together */
  double last;
} replay;

/* ---- the heap of events ---------------------------------------------------------------------- */

/* Whether a comes before b; ties are broken so that runs repeat. */
static bool is_earlier(const event *a, const event *b) {
  if (a->at != b->at)
    return a->at < b->at;
  if (a->since != b->since)
    return a->since < b->since;
  return a->rank != b->rank ? a->rank < b->rank : a->lane < b->lane;
}

/* Adds an event to the heap. */
static void heap_push(replay *r, double at, double since, int who, int index) {
  event e = {at, since, who, index};
  size_t i = r->events++;
  for (; i > 0 && is_earlier(&e, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
    r->heap[i] = r->heap[(i - 1) / 2];
  r->heap[i] = e;
}

/* Takes the earliest event off the heap. */
static event heap_pop(replay *r) {
  event top = r->heap[0], e = r->heap[--r->events];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < r->events; i = child) {
    if (child + 1 < r->events && is_earlier(&r->heap[child + 1], &r->heap[child]))
      child++;
    if (!is_earlier(&r->heap[child], &e))
      break;
    r->heap[i] = r->heap[child];
  }
  r->heap[i] = e;
  return top;
}

/* Lets a waiting lane go on at a time. */
static void wake_lane(replay *r, double at, int who, int index) {
  bool *waits = &r->waiting[who * COLLI_MAX_LANES + index];
  if (!*waits)
    return;
  *waits = false;
  heap_push(r, at, at, who, index);
}

/* ---- slices
 * ---------------------------------------------------------------------------------------- */

/* When the step's deps are done; infinity if not known yet. */
static double deps_at(const replay *r, int who, const lane *l, const colli_step *step) {
  const rank *me = &r->ranks[who];
  const colli_sched *sched = r->scheds[who];
  double at = 0;
  for (int d = 0; d < 2; d++) {
    int dep = step->dep[d];
    if (dep == COLLI_NO_DEP)
      continue;
    const lane *other = &me->lane[sched->steps[dep].lane];
    if (other->pass < l->pass || (other->pass == l->pass && other->step <= dep))
      return INFINITY;
    at = fmax(at, me->step_ends[dep]);
  }
  return at;
}

/* The wires of a step: NULL if it has none, *missing if nobody sends what it receives. */
static void wires_of(const replay *r, int who, const colli_step *step, wire **in, wire **out,
                     bool *missing) {
  *in = *out = NULL;
  *missing = false;
  if (step->bits & COLLI_RECV) {
    int at = colli_conns_find(&r->conns, step->peer_recv, who, step->lane);
    *missing = at < 0;
    *in = at < 0 ? NULL : &r->wires[at];
  }
  if (step->bits & COLLI_SEND)
    *out = &r->wires[colli_conns_find(&r->conns, who, step->peer_send, step->lane)];
}

/* What a message costs between two ranks. */
static colli_pair_cost link_of(const replay *r, int a, int b) {
  return colli_model_pair(r->model, &r->scheds[0]->shape, a, b);
}

/* What a byte takes on a host's link (each NULL: they are alike), at least so long. */
static double link_beta(const double *each, int host, double least) {
  return each ? fmax(least, each[host]) : least;
}

/* Sends a message over the links of both hosts, not before `begins`; returns when it is through. */
static double cross_links(replay *r, int from, int to, double bytes, double begins) {
  const colli_shape *shape = &r->scheds[0]->shape;
  const int32_t *host = colli_shape_hosts(shape);
  const double *each = r->model->link_beta_ns_per_byte, gap = r->model->host_gap_ns;
  const double beta = r->links ? colli_host_links_beta(r->model, shape, from, to) : 0;
  if (beta <= 0)
    return begins;
  const double least = each ? colli_host_links_level(r->model, shape, from, to) : beta;
  host_link *out = &r->links[host[from]], *in = &r->links[host[to]];
  begins = fmax(begins, out->out);
  out->out = begins + gap + bytes * link_beta(each, host[from], least);
  in->in = fmax(out->out, fmax(begins, in->in) + gap + bytes * link_beta(each, host[to], least));
  return in->in;
}

/* Sends a slice that its sender has finished at `at`. */
static void transmit_message(replay *r, int who, const colli_step *step, wire *out, double bytes,
                             double at) {
  rank *me = &r->ranks[who];
  const colli_pair_cost link = link_of(r, who, step->peer_send);
  const double begins = fmax(at, me->out);
  me->out = begins + bytes * link.beta_ns_per_byte;
  const double arrives =
      fmax(me->out, cross_links(r, who, step->peer_send, bytes, begins)) + link.alpha_ns;
  out->arrives[out->sent++ % r->slots] = arrives;
  wake_lane(r, arrives, step->peer_send, step->lane);
}

/* The part of a rank's step that is its own work, not that of the other end of its message. */
static double own_part(const replay *r, int who, int peer) {
  return colli_model_turns(r->model, &r->scheds[0]->shape, who, peer) > 0 ? 0.5 : 1;
}

/* The time that a slice takes a rank. Counts its work. */
static double slice_effort(replay *r, int who, const colli_step *step, double bytes) {
  const bool receives = step->bits & COLLI_RECV, sends = step->bits & COLLI_SEND;
  const bool touches = (step->bits & COLLI_FOLD) || !(receives || sends);
  const colli_shape *shape = &r->scheds[0]->shape;
  const double in = receives ? colli_model_step(r->model, shape, step->peer_recv, who) : 0;
  const double out = sends ? colli_model_step(r->model, shape, who, step->peer_send) : 0;
  const double alone = receives || sends ? 0 : colli_model_step(r->model, shape, who, who);
  const double touched = touches ? bytes * r->model->gamma_ns_per_byte : 0;
  const double own = fmax(in, out);
  const double halves = (receives ? in * own_part(r, who, step->peer_recv) : 0) +
                        (sends ? out * own_part(r, who, step->peer_send) : 0);
  r->work += touched + alone + fmin(own, halves);
  return touched + alone + own;
}

/* The work of a wait for a message. */
static double wait_effort(const replay *r, int who, int peer, double alpha_ns) {
  const double turns = colli_model_turns(r->model, &r->scheds[0]->shape, who, peer);
  return alpha_ns * (turns > 0 ? turns : 1);
}

/* Whether a lane's step is done, or has nothing to do. */
static bool is_over(const replay *r, int who, const lane *l) {
  const colli_step *step = &r->scheds[who]->steps[l->step];
  size_t count =
      colli_partition_range(r->part, colli_step_buf(step), colli_step_chunk(step), l->pass).count;
  return l->done >= count && (r->scheds[who]->coll != COLLI_BARRIER || l->done > 0);
}

/* Advances a lane to its next step with work to do; true if it completed a step. Steps without work
 * still wait for their deps. */
static bool advance_lane(const replay *r, int who, int index) {
  const colli_sched *sched = r->scheds[who];
  lane *l = &r->ranks[who].lane[index];
  if (sched->lane_first[index] == sched->lane_first[index + 1]) {
    l->pass = r->part->passes;
    return false;
  }
  bool left = false;
  while (l->pass < r->part->passes) {
    double ready = is_over(r, who, l) ? deps_at(r, who, l, &sched->steps[l->step]) : INFINITY;
    if (ready == INFINITY)
      return left;
    l->at = fmax(l->at, ready);
    left = true;
    r->ranks[who].step_ends[l->step] = l->at;
    l->done = 0;
    if (++l->step == sched->lane_first[index + 1]) {
      l->step = sched->lane_first[index];
      l->pass++;
    }
  }
  return left;
}

/* A lane has finished some work: schedules it again, and wakes the lanes that waited for it. */
static void go_on(replay *r, event e) {
  const lane *l = &r->ranks[e.rank].lane[e.lane];
  bool left = advance_lane(r, e.rank, e.lane);
  if (l->pass < r->part->passes)
    heap_push(r, l->at, l->at, e.rank, e.lane);
  for (int other = 0; left && other < r->scheds[e.rank]->nlanes; other++)
    wake_lane(r, l->at, e.rank, other);
}

/* Does a lane's next slice, or schedules it for when it becomes possible. */
static void run_slice(replay *r, event e) {
  rank *me = &r->ranks[e.rank];
  lane *l = &me->lane[e.lane];
  if (is_over(r, e.rank, l)) {
    if (deps_at(r, e.rank, l, &r->scheds[e.rank]->steps[l->step]) == INFINITY)
      r->waiting[e.rank * COLLI_MAX_LANES + e.lane] = true;
    else
      go_on(r, e);
    return;
  }
  const colli_step *step = &r->scheds[e.rank]->steps[l->step];
  wire *in, *out;
  bool missing;
  wires_of(r, e.rank, step, &in, &out, &missing);
  double ready = fmax(l->at, deps_at(r, e.rank, l, step));
  if (in && in->sent == in->taken)
    missing = true;
  else if (in)
    ready = fmax(ready, in->arrives[in->taken % r->slots]);
  if (out && out->sent - out->taken >= r->slots)
    missing = true;
  else if (out && out->sent >= r->slots)
    ready = fmax(ready, out->frees[out->sent % r->slots]);
  if (missing || ready == INFINITY) {
    r->waiting[e.rank * COLLI_MAX_LANES + e.lane] = true;
    return;
  }
  double since = ready;
  ready = fmax(ready, me->busy);
  if (ready > e.at) {
    heap_push(r, ready, since, e.rank, e.lane);
    return;
  }
  const bool waited = in && ready > me->busy && l->done == 0 && ready > l->at;
  size_t count =
      colli_partition_range(r->part, colli_step_buf(step), colli_step_chunk(step), l->pass).count;
  size_t part = count - l->done < r->part->slice ? count - l->done : r->part->slice;
  double bytes = (double)part * r->elem_bytes, takes = slice_effort(r, e.rank, step, bytes);
  l->at = me->busy = ready + takes;
  r->last = fmax(r->last, l->at);
  if (in) {
    in->frees[in->taken++ % r->slots] = l->at;
    const colli_pair_cost link = link_of(r, step->peer_recv, e.rank);
    r->work += bytes * link.beta_ns_per_byte +
               (waited ? wait_effort(r, e.rank, step->peer_recv, link.alpha_ns) : 0);
    wake_lane(r, l->at, step->peer_recv, step->lane);
  }
  if (out)
    transmit_message(r, e.rank, step, out, bytes, l->at);
  l->done += part ? part : 1;
  go_on(r, e);
}

/* ---- the whole
 * ------------------------------------------------------------------------------------- */

/* Takes all memory. */
static bool make_replay(replay *r) {
  size_t steps = 0, n = (size_t)r->nranks;
  for (int who = 0; who < r->nranks; who++)
    steps += (size_t)r->scheds[who]->nsteps;
  if (!colli_conns_make(&r->conns, r->scheds, r->nranks))
    return false;
  size_t wires = (size_t)r->conns.count;
  r->ranks = calloc(n, sizeof(*r->ranks));
  if (r->model->host_beta_ns_per_byte > 0)
    r->links = calloc((size_t)colli_host_links_count(&r->scheds[0]->shape), sizeof(*r->links));
  r->ends = calloc(steps + 1, sizeof(*r->ends));
  r->wires = calloc(wires + 1, sizeof(*r->wires));
  r->times = malloc((wires + 1) * 2 * r->slots * sizeof(*r->times));
  r->heap = malloc(n * COLLI_MAX_LANES * sizeof(*r->heap));
  r->waiting = calloc(n * COLLI_MAX_LANES, sizeof(*r->waiting));
  if ((r->model->host_beta_ns_per_byte > 0 && !r->links) || !r->ranks || !r->ends || !r->wires ||
      !r->times || !r->heap || !r->waiting)
    return false;
  for (size_t i = 0; i < wires; i++) {
    r->wires[i].arrives = r->times + i * 2 * r->slots;
    r->wires[i].frees = r->wires[i].arrives + r->slots;
  }
  steps = 0;
  for (int who = 0; who < r->nranks; who++) {
    r->ranks[who].step_ends = r->ends + steps;
    steps += (size_t)r->scheds[who]->nsteps;
  }
  return true;
}

/* Frees the memory of a replay. */
static void discard_replay(replay *r) {
  colli_conns_free(&r->conns);
  free(r->ranks);
  free(r->links);
  free(r->ends);
  free(r->wires);
  free(r->times);
  free(r->heap);
  free(r->waiting);
}

/* Runs all events; false if a lane did not finish (deadlock). */
static bool run_events(replay *r) {
  for (int who = 0; who < r->nranks; who++) {
    for (int l = 0; l < r->scheds[who]->nlanes; l++) {
      r->ranks[who].lane[l].step = r->scheds[who]->lane_first[l];
      advance_lane(r, who, l);
      if (r->ranks[who].lane[l].pass < r->part->passes)
        heap_push(r, 0, 0, who, l);
    }
  }
  while (r->events > 0)
    run_slice(r, heap_pop(r));
  for (size_t i = 0; i < (size_t)r->nranks * COLLI_MAX_LANES; i++)
    if (r->waiting[i])
      return false;
  return true;
}

/* The time in ns at which the last rank ends. */
double colli_predict(const colli_sched *const *scheds, int nranks, const colli_partition *partition,
                     size_t elem_bytes, unsigned slot_count, const colli_model *model) {
  replay r = {
      .scheds = scheds,
      .part = partition,
      .model = model,
      .nranks = nranks,
      .elem_bytes = (double)elem_bytes,
      .slots = slot_count ? slot_count : 1,
  };
  double result = -1;
  if (!make_replay(&r)) {
    result = INFINITY;
  } else if (run_events(&r)) {
    /* With shared cores, the total work divided by the cores is a lower bound. */
    result = r.last * colli_model_path_factor(model);
    if (model->core_share < 1)
      result = fmax(result, r.work / (nranks * model->core_share));
  }
  discard_replay(&r);
  return result;
}
