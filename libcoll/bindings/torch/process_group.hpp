/* process_group.hpp: libcoll as a backend of torch.distributed. */
#pragma once

#include <memory>

#include <torch/torch.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#if TORCH_VERSION_MAJOR >= 2
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

#include "runner.hpp"

namespace coll_torch {

#if TORCH_VERSION_MAJOR >= 2
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif
using Tensors = std::vector<at::Tensor>;
using Work = c10::intrusive_ptr<c10d::Work>;

/* An operation of a process group. */
class CollWork : public c10d::Work {
public:
  CollWork(int rank, c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs,
           std::shared_ptr<Runner> runner);
  Tensors result() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  int sourceRank() const override;
  void abort() override;

  /* The operation has ended. */
  void end(coll_status status, const std::string &text);

  coll_message message = {-1, -1, 0, COLL_UINT8}; /* what a receive has got */

private:
  Tensors outputs_;
  std::shared_ptr<Runner> runner_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/* A group of ranks. Every operation returns at once; tensors must be on the processor and dense. */
class CollGroup : public Base {
public:
  CollGroup(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
            std::chrono::milliseconds timeout);
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

private:
  using Start = std::function<coll_status(coll_comm *, coll_request **)>;
  Work submit(c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs,
              std::chrono::milliseconds timeout, Start start, std::function<void()> finish = {});

  std::shared_ptr<Runner> runner_;
  std::atomic<uint64_t> sequence_{0};
};

} // namespace coll_torch
