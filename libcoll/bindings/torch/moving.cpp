/* moving.cpp: the operations of torch.distributed that only move data. */
#include <numeric>

#include "process_group.hpp"

namespace coll_torch {

Work CollGroup::broadcast(Tensors &tensors, const c10d::BroadcastOptions &options) {
  const at::Tensor tensor = single(tensors);
  const int root = static_cast<int>(options.rootRank);
  return submit(c10d::OpType::BROADCAST, "coll:broadcast", tensors, tensors, options.timeout,
                [tensor, root](coll_comm *comm, coll_request **request) {
                  return coll_ibroadcast(tensor.data_ptr(), tensor.data_ptr(), count_of(tensor),
                                         moved_type(tensor), root, comm, request);
                });
}

Work CollGroup::_allgather_base(at::Tensor &output, at::Tensor &input,
                                const c10d::AllgatherOptions &options) {
  check_times({output}, {input}, size_);
  const at::Tensor from = input, to = output;
  return submit(c10d::OpType::_ALLGATHER_BASE, "coll:all_gather_into_tensor", {input}, {output},
                options.timeout, [from, to](coll_comm *comm, coll_request **request) {
                  return coll_iallgather(from.data_ptr(), to.data_ptr(), count_of(from),
                                         moved_type(from), comm, request);
                });
}

Work CollGroup::allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                          const c10d::AllgatherOptions &options) {
  const at::Tensor input = single(inputs);
  check_blocks(input);
  const Tensors list = single(outputs, size_);
  check_alike({list[static_cast<size_t>(rank_)]}, input);
  const at::Tensor memory = memory_of(list);
  const std::vector<size_t> counts = counts_of(list);
  return submit(
      c10d::OpType::ALLGATHER, "coll:all_gather", inputs, list, options.timeout,
      [input, memory, counts](coll_comm *comm, coll_request **request) {
        return coll_iallgatherv(input.data_ptr(), memory.data_ptr(), counts.data(), nullptr,
                                moved_type(input), comm, request);
      },
      [memory, list] { scatter_from(memory, list); });
}

Work CollGroup::allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                    const c10d::AllgatherOptions &options) {
  TORCH_CHECK(outputs.size() == static_cast<size_t>(size_),
              "coll: allgather_coalesced takes a list of outputs for each rank");
  Tensors all;
  for (const Tensors &list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "coll: a list has ", list.size(), " outputs for ",
                inputs.size(), " inputs");
    for (size_t i = 0; i < list.size(); i++) {
      check_blocks(list[i]);
      check_alike({list[i]}, inputs[i]);
      all.push_back(list[i]);
    }
  }
  for (const at::Tensor &tensor : inputs)
    check_blocks(tensor);
  const Tensors from = inputs;
  Tensors memories; /* of all ranks' i-th tensors */
  for (const at::Tensor &tensor : inputs)
    memories.push_back(at::empty({tensor.numel() * size_}, tensor.options()));
  const size_t n = inputs.size();
  return submit(
      c10d::OpType::ALLGATHER_COALESCED, "coll:all_gather_coalesced", inputs, all, options.timeout,
      [from, memories](coll_comm *comm, coll_request **request) {
        return start_group(comm, request, from.size(), [&](size_t i) {
          return coll_allgather(from[i].data_ptr(), memories[i].data_ptr(), count_of(from[i]),
                                moved_type(from[i]), comm);
        });
      },
      [all, memories, n] {
        for (size_t i = 0; i < n; i++) {
          Tensors blocks;
          for (size_t k = i; k < all.size(); k += n)
            blocks.push_back(all[k]);
          scatter_from(memories[i], blocks);
        }
      });
}

#if TORCH_VERSION_MAJOR >= 2
Work CollGroup::allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                                const c10d::AllgatherOptions &options) {
  check_times(outputs, inputs, size_);
  const Tensors from = inputs, to = outputs;
  return submit(c10d::OpType::COALESCED, "coll:all_gather_into_tensor_coalesced", inputs, outputs,
                options.timeout, [from, to](coll_comm *comm, coll_request **request) {
                  return start_group(comm, request, to.size(), [&](size_t i) {
                    return coll_allgather(from[i].data_ptr(), to[i].data_ptr(), count_of(from[i]),
                                          moved_type(from[i]), comm);
                  });
                });
}
#endif

