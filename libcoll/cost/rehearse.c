/*
 * rehearse.c: replays the schedules of ranks that share cores. The core whose clock is furthest
 * behind goes next: its running rank does one slice, or hands over the core if it has none to do.
 */
#include "libcoll/cost/rehearse.h"
#include "libcoll/cost/host_links.h"

#include <math.h>
#include <stdlib.h>

#include "libcoll/sched/check.h"
#include "libcoll/sched/conns.h"

#define ROUNDS     32 /* collectives replayed if they have one pass, else fewer; the first half */
#define ROUNDS_MIN 6  /* does not count: it starts from rest, with free slots */
#define PASSES     4  /* so many are replayed, and twice as many; the others take as long */
#define POLL_NS    50.0
#define IDLE_LIMIT 1000 /* fruitless polls of each rank after which it is a deadlock */

typedef struct wire {
  double *arrives; /* [slot] when what was sent last in it can be read */
  double *frees;   /* [slot] when it was read */
  uint64_t sent;
  uint64_t taken;
} wire;

/* What a step's messages go through; NULL where it sends or receives none. */
typedef struct step_wires {
  wire *in; /* also NULL if nobody sends what it receives */
  wire *out;
} step_wires;

typedef struct lane {
  int pass;
  int step;
  size_t count; /* elements of the step's chunk */
  size_t done;  /* of these */
} lane;

typedef struct rank {
  const struct core *core;
  int round; /* collectives that are done */
  int lanes_left;
  double blocked_until; /* it has nothing to do before, unless a peer does something first */
  lane lane[COLLI_MAX_LANES];
} rank;

/* Ranks stay on their core and take turns on it. */
typedef struct core {
  double now;
  int running; /* the rank; -1: all are through */
  int *waiting;
  int first;
  int count;
} core;

typedef struct rehearsal {
  const colli_sched *const *scheds;
  const colli_partition *part;
  const colli_model *model;
  int nranks;
  int ncores;
  int passes;
  int rounds;
  double elem_bytes;
  unsigned slots;
  rank *ranks;
  core *cores;
  int *waiting; /* the memory of all cores' queues, nranks each */
  wire *wires;
  step_wires *step_wires; /* of all ranks' steps */
  step_wires **wires_of;  /* [rank][step] */
  double *times;
  double ended[ROUNDS]; /* when the last rank ended each */
} rehearsal;

/* ---- one slice ------------------------------------------------------------------------------- */

/* Whether the steps that a step waits for are done. */
static bool deps_done(const rehearsal *r, int who, const lane *l, const colli_step *step) {
  for (int d = 0; d < 2; d++) {
    int dep = step->dep[d];
    if (dep == COLLI_NO_DEP)
      continue;
    const lane *other = &r->ranks[who].lane[r->scheds[who]->steps[dep].lane];
    if (other->pass < l->pass || (other->pass == l->pass && other->step <= dep))
      return false;
  }
  return true;
}

/* The costs per byte on the link between two ranks, and of a change of ranks. */
static double beta_of(const rehearsal *r, int a, int b) {
  return colli_model_pair(r->model, &r->scheds[0]->shape, a, b).beta_ns_per_byte;
}

/*
 * The time that a slice costs its rank. Moving bytes and messages over a link is shared evenly by
 * both ends.
 */
static double slice_effort(const rehearsal *r, int who, const colli_step *step, double bytes) {
  const colli_model *m = r->model;
  bool receives = step->bits & COLLI_RECV, sends = step->bits & COLLI_SEND;
  const colli_shape *shape = &r->scheds[0]->shape;
  double ns = receives || sends ? 0 : colli_model_step(m, shape, who, who);
  if (receives)
    ns += colli_model_step(m, shape, step->peer_recv, who) / 2 +
          bytes * beta_of(r, step->peer_recv, who) / 2;
  if (sends)
    ns += colli_model_step(m, shape, who, step->peer_send) / 2 +
          bytes * beta_of(r, who, step->peer_send) / 2;
  if ((step->bits & COLLI_FOLD) || !(receives || sends))
    ns += bytes * m->gamma_ns_per_byte;
  return ns;
}

/* When a step that receives has a message to read; HUGE_VAL: not before another is sent. */
static double readable_at(const rehearsal *r, const wire *in) {
  return in && in->sent > in->taken ? in->arrives[in->taken % r->slots] : HUGE_VAL;
}

