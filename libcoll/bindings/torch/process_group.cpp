/* process_group.cpp: groups of ranks, reductions, messages and barriers. */
#include "process_group.hpp"

#include <algorithm>
#include <climits>

#include <ATen/core/jit_type.h>

namespace coll_torch {

/* ---- works ----------------------------------------------------------------------------------- */

/* The devices whose memory tensors are in, without the host. */
static std::vector<c10::Device> devices_of(const Tensors &tensors) {
  std::vector<c10::Device> devices;
  for (const at::Tensor &tensor : tensors)
    if (tensor.is_cuda())
      devices.push_back(tensor.device());
  return devices;
}

CollWork::CollWork(int rank, c10d::OpType type, const char *name, const Tensors &inputs,
                   Tensors outputs, std::weak_ptr<Runner> runner)
    : Work(rank, type, name, inputs), outputs_(std::move(outputs)), runner_(std::move(runner)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), devices_of(outputs_))) {
}

Tensors CollWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> CollWork::getFuture() {
  return future_;
}

int CollWork::sourceRank() const {
  TORCH_CHECK(message, "coll: only a receive has a source");
  return message->source;
}

void CollWork::abort() {
  if (const auto runner = runner_.lock())
    runner->abort();
}

void CollWork::end(const std::exception_ptr &error) {
  finish(error);
  if (error)
    future_->setError(error);
  else
    future_->markCompleted(c10::IValue(outputs_));
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* Deletes the id, because whoever has it could join. A few kinds of stores cannot. */
static void forget_id(const c10::intrusive_ptr<c10d::Store> &store) {
  try {
    store->deleteKey("coll_id");
  } catch (const std::exception &) {
  }
}

/* The communicator of the ranks that use this store. Rank 0 leaves the id in it. */
static coll_comm *create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                         std::chrono::milliseconds timeout, const std::string &name) {
  coll_comm *comm = nullptr;
  coll_id id;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = config.create_timeout_ms =
      static_cast<int>(std::min<int64_t>(std::max<int64_t>(timeout.count(), 1), INT_MAX));
  config.error = &error;
  coll_status status = COLL_OK;
  if (rank == 0) {
    status = coll_unique_id(&id, &config);
    const size_t bytes =
        status == COLL_OK ? sizeof(id.bytes) : 0; /* none: the others need not wait */
    store->set("coll_id", std::vector<uint8_t>(id.bytes, id.bytes + bytes));
  } else {
    const std::vector<uint8_t> bytes = store->get("coll_id");
    TORCH_CHECK(bytes.size() == sizeof(id.bytes),
                "coll: rank 0 could not make an id; its error says why");
    std::copy(bytes.begin(), bytes.end(), id.bytes);
  }
  if (status == COLL_OK)
    status = coll_comm_create(&comm, &id, size, rank, &config);
  if (rank == 0)
    forget_id(store);
  TORCH_CHECK(status == COLL_OK, "coll: ", coll_status_name(status), ": ", error.message);
  /* No rank goes on to make a next group with this store before the id is deleted. */
  (void)coll_comm_set_name(comm, name.c_str());
  status = coll_barrier(comm);
  if (status != COLL_OK) {
    (void)coll_last_error(comm, &error);
    (void)coll_comm_destroy(&comm);
    TORCH_CHECK(false, "coll: ", coll_status_name(status), ": ", error.message);
  }
  return comm;
}

CollGroup::CollGroup(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                     std::chrono::milliseconds timeout, const std::string &name, bool has_cuda)
    : Base(rank, size), runner_(std::make_shared<Runner>(create(store, rank, size, timeout, name))),
      timeout_(timeout), has_cuda_(has_cuda) {
}

const std::string CollGroup::getBackendName() const {
  return "coll";
}

void CollGroup::abort() {
  runner_->abort();
}

void CollGroup::abort_if_busy() {
  runner_->abort_if_busy();
}

void CollGroup::setSequenceNumberForGroup() {
}

uint64_t CollGroup::getSequenceNumberForGroup() {
  return sequence_;
}

