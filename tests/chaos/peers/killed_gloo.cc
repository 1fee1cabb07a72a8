/*
 * killed_gloo.cc: Gloo for tests/chaos/peers/run. It has no shrink: the survivors would have to
 * meet again, with a list of who is left that only the program can make. Usage: killed_gloo RANK
 * RANKS FOLDER TIMEOUT_S allreduce|broadcast
 */
#include <gloo/allreduce.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include "killed.h"

namespace {

float data[KILLED_LONG], sum[KILLED_SHORT];

void operate(const std::string &what, const std::shared_ptr<gloo::Context> &context) {
  if (what == "broadcast") {
    gloo::BroadcastOptions options(context);
    options.setOutput(data, KILLED_LONG);
    options.setRoot(0);
    gloo::broadcast(options);
    return;
  }
  using Reducer = void (*)(void *, const void *, const void *, size_t);
  gloo::AllreduceOptions options(context);
  options.setInput(data, KILLED_SHORT);
  options.setOutput(sum, KILLED_SHORT);
  options.setReduceFunction(static_cast<Reducer>(&gloo::sum<float>));
  gloo::allreduce(options);
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 6)
    return 2;
  int rank = std::stoi(argv[1]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, std::stoi(argv[2]));
  context->setTimeout(std::chrono::seconds(std::stoi(argv[4])));
  gloo::transport::tcp::attr attributes;
  attributes.iface = "lo";
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[3]);
  context->connectFullMesh(store, device);
  killed_begin(argv[3], rank);
  for (long round = 0;; round++) {
    double since = killed_now();
    try {
      operate(argv[5], context);
    } catch (const std::exception &error) {
      killed_error(rank, since, error.what());
      printf("off %d Gloo has nothing to go on with\n", rank);
      fflush(stdout);
      _exit(1);
    }
    if (round == 0)
      printf("round %d\n", rank);
  }
}
