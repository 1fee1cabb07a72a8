/*
 * central.h: what strategies with one parameter server have in common. The last rank is the server;
 * the others are workers, 0 .. n - 1.
 */
#ifndef TRAINER_STRATEGIES_CENTRAL_H
#define TRAINER_STRATEGIES_CENTRAL_H

#include "trainer/worker.h"

/* State of a rank. */
typedef struct central {
  float *grads; /* of this worker, or what the server got last */
  float *sum;   /* the server's, of gradients; NULL where a strategy needs none */
  void *packet; /* with --wire, one that is sent or received */
  void *books;  /* what the server keeps about the workers */
} central;

/* What the server sends with its weights: a worker's next piece of the epoch's order. */
typedef struct task {
  uint64_t first, count;
  uint64_t batch; /* samples over which the gradient is the mean */
  uint64_t done;  /* samples of the epoch that are in the weights, of all workers */
  uint64_t left;  /* 0: there is nothing left to do, and no weights follow */
} task;

/* Takes room for `slots` sums of gradients on the server, and for books of `bytes` bytes. */
bool central_open(worker *w, size_t slots, size_t bytes, fail *why);

/* Functions of the table in strategy.h. */
bool central_check(const worker *w, fail *why);
const float *central_settle(worker *w, fail *why);

/* How many workers there are, which is the server's rank, too. */
int central_workers(const worker *w);

/* A worker: sends its gradients. The server: receives those of worker `from`, or of any with
 * COLL_ANY_SOURCE; *source, unless NULL, is whose they were. */
bool central_push(worker *w, fail *why);
bool central_take(worker *w, int from, int *source, fail *why);

/* The server: hands a worker a task, and the weights unless it is the end. */
bool central_answer(worker *w, int rank, const task *next, fail *why);

/* A worker: does task after task until there is nothing left. */
bool central_work(worker *w, fail *why);

/* Gives all ranks numbers of the server's. */
bool central_tell(worker *w, double *numbers, size_t count, fail *why);

#endif
