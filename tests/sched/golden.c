/*
 * golden.c: writes what golden.sh compares. Of each algorithm, a file: the schedules of all ranks
 * of a small shape in full, if they are not very long, to be read in a review, and of many other
 * shapes a digest.
 */
#include <stdlib.h>
#include <sys/stat.h>

#include "support_group.h"

enum { RANKS_IN_FULL = 5, STEPS_IN_FULL = 80 };

/* What the shapes of one number of ranks have in common. */
typedef struct digest {
  uint64_t hash;
  int shapes;
  long steps;
} digest;

/* Takes a number into a hash (FNV-1a over its bytes). */
static void take(uint64_t *hash, int64_t number) {
  for (int i = 0; i < 8; i++)
    *hash = (*hash ^ ((uint64_t)number >> 8 * i & 0xff)) * 0x100000001b3;
}

/* Takes all that a schedule consists of. */
static void take_schedule(uint64_t *hash, const colli_sched *sched) {
  take(hash, sched->nchunks);
  take(hash, sched->nscratch);
  take(hash, sched->scratch_own);
  take(hash, sched->nlanes);
  take(hash, sched->nsteps);
  for (int i = 0; i < sched->nsteps; i++) {
    const colli_step *s = &sched->steps[i];
    const int32_t fields[] = {s->bits,      s->lane,     s->src_buf,   s->dst_buf, s->peer_recv,
                              s->peer_send, s->chunk_in, s->chunk_out, s->dep[0],  s->dep[1]};
    for (size_t k = 0; k < sizeof(fields) / sizeof(*fields); k++)
      take(hash, fields[k]);
  }
}

/* Takes the schedules of all ranks of a shape. */
static void take_shape(const colli_algo *algo, const colli_shape *shape, near_kind near,
                       void *ctx) {
  digest *sum = ctx;
  group all = group_of(algo, shape, near);
  for (int rank = 0; rank < all.nranks; rank++) {
    take_schedule(&sum->hash, all.sched[rank]);
    sum->steps += all.sched[rank]->nsteps;
  }
  sum->shapes++;
  group_free(&all);
}

/* Writes a line for all shapes of a number of ranks. */
static void write_digest(const colli_algo *algo, int nranks, FILE *out) {
  digest sum = {.hash = 0xcbf29ce484222325};
  shapes_each(algo, nranks, 1, take_shape, &sum);
  fprintf(out, "  %2d ranks  shapes %2d  steps %6ld  digest %016llx\n", nranks, sum.shapes,
          sum.steps, (unsigned long long)sum.hash);
}

/* Writes a schedule, or the first of many steps. */
static void write_steps(const colli_sched *sched, FILE *out) {
  colli_sched begin = *sched;
  if (begin.nsteps > STEPS_IN_FULL)
    begin.nsteps = STEPS_IN_FULL;
  colli_sched_dump(&begin, out);
  if (begin.nsteps < sched->nsteps)
    fprintf(out, "  and %d more\n", sched->nsteps - begin.nsteps);
}

/* Writes an algorithm's file. */
static void write_algo(const colli_algo *algo, const char *folder) {
  static const int counts[] = {2, 3, 5, 8, 13, 64};
  char path[512];
  snprintf(path, sizeof(path), "%s/%s", folder, colli_coll_name(algo->coll));
  (void)mkdir(path, 0777); /* or it is there */
  snprintf(path, sizeof(path), "%s/%s/%s.txt", folder, colli_coll_name(algo->coll), algo->name);
  FILE *out = fopen(path, "w");
  if (!out) {
    perror(path);
    exit(1);
  }
  group all = group_make(algo, RANKS_IN_FULL, colli_rooted(algo->coll) ? 1 : 0);
  if (algo->groups)
    fputs("Ranks 0 and 1 are on one host, 2 to 4 on another.\n", out);
  for (int rank = 0; rank < all.nranks; rank++)
    write_steps(all.sched[rank], out);
  group_free(&all);
  fputs("\nAll orders, lengths, groups; the first two roots, the middle and the last:\n", out);
  for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
    write_digest(algo, counts[i], out);
  if (fclose(out) != 0) {
    perror(path);
    exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
    return 2;
  }
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    write_algo(*algo, argv[1]);
  return 0;
}
