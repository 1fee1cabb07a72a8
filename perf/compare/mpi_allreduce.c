/*
 * mpi_allreduce.c: all-reduce of an MPI library, timed as coll_perf times: operations back to back,
 * the slowest rank's mean, results verified. Usage: mpi_allreduce BYTES [BYTES ...]; prints "BYTES
 * US".
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define TARGET_S 0.05
#define WARMUP   5

/* Seconds for `iters` operations on this rank. */
static double time_loop(const float *in, float *out, int count, int iters) {
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < iters; i++)
    MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  double mine = MPI_Wtime() - start, slowest;
  MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return slowest;
}

/* Measures one size; 0 if the result was right. */
static int measure(size_t bytes, int rank, int nranks) {
  int count = (int)(bytes / sizeof(float)), wrong = 0, iters = 4;
  void *in_memory = NULL, *out_memory = NULL;
  if (posix_memalign(&in_memory, 4096, bytes + 64) != 0 ||
      posix_memalign(&out_memory, 4096, bytes + 64) != 0)
    return 1;
  float *in = in_memory, *out = out_memory;
  for (int i = 0; i < count; i++) {
    in[i] = (float)((i + rank) % 5);
    out[i] = -1;
  }
  time_loop(in, out, count, WARMUP);
  for (int i = 0; i < count; i++) {
    float want = 0;
    for (int r = 0; r < nranks; r++)
      want += (float)((i + r) % 5);
    wrong |= out[i] != want;
  }
  double seconds;
  while ((seconds = time_loop(in, out, count, iters)) < TARGET_S / 4 && iters < 1 << 22)
    iters *= 4;
  iters = (int)(iters * TARGET_S / seconds) + 2;
  seconds = time_loop(in, out, count, iters);
  if (rank == 0)
    printf("%zu %.4f\n", bytes, seconds / iters * 1e6);
  fflush(stdout);
  free(in);
  free(out);
  return wrong;
}

int main(int argc, char **argv) {
  int rank, nranks, wrong = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  for (int i = 1; i < argc; i++)
    wrong |= measure(strtoull(argv[i], NULL, 10), rank, nranks);
  if (wrong)
    fprintf(stderr, "mpi_allreduce: wrong results on rank %d\n", rank);
  MPI_Finalize();
  return wrong;
}
