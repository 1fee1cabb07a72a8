/*
 * parts.c: all-reduces on a communicator, on some made from it, and on what is left after a shrink.
 * With the name of a file: on one of three ranks, after the fourth has joined it, for which the
 * file is, and after that has left. Exits with 1, and says where, if a result is wrong.
 */
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"
#include "waits.h"

#define COUNT  300000 /* long enough for algorithms that divide work among hosts */
#define LATER  3      /* the rank that joins */
#define WAIT_S 60     /* for it, at most */

/* Ends the program if a call has failed. */
static void need(coll_status status, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, coll_status_name(status));
  exit(1);
}

/* Sums up numbers that are small enough to be exact. */
static void reduce(coll_comm *comm, const char *what) {
  int nranks, rank, wrong = 0;
  float *in = malloc(2 * COUNT * sizeof(*in)), *out = in + COUNT;
  need(in ? COLL_OK : COLL_ERR_NO_MEMORY, what);
  need(coll_comm_nranks(comm, &nranks), what);
  need(coll_comm_rank(comm, &rank), what);
  for (int i = 0; i < COUNT; i++)
    in[i] = (float)(i % 7 + rank);
  need(coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, comm), what);
  for (int i = 0; i < COUNT; i++)
    wrong += out[i] != (float)(i % 7 * nranks + nranks * (nranks - 1) / 2);
  free(in);
  if (wrong == 0)
    return;
  fprintf(stderr, "%s: %d elements are wrong\n", what, wrong);
  exit(1);
}

/* ---- one joins later ------------------------------------------------------------------------- */

/* Writes the id with which it joins to a file, whole or not at all. */
static void write_id(coll_comm *comm, const char *file) {
  char part[4096];
  coll_id id;
  need(coll_comm_join_id(comm, &id), "id");
  snprintf(part, sizeof(part), "%s.part", file);
  FILE *out = fopen(part, "wb");
  if (!out || fwrite(&id, sizeof(id), 1, out) != 1 || fclose(out) != 0 || rename(part, file) != 0)
    need(COLL_ERR_SYSTEM, "write the id");
}

/* Joins with the id from a file, once that is there. */
static coll_comm *join(const char *file) {
  coll_comm *comm;
  coll_id id;
  FILE *in = NULL;
  (void)WAIT_UNTIL((in = fopen(file, "rb")) != NULL, WAIT_S);
  if (!in || fread(&id, sizeof(id), 1, in) != 1 || fclose(in) != 0)
    need(COLL_ERR_SYSTEM, "read the id");
  need(coll_comm_join(&comm, &id, NULL), "join");
  return comm;
}

/* How many ranks wait to join. */
static int count_joiners(coll_comm *comm, int *count) {
  need(coll_comm_joiners(comm, count), "joiners");
  return *count;
}

/* Makes a communicator of three ranks, and grows it once the fourth waits. */
static coll_comm *grow(const char *file) {
  int rank, count = 0;
  coll_comm *base, *grown;
  setenv("COLL_NRANKS", "3", 1);
  need(coll_init_from_env(&base, NULL), "creation");
  need(coll_comm_rank(base, &rank), "rank");
  reduce(base, "before");
  if (rank == 0)
    write_id(base, file);
  if (rank == 0)
    (void)WAIT_UNTIL(count_joiners(base, &count) > 0, WAIT_S);
  need(coll_barrier(base), "barrier");
  need(coll_comm_grow(base, NULL, &grown), "growth");
  need(coll_comm_destroy(&base), "destroy");
  return grown;
}

/* The whole of that. */
static void join_later(const char *file) {
  const char *number = getenv("COLL_RANK");
  const int later = number && atoi(number) == LATER;
  int nranks;
  coll_comm *grown = later ? join(file) : grow(file), *rest;
  need(coll_comm_nranks(grown, &nranks), "ranks");
  need(nranks == LATER + 1 ? COLL_OK : COLL_ERR_INTERNAL, "all have joined");
  reduce(grown, "grown");
  if (!later) {
    need(coll_comm_shrink(grown, NULL, &rest), "shrink");
    need(coll_comm_nranks(rest, &nranks), "ranks");
    need(nranks == LATER ? COLL_OK : COLL_ERR_INTERNAL, "it has left");
    reduce(rest, "left");
    need(coll_comm_destroy(&rest), "destroy");
  }
  need(coll_comm_destroy(&grown), "destroy");
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* All that are made from one. */
static void use_parts(void) {
  int rank;
  coll_comm *base, *part, *twin, *rest;
  need(coll_init_from_env(&base, NULL), "creation");
  need(coll_comm_rank(base, &rank), "rank");
  reduce(base, "base");
  need(coll_comm_split(base, rank == 0, rank, NULL, &part), "split");
  reduce(part, "split");
  need(coll_comm_dup(base, NULL, &twin), "dup");
  reduce(twin, "dup");
  need(coll_comm_destroy(&part), "destroy");
  need(coll_comm_destroy(&twin), "destroy");
  need(coll_comm_shrink(base, NULL, &rest), "shrink");
  reduce(rest, "shrink");
  need(coll_comm_destroy(&rest), "destroy");
  need(coll_comm_destroy(&base), "destroy");
}

int main(int argc, char **argv) {
  if (argc > 1)
    join_later(argv[1]);
  else
    use_parts();
  return 0;
}
