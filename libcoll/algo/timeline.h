/*
 * timeline.h: computes when a rank finishes its steps. The costs of algorithms that are symmetric
 * in the ranks are recurrences over the steps of one rank: what it receives was sent by a rank that
 * was as far as itself. Follows the same rules as the predictor (cost/predict.c), a chunk at a
 * time.
 */
#ifndef COLLI_ALGO_TIMELINE_H
#define COLLI_ALGO_TIMELINE_H

#include "libcoll/algo/emit.h"

/* When the first and the last slice of a chunk arrive. */
typedef struct colli_flight {
  double first;
  double last;
} colli_flight;

/* A rank, and what a slice takes. */
typedef struct colli_timeline {
  double filled; /* share of the chunks that hold anything */
  double slices; /* of a chunk */
  double step;   /* the rank's work on a slice that it only moves */
  double fold;   /* the same where it reduces or copies it */
  double bytes;  /* of a slice */
  double link;   /* a slice's time on the way out */
  double alpha;
  double now; /* when the rank's last step ended */
  double out; /* until when its way out is taken */
} colli_timeline;

/* A rank that has not begun. */
colli_timeline colli_timeline_make(const colli_terms *terms, const colli_model *model);

/* From now on the rank sends over such a link. */
void colli_timeline_aim(colli_timeline *at, colli_pair_cost link);

/* The steps of a rank; those that send say when the chunk arrives. */
colli_flight colli_timeline_send(colli_timeline *at);
colli_flight colli_timeline_forward(colli_timeline *at, colli_flight in);
colli_flight colli_timeline_fold_forward(colli_timeline *at, colli_flight in);
void colli_timeline_receive(colli_timeline *at, colli_flight in);
void colli_timeline_fold(colli_timeline *at, colli_flight in);
void colli_timeline_copy(colli_timeline *at);

/*
 * Reduction by owners (emit.h): `rank` contributes and combines; if it sends the result, gives its
 * arrival time. In a fixed order, either rank 1 ends last, because it is the last to get rank 0's
 * contribution, or colli_combine_busiest(), which has the most work. Evaluate both and take the
 * later.
 */
colli_flight colli_timeline_combine(colli_timeline *at, const colli_shape *shape, int rank,
                                    bool store, bool sends);
int colli_combine_busiest(const colli_shape *shape);

/*
 * Scan by doubling among n > 1 ranks: when the last one ends. In round k a rank sends its reduction
 * to the rank 2^k further on. shifted: first each rank sends its part to the next one, and all but
 * the first scan these.
 */
double colli_timeline_doubling(int n, double passes, colli_timeline fresh, bool shifted);

/* The most ranks that a recurrence follows. */
#define COLLI_TIMELINES 4

/*
 * The cost of an algorithm. `pass` takes the ranks that it follows, at[0] and as many others as it
 * likes, through one pass; it gets ctx. The last of these ranks ends the collective. If there are
 * many passes, only the first few are run, and the others take as long as the last of those.
 */
double colli_timeline_cost(const colli_shape *shape, const colli_partition *partition,
                           size_t elem_bytes, const colli_model *model, colli_work work,
                           void (*pass)(colli_timeline *at, const colli_shape *shape,
                                        const void *ctx),
                           const void *ctx);

#endif