c10::intrusive_ptr<CollWork> CollGroup::submit(c10d::OpType type, const char *name,
                                               const Tensors &inputs, const Tensors &outputs,
                                               std::chrono::milliseconds timeout, Start start,
                                               std::function<void()> finish) {
  for (const Tensors *list : {&inputs, &outputs}) {
    TORCH_CHECK(has_cuda_ || devices_of(*list).empty(),
                "coll: a tensor is on a GPU, but this process did not use CUDA when it made the "
                "group; call torch.cuda.set_device() and torch.cuda.init() before");
    synchronize(*list);
  }
  auto work = c10::make_intrusive<CollWork>(rank_, type, name, inputs, outputs, runner_);
  if (!c10d::isP2POp(type))
    sequence_++;
#if TORCH_VERSION_MAJOR >= 2
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (coalesces_)
      coalesced_.push_back(work);
  }
#endif
  auto held = std::make_shared<Start>(std::move(start));
  runner_->submit(
      {[held](coll_comm *comm, coll_request **request) { return (*held)(comm, request); },
       [work, held, inputs, outputs, finish](coll_status status, const std::string &text) {
         std::exception_ptr error;
         if (status != COLL_OK)
           error = std::make_exception_ptr(std::runtime_error(text));
         else if (finish)
           try {
             finish();
             synchronize(outputs);
           } catch (...) {
             error = std::current_exception();
           }
         work->status = status;
         work->end(error);
       },
       timeout});
  return work;
}

#if TORCH_VERSION_MAJOR >= 2
void CollGroup::startCoalescing() {
  std::lock_guard<std::mutex> lock(mutex_);
  coalesces_ = true;
}

/* The operations have begun already; what is left is one work for all. */
Work CollGroup::endCoalescing() {
  std::vector<c10::intrusive_ptr<CollWork>> works;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    coalesces_ = false;
    works.swap(coalesced_);
  }
  Tensors outputs;
  for (const auto &work : works)
    for (const at::Tensor &tensor : work->result())
      outputs.push_back(tensor);
  auto all = c10::make_intrusive<CollWork>(rank_, c10d::OpType::COALESCED, "coll:coalesced",
                                           Tensors(), outputs, runner_);
  if (works.empty())
    all->end(nullptr);
  auto left = std::make_shared<std::atomic<size_t>>(works.size());
  for (const auto &work : works)
    work->getFuture()->addCallback([all, left, works](c10::ivalue::Future &) {
      if (--*left > 0)
        return;
      std::exception_ptr error;
      for (const auto &one : works)
        if (!error)
          error = one->exception();
      all->end(error);
    });
  return all;
}
#endif

/* ---- reductions ------------------------------------------------------------------------------ */

Work CollGroup::allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) {
  const at::Tensor tensor = single(tensors);
  const Reduction it = reduction_of(tensor, options.reduceOp, count_of(tensor));
  return submit(c10d::OpType::ALLREDUCE, "coll:all_reduce", tensors, tensors, options.timeout,
                [tensor, it](coll_comm *comm, coll_request **request) {
                  return coll_iallreduce(tensor.data_ptr(), tensor.data_ptr(), it.count, it.type,
                                         it.op, comm, request);
                });
}

Work CollGroup::allreduce_coalesced(Tensors &tensors,
                                    const c10d::AllreduceCoalescedOptions &options) {
  std::vector<Reduction> how;
  for (const at::Tensor &tensor : tensors) {
    check(tensor);
    how.push_back(reduction_of(tensor, options.reduceOp, count_of(tensor)));
  }
  const Tensors list = tensors;
  return submit(c10d::OpType::ALLREDUCE_COALESCED, "coll:all_reduce_coalesced", tensors, tensors,
                options.timeout, [list, how](coll_comm *comm, coll_request **request) {
                  return start_group(comm, request, list.size(), [&](size_t i) {
                    return coll_allreduce(list[i].data_ptr(), list[i].data_ptr(), how[i].count,
                                          how[i].type, how[i].op, comm);
                  });
                });
}