Work CollGroup::gather(std::vector<Tensors> &outputs, Tensors &inputs,
                       const c10d::GatherOptions &options) {
  const at::Tensor input = single(inputs);
  check_blocks(input);
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  at::Tensor memory;
  if (rank_ == root) {
    list = single(outputs, size_);
    check_alike(list, input);
    memory = memory_of(list);
  } else {
    TORCH_CHECK(outputs.empty() || outputs[0].empty(), "coll: only the root of gather has outputs");
  }
  return submit(
      c10d::OpType::GATHER, "coll:gather", inputs, list, options.timeout,
      [input, memory, root](coll_comm *comm, coll_request **request) {
        return coll_igather(input.data_ptr(), memory.defined() ? memory.data_ptr() : nullptr,
                            count_of(input), moved_type(input), root, comm, request);
      },
      [memory, list] {
        if (memory.defined())
          scatter_from(memory, list);
      });
}

Work CollGroup::scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                        const c10d::ScatterOptions &options) {
  const at::Tensor output = single(outputs);
  check_blocks(output);
  const int root = static_cast<int>(options.rootRank);
  Tensors list;
  at::Tensor memory;
  if (rank_ == root) {
    list = single(inputs, size_);
    check_alike(list, output);
    memory = memory_of(list);
    gather_into(memory, list);
  } else {
    TORCH_CHECK(inputs.empty() || inputs[0].empty(), "coll: only the root of scatter has inputs");
  }
  return submit(c10d::OpType::SCATTER, "coll:scatter", list, outputs, options.timeout,
                [output, memory, root](coll_comm *comm, coll_request **request) {
                  return coll_iscatter(memory.defined() ? memory.data_ptr() : nullptr,
                                       output.data_ptr(), count_of(output), moved_type(output),
                                       root, comm, request);
                });
}

/* Counts of elements from sizes in the first dimension; equal ones if there are none. */
static std::vector<size_t> counts_of_ranks(const at::Tensor &tensor,
                                           const std::vector<int64_t> &sizes, int ranks) {
  const int64_t length = tensor.dim() > 0 ? tensor.size(0) : 1;
  const int64_t row = length > 0 ? tensor.numel() / length : 0;
  std::vector<size_t> counts;
  if (sizes.empty()) {
    TORCH_CHECK(length % ranks == 0, "coll: the first dimension, ", length,
                ", is not divided among ", ranks, " ranks");
    counts.assign(static_cast<size_t>(ranks), static_cast<size_t>(length / ranks * row));
    return counts;
  }
  TORCH_CHECK(sizes.size() == static_cast<size_t>(ranks) &&
                  std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == length,
              "coll: the split sizes must be ", ranks, " numbers whose sum is the first dimension");
  for (const int64_t size : sizes) {
    TORCH_CHECK(size >= 0, "coll: a split size is negative");
    counts.push_back(static_cast<size_t>(size * row));
  }
  return counts;
}

Work CollGroup::alltoall_base(at::Tensor &output, at::Tensor &input,
                              std::vector<int64_t> &output_sizes, std::vector<int64_t> &input_sizes,
                              const c10d::AllToAllOptions &options) {
  check_blocks(output);
  check_blocks(input);
  TORCH_CHECK(input.scalar_type() == output.scalar_type(), "coll: tensors of different types");
  const std::vector<size_t> sent = counts_of_ranks(input, input_sizes, size_);
  const std::vector<size_t> received = counts_of_ranks(output, output_sizes, size_);
  const at::Tensor from = input, to = output;
  return submit(c10d::OpType::ALLTOALL_BASE, "coll:all_to_all_single", {input}, {output},
                options.timeout,
                [from, to, sent, received](coll_comm *comm, coll_request **request) {
                  return coll_ialltoallv(from.data_ptr(), sent.data(), nullptr, to.data_ptr(),
                                         received.data(), nullptr, moved_type(from), comm, request);
                });
}

Work CollGroup::alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &options) {
  const Tensors from = single({inputs}, size_), to = single({outputs}, size_);
  const at::Tensor sent = memory_of(from), received = memory_of(to);
  gather_into(sent, from);
  return submit(
      c10d::OpType::ALLTOALL, "coll:all_to_all", inputs, outputs, options.timeout,
      [from, to, sent, received](coll_comm *comm, coll_request **request) {
        return coll_ialltoallv(sent.data_ptr(), counts_of(from).data(), nullptr,
                               received.data_ptr(), counts_of(to).data(), nullptr, moved_type(sent),
                               comm, request);
      },
      [received, to] { scatter_from(received, to); });
}

} // namespace coll_torch
