/* runner.cpp: the thread that makes all calls on one communicator. */
#include "runner.hpp"

#include <unistd.h>

namespace coll_torch {

std::string error_text(const coll_comm *comm, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  if (comm && coll_last_error(comm, &error) == COLL_OK && error.status == status &&
      error.message[0] != 0)
    return std::string(coll_status_name(status)) + ": " + error.message;
  return coll_status_name(status);
}

Runner::Runner(coll_comm *comm) : comm_(comm), pid_(getpid()), thread_([this] { run(); }) {
}

Runner::~Runner() {
  if (getpid() != pid_) { /* a forked child has no such thread, and may not use the communicator */
    thread_.detach();
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
    if (waits_)
      (void)coll_wake(comm_);
  }
  changed_.notify_one();
  thread_.join();
  (void)coll_comm_destroy(&comm_);
}

void Runner::submit(Task task) {
  if (getpid() != pid_) {
    task.end(COLL_ERR_INVALID_USAGE,
             "a process group cannot be used in a forked child; initialise one there");
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(task));
    if (waits_)
      (void)coll_wake(comm_);
  }
  changed_.notify_one();
}

void Runner::abort() {
  if (getpid() == pid_)
    (void)coll_comm_abort(comm_);
}

/* Starts tasks. Those that cannot be started end at once. */
void Runner::start(std::vector<Task> &tasks) {
  for (Task &task : tasks) {
    coll_request *request = nullptr;
    coll_status status = task.start(comm_, &request);
    if (status == COLL_OK && task.timeout.count() > 0)
      (void)coll_request_set_timeout(request, static_cast<int>(task.timeout.count()));
    if (status == COLL_OK)
      running_.push_back({request, std::move(task.end)});
    else
      task.end(status, error_text(comm_, status));
  }
  tasks.clear();
}

/* Waits until an operation is complete, or a task wakes this thread. */
void Runner::wait() {
  const int count = static_cast<int>(running_.size());
  int completed = 0;
  std::vector<coll_request *> requests;
  std::vector<int> indices(running_.size());
  std::vector<coll_status> statuses(running_.size());
  for (const Running &one : running_)
    requests.push_back(one.request);
  (void)coll_wait_some(requests.data(), count, indices.data(), statuses.data(), &completed, -1);
  for (int i = 0; i < completed; i++) {
    Running &one = running_[static_cast<size_t>(indices[static_cast<size_t>(i)])];
    const coll_status status = statuses[static_cast<size_t>(i)];
    one.request = nullptr;
    one.end(status, status == COLL_OK ? std::string() : error_text(comm_, status));
  }
  size_t kept = 0;
  for (Running &one : running_)
    if (one.request)
      running_[kept++] = std::move(one);
  running_.resize(kept);
}

void Runner::run() {
  std::vector<Task> tasks;
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      waits_ = false;
      changed_.wait(lock, [this] { return !queue_.empty() || stops_ || !running_.empty(); });
      tasks.swap(queue_);
      if (stops_ && tasks.empty() && running_.empty())
        return;
      waits_ = true; /* a task that comes from here on leaves a wake, which is not lost */
    }
    start(tasks);
    if (!running_.empty())
      wait();
  }
}

} // namespace coll_torch
