/* process_group.cpp: the operations of torch.distributed as those of libcoll. */
#include "process_group.hpp"

#include <numeric>

namespace coll_torch {

/* ---- tensors --------------------------------------------------------------------------------- */

/* libcoll's type for tensors that are only moved. */
static coll_type moved_type(const at::Tensor &tensor) {
  switch (tensor.scalar_type()) {
  case at::kByte:
    return COLL_UINT8;
  case at::kChar:
    return COLL_INT8;
  case at::kShort:
    return COLL_INT16;
  case at::kInt:
    return COLL_INT32;
  case at::kLong:
    return COLL_INT64;
  case at::kHalf:
    return COLL_FLOAT16;
  case at::kBFloat16:
    return COLL_BFLOAT16;
  case at::kFloat:
    return COLL_FLOAT32;
  case at::kDouble:
    return COLL_FLOAT64;
  default:
    return COLL_TYPE_USER(tensor.element_size());
  }
}

/* How tensors are reduced. */
struct Reduction {
  coll_type type;
  coll_op op;
  size_t count;
};

/* The operation of a reduction on numbers. */
static coll_op number_op(c10d::ReduceOp::RedOpType op) {
  switch (op) {
  case c10d::ReduceOp::SUM:
    return COLL_SUM;
  case c10d::ReduceOp::AVG:
    return COLL_AVG;
  case c10d::ReduceOp::PRODUCT:
    return COLL_PROD;
  case c10d::ReduceOp::MIN:
    return COLL_MIN;
  case c10d::ReduceOp::MAX:
    return COLL_MAX;
  case c10d::ReduceOp::BAND:
    return COLL_BAND;
  case c10d::ReduceOp::BOR:
    return COLL_BOR;
  case c10d::ReduceOp::BXOR:
    return COLL_BXOR;
  default:
    TORCH_CHECK(false, "coll: this reduction is not supported; it has SUM, AVG, PRODUCT, MIN, MAX, "
                       "BAND, BOR and BXOR");
  }
}

/* The same on truth values: any, all, or an odd number of them. */
static coll_op truth_op(c10d::ReduceOp::RedOpType op) {
  switch (op) {
  case c10d::ReduceOp::SUM:
  case c10d::ReduceOp::MAX:
  case c10d::ReduceOp::BOR:
    return COLL_LOR;
  case c10d::ReduceOp::PRODUCT:
  case c10d::ReduceOp::MIN:
  case c10d::ReduceOp::BAND:
    return COLL_LAND;
  case c10d::ReduceOp::BXOR:
    return COLL_LXOR;
  default:
    TORCH_CHECK(false, "coll: truth values have no such reduction");
  }
}

/* How `count` elements like a tensor's are reduced. */
static Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &reduce, size_t count) {
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(reduce);
  if (tensor.scalar_type() == at::kBool)
    return {COLL_UINT8, truth_op(op), count};
  if (tensor.is_complex()) {
    TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
                "coll: complex numbers have SUM and AVG alone");
    const bool is_double = tensor.scalar_type() == at::kComplexDouble;
    TORCH_CHECK(is_double || tensor.scalar_type() == at::kComplexFloat,
                "coll: complex numbers are reduced as complex64 or complex128");
    return {is_double ? COLL_FLOAT64 : COLL_FLOAT32, number_op(op), 2 * count};
  }
  const coll_type type = moved_type(tensor);
  TORCH_CHECK(type < COLL_TYPE_USER_BASE, "coll: no reduction of elements of type ",
              tensor.scalar_type());
  return {type, number_op(op), count};
}

/* Refuses a tensor whose memory libcoll cannot use. */
static void check(const at::Tensor &tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "coll: tensors must be dense, not sparse");
  TORCH_CHECK(tensor.device().is_cpu(),
              "coll: tensors must be on the processor, this one is on ", tensor.device());
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(),
              "coll: a tensor has gaps or overlaps; pass its contiguous()");
}

/* Refuses tensors that are not in order, because their place tells which block they are in. */
static void check_blocks(const at::Tensor &tensor) {
  check(tensor);
  TORCH_CHECK(tensor.is_contiguous(), "coll: a tensor is not contiguous; pass its contiguous()");
}

/* The one tensor of an operation. */
static at::Tensor single(const Tensors &tensors) {
  TORCH_CHECK(tensors.size() == 1, "coll: an operation takes one tensor, not ", tensors.size());
  check(tensors[0]);
  return tensors[0];
}

/* The one list of tensors, one for each rank, alike but for their lengths. */
static const Tensors &single(const std::vector<Tensors> &lists, int size) {
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == static_cast<size_t>(size),
              "coll: an operation takes one list with a tensor for each of ", size, " ranks");
  for (const at::Tensor &tensor : lists[0]) {
    check_blocks(tensor);
    TORCH_CHECK(tensor.scalar_type() == lists[0][0].scalar_type(),
                "coll: the tensors of a list have different types");
  }
  return lists[0];
}

static size_t count_of(const at::Tensor &tensor) {
  return static_cast<size_t>(tensor.numel());
}