/* When a wire has a free slot; HUGE_VAL: not before another message is read. */
static double writable_at(const rehearsal *r, const wire *out) {
  if (out->sent < r->slots)
    return 0;
  return out->sent - out->taken < r->slots ? out->frees[out->sent % r->slots] : HUGE_VAL;
}

/* When a lane's next slice can be done. */
static double slice_at(const rehearsal *r, int who, const lane *l) {
  const step_wires *wires = &r->wires_of[who][l->step];
  double at = 0;
  if (r->scheds[who]->steps[l->step].bits & COLLI_RECV)
    at = readable_at(r, wires->in);
  return wires->out ? fmax(at, writable_at(r, wires->out)) : at;
}

/* A lane's next slice, if it can be done now. */
static bool do_slice(rehearsal *r, core *c, lane *l, const colli_step *step) {
  int who = c->running;
  if (slice_at(r, who, l) > c->now)
    return false;
  wire *in = r->wires_of[who][l->step].in, *out = r->wires_of[who][l->step].out;
  size_t left = l->count - l->done, part = left < r->part->slice ? left : r->part->slice;
  c->now += slice_effort(r, who, step, (double)part * r->elem_bytes);
  if (in) {
    in->frees[in->taken++ % r->slots] = c->now;
    r->ranks[step->peer_recv].blocked_until = 0;
  }
  if (out) {
    r->ranks[step->peer_send].blocked_until = 0;
    bool away = r->ranks[step->peer_send].core != c;
    if (away) /* its core must take note of it, which the sender waits for: an interrupt, a line */
      c->now += r->model->flight_ns;
    out->arrives[out->sent++ % r->slots] = c->now + (away ? r->model->flight_ns : 0);
  }
  l->done += part ? part : 1;
  return true;
}

/* Whether there is a slice to do before a lane's next step. */
static bool has_slice(const colli_sched *sched, const lane *l) {
  return sched->coll == COLLI_BARRIER ? l->done == 0 : l->done < l->count;
}

/* Lets a lane begin a step. */
static void begin_step(const rehearsal *r, int who, lane *l, int number, int pass) {
  const colli_step *step = &r->scheds[who]->steps[number];
  size_t count =
      colli_partition_range(r->part, colli_step_buf(step), colli_step_chunk(step), pass).count;
  *l = (lane){.pass = pass, .step = number, .count = count};
}

/* Runs a lane up to and including its next slice; false if the slice cannot be done yet. */
static bool try_lane(rehearsal *r, core *c, int index) {
  int who = c->running;
  const colli_sched *sched = r->scheds[who];
  lane *l = &r->ranks[who].lane[index];
  bool moved = false;
  while (l->pass < r->passes) {
    const colli_step *step = &sched->steps[l->step];
    if (!deps_done(r, who, l, step))
      return moved;
    if (has_slice(sched, l)) {
      if (moved || !do_slice(r, c, l, step))
        return moved;
      moved = true;
    } else if (l->step + 1 < sched->lane_first[index + 1]) {
      begin_step(r, who, l, l->step + 1, l->pass);
    } else if (l->pass + 1 < r->passes) {
      begin_step(r, who, l, sched->lane_first[index], l->pass + 1);
    } else {
      l->pass = r->passes;
      r->ranks[who].lanes_left--;
    }
  }
  return moved;
}

/* ---- ranks and cores ------------------------------------------------------------------------- */

/* Begins a rank's next collective. */
static void begin_collective(rehearsal *r, int who) {
  const colli_sched *sched = r->scheds[who];
  rank *me = &r->ranks[who];
  me->lanes_left = 0;
  for (int l = 0; l < sched->nlanes; l++) {
    me->lane[l].pass = r->passes;
    if (sched->lane_first[l] == sched->lane_first[l + 1])
      continue;
    begin_step(r, who, &me->lane[l], sched->lane_first[l], 0);
    me->lanes_left++;
  }
}

/* Ends a rank's collective. */
static void end_collective(rehearsal *r, core *c) {
  rank *me = &r->ranks[c->running];
  r->ended[me->round] = fmax(r->ended[me->round], c->now);
  if (++me->round < r->rounds)
    begin_collective(r, c->running);
}

