/* dump.c: schedules as text. */
#include "libcoll/sched/sched.h"

/* Writes "output[3]". */
static void place_text(char text[32], int buf, int chunk) {
  static const char *const names[] = {"input", "output", "scratch"};
  snprintf(text, 32, "%s[%d]", buf <= COLLI_SCRATCH ? names[buf] : "?", chunk);
}

/* Prints a step's value: "input[2]", "message from 4", "input[2] op message from 4". */
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
