/* builder.c: collects steps, checks them, and lays them out as a schedule. */
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/sched/check.h"

struct colli_builder {
  colli_shape shape;
  int nchunks;
  int nscratch;
  bool scratch_own;
  int nlanes;
  int nsteps;
  int capacity;
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

/* Declares that all scratch is as long as the rank's own chunk. */
void colli_builder_scratch_own(colli_builder *builder) {
  builder->scratch_own = true;
}

void colli_builder_scratch(colli_builder *builder, int nscratch) {
  builder->nscratch = nscratch;
}

/* Frees a builder without making a schedule. */
void colli_builder_discard(colli_builder *builder) {
  if (builder)
    free(builder->steps);
  free(builder);
}

/* Adds a step with no deps and returns a handle. */
int colli_builder_add(colli_builder *builder, colli_step step) {
  if (builder->nsteps == builder->capacity && builder->status == COLL_OK) {
    int capacity = builder->capacity ? 2 * builder->capacity : 16;
    colli_step *grown = realloc(builder->steps, (size_t)capacity * sizeof(*grown));
    if (grown) {
      builder->steps = grown;
      builder->capacity = capacity;
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
  /* A lane runs in order anyway, so a dep inside it is either redundant or a deadlock. */
  if (step->dep[free_dep] != COLLI_NO_DEP || builder->steps[first].lane == step->lane)
    return;
  step->dep[free_dep] = first;
  builder->status = COLL_OK;
}

/* Sets fields that a step does not use to a fixed value, so that equal steps compare equal. */
static void settle(colli_coll coll, colli_step *step) {
  if (coll == COLLI_BARRIER) {
    step->chunk_in = step->chunk_out = 0;
    step->src_buf = step->dst_buf = COLLI_INPUT;
    return;
  }
  if (!colli_step_reads(step))
    step->src_buf = step->dst_buf, step->chunk_in = step->chunk_out;
  if (!(step->bits & COLLI_STORE))
    step->dst_buf = step->src_buf, step->chunk_out = step->chunk_in;
}

/* Checks everything that the emitter has said. */
static coll_status check_all(colli_builder *builder, const colli_sched *frame) {
  if (builder->status != COLL_OK)
    return builder->status;
  if (colli_check_frame(frame))
    return COLL_ERR_INTERNAL;
  for (int i = 0; i < builder->nsteps; i++) {
    unsigned reserved = builder->steps[i].bits & (COLLI_BY_REF | COLLI_BY_REF_IN_PLACE);
    if (reserved || colli_check_step(frame, &builder->steps[i]))
      return COLL_ERR_INTERNAL;
    settle(frame->coll, &builder->steps[i]);
  }
  return COLL_OK;
}

/* Copies the steps, sorted by lane, and stores the new index of each in place[handle]. */
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
  COLLI_ASSERT(at == builder->nsteps); /* no step is of a lane that does not exist */
  for (int lane = builder->nlanes; lane <= COLLI_MAX_LANES; lane++)
    sched->lane_first[lane] = at;
  for (int i = 0; i < at; i++)
    for (int d = 0; d < 2; d++)
      if (sched->steps[i].dep[d] != COLLI_NO_DEP)
        sched->steps[i].dep[d] = place[sched->steps[i].dep[d]];
}

/* Sorts by lane, translates deps, checks every field and returns the schedule. */
coll_status colli_builder_finish(colli_builder *builder, colli_sched **sched) {
  *sched = NULL;
  COLLI_ASSERT(builder->nsteps <= builder->capacity);
  colli_sched frame = {
      .coll = builder->shape.coll,
      .nranks = builder->shape.nranks,
      .rank = builder->shape.rank,
      .root = builder->shape.root,
      .shape = builder->shape,
      .nchunks = builder->nchunks,
      .nscratch = builder->nscratch,
      .scratch_own = builder->scratch_own,
      .nlanes = builder->nlanes,
      .nsteps = builder->nsteps,
  };
  coll_status status = check_all(builder, &frame);
  if (status == COLL_OK) {
    colli_sched *made = malloc(colli_sched_bytes(&frame));
    int *place = malloc(((size_t)frame.nsteps + 1) * sizeof(*place));
    if (made && place) {
      *made = frame;
      made->steps = (colli_step *)(made + 1);
      lay_out(builder, made, place);
      *sched = made;
    } else {
      free(made);
      status = COLL_ERR_NO_MEMORY;
    }
    free(place);
  }
  colli_builder_discard(builder);
  return status;
}

/* Frees a schedule; NULL is fine. */
void colli_sched_free(colli_sched *sched) {
  free(sched);
}

/* Bytes of memory that a schedule takes. */
size_t colli_sched_bytes(const colli_sched *sched) {
  return sizeof(*sched) + (size_t)sched->nsteps * sizeof(colli_step);
}
