/* verify.c: proves a set of schedules by running all ranks symbolically. */
#include "libcoll/verify/verify.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/verify/verify_state.h"

/* Checks the deps of a step. */
static bool check_deps(const colli_sched *sched, const colli_step *step) {
  for (int d = 0; d < 2; d++) {
    if (step->dep[d] == COLLI_NO_DEP)
      continue;
    if (step->dep[d] < 0 || step->dep[d] >= sched->nsteps ||
        sched->steps[step->dep[d]].lane == step->lane)
      return false;
  }
  return true;
}

/* Whether two ranks' schedules were made for the same shape, in what the frame check does not
 * cover. */
static bool same_shape(const colli_shape *a, const colli_shape *b) {
  if (a->order != b->order || a->in_place != b->in_place || a->varying != b->varying ||
      a->ngroups != b->ngroups)
    return false;
  if (a->ngroups < 2)
    return true;
  const size_t bytes = (size_t)a->nranks * sizeof(*a->group);
  if (memcmp(a->group, b->group, bytes) != 0 || a->ninner != b->ninner)
    return false;
  for (int level = 0; level < a->ninner; level++)
    if (memcmp(a->inner[level], b->inner[level], bytes) != 0)
      return false;
  if (!a->share || !b->share)
    return a->share == b->share;
  const int32_t *host = colli_shape_hosts(a);
  for (int rank = 0; rank < a->nranks; rank++)
    if (a->share[host[rank]] != b->share[host[rank]])
      return false;
  return true;
}

/* Checks one rank's schedule by itself. */
static bool check_sched(colli_verifier *v, const colli_sched *sched, int rank) {
  const char *wrong = colli_check_frame(sched);
  if (wrong)
    return colli_vobject(v, rank, -1, 0, "%s", wrong);
  if (sched->rank != rank || sched->nranks != v->nranks || sched->coll != v->coll ||
      sched->root != v->root || sched->nchunks != v->nchunks ||
      !same_shape(&sched->shape, v->shape))
    return colli_vobject(v, rank, -1, 0, "made for another shape than rank 0's");
  if (sched->coll == COLLI_ALLTOALL && sched->shape.in_place != v->options->in_place)
    return colli_vobject(v, rank, -1, 0, "made %s place", sched->shape.in_place ? "in" : "out of");
  if (sched->coll == COLLI_BARRIER && sched->nlanes != 1)
    return colli_vobject(v, rank, -1, 0, "a barrier has one lane");
  if (sched->lane_first[0] != 0 || sched->lane_first[sched->nlanes] != sched->nsteps)
    return colli_vobject(v, rank, -1, 0, "lanes do not cover the steps");
  for (int lane = 0; lane < sched->nlanes; lane++) {
    for (int i = sched->lane_first[lane]; i < sched->lane_first[lane + 1]; i++) {
      const colli_step *step = &sched->steps[i];
      wrong = colli_check_step(sched, step);
      if (!wrong && step->lane != lane)
        wrong = "is in another lane's place";
      if (!wrong && !check_deps(sched, step))
        wrong = "waits for no step of another lane";
      if (wrong)
        return colli_vobject(v, rank, i, 0, "%s", wrong);
    }
  }
  return true;
}

/* Sets up a rank's memory: inputs hold the rank's own values, everything else is unwritten. */
static bool make_rank(colli_verifier *v, const colli_sched *sched, int rank) {
  colli_vrank *at = &v->ranks[rank];
  int vector = v->passes * v->nchunks, nplaces = 2 * vector + sched->nscratch;
  at->sched = sched;
  for (int l = 0; l < sched->nlanes; l++)
    at->lane[l].step = sched->lane_first[l];
  if (v->coll == COLLI_BARRIER)
    return true;
  at->place = malloc((size_t)nplaces * sizeof(*at->place));
  at->by_ref = calloc((size_t)nplaces, sizeof(*at->by_ref));
  at->by_ref_lane = calloc((size_t)nplaces, sizeof(*at->by_ref_lane));
  if (!at->place || !at->by_ref || !at->by_ref_lane ||
      !colli_vorder_make(&at->order, sched, v->passes, nplaces))
    return colli_vno_memory(v);
  memset(at->place, 0xff, (size_t)nplaces * sizeof(*at->place));
  for (int pass = 0; pass < v->passes; pass++) {
    for (int chunk = 0; chunk < v->nchunks; chunk++) {
      if (!colli_has_chunk(sched, COLLI_INPUT, chunk))
        continue;
      int32_t leaf = colli_expr_leaf(&v->exprs, rank, chunk, pass);
      if (leaf < 0)
        return colli_vno_memory(v);
      at->place[colli_vplace(v, rank, COLLI_INPUT, chunk, pass)] = leaf;
    }
  }
  return true;
}