Work CollGroup::reduce(Tensors &tensors, const c10d::ReduceOptions &options) {
  const at::Tensor tensor = single(tensors);
  const int root = static_cast<int>(options.rootRank);
  const Reduction it = reduction_of(tensor, options.reduceOp, count_of(tensor));
  return submit(c10d::OpType::REDUCE, "coll:reduce", tensors, tensors, options.timeout,
                [tensor, it, root](coll_comm *comm, coll_request **request) {
                  return coll_ireduce(tensor.data_ptr(), tensor.data_ptr(), it.count, it.type,
                                      it.op, root, comm, request);
                });
}

Work CollGroup::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                     const c10d::ReduceScatterOptions &options) {
  check_times({input}, {output}, size_);
  const at::Tensor from = input, to = output;
  const Reduction it = reduction_of(to, options.reduceOp, count_of(to));
  return submit(c10d::OpType::_REDUCE_SCATTER_BASE, "coll:reduce_scatter_tensor", {input}, {output},
                options.timeout, [from, to, it](coll_comm *comm, coll_request **request) {
                  return coll_ireduce_scatter(from.data_ptr(), to.data_ptr(), it.count, it.type,
                                              it.op, comm, request);
                });
}

Work CollGroup::reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                               const c10d::ReduceScatterOptions &options) {
  const at::Tensor output = single(outputs);
  check_blocks(output);
  const Tensors list = single(inputs, size_);
  std::vector<size_t> counts;
  for (const at::Tensor &tensor : list)
    counts.push_back(reduction_of(tensor, options.reduceOp, count_of(tensor)).count);
  check_alike({list[static_cast<size_t>(rank_)]}, output);
  const at::Tensor memory = memory_of(list);
  gather_into(memory, list);
  const Reduction it = reduction_of(output, options.reduceOp, 0);
  return submit(c10d::OpType::REDUCE_SCATTER, "coll:reduce_scatter", list, outputs, options.timeout,
                [output, memory, counts, it](coll_comm *comm, coll_request **request) {
                  return coll_ireduce_scatterv(memory.data_ptr(), output.data_ptr(), counts.data(),
                                               it.type, it.op, comm, request);
                });
}

#if TORCH_VERSION_MAJOR >= 2
Work CollGroup::reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::ReduceScatterOptions &options) {
  check_times(inputs, outputs, size_);
  std::vector<Reduction> how;
  for (const at::Tensor &tensor : outputs)
    how.push_back(reduction_of(tensor, options.reduceOp, count_of(tensor)));
  const Tensors from = inputs, to = outputs;
  return submit(c10d::OpType::COALESCED, "coll:reduce_scatter_tensor_coalesced", inputs, outputs,
                options.timeout, [from, to, how](coll_comm *comm, coll_request **request) {
                  return start_group(comm, request, to.size(), [&](size_t i) {
                    return coll_reduce_scatter(from[i].data_ptr(), to[i].data_ptr(), how[i].count,
                                               how[i].type, how[i].op, comm);
                  });
                });
}
#endif

/* ---- messages, barriers ---------------------------------------------------------------------- */

/* The tag of messages of monitored barriers, which no message of a program has. */
static const int MONITOR_TAG = INT_MAX;

static void check_tag(int tag) {
  TORCH_CHECK(tag >= 0 && tag < MONITOR_TAG, "coll: a tag is from 0 to ", MONITOR_TAG - 1, ", not ",
              tag);
}

Work CollGroup::send(Tensors &tensors, int peer, int tag) {
  check_tag(tag);
  return send_to(tensors, peer, tag);
}

c10::intrusive_ptr<CollWork> CollGroup::send_to(const Tensors &tensors, int peer, int tag) {
  const at::Tensor tensor = single(tensors);
  return submit(c10d::OpType::SEND, "coll:send", tensors, {}, c10d::kUnsetTimeout,
                [tensor, peer, tag](coll_comm *comm, coll_request **request) {
                  return coll_isend(tensor.data_ptr(), count_of(tensor), moved_type(tensor), peer,
                                    tag, comm, request);
                });
}

