/* check.h: what a single step and the frame of a schedule must satisfy. */
#ifndef COLLI_SCHED_CHECK_H
#define COLLI_SCHED_CHECK_H

#include "libcoll/sched/sched.h"

/* What is wrong with nranks, rank, root, nchunks, nscratch and nlanes; NULL if nothing. */
const char *colli_check_frame(const colli_sched *sched);

/* What is wrong with a step of this schedule, except for its deps; NULL if nothing. */
const char *colli_check_step(const colli_sched *sched, const colli_step *step);

/* Whether a chunk exists in a rank's INPUT or OUTPUT in this collective (see sched.h). */
bool colli_has_chunk(const colli_sched *sched, colli_buf buf, int chunk);

/* Whether a step's value comes from src_buf, as a whole or as one side of a reduction. */
static inline bool colli_step_reads(const colli_step *step) {
  return !(step->bits & COLLI_RECV) || (step->bits & COLLI_FOLD);
}

/* The chunk that determines the length of a step's value and of its messages. */
static inline int colli_step_chunk(const colli_step *step) {
  return colli_step_reads(step) ? step->chunk_in : step->chunk_out;
}

/* The buffer in which that chunk lies. */
static inline colli_buf colli_step_buf(const colli_step *step) {
  return (colli_buf)(colli_step_reads(step) ? step->src_buf : step->dst_buf);
}

#endif
