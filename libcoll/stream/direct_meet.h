/*
 * direct_meet.h: how the streams of all ranks meet in a call in GPU memory. ORDERED: a stream tells
 * the host and waits for its answer; nothing spins, so ranks may share a GPU. SPIN: a kernel tells
 * the others, and spins until they have come; the host only looks on. Captured calls use the first
 * way also where others spin, because their meets have no numbers.
 */
#ifndef COLLI_STREAM_DIRECT_MEET_H
#define COLLI_STREAM_DIRECT_MEET_H

#include "libcoll/comm/comm.h"
#include "libcoll/gpu/passage.h"

/*
 * Settles how the ranks meet: the mode that was asked for, or the best one that `offers` allow. All
 * ranks find the same. Takes the words for it. Errors: UNSUPPORTED (ranks share a GPU), NO_MEMORY,
 * SYSTEM.
 */
coll_status colli_direct_choose(colli_direct *direct, const colli_gpu_offer *offers,
                                coll_error *error);

/* Gives the words back, when no stream uses them. */
void colli_direct_free_words(colli_direct *direct);

/* Puts a meet into the stream. Errors: SYSTEM. */
coll_status colli_direct_put_meet(colli_direct *direct, colli_gpu_passage *passage, bool spins,
                                  coll_error *error);

/* Puts the end of a call whose meets spin into the stream: it tells the call's number. */
coll_status colli_direct_put_end(const colli_direct *direct, const colli_gpu_passage *passage,
                                 uint32_t call, coll_error *error);

/* Address of the word that keeps kernels from writing into slots when this rank has gone on without
 * the others, who may still read them. */
uint64_t colli_direct_guard(const colli_direct *direct, bool spins);

/* Lets all streams go on without the others. */
void colli_direct_stop(colli_direct *direct);

/* Whether a word that streams advance has come to a number. */
static inline bool colli_direct_is_past(const uint32_t *word, uint32_t number) {
  return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - number) >= 0;
}

#endif
