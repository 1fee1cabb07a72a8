/* runner.cpp: the thread that makes all calls on one communicator. */
#include "runner.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include <unistd.h>

namespace coll_torch {

/* How an operation has ended. */
struct Ended {
  End end;
  coll_status status;
  std::string text;
};

struct Runner::State {
  explicit State(coll_comm *a_comm) : comm(a_comm), pid(getpid()) {
  }

  static void begin(const std::shared_ptr<State> &state);
  void run();
  bool take(std::vector<Task> &tasks);
  void start(std::vector<Task> &tasks, std::vector<Ended> &ended);
  void wait(std::vector<Ended> &ended);

  coll_comm *comm;
  const pid_t pid;
  std::mutex mutex; /* of what follows */
  std::condition_variable changed;
  std::vector<Task> queue;
  std::thread::id owner;                /* the thread that uses the communicator */
  std::vector<std::thread::id> threads; /* those that have not ended */
  size_t busy = 0;                      /* operations that have not ended */
  bool ends = false;                    /* the owner is in an `end` */
  bool waits = false;                   /* it is, or will be, in a call that coll_wake() ends */
  bool stops = false;
  std::vector<coll_request *> requests; /* the owner's own, and these */
  std::vector<End> called;              /* what to call for each */
};

/* What a failure of a call says. */
static std::string error_text(const coll_comm *comm, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  if (coll_last_error(comm, &error) == COLL_OK && error.status == status && error.message[0] != 0)
    return std::string("coll: ") + coll_status_name(status) + ": " + error.message;
  return std::string("coll: ") + coll_status_name(status);
}

/* Starts a thread that owns the communicator from now on. Under the mutex. */
void Runner::State::begin(const std::shared_ptr<State> &state) {
  std::thread thread([state] { state->run(); });
  state->owner = thread.get_id();
  state->threads.push_back(state->owner);
  state->ends = false;
  thread.detach(); /* it may end when nobody is left who could join it */
}

Runner::Runner(coll_comm *comm) : state_(std::make_shared<State>(comm)) {
  std::lock_guard<std::mutex> lock(state_->mutex);
  State::begin(state_);
}

Runner::~Runner() {
  State &state = *state_;
  if (getpid() != state.pid) /* a forked child has no such thread */
    return;
  std::unique_lock<std::mutex> lock(state.mutex);
  state.stops = true;
  if (state.waits)
    (void)coll_wake(state.comm);
  state.changed.notify_all();
  const auto self = std::this_thread::get_id();
  if (std::count(state.threads.begin(), state.threads.end(), self) == 0)
    state.changed.wait(lock, [&state] { return state.threads.empty(); });
}

void Runner::submit(Task task) {
  State &state = *state_;
  if (getpid() != state.pid) {
    task.end(COLL_ERR_INVALID_USAGE,
             "coll: a process group cannot be used in a forked child; initialise one there");
    return;
  }
  std::lock_guard<std::mutex> lock(state.mutex);
  state.queue.push_back(std::move(task));
  state.busy++;
  if (state.ends && state.owner == std::this_thread::get_id())
    State::begin(state_); /* an `end` may wait for this task */
  else if (state.waits)
    (void)coll_wake(state.comm);
  state.changed.notify_all();
}

void Runner::abort() {
  if (getpid() == state_->pid)
    (void)coll_comm_abort(state_->comm);
}

void Runner::abort_if_busy() {
  if (getpid() != state_->pid)
    return;
  std::unique_lock<std::mutex> lock(state_->mutex);
  const bool is_busy = state_->busy > 0;
  lock.unlock();
  if (is_busy)
    abort();
}

/* Starts tasks. Those that cannot be started have ended. */
void Runner::State::start(std::vector<Task> &tasks, std::vector<Ended> &ended) {
  for (Task &task : tasks) {
    coll_request *request = nullptr;
    const coll_status status = task.start(comm, &request);
    if (status != COLL_OK) {
      ended.push_back({std::move(task.end), status, error_text(comm, status)});
      continue;
    }
    if (task.timeout.count() > 0)
      (void)coll_request_set_timeout(request, static_cast<int>(task.timeout.count()));
    requests.push_back(request);
    called.push_back(std::move(task.end));
  }
  tasks.clear();
}

/* Waits until an operation is complete, or a task wakes this thread. */
void Runner::State::wait(std::vector<Ended> &ended) {
  int completed = 0;
  std::vector<int> indices(requests.size());
  std::vector<coll_status> statuses(requests.size());
  (void)coll_wait_some(requests.data(), static_cast<int>(requests.size()), indices.data(),
                       statuses.data(), &completed, -1);
  std::vector<size_t> order(indices.begin(), indices.begin() + completed);
  std::vector<coll_status> status_of(requests.size());
  for (size_t i = 0; i < order.size(); i++)
    status_of[order[i]] = statuses[i];
  std::sort(order.begin(), order.end()); /* callbacks come in the order of the calls */
  for (const size_t i : order) {
    const coll_status status = status_of[i];
    ended.push_back({std::move(called[i]), status,
                     status == COLL_OK ? std::string() : error_text(comm, status)});
  }
  size_t kept = 0;
  for (size_t i = 0; i < requests.size(); i++) {
    if (!requests[i]) /* released */
      continue;
    requests[kept] = requests[i];
    if (kept != i)
      called[kept] = std::move(called[i]);
    kept++;
  }
  requests.resize(kept);
  called.resize(kept);
}

/* Waits for something to do, and takes the new tasks. False: there will be nothing more. */
bool Runner::State::take(std::vector<Task> &tasks) {
  std::unique_lock<std::mutex> lock(mutex);
  if (owner != std::this_thread::get_id())
    return false;
  ends = waits = false;
  changed.wait(lock, [this] { return !queue.empty() || stops || !requests.empty(); });
  tasks.swap(queue);
  if (stops && tasks.empty() && requests.empty())
    return false;
  waits = true; /* a task that comes from here on leaves a wake, which is not lost */
  return true;
}

/* What a thread does, until another takes over or the runner is destroyed. */
void Runner::State::run() {
  std::vector<Task> tasks;
  std::vector<Ended> ended;
  while (take(tasks)) {
    start(tasks, ended);
    if (ended.empty() && !requests.empty())
      wait(ended);
    {
      std::lock_guard<std::mutex> lock(mutex);
      ends = true;
      busy -= ended.size(); /* before anybody sees that they have ended, and exits */
    }
    for (Ended &one : ended)
      one.end(one.status, one.text);
    ended.clear();
  }
  std::lock_guard<std::mutex> lock(mutex);
  const auto self = std::this_thread::get_id();
  if (owner == self)
    (void)coll_comm_destroy(&comm);
  threads.erase(std::find(threads.begin(), threads.end(), self));
  changed.notify_all();
}

} // namespace coll_torch
