/* runner.hpp: the thread that makes all calls on one communicator. */
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <coll/coll.h>
#include <sys/types.h>

namespace coll_torch {

/* An operation on its way. The runner calls `start` once, and `end` once, also if `start` failed. */
struct Task {
  std::function<coll_status(coll_comm *, coll_request **)> start;
  std::function<void(coll_status, const std::string &)> end; /* the text of an error */
  std::chrono::milliseconds timeout{-1};                     /* from the start; below 1: the communicator's */
};

/* What a failure of a call says. */
std::string error_text(const coll_comm *comm, coll_status status);

/*
 * Owns a communicator and a thread. A communicator is used by one thread at a time, while PyTorch
 * starts operations in some threads and waits for them in others; so these leave tasks here. The
 * thread sleeps in libcoll, which moves operations meanwhile, until one is complete or a new task
 * wakes it.
 */
class Runner {
public:
  explicit Runner(coll_comm *comm);

  /* Ends what was submitted, and destroys the communicator. */
  ~Runner();

  Runner(const Runner &) = delete;
  Runner &operator=(const Runner &) = delete;

  /* Starts tasks in this order, among those of all threads. Any thread. */
  void submit(Task task);

  /* Ends all operations with an error, on all ranks. Any thread. */
  void abort();

private:
  struct Running {
    coll_request *request;
    std::function<void(coll_status, const std::string &)> end;
  };

  void run();
  void start(std::vector<Task> &tasks);
  void wait();

  coll_comm *comm_;
  const pid_t pid_;
  std::mutex mutex_; /* of what follows */
  std::condition_variable changed_;
  std::vector<Task> queue_;
  bool waits_ = false; /* the thread is, or will be, in a call that coll_wake() ends */
  bool stops_ = false;
  std::vector<Running> running_; /* the thread's own */
  std::thread thread_;
};

} // namespace coll_torch
