/*
 * by_reference.c: which messages may be sent by reference, that is, stay in place until the peer
 * has read them.
 *
 * Before a rank stores to such memory it must wait for the peer. In nearly all algorithms this is
 * harmless, because the stored value depends on what the peer has read. But two ranks that send
 * each other the same chunk and then store to it would deadlock. In such algorithms
 * (colli_algo.exchanges) a step may send by reference only from memory to which no later step
 * stores. The verifier proves all of this.
 */
#include <stdlib.h>

#include "libcoll/sched/check.h"

#define NOBODY  (-1)
#define SEVERAL (-2)

/* Who stores to a chunk of OUTPUT. INPUT is never stored to, except in place, where it is the
 * same. */
typedef struct stores {
  int lane; /* or NOBODY, SEVERAL */
  int last; /* the last step that does */
} stores;

/* Finds all stores of a schedule. */
static void find_stores(const colli_sched *sched, stores *to) {
  for (int chunk = 0; chunk < sched->nchunks; chunk++)
    to[chunk] = (stores){NOBODY, -1};
  for (int i = 0; i < sched->nsteps; i++) {
    const colli_step *step = &sched->steps[i];
    if (!(step->bits & COLLI_STORE) || step->dst_buf != COLLI_OUTPUT)
      continue;
    stores *at = &to[step->chunk_out];
    at->lane = at->lane == NOBODY || at->lane == step->lane ? step->lane : SEVERAL;
    at->last = i;
  }
}

/*
 * Whether a step may send by reference. Steps of other lanes may store at any time: a dep orders
 * them after the send, not after the peer has read.
 */
static bool may_refer(const colli_sched *sched, int index, const stores *to, bool in_place,
                      bool harmless) {
  const colli_step *step = &sched->steps[index];
  bool kept = step->bits & COLLI_STORE;
  if (!(step->bits & COLLI_SEND) || (!kept && step->bits & COLLI_RECV))
    return false; /* it sends nothing, or data that no buffer holds */
  int buf = kept ? step->dst_buf : step->src_buf, chunk = kept ? step->chunk_out : step->chunk_in;
  if (buf == COLLI_SCRATCH)
    return false;
  if ((buf == COLLI_INPUT && !in_place) || to[chunk].lane == NOBODY)
    return true;
  return to[chunk].lane == step->lane && (harmless || to[chunk].last <= index);
}

void colli_sched_mark_by_reference(colli_sched *sched, bool harmless) {
  const unsigned both = COLLI_BY_REF | COLLI_BY_REF_IN_PLACE;
  stores *to = malloc((size_t)sched->nchunks * sizeof(*to));
  if (to)
    find_stores(sched, to);
  for (int i = 0; i < sched->nsteps; i++) {
    unsigned bits = sched->steps[i].bits & ~both;
    bool may = to && sched->coll != COLLI_BARRIER;
    if (may && may_refer(sched, i, to, false, harmless))
      bits |= COLLI_BY_REF;
    if (may && may_refer(sched, i, to, true, harmless))
      bits |= COLLI_BY_REF_IN_PLACE;
    sched->steps[i].bits = (uint8_t)bits;
  }
  free(to);
}
