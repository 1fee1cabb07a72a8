/*
 * passage.h: where a stream passes through the host. The stream copies inputs to the host, tells
 * the host, waits for its answer, and copies results to the device:
 *
 *   copies to the host -> host function "reached" -> wait until answer is 1 -> answer = 0
 *                      -> copies to the device -> host function "left"
 *
 * It may wait several times before it leaves, and do other things between "reached" and the wait.
 *
 * If the stream is captured, this becomes a part of a graph, and happens each time that it is
 * launched.
 *
 * Functions that the driver calls set flags, and wake whoever moves the operation. The parts are
 * put into the stream with its context entered (colli_gpu_passage_enter()); the driver may wait in
 * that until a full stream has done some of its work.
 */
#ifndef COLLI_GPU_PASSAGE_H
#define COLLI_GPU_PASSAGE_H

#include <stdatomic.h>

#include "libcoll/gpu/devices.h"

typedef struct colli_gpu_passage {
  colli_gpu *gpu;
  int device;
  colli_cu_context context; /* the stream's */
  colli_cu_stream stream;
  colli_pinned *answer;          /* a word, or NULL */
  atomic_bool reached;           /* the stream has come to a wait: what was before it is done */
  unsigned come;                 /* how often it has since it last left; for on_reached only */
  uint64_t arrival;              /* a number that grows each time that some stream comes */
  atomic_bool left;              /* the results are on the device */
  bool captured;                 /* in a graph */
  atomic_bool released;          /* the graph is gone */
  void (*on_reached)(void *arg); /* called by a thread of the driver; must not call the driver.
                                    NULL: the stream goes on at once */
  void *arg;
} colli_gpu_passage;

/*
 * Prepares the passage of a stream (NULL: the default stream of the thread's context); the caller
 * sets on_reached and arg. Errors: INVALID_ARGUMENT (no stream, or a thread without a context),
 * UNSUPPORTED (the driver has no stream memory operations).
 */
coll_status colli_gpu_passage_open(colli_gpu *gpu, void *stream, colli_gpu_passage *passage,
                                   coll_error *error);

/* The same, in the stream of a passage that was prepared. */
void colli_gpu_passage_follow(const colli_gpu_passage *first, colli_gpu_passage *passage);

/* Takes the word for which the stream will wait, if it will. Errors: NO_MEMORY, SYSTEM. */
coll_status colli_gpu_passage_take_answer(colli_gpu_passage *passage, coll_error *error);

/* Makes the stream's context current; colli_gpu_leave() undoes it. Errors: SYSTEM. */
coll_status colli_gpu_passage_enter(const colli_gpu_passage *passage, colli_gpu_thread *before,
                                    coll_error *error);

/* Whether the stream is captured now. */
bool colli_gpu_passage_is_captured(const colli_gpu_passage *passage);

/*
 * Finds out whether the stream is captured (`captured`); then the passage is noted in the graph,
 * whose end sets `released`. Errors: SYSTEM, INVALID_USAGE (a capture that has failed).
 */
coll_status colli_gpu_passage_join_capture(colli_gpu_passage *passage, coll_error *error);

/* Frees it: the stream has left, or has never been given it, or its graph is gone. */
void colli_gpu_passage_close(colli_gpu_passage *passage);

/* Puts copies into the stream. Errors: SYSTEM. */
coll_status colli_gpu_passage_copy(const colli_gpu_passage *passage, colli_gpu_direction direction,
                                   const colli_gpu_piece *pieces, size_t count, coll_error *error);

/* Puts the host's turn into the stream: it tells the host, and waits; or only one of these. Errors:
 * SYSTEM. */
coll_status colli_gpu_passage_wait(colli_gpu_passage *passage, coll_error *error);
coll_status colli_gpu_passage_tell(colli_gpu_passage *passage, coll_error *error);
coll_status colli_gpu_passage_await(const colli_gpu_passage *passage, coll_error *error);

/* Puts the end into the stream. Errors: SYSTEM. */
coll_status colli_gpu_passage_end(colli_gpu_passage *passage, coll_error *error);

/* The stream may come later or never: it will go on at once, and calls nobody. The passage and its
 * GPUs remain, because it uses them. */
void colli_gpu_passage_abandon(colli_gpu_passage *passage);

/* Lets the stream go on. */
void colli_gpu_passage_answer(const colli_gpu_passage *passage);

#endif
