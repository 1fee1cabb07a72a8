/*
 * direct_meet.h: how the streams of all ranks meet in a call in GPU memory.
 *
 * ORDERED: a stream tells the host and waits for its answer; nothing spins, so ranks may share a
 * GPU. SPIN: a kernel tells the others, and spins until they have come; the host only looks on.
 * MEET: for threads of one process; when all have made the call, and put an event where it meets,
 * each stream waits for the others' events. So no stream waits for what is put into a queue later,
 * and one hardware queue is enough.
 *
 * Captured calls meet in the first way also where others do not, because their meets have no
 * numbers, and events of several captures must not be mixed. With MEET, all calls do after the
 * first that was captured: nobody knows at a call how far graphs are.
 */
#ifndef COLLI_STREAM_DIRECT_MEET_H
#define COLLI_STREAM_DIRECT_MEET_H

#include "libcoll/comm/comm.h"
#include "libcoll/gpu/passage.h"

/* How long a rank waits for the reason why another one has gone on without it; and the error if it
 * gets none: ABORTED. */
#define COLLI_DIRECT_REASON_NS COLLI_NS_PER_S
void colli_direct_set_unexplained(coll_error *error);

/* Makes this rank's events and tells them in its offer. The device is entered. Errors: SYSTEM. */
coll_status colli_direct_make_events(colli_direct *direct, const colli_cuda *cuda, int device,
                                     colli_gpu_offer *offer, coll_error *error);

/*
 * Settles how the ranks meet: the mode that was asked for, or the best one that `offers` allow. All
 * ranks find the same. Takes the words for it. Errors: UNSUPPORTED (the mode needs other ranks),
 * NO_MEMORY, SYSTEM.
 */
coll_status colli_direct_choose(colli_direct *direct, const colli_gpu_offer *offers,
                                coll_error *error);

/* Frees what these have made, when no stream of this rank uses it; but if `keep`, not the events,
 * for which streams of other ranks may wait. */
void colli_direct_free_meets(colli_direct *direct, colli_gpu *gpu, int device, bool keep);

/* The number of a place in a call, where ranks compare how they have come there, and what they read
 * in place: colli_direct_places.check. */
static inline unsigned colli_direct_place(colli_gpu_mode way, bool captured, unsigned meet,
                                          uint32_t check) {
  return (meet + check) * 4 + (way == COLLI_GPU_MEET) * 2u + captured;
}

/* How a call meets: the communicator's mode, or ORDERED. */
colli_gpu_mode colli_direct_way(const colli_direct *direct, bool captured);

/*
 * Puts a meet into the stream; the thread has let others in (colli_call_pause()). With MEET it
 * waits for the other ranks' calls; `request` is the call's, at a place of its own. Errors: SYSTEM;
 * those of the communicator, which has failed then.
 */
coll_status colli_direct_put_meet(colli_direct *direct, colli_gpu_passage *passage,
                                  colli_gpu_mode way, coll_request *request, unsigned place,
                                  coll_error *error);

/*
 * The parts of a meet with MEET: puts one of this rank's two events into the stream; waits until
 * all ranks have come to a place of a call, whose thread is outside; and lets the stream wait for
 * the others' events. An event is used again two meets later; by then all have waited for it.
 * Errors: SYSTEM; await: those of the communicator, which has failed then.
 */
coll_status colli_direct_record(const colli_direct *direct, const colli_gpu_passage *passage,
                                unsigned events, coll_error *error);
coll_status colli_direct_await_calls(coll_request *request, unsigned place, coll_error *error);
coll_status colli_direct_follow(const colli_direct *direct, const colli_gpu_passage *passage,
                                unsigned events, coll_error *error);

/* Before a call whose stream does not wait for the host: lets it wait for the end of the last one,
 * which was in another stream. Errors: SYSTEM. */
coll_status colli_direct_put_order(const colli_direct *direct, const colli_gpu_passage *passage,
                                   coll_error *error);

/* Puts the end of a call into the stream, which tells its number, and where the next one waits for
 * it in another stream. Then the call and its passage may be gone. Errors: SYSTEM. */
coll_status colli_direct_put_end(const colli_direct *direct, const colli_gpu_passage *passage,
                                 uint32_t call, coll_error *error);

/* Address of the guard that keeps kernels from writing into slots when this rank has gone on
 * without the others, who may still read them. */
uint64_t colli_direct_guard(const colli_direct *direct, colli_gpu_mode way);

/* Lets all streams go on without the others. */
void colli_direct_stop(colli_direct *direct);

/* The word that tells the end of a call. */
static inline uint32_t *colli_direct_ended(const colli_direct *direct, uint32_t call) {
  return &colli_direct_words_of(direct)->ended[call % COLLI_DIRECT_ENDS];
}

/* Whether a word that streams advance has come to a number. */
static inline bool colli_direct_is_past(const uint32_t *word, uint32_t number) {
  return (int32_t)(__atomic_load_n(word, __ATOMIC_ACQUIRE) - number) >= 0;
}

#endif