/* When a rank may do something next, as far as is known; HUGE_VAL: not before another rank does. */
static double next_slice(const rehearsal *r, int who) {
  const colli_sched *sched = r->scheds[who];
  const rank *me = &r->ranks[who];
  if (me->blocked_until > 0)
    return me->blocked_until;
  double at = me->lanes_left == 0 ? 0 : HUGE_VAL;
  for (int i = 0; i < sched->nlanes && at > 0; i++) {
    const lane *l = &me->lane[i];
    if (l->pass == r->passes || !deps_done(r, who, l, &sched->steps[l->step]))
      continue; /* another lane must move first */
    at = has_slice(sched, l) ? fmin(at, slice_at(r, who, l)) : 0;
  }
  return at;
}

/* Lets the running rank of a core do a slice; false if it had none to do. */
static bool move_on(rehearsal *r, core *c) {
  rank *me = &r->ranks[c->running];
  if (me->round == r->rounds || c->now < me->blocked_until)
    return false;
  bool moved = me->lanes_left == 0;
  for (int l = 0; l < r->scheds[c->running]->nlanes && !moved; l++)
    moved = try_lane(r, c, l);
  if (me->lanes_left == 0)
    end_collective(r, c);
  me->blocked_until = moved ? 0 : next_slice(r, c->running);
  return moved;
}

/* The same of a core; its present time if several ranks take turns on it. */
static double next_event(const rehearsal *r, const core *c) {
  if (c->running < 0)
    return HUGE_VAL;
  return c->count > 0 ? c->now : fmax(next_slice(r, c->running), c->now);
}

/* Lets a core's only rank poll until something may have changed for it. */
static void poll_alone(const rehearsal *r, core *c) {
  double until = next_event(r, c);
  for (int i = 0; i < r->ncores && until > c->now + POLL_NS; i++)
    if (&r->cores[i] != c)
      until = fmin(until, next_event(r, &r->cores[i]));
  double polls = until < HUGE_VAL ? ceil((until - c->now) / POLL_NS) : 1;
  c->now += fmax(polls, 1) * POLL_NS;
}

/* Gives the core to the rank that has waited longest for it; if none waits, polls again later. */
static void hand_over(rehearsal *r, core *c) {
  bool through = r->ranks[c->running].round == r->rounds;
  if (c->count == 0) {
    if (through)
      c->running = -1;
    else
      poll_alone(r, c);
    return;
  }
  int next = c->waiting[c->first];
  c->first = (c->first + 1) % r->nranks;
  c->count--;
  if (!through)
    c->waiting[(c->first + c->count++) % r->nranks] = c->running;
  c->running = next;
  c->now += fmax(r->model->alpha_ns, POLL_NS);
}

/* The core that is furthest behind; NULL if all ranks are done. */
static core *next_core(const rehearsal *r) {
  core *next = NULL;
  for (int i = 0; i < r->ncores; i++) {
    core *c = &r->cores[i];
    if (c->running >= 0 && (!next || c->now < next->now))
      next = c;
  }
  return next;
}

