/* emit.c: what the algorithms share. */
#include "libcoll/algo/emit.h"

#include "libcoll/base/assert.h"

/* Adds a step that works on one chunk. */
int colli_emit(colli_builder *builder, int lane, unsigned bits, colli_way way, int chunk) {
  COLLI_ASSERT(lane >= 0 && lane < COLLI_MAX_LANES && chunk >= 0);
  COLLI_ASSERT(!(bits & COLLI_RECV) || way.from != COLLI_NOBODY);
  COLLI_ASSERT(!(bits & COLLI_SEND) || way.to != COLLI_NOBODY);
  return colli_builder_add(builder, (colli_step){
                                        .bits = (uint8_t)bits,
                                        .lane = (uint8_t)lane,
                                        .src_buf = (uint8_t)way.src,
                                        .dst_buf = (uint8_t)way.dst,
                                        .peer_recv = way.from,
                                        .peer_send = way.to,
                                        .chunk_in = chunk,
                                        .chunk_out = chunk,
                                    });
}

/* The steps of a communicator of one rank. */
void colli_emit_alone(colli_builder *builder, colli_coll coll, int nchunks) {
  bool final = colli_reduces(coll) && coll != COLLI_SCAN;
  colli_way way = {COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT};
  unsigned bits = COLLI_STORE | (final ? COLLI_FINAL : 0);
  if (coll == COLLI_BARRIER || coll == COLLI_EXSCAN)
    return;
  for (int chunk = 0; chunk < nchunks; chunk++)
    colli_emit(builder, 0, bits, way, chunk);
}

/* One chunk for each rank's block. */
int colli_nchunks_blocks(const colli_shape *shape) {
  return shape->nranks;
}

/* One chunk for the whole vector. */
int colli_nchunks_one(const colli_shape *shape) {
  (void)shape;
  return 1;
}

/* Emits the copy of a rank's own block. */
int colli_emit_own(colli_builder *builder, const colli_shape *shape) {
  colli_way way = {COLLI_NOBODY, COLLI_NOBODY, COLLI_INPUT, COLLI_OUTPUT};
  return colli_emit(builder, 0, COLLI_STORE, way, shape->rank);
}

/* The smallest q with 2^q >= n. */
int colli_log2_up(int n) {
  int q = 0;
  while (q < 31 && (1u << q) < (unsigned)n)
    q++;
  return q;
}

/* The larger of two times. */
static double larger(double a, double b) {
  return a > b ? a : b;
}

/* The terms of a cost. */
colli_terms colli_terms_make(const colli_partition *partition, size_t elem_bytes,
                             const colli_model *model) {
  COLLI_ASSERT(partition->nchunks >= 1 && partition->passes >= 1);
  size_t slice = partition->slice < partition->piece ? partition->slice : partition->piece;
  double bytes = (double)partition->region * (double)elem_bytes / partition->passes;
  double slices = slice ? (double)((partition->piece + slice - 1) / slice) : 1;
  double link = bytes / slices * model->beta_ns_per_byte;
  double work = model->step_ns + bytes / slices * model->gamma_ns_per_byte;
  size_t region = partition->region;
  size_t held = region ? (partition->count + region - 1) / region : 0;
  return (colli_terms){
      .filled = region ? (double)held / partition->nchunks : 1,
      .passes = partition->passes,
      .slices = slices,
      .bytes = bytes,
      .copy = larger(model->step_ns, link),
      .work_reduce = work,
      .reduce = larger(work, link),
      .copy_hop = model->step_ns + link + model->alpha_ns,
      .reduce_hop = work + link + model->alpha_ns,
  };
}

/* The time in which a communicator of one rank copies its vector. */
double colli_cost_alone(const colli_partition *partition, const colli_terms *terms) {
  return terms->filled * partition->nchunks * terms->passes * terms->slices * terms->work_reduce;
}

/* The time of a collective, from its critical path and the work of its ranks. */
double colli_cost_bound(double critical, colli_work work, const colli_terms *terms,
                        const colli_model *model) {
  if (model->core_share >= 1)
    return critical;
  /* Averages over links of several kinds can have an alpha below 0 (distance.h): no wait does. */
  const double wait = larger(model->alpha_ns, 0);
  const double core = model->core_beta_ns_per_byte, beta = model->beta_ns_per_byte;
  const double bytes = terms->bytes * (work.received * (core > 0 && core < beta ? core : beta) +
                                       work.reduced * model->gamma_ns_per_byte);
  const double steps = colli_model_has_shared_steps(model) ? work.received : work.steps;
  const double one_pass = steps * terms->slices * model->step_ns +
                          work.waits * wait * colli_model_wait_share(model) + bytes;
  critical *= colli_model_path_factor(model);
  return larger(critical, terms->filled * one_pass * terms->passes / model->core_share);
}
