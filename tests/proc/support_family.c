/* support_family.c: operations that check whether a communicator works. */
#include "support_family.h"

#include <stdio.h>
#include <stdlib.h>

#include "number.h"
#include "support_ranks.h"

/* Element i of a rank's input. */
static int element(unsigned seed, int origin, size_t i) {
  int number;
  number_input(&number, COLL_INT32, COLL_SUM, origin, i, seed);
  return number;
}

/* Fills a buffer with the input of the rank that has number `origin` in the base. */
static void fill(int *buf, size_t count, unsigned seed, int origin) {
  for (size_t i = 0; i < count; i++)
    buf[i] = element(seed, origin, i);
}

/* A rank's number in the base. */
static int origin_of(coll_comm *comm, int rank) {
  int origin = -1;
  coll_comm_origin_rank(comm, rank, &origin);
  return origin;
}

/* Counts elements that are not the sum of all ranks' inputs. */
static int wrong_sum(coll_comm *comm, int nranks, const int *out, size_t count, unsigned seed) {
  int wrong = 0, origins[64];
  for (int r = 0; r < nranks; r++)
    origins[r] = origin_of(comm, r);
  for (size_t i = 0; i < count; i++) {
    unsigned sum = 0;
    for (int r = 0; r < nranks; r++)
      sum += (unsigned)element(seed, origins[r], i);
    wrong += (unsigned)out[i] != sum;
  }
  return wrong;
}

/* Counts elements that are not a rank's input. */
static int wrong_copy(const int *out, size_t count, unsigned seed, int origin) {
  int wrong = 0;
  for (size_t i = 0; i < count; i++)
    wrong += out[i] != element(seed, origin, i);
  return wrong;
}

/* A ring of messages: odd ranks receive first. */
static int ring(coll_comm *comm, int rank, int nranks, const int *in, int *out, size_t count,
                unsigned seed) {
  int next = (rank + 1) % nranks, before = (rank + nranks - 1) % nranks;
  coll_request *send = NULL, *recv = NULL;
  if (nranks == 1)
    return 0;
  RANK_OK(coll_isend(in, count, COLL_INT32, next, 0, comm, &send));
  RANK_OK(coll_irecv(out, count, COLL_INT32, before, 0, NULL, comm, &recv));
  RANK_OK(coll_wait(&recv, -1));
  RANK_OK(coll_wait(&send, -1));
  RANK_CHECK(wrong_copy(out, count, seed, origin_of(comm, before)) == 0);
  return 0;
}

/* Runs all operations. */
static int run(coll_comm *comm, int rank, int nranks, int *in, int *out, size_t count,
               unsigned seed) {
  fill(in, count, seed, origin_of(comm, rank));
  RANK_OK(coll_allreduce(in, out, count, COLL_INT32, COLL_SUM, comm));
  RANK_CHECK(wrong_sum(comm, nranks, out, count, seed) == 0);
  int root = (int)(seed % (unsigned)nranks);
  RANK_OK(coll_broadcast(in, out, count, COLL_INT32, root, comm));
  RANK_CHECK(wrong_copy(out, count, seed, origin_of(comm, root)) == 0);
  RANK_OK(coll_allgather(in, out, count, COLL_INT32, comm));
  for (int r = 0; r < nranks; r++)
    RANK_CHECK(wrong_copy(out + (size_t)r * count, count, seed, origin_of(comm, r)) == 0);
  return ring(comm, rank, nranks, in, out, count, seed);
}

int family_exercise(coll_comm *comm, size_t count, unsigned seed) {
  int rank = -1, nranks = 0;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  int *in = malloc((count + 1) * sizeof(*in));
  int *out = malloc((count + 1) * (size_t)nranks * sizeof(*out));
  int result = in && out ? run(comm, rank, nranks, in, out, count, seed) : 2;
  free(in);
  free(out);
  return result;
}

int family_start(family_pending *pending, coll_comm *comm, size_t count, unsigned seed) {
  int rank = -1;
  coll_comm_rank(comm, &rank);
  *pending = (family_pending){.comm = comm, .count = count, .seed = seed};
  pending->in = malloc((count + 1) * sizeof(int));
  pending->out = malloc((count + 1) * sizeof(int));
  fill(pending->in, count, seed, origin_of(comm, rank));
  RANK_OK(coll_iallreduce(pending->in, pending->out, count, COLL_INT32, COLL_SUM, comm,
                          &pending->request));
  return 0;
}

int family_finish(family_pending *pending) {
  coll_comm *comm = pending->comm;
  int rank = -1, nranks = 0;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  RANK_OK(coll_wait(&pending->request, -1));
  RANK_CHECK(wrong_sum(comm, nranks, pending->out, pending->count, pending->seed) == 0);
  free(pending->in);
  free(pending->out);
  return 0;
}