/* Makes what all ranks share. */
static bool make_shared(colli_verifier *v, const colli_sched *const *scheds) {
  if (!colli_conns_make(&v->conns, scheds, v->nranks))
    return colli_vno_memory(v);
  v->conn = malloc(((size_t)v->conns.count + 1) * sizeof(*v->conn));
  v->todo_capacity = (size_t)v->nranks * COLLI_MAX_LANES;
  v->todo = malloc(v->todo_capacity * sizeof(*v->todo));
  if (!v->conn || !v->todo)
    return colli_vno_memory(v);
  for (int i = 0; i < v->conns.count; i++)
    v->conn[i] = (colli_vconn){-1, -1, 0};
  if (v->coll != COLLI_BARRIER)
    return true;
  size_t words = colli_vset_words(v);
  v->nsets = v->nranks;
  v->sets_capacity = 2 * v->nranks;
  v->sets = calloc((size_t)v->sets_capacity * words, sizeof(*v->sets));
  if (!v->sets)
    return colli_vno_memory(v);
  for (int rank = 0; rank < v->nranks; rank++)
    v->sets[(size_t)rank * words + (size_t)rank / 64] |= 1ull << (rank % 64);
  return true;
}

/* Reports the first lane that did not end. */
static bool check_ended(colli_verifier *v) {
  for (int rank = 0; rank < v->nranks; rank++) {
    const colli_sched *sched = v->ranks[rank].sched;
    for (int l = 0; l < sched->nlanes; l++) {
      const colli_vlane *lane = &v->ranks[rank].lane[l];
      if (lane->pass >= v->passes || sched->lane_first[l] == sched->lane_first[l + 1])
        continue;
      const colli_step *step = &sched->steps[lane->step];
      return colli_vobject(v, rank, lane->step, lane->pass,
                           "waits forever (receives from %d, sends to %d)", step->peer_recv,
                           step->peer_send);
    }
  }
  return true;
}

/* Reports a message that nobody received. */
static bool check_leftovers(colli_verifier *v) {
  int32_t left = 0;
  for (int i = 0; i < v->conns.count; i++)
    left += v->conn[i].count;
  for (int rank = 0; left && rank < v->nranks; rank++) {
    const colli_sched *sched = v->ranks[rank].sched;
    for (int i = 0; i < sched->nsteps; i++) {
      const colli_step *step = &sched->steps[i];
      if (!(step->bits & COLLI_SEND))
        continue;
      int conn = colli_conns_find(&v->conns, rank, step->peer_send, step->lane);
      if (v->conn[conn].count)
        return colli_vobject(v, rank, i, v->passes - 1, "sends what rank %d never receives",
                             step->peer_send);
    }
  }
  return true;
}

/* Runs all ranks to the end. */
static bool run_lanes(colli_verifier *v) {
  for (int rank = 0; rank < v->nranks; rank++)
    for (int lane = 0; lane < v->ranks[rank].sched->nlanes; lane++)
      colli_vwake(v, rank, lane);
  while (v->todo_count > 0) {
    int32_t which = v->todo[v->todo_first];
    int rank = which / COLLI_MAX_LANES, lane = which % COLLI_MAX_LANES;
    v->todo_first = (v->todo_first + 1) % v->todo_capacity;
    v->todo_count--;
    v->ranks[rank].lane[lane].queued = false;
    if (!colli_vrun_lane(v, rank, lane))
      return false;
  }
  return true;
}

/* Everything but the freeing. */
static bool verify_all(colli_verifier *v, const colli_sched *const *scheds) {
  for (int rank = 0; rank < v->nranks; rank++)
    if (!check_sched(v, scheds[rank], rank))
      return false;
  if (!make_shared(v, scheds))
    return false;
  for (int rank = 0; rank < v->nranks; rank++)
    if (!make_rank(v, scheds[rank], rank))
      return false;
  if (!run_lanes(v) || !check_ended(v) || !check_leftovers(v))
    return false;
  return colli_vcheck_promise(v);
}

/* Returns COLL_OK, COLL_ERR_INTERNAL with the objection in `why`, or NO_MEMORY. */
coll_status colli_verify(const colli_sched *const *scheds, int nranks,
                         const colli_verify_options *options, char *why, size_t why_bytes) {
  colli_verifier v = {
      .options = options,
      .nranks = nranks,
      .nchunks = scheds[0]->nchunks,
      .coll = scheds[0]->coll,
      .shape = &scheds[0]->shape,
      .root = scheds[0]->root,
      .passes = scheds[0]->coll == COLLI_BARRIER ? 1 : options->passes,
      .free_msg = -1,
      .why = why,
      .why_bytes = why_bytes,
  };
  if (why_bytes)
    why[0] = 0;
  v.ranks = calloc((size_t)nranks, sizeof(*v.ranks));
  if (v.ranks)
    verify_all(&v, scheds);
  else
    v.status = COLL_ERR_NO_MEMORY;
  for (int rank = 0; v.ranks && rank < nranks; rank++) {
    free(v.ranks[rank].place);
    free(v.ranks[rank].by_ref);
    free(v.ranks[rank].by_ref_lane);
    colli_vorder_free(&v.ranks[rank].order);
  }
  free(v.ranks);
  free(v.conn);
  free(v.todo);
  free(v.msgs);
  free(v.sets);
  colli_conns_free(&v.conns);
  colli_exprs_free(&v.exprs);
  return v.status;
}