/* Runs until all ranks are done; false if they deadlock. */
static bool run_cores(rehearsal *r) {
  long idle = 0, most = (long)IDLE_LIMIT * r->nranks +
                        (long)((r->model->alpha_ns + r->model->flight_ns) / POLL_NS) * 4;
  for (core *c; (c = next_core(r)) != NULL;) {
    if (move_on(r, c)) {
      idle = 0;
    } else {
      hand_over(r, c);
      if (++idle > most)
        return false;
    }
  }
  return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The host of a rank. */
static int host_of(const colli_shape *shape, int who) {
  const int32_t *host = colli_shape_hosts(shape);
  return host ? host[who] : 0;
}

/* Distributes a host's ranks over its cores as collrun binds them: neighbours share one. */
static void deal_out_ranks(rehearsal *r, int host, int ncores) {
  const colli_shape *shape = &r->scheds[0]->shape;
  int members = 0;
  for (int who = 0; who < r->nranks; who++)
    members += host_of(shape, who) == host;
  bool even = members % ncores == 0;
  for (int who = 0, dealt = 0; who < r->nranks; who++) {
    if (host_of(shape, who) != host)
      continue;
    int at = even ? dealt / (members / ncores) : dealt % ncores;
    core *c = &r->cores[host * ncores + at];
    dealt++;
    if (c->running < 0)
      c->running = who;
    else
      c->waiting[c->count++] = who;
    r->ranks[who].core = c;
    begin_collective(r, who);
  }
}

/* Finds the wires of every step, once: each poll needs them. */
static void find_wires(rehearsal *r, const colli_conns *conns) {
  step_wires *next = r->step_wires;
  for (int who = 0; who < r->nranks; who++) {
    r->wires_of[who] = next;
    for (int i = 0; i < r->scheds[who]->nsteps; i++, next++) {
      const colli_step *step = &r->scheds[who]->steps[i];
      int in =
          step->bits & COLLI_RECV ? colli_conns_find(conns, step->peer_recv, who, step->lane) : -1;
      next->in = in < 0 ? NULL : &r->wires[in];
      if (step->bits & COLLI_SEND)
        next->out = &r->wires[colli_conns_find(conns, who, step->peer_send, step->lane)];
    }
  }
}

/* Makes the wires. */
static bool make_wires(rehearsal *r, const colli_conns *conns) {
  size_t wires = (size_t)conns->count, steps = 0;
  for (int who = 0; who < r->nranks; who++)
    steps += (size_t)r->scheds[who]->nsteps;
  r->wires = calloc(wires + 1, sizeof(*r->wires));
  r->times = calloc((wires + 1) * 2 * r->slots, sizeof(*r->times));
  r->step_wires = calloc(steps + 1, sizeof(*r->step_wires));
  r->wires_of = calloc((size_t)r->nranks, sizeof(*r->wires_of));
  if (!r->wires || !r->times || !r->step_wires || !r->wires_of)
    return false;
  for (size_t i = 0; i < wires; i++) {
    r->wires[i].arrives = r->times + i * 2 * r->slots;
    r->wires[i].frees = r->wires[i].arrives + r->slots;
  }
  find_wires(r, conns);
  return true;
}

/* Takes all memory. */
static bool make_rehearsal(rehearsal *r) {
  const colli_shape *shape = &r->scheds[0]->shape;
  const int hosts = colli_host_links_count(shape);
  int per_host = (int)(r->model->core_share * r->nranks / hosts + 0.5);
  r->ncores = hosts * (per_host > 0 ? per_host : 1);
  colli_conns conns;
  bool wired = colli_conns_make(&conns, r->scheds, r->nranks) && make_wires(r, &conns);
  colli_conns_free(&conns);
  r->ranks = calloc((size_t)r->nranks, sizeof(*r->ranks));
  r->waiting = calloc((size_t)r->ncores * (size_t)r->nranks, sizeof(*r->waiting));
  r->cores = calloc((size_t)r->ncores, sizeof(*r->cores));
  if (!wired || !r->ranks || !r->waiting || !r->cores)
    return false;
  for (int i = 0; i < r->ncores; i++)
    r->cores[i] = (core){.running = -1, .waiting = r->waiting + i * r->nranks};
  for (int host = 0; host < hosts; host++)
    deal_out_ranks(r, host, r->ncores / hosts);
  return true;
}

/* The time of one collective of `passes` passes. */
static double time_of(rehearsal r, int passes) {
  double ns = -1;
  r.passes = passes;
  r.rounds = passes * ROUNDS_MIN < ROUNDS ? ROUNDS / passes : ROUNDS_MIN;
  int last = r.rounds - 1, first = r.rounds / 2 - 1;
  if (!make_rehearsal(&r))
    ns = INFINITY;
  else if (run_cores(&r))
    ns = (r.ended[last] - r.ended[first]) / (last - first);
  free(r.ranks);
  free(r.waiting);
  free(r.cores);
  free(r.wires);
  free(r.times);
  free(r.step_wires);
  free(r.wires_of);
  return ns;
}

/* The time in ns that a collective takes. */
double colli_rehearse(const colli_sched *const *scheds, int nranks,
                      const colli_partition *partition, size_t elem_bytes, unsigned slot_count,
                      const colli_model *model) {
  rehearsal r = {
      .scheds = scheds,
      .part = partition,
      .model = model,
      .nranks = nranks,
      .elem_bytes = (double)elem_bytes,
      .slots = slot_count ? slot_count : 1,
  };
  if (partition->passes <= 2 * PASSES)
    return time_of(r, partition->passes);
  double few = time_of(r, PASSES), more = time_of(r, 2 * PASSES);
  if (!isfinite(few) || !isfinite(more))
    return INFINITY;
  return few < 0 || more < 0 ? -1 : more + (more - few) / PASSES * (partition->passes - 2 * PASSES);
}