c10::intrusive_ptr<CollWork> CollGroup::receive(c10d::OpType type, const Tensors &tensors, int peer,
                                                int tag, std::chrono::milliseconds timeout) {
  const at::Tensor tensor = single(tensors);
  auto message = std::make_shared<coll_message>();
  auto work = submit(
      type, "coll:recv", tensors, tensors, timeout,
      [tensor, peer, tag, message](coll_comm *comm, coll_request **request) {
        return coll_irecv(tensor.data_ptr(), count_of(tensor), moved_type(tensor), peer, tag,
                          message.get(), comm, request);
      },
      [tensor, message] {
        TORCH_CHECK(message->count == count_of(tensor), "coll: a message of ", message->count,
                    " elements was received into a tensor of ", count_of(tensor));
      });
  work->message = message;
  return work;
}

Work CollGroup::recv(Tensors &tensors, int peer, int tag) {
  check_tag(tag);
  return receive(c10d::OpType::RECV, tensors, peer, tag, c10d::kUnsetTimeout);
}

Work CollGroup::recvAnysource(Tensors &tensors, int tag) {
  check_tag(tag);
  return receive(c10d::OpType::RECVANYSOURCE, tensors, COLL_ANY_SOURCE, tag, c10d::kUnsetTimeout);
}

Work CollGroup::barrier(const c10d::BarrierOptions &options) {
  return submit(
      c10d::OpType::BARRIER, "coll:barrier", {}, {}, options.timeout,
      [](coll_comm *comm, coll_request **request) { return coll_ibarrier(comm, request); });
}

/* Waits for a receive. False: no message has come in time; the group is as it was. */
static bool has_come(CollWork &work) {
  try {
    work.wait();
  } catch (const std::runtime_error &) {
    if (work.status != COLL_ERR_TIMEOUT)
      throw;
    return false;
  }
  return true;
}

/* Rank 0's part of the `number`-th monitored barrier: which ranks have not come within a time.
 * Those that came too late for an earlier one have left their word for it, which is passed over. */
at::Tensor CollGroup::monitor(int64_t number, std::chrono::milliseconds timeout) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  const at::Tensor missing = at::zeros({size_}, at::kByte);
  std::vector<at::Tensor> words;
  std::vector<c10::intrusive_ptr<CollWork>> works;
  for (int peer = 1; peer < size_; peer++) {
    words.push_back(at::empty({1}, at::kLong));
    works.push_back(receive(c10d::OpType::RECV, {words.back()}, peer, MONITOR_TAG, timeout));
  }
  for (int peer = 1; peer < size_; peer++) {
    const size_t i = static_cast<size_t>(peer) - 1;
    bool is_here;
    while ((is_here = has_come(*works[i])) && words[i].item<int64_t>() < number) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          end - std::chrono::steady_clock::now());
      works[i] = receive(c10d::OpType::RECV, {words[i]}, peer, MONITOR_TAG,
                         std::max(left, std::chrono::milliseconds(1)));
    }
    missing.data_ptr<uint8_t>()[peer] = !is_here;
  }
  for (int peer = 1; peer < size_; peer++) /* also to those that come later */
    works[static_cast<size_t>(peer) - 1] = send_to({missing}, peer, MONITOR_TAG);
  for (const auto &work : works)
    work->wait();
  return missing;
}

/* Ranks tell rank 0 that they have come, and it tells them who has not. So the error names all of
 * these, and the group can still be used. */
void CollGroup::monitoredBarrier(const c10d::BarrierOptions &options, bool) {
  const auto timeout = options.timeout.count() > 0 ? options.timeout : timeout_;
  const int64_t number = ++monitored_;
  at::Tensor missing = at::zeros({size_}, at::kByte);
  if (rank_ == 0) {
    missing = monitor(number, timeout);
  } else {
    send_to({at::full({1}, number, at::kLong)}, 0, MONITOR_TAG)->wait();
    if (!has_come(*receive(c10d::OpType::RECV, {missing}, 0, MONITOR_TAG, 2 * timeout)))
      missing[0] = 1; /* it answers after the timeout, if it is there */
  }
  std::string names;
  for (int peer = 0; peer < size_; peer++)
    if (missing.data_ptr<uint8_t>()[peer])
      names += (names.empty() ? "" : ", ") + std::to_string(peer);
  TORCH_CHECK(names.empty(), "coll: ", coll_status_name(COLL_ERR_TIMEOUT),
              ": these ranks of the group have not come to the monitored barrier within ",
              timeout.count(), " ms: ", names);
}

} // namespace coll_torch
