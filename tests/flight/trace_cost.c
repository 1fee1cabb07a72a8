/*
 * trace_cost.c: what COLL_TRACE=file costs: all-reduces of two processes over shared memory, in
 * blocks, alternately on a communicator with a trace and on one without. Prints the medians over
 * all pairs of blocks. Each block counts with its median, so others on the machine matter little:
 * an operation is much shorter than a time slice.
 *
 * usage: flight_trace_cost FILE [BYTES]
 */
#include <coll/coll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 300
#define CALLS 60 /* of a block; the first ones are not counted, as they fill caches */
#define WARM  10

/* By pair: without a trace, with one, and what that makes. */
typedef struct results {
  double without_us[PAIRS], with_us[PAIRS], ratio[PAIRS];
} results;

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Creates one of the two communicators. */
static int create(coll_comm **comm, const coll_id *id, int rank, const char *file) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = "shm";
  if (file)
    setenv("COLL_TRACE", file, 1);
  else
    unsetenv("COLL_TRACE");
  return coll_comm_create(comm, id, 2, rank, &config) != COLL_OK;
}

/* The median of some numbers, which it sorts. */
static double median(double *numbers, size_t count) {
  qsort(numbers, count, sizeof(*numbers), compare);
  return numbers[count / 2];
}

/* Times the calls of one block; a negative time if one fails. */
static double run_block(coll_comm *comm, const float *in, float *out, size_t count) {
  double times_us[CALLS];
  for (int call = 0; call < CALLS; call++) {
    const double start_us = now_us();
    if (coll_allreduce(in, out, count, COLL_FLOAT32, COLL_SUM, comm) != COLL_OK)
      return -1;
    times_us[call] = now_us() - start_us;
  }
  return median(times_us + WARM, CALLS - WARM);
}

/* Times pairs of blocks, in alternating order. */
static int run_pairs(coll_comm *const comms[2], const float *in, float *out, size_t count,
                     results *to) {
  for (int pair = 0; pair < PAIRS; pair++) {
    double us[2];
    for (int i = 0; i < 2; i++) {
      const int traced = (i + pair) % 2;
      us[traced] = run_block(comms[traced], in, out, count);
      if (us[traced] < 0)
        return 1;
    }
    to->without_us[pair] = us[0];
    to->with_us[pair] = us[1];
    to->ratio[pair] = us[1] / us[0];
  }
  return 0;
}

/* One rank. */
static int run_rank(const coll_id ids[2], int rank, const char *file, size_t bytes, results *to) {
  coll_comm *comms[2] = {NULL, NULL};
  float *in = calloc(1, bytes), *out = calloc(1, bytes);
  const int failed = !in || !out || create(&comms[0], &ids[0], rank, NULL) ||
                     create(&comms[1], &ids[1], rank, file) ||
                     run_pairs(comms, in, out, bytes / sizeof(float), to);
  for (int i = 0; i < 2; i++)
    coll_comm_destroy(&comms[i]);
  free(in);
  free(out);
  return failed;
}

int main(int argc, char **argv) {
  static results result;
  coll_id ids[2];
  const size_t bytes = argc > 2 ? strtoul(argv[2], NULL, 0) : 65536;
  if (argc < 2 || coll_unique_id(&ids[0], NULL) != COLL_OK ||
      coll_unique_id(&ids[1], NULL) != COLL_OK) {
    fprintf(stderr, "usage: %s FILE [BYTES]\n", argv[0]);
    return 2;
  }
  const pid_t child = fork();
  if (child == 0)
    return run_rank(ids, 1, argv[1], bytes, &result);
  int status = 1;
  const int failed = run_rank(ids, 0, argv[1], bytes, &result);
  if (waitpid(child, &status, 0) != child || status != 0 || failed)
    return 1;
  printf("%zu bytes: %.2f us, with a trace %.2f us, %+.1f %%\n", bytes,
         median(result.without_us, PAIRS), median(result.with_us, PAIRS),
         (median(result.ratio, PAIRS) - 1) * 100);
  return 0;
}
