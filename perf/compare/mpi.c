/*
 * mpi.c: the operations of an MPI library, timed as coll_perf times; peer.h has the command line
 * and the method. To build: mpicc.openmpi -O2 mpi.c, or mpicc.mpich; to start: that library's
 * mpirun.
 */
#include <limits.h>
#include <mpi.h>

#include "peer.h"

/* MPI has all of them. */
static const char *lacks(peer_what what, void *context) {
  (void)what;
  (void)context;
  return NULL;
}

/* MPI takes buffers with each call. */
static void open_cell(const peer_cell *cell, void *context) {
  (void)cell;
  (void)context;
}

/* Runs one operation; MPI ends the program itself where one fails. */
static void run_collective(const peer_cell *cell, int root, void *context) {
  MPI_Comm comm = *(MPI_Comm *)context;
  int count = (int)cell->count;
  float *send = cell->send, *recv = cell->recv;
  switch (cell->what) {
  case PEER_ALLREDUCE:
    MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, comm);
    break;
  case PEER_BROADCAST: /* in place: MPI knows no other */
    MPI_Bcast(cell->rank == root ? send : recv, count, MPI_FLOAT, root, comm);
    break;
  case PEER_REDUCE:
    MPI_Reduce(send, recv, count, MPI_FLOAT, MPI_SUM, root, comm);
    break;
  case PEER_ALLGATHER:
    MPI_Allgather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, comm);
    break;
  case PEER_REDUCE_SCATTER:
    MPI_Reduce_scatter_block(send, recv, count, MPI_FLOAT, MPI_SUM, comm);
    break;
  case PEER_ALLTOALL:
    MPI_Alltoall(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, comm);
    break;
  case PEER_GATHER:
    MPI_Gather(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, root, comm);
    break;
  case PEER_SCATTER:
    MPI_Scatter(send, count, MPI_FLOAT, recv, count, MPI_FLOAT, root, comm);
    break;
  default:
    MPI_Barrier(comm);
  }
}

static void barrier(void *context) {
  MPI_Barrier(*(MPI_Comm *)context);
}

/* The largest of all ranks' numbers. */
static double maximum(double mine, void *context) {
  double all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_MAX, *(MPI_Comm *)context);
  return all;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm comm = MPI_COMM_WORLD;
  peer_library library = {.name = "mpi",
                          .context = &comm,
                          .max_count = INT_MAX,
                          .lacks = lacks,
                          .open = open_cell,
                          .run = run_collective,
                          .barrier = barrier,
                          .maximum = maximum};
  MPI_Comm_rank(comm, &library.rank);
  MPI_Comm_size(comm, &library.nranks);
  int failed = peer_main(&library, argc, argv);
  MPI_Finalize();
  return failed;
}
