/* runner.hpp: the thread that makes all calls on one communicator. */
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include <coll/coll.h>

namespace coll_torch {

using Start = std::function<coll_status(coll_comm *, coll_request **)>;
using End = std::function<void(coll_status, const std::string &)>; /* with the text of an error */

/* An operation on its way. The runner calls `start` once, and `end` once, also if `start` failed.
 */
struct Task {
  Start start;
  End end;
  std::chrono::milliseconds timeout; /* from the start; below 1: the communicator's */
};

/*
 * Owns a communicator and a thread. A communicator is used by one thread at a time, while PyTorch
 * starts operations in some threads and waits for them in others; so these leave tasks here. The
 * thread sleeps in libcoll, which moves operations meanwhile, until one is complete or a new task
 * wakes it.
 *
 * `end` runs in this thread. It may wait for other operations of the same communicator: when it
 * submits one, a new thread takes over.
 */
class Runner {
public:
  explicit Runner(coll_comm *comm);

  /* Waits until what was submitted has ended, and destroys the communicator. From an `end`: does
   * not wait. */
  ~Runner();

  Runner(const Runner &) = delete;
  Runner &operator=(const Runner &) = delete;

  /* Starts tasks in this order, among those of all threads. Any thread. */
  void submit(Task task);

  /* Ends all operations with an error, on all ranks. Any thread. */
  void abort();

  /* The same if any are left: at the end of a process, whose other ranks should not wait for it. */
  void abort_if_busy();

private:
  struct State;
  std::shared_ptr<State> state_; /* the threads have it, too */
};

} // namespace coll_torch
