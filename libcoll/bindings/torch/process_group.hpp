/* process_group.hpp: libcoll as a backend of torch.distributed. */
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "runner.hpp"
#include "tensors.hpp"

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

namespace coll_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using Work = c10::intrusive_ptr<c10d::Work>;

/* An operation of a process group. */
class CollWork : public c10d::Work {
public:
  CollWork(int rank, c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs,
           std::weak_ptr<Runner> runner);
  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override;
  void abort() override;

  /* The operation has ended; error: null, or why it failed. */
  void end(const std::exception_ptr &error);

  std::shared_ptr<coll_message> message; /* of a receive: what it has got */
  coll_status status = COLL_IN_PROGRESS; /* how libcoll's part has ended */

private:
  Tensors outputs_;
  std::weak_ptr<Runner> runner_; /* not shared: the last work may end in the runner's own thread */
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/*
 * A group of ranks. Every operation returns at once. Tensors are dense; they are in host memory, or
 * in that of a GPU if `has_cuda`: this process used CUDA when it made the group. What this thread
 * has started on a GPU is waited for before an operation begins; an operation's results are there
 * when it has ended. Any thread.
 */
class CollGroup : public Base {
public:
  /* Collective over the ranks that have this store. name: of the communicator. Throws c10::Error.
   */
  CollGroup(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
            std::chrono::milliseconds timeout, const std::string &name, bool has_cuda);
  const std::string getBackendName() const override;

  Work broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) override;
  Work allreduce(Tensors &tensors, const c10d::AllreduceOptions &options) override;
  Work allreduce_coalesced(Tensors &tensors,
                           const c10d::AllreduceCoalescedOptions &options) override;
  Work reduce(Tensors &tensors, const c10d::ReduceOptions &options) override;
  Work allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                 const c10d::AllgatherOptions &options) override;
  Work _allgather_base(at::Tensor &output, at::Tensor &input,
                       const c10d::AllgatherOptions &options) override;
  Work allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                           const c10d::AllgatherOptions &options) override;
#if TORCH_VERSION_MAJOR >= 2
  Work allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                       const c10d::AllgatherOptions &options) override;
  Work reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                       const c10d::ReduceScatterOptions &options) override;
  void startCoalescing() override;
  Work endCoalescing() override;
#endif
  Work gather(std::vector<Tensors> &outputs, Tensors &inputs,
              const c10d::GatherOptions &options) override;
  Work scatter(Tensors &outputs, std::vector<Tensors> &inputs,
               const c10d::ScatterOptions &options) override;
  Work reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                      const c10d::ReduceScatterOptions &options) override;
  Work _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                            const c10d::ReduceScatterOptions &options) override;
  Work alltoall_base(at::Tensor &output, at::Tensor &input, std::vector<int64_t> &output_sizes,
                     std::vector<int64_t> &input_sizes,
                     const c10d::AllToAllOptions &options) override;
  Work alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) override;
  Work send(Tensors &tensors, int peer, int tag) override;
  Work recv(Tensors &tensors, int peer, int tag) override;
  Work recvAnysource(Tensors &tensors, int tag) override;
  Work barrier(const c10d::BarrierOptions &options) override;
  void monitoredBarrier(const c10d::BarrierOptions &options, bool all) override;
  void setSequenceNumberForGroup() override;
  uint64_t getSequenceNumberForGroup() override;

  /* Ends all operations with an error, on all ranks. */
  void abort();

  /* The same if any are left: at the end of the process. */
  void abort_if_busy();

protected:
  /* Leaves an operation to the runner. inputs, outputs: all its tensors. finish: what is to be done
   * when it has succeeded. What `start` and `finish` hold is kept until the operation has ended. */
  c10::intrusive_ptr<CollWork> submit(c10d::OpType type, const char *name, const Tensors &inputs,
                                      const Tensors &outputs, std::chrono::milliseconds timeout,
                                      Start start, std::function<void()> finish = {});
  c10::intrusive_ptr<CollWork> send_to(const Tensors &tensors, int peer, int tag);
  c10::intrusive_ptr<CollWork> receive(c10d::OpType type, const Tensors &tensors, int peer, int tag,
                                       std::chrono::milliseconds timeout);
  at::Tensor monitor(int64_t number, std::chrono::milliseconds timeout);

  std::shared_ptr<Runner> runner_;

private:
  const std::chrono::milliseconds timeout_;
  const bool has_cuda_;
  std::atomic<int64_t> monitored_{0}; /* barriers */
  std::atomic<uint64_t> sequence_{0};
#if TORCH_VERSION_MAJOR >= 2
  std::mutex mutex_; /* of what follows */
  bool coalesces_ = false;
  std::vector<c10::intrusive_ptr<CollWork>> coalesced_; /* since startCoalescing() */
#endif
};

/* Starts `count` operations as one, of which start_one(i) is the i-th. */
template <typename StartOne>
coll_status start_group(coll_comm *comm, coll_request **request, size_t count, StartOne start_one) {
  coll_status status = coll_group_start(comm);
  for (size_t i = 0; i < count && status == COLL_OK; i++)
    status = start_one(i);
  const coll_status ended = coll_group_iend(comm, request);
  return status == COLL_OK ? ended : status;
}

} // namespace coll_torch