/* Refuses tensors that are not as long as a given one. */
static void check_alike(const Tensors &list, const at::Tensor &other) {
  for (const at::Tensor &tensor : list)
    TORCH_CHECK(tensor.numel() == other.numel() && tensor.scalar_type() == other.scalar_type(),
                "coll: tensors of different lengths or types");
}

/* Memory for all tensors of a list, one behind the other: their own, if they lie so. */
static at::Tensor memory_of(const Tensors &list) {
  int64_t total = 0;
  bool adjacent = true;
  for (const at::Tensor &tensor : list) {
    adjacent &= tensor.data_ptr() == static_cast<char *>(list[0].data_ptr()) +
                                         total * static_cast<int64_t>(tensor.element_size());
    total += tensor.numel();
  }
  if (adjacent) { /* it keeps the first one's memory; the caller keeps the list */
    const at::Tensor first = list[0];
    return at::from_blob(first.data_ptr(), {total}, [first](void *) {}, first.options());
  }
  return at::empty({total}, list[0].options());
}

/* Copies a list into its memory, if that is not their own. */
static void gather_into(const at::Tensor &memory, const Tensors &list) {
  if (memory.data_ptr() == list[0].data_ptr())
    return;
  int64_t at = 0;
  for (const at::Tensor &tensor : list) {
    memory.narrow(0, at, tensor.numel()).copy_(tensor.reshape(-1));
    at += tensor.numel();
  }
}

/* The other way round. */
static void scatter_from(const at::Tensor &memory, const Tensors &list) {
  if (memory.data_ptr() == list[0].data_ptr())
    return;
  int64_t at = 0;
  for (const at::Tensor &tensor : list) {
    tensor.copy_(memory.narrow(0, at, tensor.numel()).view(tensor.sizes()));
    at += tensor.numel();
  }
}

/* ---- works ----------------------------------------------------------------------------------- */

CollWork::CollWork(int rank, c10d::OpType type, const char *name, const Tensors &inputs,
                   Tensors outputs, std::shared_ptr<Runner> runner)
    : Work(rank, type, name, c10::optional<Tensors>(inputs)), outputs_(std::move(outputs)),
      runner_(std::move(runner)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()))) {
}

Tensors CollWork::result() {
  return outputs_;
}

c10::intrusive_ptr<c10::ivalue::Future> CollWork::getFuture() {
  return future_;
}

int CollWork::sourceRank() const {
  return message.source;
}

void CollWork::abort() {
  runner_->abort();
}

void CollWork::end(coll_status status, const std::string &text) {
  if (status == COLL_OK) {
    finish();
    future_->markCompleted(c10::IValue(outputs_));
    return;
  }
  const auto error = std::make_exception_ptr(std::runtime_error(text));
  finish(error);
  future_->setError(error);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* The communicator of the ranks that use this store. Rank 0 leaves the id in it. */
static coll_comm *create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                         std::chrono::milliseconds timeout) {
  coll_comm *comm = nullptr;
  coll_id id;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = config.create_timeout_ms = static_cast<int>(timeout.count());
  config.error = &error;
  coll_status status = COLL_OK;
  if (rank == 0 && (status = coll_unique_id(&id, &config)) == COLL_OK)
    store->set("coll_id", std::vector<uint8_t>(id.bytes, id.bytes + sizeof(id.bytes)));
  if (rank != 0) {
    const std::vector<uint8_t> bytes = store->get("coll_id");
    TORCH_CHECK(bytes.size() == sizeof(id.bytes), "coll: the store has no id of libcoll");
    std::copy(bytes.begin(), bytes.end(), id.bytes);
  }
  if (status == COLL_OK)
    status = coll_comm_create(&comm, &id, size, rank, &config);
  if (rank == 0)
    store->deleteKey("coll_id"); /* whoever has it could join */
  TORCH_CHECK(status == COLL_OK, "coll: ", coll_status_name(status), ": ", error.message);
  return comm;
}

CollGroup::CollGroup(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                     std::chrono::milliseconds timeout)
    : Base(rank, size), runner_(std::make_shared<Runner>(create(store, rank, size, timeout))) {
}

const std::string CollGroup::getBackendName() const {
  return "coll";
}

void CollGroup::abort() {
  runner_->abort();
}

void CollGroup::setSequenceNumberForGroup() {
}

uint64_t CollGroup::getSequenceNumberForGroup() {
  return sequence_;
}

/* Leaves an operation to the runner. finish: what is to be done when it has succeeded. What `start`
 * and `finish` hold is kept until the operation has ended. */
