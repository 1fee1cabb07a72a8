/* dump.c: names of collectives, and schedules as text. */
#include <string.h>

#include "libcoll/sched/sched.h"

/* The name of a collective; NULL for a number that is none. */
const char *colli_coll_name(colli_coll coll) {
  static const char *const names[COLLI_COLL_COUNT] = {
      "allreduce",      "broadcast", "allgather", "barrier", "sendrecv", "reduce",
      "reduce_scatter", "alltoall",  "gather",    "scatter", "scan",     "exscan"};
  return (unsigned)coll < COLLI_COLL_COUNT ? names[coll] : NULL;
}

/* The collective of a name, or -1. */
int colli_coll_parse(const char *name) {
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++)
    if (strcmp(name, colli_coll_name((colli_coll)coll)) == 0)
      return coll;
  return -1;
}

/* Whether it combines elements. */
bool colli_reduces(colli_coll coll) {
  return coll == COLLI_ALLREDUCE || coll == COLLI_REDUCE || coll == COLLI_REDUCE_SCATTER ||
         coll == COLLI_SCAN || coll == COLLI_EXSCAN;
}

/* Whether it moves blocks of exactly count elements. */
bool colli_exact(colli_coll coll) {
  return coll == COLLI_ALLGATHER || coll == COLLI_REDUCE_SCATTER || coll == COLLI_ALLTOALL ||
         coll == COLLI_GATHER || coll == COLLI_SCATTER;
}

/* Whether it depends on a root. */
bool colli_rooted(colli_coll coll) {
  return coll == COLLI_BROADCAST || coll == COLLI_REDUCE || coll == COLLI_GATHER ||
         coll == COLLI_SCATTER;
}

/* Writes "output[3]". */
static void place_text(char text[32], int buf, int chunk) {
  static const char *const names[] = {"input", "output", "scratch"};
  snprintf(text, 32, "%s[%d]", buf <= COLLI_SCRATCH ? names[buf] : "?", chunk);
}

/* Prints what a step's value is: "input[2]", "message from 4", "input[2] op message from 4". */
static void print_value(const colli_step *step, bool barrier, FILE *out) {
  char src[32], dst[32];
  place_text(src, step->src_buf, step->chunk_in);
  place_text(dst, step->dst_buf, step->chunk_out);
  bool reduce = step->bits & COLLI_FOLD;
  if (!(step->bits & COLLI_RECV)) {
    if (reduce)
      fprintf(out, "%s op %s", dst, src);
    else
      fputs(barrier ? "notice" : src, out);
  } else if (!reduce) {
    fprintf(out, "%s from %d", barrier ? "notice" : "message", step->peer_recv);
  } else if (step->bits & COLLI_MSG_LEFT) {
    fprintf(out, "message from %d op %s", step->peer_recv, src);
  } else {
    fprintf(out, "%s op message from %d", src, step->peer_recv);
  }
}

/* Prints one step as a line. */
static void print_step(const colli_sched *sched, int index, FILE *out) {
  const colli_step *step = &sched->steps[index];
  bool barrier = sched->coll == COLLI_BARRIER;
  fprintf(out, "  lane %d step %3d  ", step->lane, index);
  print_value(step, barrier, out);
  if (step->bits & COLLI_FINAL)
    fputs(" (complete)", out);
  if (step->bits & COLLI_STORE) {
    char dst[32];
    place_text(dst, step->dst_buf, step->chunk_out);
    fprintf(out, " -> %s", dst);
  }
  if (step->bits & COLLI_SEND)
    fprintf(out, " -> rank %d", step->peer_send);
  for (int d = 0; d < 2; d++)
    if (step->dep[d] != COLLI_NO_DEP)
      fprintf(out, "%s %d", d ? "," : "  after step", step->dep[d]);
  fputc('\n', out);
}

/* Prints one rank's schedule, a line a step. */
void colli_sched_dump(const colli_sched *sched, FILE *out) {
  fprintf(out, "%s, rank %d of %d", colli_coll_name(sched->coll), sched->rank, sched->nranks);
  if (colli_rooted(sched->coll))
    fprintf(out, ", root %d", sched->root);
  fprintf(out, ": %d chunks, %d scratch, %d lanes, %d steps\n", sched->nchunks, sched->nscratch,
          sched->nlanes, sched->nsteps);
  for (int i = 0; i < sched->nsteps; i++)
    print_step(sched, i, out);
}
