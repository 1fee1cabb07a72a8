/*
 * killed_mpi.c: an MPI library for tests/chaos/peers/run. It continues with MPIX_Comm_revoke and
 * MPIX_Comm_shrink where the library has them. Usage: killed_mpi FOLDER allreduce|broadcast
 */
#include <mpi.h>
#if defined(OPEN_MPI) && defined(OMPI_HAVE_MPI_EXT)
#include <mpi-ext.h>
#endif

#include "killed.h"

#if defined(MPICH) || (defined(OMPI_HAVE_MPI_EXT_FTMPI) && OMPI_HAVE_MPI_EXT_FTMPI)
#define CAN_SHRINK 1
#else
#define CAN_SHRINK 0
#endif

static float data[KILLED_LONG], sum[KILLED_SHORT];

static int operate(const char *what, MPI_Comm comm) {
  if (strcmp(what, "broadcast") == 0)
    return MPI_Bcast(data, KILLED_LONG, MPI_FLOAT, 0, comm);
  return MPI_Allreduce(data, sum, KILLED_SHORT, MPI_FLOAT, MPI_SUM, comm);
}

/* What a program does to continue after a failure. */
static int go_on(int rank, MPI_Comm comm, const char *what) {
  char text[MPI_MAX_ERROR_STRING] = "this library has no MPIX_Comm_shrink";
  int length, nranks = 0, status = MPI_ERR_OTHER;
#if CAN_SHRINK
  MPI_Comm smaller;
  MPIX_Comm_revoke(comm);
  status = MPIX_Comm_shrink(comm, &smaller);
  if (status == MPI_SUCCESS) {
    MPI_Comm_set_errhandler(smaller, MPI_ERRORS_RETURN);
    MPI_Comm_size(smaller, &nranks);
  }
  for (int i = 0; i < KILLED_MORE && status == MPI_SUCCESS; i++)
    status = operate(what, smaller);
  if (status != MPI_SUCCESS)
    MPI_Error_string(status, text, &length);
#else
  (void)comm, (void)what, (void)length;
#endif
  if (status == MPI_SUCCESS)
    printf("on %d %d\n", rank, nranks);
  else
    printf("off %d %s\n", rank, text);
  fflush(stdout);
  _exit(status != MPI_SUCCESS);
}

int main(int argc, char **argv) {
  int rank;
  if (argc != 3)
    return 2;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  killed_begin(argv[1], rank);
  for (long round = 0;; round++) {
    double since = killed_now();
    int status = operate(argv[2], MPI_COMM_WORLD), length;
    if (status != MPI_SUCCESS) {
      char text[MPI_MAX_ERROR_STRING];
      MPI_Error_string(status, text, &length);
      killed_error(rank, since, text);
      return go_on(rank, MPI_COMM_WORLD, argv[2]);
    }
    if (round == 0)
      printf("round %d\n", rank);
  }
}
