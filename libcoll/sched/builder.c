/* builder.c: collects steps, checks them, and lays them out as a schedule. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/sched/sched.h"

struct colli_builder {
  colli_shape shape;
  int nchunks;
  int nscratch;
  int nlanes;
  int nsteps;
  int room;
  coll_status status; /* the first error, told by finish */
  colli_step *steps;  /* deps are handles: indices in this array */
};

/* A new builder, or NULL without memory. */
colli_builder *colli_builder_create(const colli_shape *shape, int nchunks, int nscratch,
                                    int nlanes) {
  colli_builder *builder = calloc(1, sizeof(*builder));
  if (!builder)
    return NULL;
  builder->shape = *shape;
  builder->nchunks = nchunks;
  builder->nscratch = nscratch;
  builder->nlanes = nlanes;
  return builder;
}

void colli_builder_discard(colli_builder *builder) {
  if (builder)
    free(builder->steps);
  free(builder);
}

/* Adds a step with no deps and returns a handle. */
int colli_builder_add(colli_builder *builder, colli_step step) {
  if (builder->nsteps == builder->room && builder->status == COLL_OK) {
    int room = builder->room ? 2 * builder->room : 16;
    colli_step *grown = realloc(builder->steps, (size_t)room * sizeof(*grown));
    if (grown) {
      builder->steps = grown;
      builder->room = room;
    } else {
      builder->status = COLL_ERR_NO_MEMORY;
    }
  }
  if (builder->status != COLL_OK)
    return 0;
  step.dep[0] = step.dep[1] = COLLI_NO_DEP;
  builder->steps[builder->nsteps] = step;
  return builder->nsteps++;
}

/* Makes step `waiter` wait for step `first`. */
void colli_builder_dep(colli_builder *builder, int waiter, int first) {
  if (builder->status != COLL_OK)
    return;
  builder->status = COLL_ERR_INTERNAL;
  if (waiter < 0 || waiter >= builder->nsteps || first < 0 || first >= builder->nsteps)
    return;
  colli_step *step = &builder->steps[waiter];
  int free_dep = step->dep[0] == COLLI_NO_DEP ? 0 : 1;
  /* A lane is in order anyway: a dep inside it says nothing, or waits for ever. */
  if (step->dep[free_dep] != COLLI_NO_DEP || builder->steps[first].lane == step->lane)
    return;
  step->dep[free_dep] = first;
  builder->status = COLL_OK;
}

/* Whether a peer field is right for a step that does or does not use it. */
static bool peer_ok(const colli_builder *builder, int peer, bool used) {
  if (!used)
    return peer == -1;
  return peer >= 0 && peer < builder->shape.nranks && peer != builder->shape.rank;
}

/* Whether a buffer has this chunk. Scratch chunk c is as long as chunk c of the vector. */
static bool chunk_ok(const colli_builder *builder, int buf, int chunk) {
  if (buf > COLLI_SCRATCH || chunk < 0)
    return false;
  return chunk < (buf == COLLI_SCRATCH ? builder->nscratch : builder->nchunks);
}

/* Whether the bits of a step make sense together. */
static bool bits_ok(const colli_builder *builder, unsigned bits) {
  const unsigned all =
      COLLI_SEND | COLLI_RECV | COLLI_REDUCE | COLLI_STORE | COLLI_FINAL | COLLI_MSG_LEFT;
  if ((bits & ~all) || !(bits & (COLLI_SEND | COLLI_RECV | COLLI_STORE)))
    return false;
  if (builder->shape.coll == COLLI_BARRIER)
    return !(bits & ~(unsigned)(COLLI_SEND | COLLI_RECV));
  if (bits & COLLI_REDUCE) {
    if (builder->shape.coll != COLLI_ALLREDUCE)
      return false;
    if (!(bits & COLLI_STORE) && (bits & (COLLI_RECV | COLLI_SEND)) != (COLLI_RECV | COLLI_SEND))
      return false;
  } else if ((bits & COLLI_RECV) && !(bits & COLLI_STORE)) {
    return false;
  }
  if ((bits & COLLI_FINAL) && builder->shape.coll != COLLI_ALLREDUCE)
    return false;
  if ((bits & COLLI_FINAL) && !(bits & (COLLI_REDUCE | COLLI_STORE)))
    return false;
  return !(bits & COLLI_MSG_LEFT) || ((bits & COLLI_RECV) && (bits & COLLI_REDUCE));
}