Work CollGroup::submit(c10d::OpType type, const char *name, const Tensors &inputs, Tensors outputs,
                       std::chrono::milliseconds timeout, Start start,
                       std::function<void()> finish) {
  auto work = c10::make_intrusive<CollWork>(rank_, type, name, inputs, std::move(outputs), runner_);
  if (!c10d::isP2POp(type))
    sequence_++;
  auto held = std::make_shared<Start>(std::move(start));
  runner_->submit({[held](coll_comm *comm, coll_request **request) { return (*held)(comm, request); },
                   [work, held, inputs, finish](coll_status status, const std::string &text) {
                     if (status == COLL_OK && finish)
                       finish();
                     work->end(status, text);
                   },
                   timeout});
  return work;
}

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
                  coll_status status = coll_group_start(comm);
                  for (size_t i = 0; i < list.size() && status == COLL_OK; i++)
                    status = coll_allreduce(list[i].data_ptr(), list[i].data_ptr(), how[i].count,
                                            how[i].type, how[i].op, comm);
                  const coll_status ended = coll_group_iend(comm, request);
                  return status == COLL_OK ? ended : status;
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
  check_blocks(output);
  check_blocks(input);
  TORCH_CHECK(input.numel() == output.numel() * size_ &&
                  input.scalar_type() == output.scalar_type(),
              "coll: the input must be as long as ", size_, " outputs, of the same type");
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

/* ---- moving data ----------------------------------------------------------------------------- */

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
  check_blocks(output);
  check_blocks(input);
  TORCH_CHECK(output.numel() == input.numel() * size_ &&
                  input.scalar_type() == output.scalar_type(),
              "coll: the output must be as long as ", size_, " inputs, of the same type");
  const at::Tensor from = input, to = output;
  return submit(c10d::OpType::_ALLGATHER_BASE, "coll:all_gather_into_tensor", {input}, {output},
                options.timeout, [from, to](coll_comm *comm, coll_request **request) {
                  return coll_iallgather(from.data_ptr(), to.data_ptr(), count_of(from),
                                         moved_type(from), comm, request);
                });
}

/* The lengths of tensors. */
static std::vector<size_t> counts_of(const Tensors &list) {
  std::vector<size_t> counts;
  for (const at::Tensor &tensor : list)
    counts.push_back(count_of(tensor));
  return counts;
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
        coll_status status = coll_group_start(comm);
        for (size_t i = 0; i < from.size() && status == COLL_OK; i++)
          status = coll_allgather(from[i].data_ptr(), memories[i].data_ptr(), count_of(from[i]),
                                  moved_type(from[i]), comm);
        const coll_status ended = coll_group_iend(comm, request);
        return status == COLL_OK ? ended : status;
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
static std::vector<size_t> split(const at::Tensor &tensor, const std::vector<int64_t> &sizes,
                                 int ranks) {
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
  const std::vector<size_t> sent = split(input, input_sizes, size_);
  const std::vector<size_t> received = split(output, output_sizes, size_);
  const at::Tensor from = input, to = output;
  return submit(c10d::OpType::ALLTOALL_BASE, "coll:all_to_all_single", {input}, {output},
                options.timeout, [=](coll_comm *comm, coll_request **request) {
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
                               received.data_ptr(), counts_of(to).data(), nullptr,
                               moved_type(sent), comm, request);
      },
      [received, to] { scatter_from(received, to); });
}

/* ---- messages, barriers ---------------------------------------------------------------------- */

Work CollGroup::send(Tensors &tensors, int peer, int tag) {
  const at::Tensor tensor = single(tensors);
  return submit(c10d::OpType::SEND, "coll:send", tensors, {}, c10d::kUnsetTimeout,
                [tensor, peer, tag](coll_comm *comm, coll_request **request) {
                  return coll_isend(tensor.data_ptr(), count_of(tensor), moved_type(tensor), peer,
                                    tag, comm, request);
                });
}

Work CollGroup::recv(Tensors &tensors, int peer, int tag) {
  const at::Tensor tensor = single(tensors);
  return submit(c10d::OpType::RECV, "coll:recv", tensors, tensors, c10d::kUnsetTimeout,
                [tensor, peer, tag](coll_comm *comm, coll_request **request) {
                  return coll_irecv(tensor.data_ptr(), count_of(tensor), moved_type(tensor), peer,
                                    tag, nullptr, comm, request);
                });
}

Work CollGroup::recvAnysource(Tensors &tensors, int tag) {
  const at::Tensor tensor = single(tensors);
  auto work = c10::make_intrusive<CollWork>(rank_, c10d::OpType::RECVANYSOURCE,
                                            "coll:recv_any_source", tensors, tensors, runner_);
  runner_->submit({[work, tensor, tag](coll_comm *comm, coll_request **request) {
                     return coll_irecv(tensor.data_ptr(), count_of(tensor), moved_type(tensor),
                                       COLL_ANY_SOURCE, tag, &work->message, comm, request);
                   },
                   [work, tensor](coll_status status, const std::string &text) {
                     const bool is_short =
                         status == COLL_OK && work->message.count != count_of(tensor);
                     work->end(is_short ? COLL_ERR_MISMATCH : status,
                               is_short ? "the message is shorter than the tensor" : text);
                   },
                   c10d::kUnsetTimeout});
  return work;
}

Work CollGroup::barrier(const c10d::BarrierOptions &options) {
  return submit(
      c10d::OpType::BARRIER, "coll:barrier", {}, {}, options.timeout,
      [](coll_comm *comm, coll_request **request) { return coll_ibarrier(comm, request); });
}

/* The error of a barrier that is over its limit names all ranks that have not come. */
void CollGroup::monitoredBarrier(const c10d::BarrierOptions &options, bool) {
  barrier(options)->wait();
}

} // namespace coll_torch
