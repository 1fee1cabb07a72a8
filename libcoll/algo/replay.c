/* replay.c: prices an algorithm by a replay of the events of all ranks. */
#include "libcoll/algo/replay.h"

#include <math.h>

#include "libcoll/cost/predict.h"

#define REPLAY_RANKS  64        /* more take too long */
#define REPLAY_PASSES 4         /* that many are replayed, and twice as many */
#define SOCKET_BYTES  (2 << 20) /* what a socket to another site has on its way at most, about */

/* The predicted time of the first few passes of a partition. */
static double replay_passes(colli_sched *const *scheds, int nranks, const colli_partition *whole,
                            int passes, size_t elem_bytes, const colli_model *model) {
  colli_partition cut = *whole;
  if (passes < whole->passes) {
    cut.passes = passes;
    cut.region = cut.piece * (size_t)passes;
    cut.count = (size_t)((double)whole->count * (double)cut.region / (double)whole->region);
  }
  unsigned slots = 2 * (unsigned)nranks + 8; /* never wait for one, as the formulas assume */
  if (model->sites)
    slots += (unsigned)(SOCKET_BYTES / (cut.slice * elem_bytes + 1));
  return colli_predict((const colli_sched *const *)scheds, nranks, &cut, elem_bytes, slots, model);
}

/* The cost, from a few passes: further ones take as long as the last of these. */
double colli_replay_cost(colli_emitter *emit, const colli_shape *shape,
                         const colli_partition *partition, size_t elem_bytes,
                         const colli_model *model) {
  colli_sched *scheds[REPLAY_RANKS];
  int made = 0;
  if (shape->nranks > REPLAY_RANKS)
    return -1;
  colli_shape mine = *shape;
  for (mine.rank = 0; mine.rank < shape->nranks; mine.rank++, made++)
    if (emit(&mine, &scheds[made]) != COLL_OK)
      break;
  double ns = INFINITY;
  if (made == shape->nranks && partition->passes <= 2 * REPLAY_PASSES) {
    ns = replay_passes(scheds, made, partition, partition->passes, elem_bytes, model);
  } else if (made == shape->nranks) {
    double few = replay_passes(scheds, made, partition, REPLAY_PASSES, elem_bytes, model);
    double more = replay_passes(scheds, made, partition, 2 * REPLAY_PASSES, elem_bytes, model);
    double rest = (more - few) / REPLAY_PASSES * (partition->passes - 2 * REPLAY_PASSES);
    ns = !isfinite(rest) ? INFINITY : few < 0 || more < 0 ? -1 : more + rest;
  }
  while (made > 0)
    colli_sched_free(scheds[--made]);
  return ns;
}