/* Checks a step, and gives fields that it does not use one fixed value. */
static bool check_step(const colli_builder *builder, colli_step *step) {
  unsigned bits = step->bits;
  if (step->lane >= builder->nlanes || !bits_ok(builder, bits) ||
      !peer_ok(builder, step->peer_recv, bits & COLLI_RECV) ||
      !peer_ok(builder, step->peer_send, bits & COLLI_SEND))
    return false;
  if (builder->shape.coll == COLLI_BARRIER) {
    step->chunk_in = step->chunk_out = 0;
    step->src_buf = step->dst_buf = COLLI_INPUT;
    return true;
  }
  bool reads = !(bits & COLLI_RECV) || (bits & COLLI_REDUCE);
  bool stores = bits & COLLI_STORE;
  if (!reads)
    step->src_buf = step->dst_buf, step->chunk_in = step->chunk_out;
  if (!stores)
    step->dst_buf = step->src_buf, step->chunk_out = step->chunk_in;
  if (!chunk_ok(builder, step->src_buf, step->chunk_in) ||
      !chunk_ok(builder, step->dst_buf, step->chunk_out))
    return false;
  if (stores && step->dst_buf == COLLI_INPUT)
    return false;
  /* Only the regions of an exact partition are sure to be equally long. */
  if (step->chunk_in != step->chunk_out && builder->shape.coll != COLLI_ALLGATHER)
    return false;
  bool same = step->src_buf == step->dst_buf && step->chunk_in == step->chunk_out;
  return (bits & COLLI_RECV) || !stores || !same;
}

/* Whether the frame around the steps is sound. */
static bool check_frame(const colli_builder *builder) {
  const colli_shape *shape = &builder->shape;
  return shape->nranks >= 1 && shape->nranks <= COLLI_MAX_RANKS && shape->rank >= 0 &&
         shape->rank < shape->nranks && shape->root >= 0 && shape->root < shape->nranks &&
         builder->nchunks >= 1 && builder->nscratch >= 0 && builder->nscratch <= builder->nchunks &&
         builder->nlanes >= 1 && builder->nlanes <= COLLI_MAX_LANES;
}

/* Copies the steps, sorted by lane; place[handle] receives where each went. */
static void lay_out(const colli_builder *builder, colli_sched *sched, int *place) {
  int at = 0;
  for (int lane = 0; lane < builder->nlanes; lane++) {
    sched->lane_first[lane] = at;
    for (int i = 0; i < builder->nsteps; i++) {
      if (builder->steps[i].lane != lane)
        continue;
      place[i] = at;
      sched->steps[at++] = builder->steps[i];
    }
  }
  for (int lane = builder->nlanes; lane <= COLLI_MAX_LANES; lane++)
    sched->lane_first[lane] = at;
  for (int i = 0; i < at; i++)
    for (int d = 0; d < 2; d++)
      if (sched->steps[i].dep[d] != COLLI_NO_DEP)
        sched->steps[i].dep[d] = place[sched->steps[i].dep[d]];
}

/* Sorts by lane, translates deps, checks every field and gives the schedule. */
coll_status colli_builder_finish(colli_builder *builder, colli_sched **sched) {
  *sched = NULL;
  coll_status status = builder->status;
  if (status == COLL_OK && !check_frame(builder))
    status = COLL_ERR_INTERNAL;
  for (int i = 0; status == COLL_OK && i < builder->nsteps; i++)
    if (!check_step(builder, &builder->steps[i]))
      status = COLL_ERR_INTERNAL;
  colli_sched *made = NULL;
  int *place = NULL;
  size_t nsteps = (size_t)builder->nsteps;
  if (status == COLL_OK) {
    made = calloc(1, sizeof(*made) + nsteps * sizeof(colli_step));
    place = malloc((nsteps + 1) * sizeof(*place));
    status = made && place ? COLL_OK : COLL_ERR_NO_MEMORY;
  }
  if (status == COLL_OK) {
    made->coll = builder->shape.coll;
    made->nranks = builder->shape.nranks;
    made->rank = builder->shape.rank;
    made->root = builder->shape.root;
    made->nchunks = builder->nchunks;
    made->nscratch = builder->nscratch;
    made->nlanes = builder->nlanes;
    made->nsteps = builder->nsteps;
    made->steps = (colli_step *)(made + 1);
    lay_out(builder, made, place);
    *sched = made;
  } else {
    free(made);
  }
  free(place);
  colli_builder_discard(builder);
  return status;
}

void colli_sched_free(colli_sched *sched) {
  free(sched);
}

/* Bytes of memory that a schedule takes. */
size_t colli_sched_bytes(const colli_sched *sched) {
  return sizeof(*sched) + (size_t)sched->nsteps * sizeof(colli_step);
}
