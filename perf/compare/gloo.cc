/*
 * gloo.cc: the operations of Gloo, timed as coll_perf times; peer.h has the method and the rest of
 * the command line:
 *   gloo --rank R --size N --store FOLDER [--address A] [--seconds S] [--most S] OPERATION BYTES
 * ... Start all ranks; they find each other in the folder, which must be empty, and talk TCP from
 * this address of their host (127.0.0.1). To build: c++ -O2 gloo.cc -lgloo.
 */
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/scatter.h>
#include <gloo/transport/tcp/device.h>

#include <climits>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "peer.h"

namespace {

using Reducer = void (*)(void *, const void *, const void *, size_t);
using ReduceScatter = gloo::ReduceScatterHalvingDoubling<float>;

/* What the functions below share. */
struct State {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::unique_ptr<ReduceScatter> reduce_scatter; /* of the current size */
};

/* For a reduce-scatter Gloo has only halving and doubling. */
const char *lacks(peer_what what, void *context) {
  int n = static_cast<State *>(context)->context->size;
  bool power = (n & (n - 1)) == 0;
  return what == PEER_REDUCE_SCATTER && !power ? "its ranks are not a power of two" : nullptr;
}

/*
 * A reduce-scatter is an object bound to a buffer, and in place. All others take buffers with each
 * call.
 */
void open_cell(const peer_cell *cell, void *context) {
  State *state = static_cast<State *>(context);
  if (cell->what != PEER_REDUCE_SCATTER)
    return;
  std::vector<int> counts(static_cast<size_t>(cell->nranks), static_cast<int>(cell->count));
  memcpy(cell->recv, cell->send, cell->nsend * sizeof(float)); /* there is room for all blocks */
  std::vector<float *> buffers(1, cell->recv);
  state->reduce_scatter.reset(
      new ReduceScatter(state->context, buffers, static_cast<int>(cell->nsend), counts));
}

/* Sets what most options take alike. */
template <typename Options> Options with_buffers(const State *state, const peer_cell *cell) {
  Options options(state->context);
  options.setInput(cell->send, cell->nsend);
  options.setOutput(cell->recv, cell->nrecv);
  return options;
}

void run_reduce(const State *state, const peer_cell *cell, int root) {
  auto options = with_buffers<gloo::ReduceOptions>(state, cell);
  options.setReduceFunction(static_cast<Reducer>(&gloo::sum<float>));
  options.setRoot(root);
  gloo::reduce(options);
}

void run_allreduce(const State *state, const peer_cell *cell) {
  auto options = with_buffers<gloo::AllreduceOptions>(state, cell);
  options.setReduceFunction(static_cast<Reducer>(&gloo::sum<float>));
  gloo::allreduce(options);
}

/* In place, as MPI has it. */
void run_broadcast(const State *state, const peer_cell *cell, int root) {
  gloo::BroadcastOptions options(state->context);
  options.setOutput(cell->rank == root ? cell->send : cell->recv, cell->count);
  options.setRoot(root);
  gloo::broadcast(options);
}

/* Only the root has the blocks of all. */
void run_gather(const State *state, const peer_cell *cell, int root) {
  gloo::GatherOptions options(state->context);
  options.setInput(cell->send, cell->nsend);
  if (cell->rank == root)
    options.setOutput(cell->recv, cell->nrecv);
  options.setRoot(root);
  gloo::gather(options);
}

/* Only the root gives blocks. */
void run_scatter(const State *state, const peer_cell *cell, int root) {
  gloo::ScatterOptions options(state->context);
  std::vector<float *> blocks;
  for (int rank = 0; cell->rank == root && rank < cell->nranks; rank++)
    blocks.push_back(cell->send + static_cast<size_t>(rank) * cell->count);
  if (cell->rank == root)
    options.setInputs(blocks, cell->count);
  options.setOutput(cell->recv, cell->nrecv);
  options.setRoot(root);
  gloo::scatter(options);
}

void barrier(void *context) {
  gloo::BarrierOptions options(static_cast<State *>(context)->context);
  gloo::barrier(options);
}

/* Runs one operation; Gloo throws where one fails. */
void run(const peer_cell *cell, int root, void *context) {
  State *state = static_cast<State *>(context);
  switch (cell->what) {
  case PEER_ALLREDUCE:
    return run_allreduce(state, cell);
  case PEER_BROADCAST:
    return run_broadcast(state, cell, root);
  case PEER_REDUCE:
    return run_reduce(state, cell, root);
  case PEER_ALLGATHER: {
    auto options = with_buffers<gloo::AllgatherOptions>(state, cell);
    return gloo::allgather(options);
  }
  case PEER_REDUCE_SCATTER:
    return state->reduce_scatter->run();
  case PEER_ALLTOALL: {
    auto options = with_buffers<gloo::AlltoallOptions>(state, cell);
    return gloo::alltoall(options);
  }
  case PEER_GATHER:
    return run_gather(state, cell, root);
  case PEER_SCATTER:
    return run_scatter(state, cell, root);
  default:
    return barrier(context);
  }
}

/* The largest of all ranks' numbers. */
double maximum(double mine, void *context) {
  double all = 0;
  gloo::AllreduceOptions options(static_cast<State *>(context)->context);
  options.setInput(&mine, 1);
  options.setOutput(&all, 1);
  options.setReduceFunction(static_cast<Reducer>(&gloo::max<double>));
  gloo::allreduce(options);
  return all;
}

/* Connects a rank with all others through files in a folder. */
void connect(State *state, int rank, int nranks, const char *folder, const char *address) {
  gloo::rendezvous::FileStore store(folder);
  gloo::transport::tcp::attr attr(address);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  state->context = std::make_shared<gloo::rendezvous::Context>(rank, nranks);
  state->context->connectFullMesh(store, device);
}

/* One rank's whole run; the exit status. */
int run_rank(int rank, int nranks, const char *folder, const char *address, int argc, char **argv) {
  State state;
  connect(&state, rank, nranks, folder, address);
  peer_library library = peer_library();
  library.name = "gloo";
  library.context = &state;
  library.rank = rank;
  library.nranks = nranks;
  library.max_count = INT_MAX;
  library.lacks = lacks;
  library.open = open_cell;
  library.run = run;
  library.barrier = barrier;
  library.maximum = maximum;
  int failed = peer_main(&library, argc, argv);
  barrier(&state); /* none leaves while another still reads from it */
  return failed;
}

} // namespace

int main(int argc, char **argv) {
  int rank = -1, nranks = 0, i = 1;
  const char *folder = nullptr, *address = "127.0.0.1";
  for (; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--rank") == 0)
      rank = atoi(argv[i + 1]);
    else if (strcmp(argv[i], "--size") == 0)
      nranks = atoi(argv[i + 1]);
    else if (strcmp(argv[i], "--store") == 0)
      folder = argv[i + 1];
    else if (strcmp(argv[i], "--address") == 0)
      address = argv[i + 1];
    else
      break;
  }
  if (rank < 0 || rank >= nranks || !folder) {
    fprintf(stderr,
            "usage: gloo --rank R --size N --store FOLDER [--address A] OPERATION BYTES ...\n");
    return 2;
  }
  argv[i - 1] = argv[0];
  try {
    return run_rank(rank, nranks, folder, address, argc - i + 1, argv + i - 1);
  } catch (const std::exception &error) {
    fprintf(stderr, "gloo: rank %d: %s\n", rank, error.what());
    return 1;
  }
}
