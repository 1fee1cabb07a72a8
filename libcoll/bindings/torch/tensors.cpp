/* tensors.cpp: tensors as buffers of libcoll. */
#include "tensors.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace coll_torch {

coll_type moved_type(const at::Tensor &tensor) {
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
#if TORCH_VERSION_MAJOR >= 2
  case at::ScalarType::UInt16:
    return COLL_UINT16;
  case at::ScalarType::UInt32:
    return COLL_UINT32;
  case at::ScalarType::UInt64:
    return COLL_UINT64;
  case at::ScalarType::Float8_e4m3fn:
    return COLL_FLOAT8_E4M3;
  case at::ScalarType::Float8_e5m2:
    return COLL_FLOAT8_E5M2;
#endif
  default:
    return COLL_TYPE_USER(tensor.element_size());
  }
}

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
    TORCH_CHECK(false,
                "coll: truth values (bool) have no such reduction; convert them to integers");
  }
}

Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &reduce, size_t count) {
  const auto op = static_cast<c10d::ReduceOp::RedOpType>(reduce);
  if (tensor.scalar_type() == at::kBool)
    return {COLL_UINT8, truth_op(op), count};
  if (tensor.is_complex()) {
    TORCH_CHECK(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
                "coll: complex numbers have SUM and AVG alone");
    const bool is_double = tensor.scalar_type() == at::kComplexDouble;
    TORCH_CHECK(is_double || tensor.scalar_type() == at::kComplexFloat,
                "coll: complex numbers are reduced as complex64 or complex128, not ",
                tensor.scalar_type());
    return {is_double ? COLL_FLOAT64 : COLL_FLOAT32, number_op(op), 2 * count};
  }
  const coll_type type = moved_type(tensor);
  TORCH_CHECK(type < COLL_TYPE_USER_BASE, "coll: elements of type ", tensor.scalar_type(),
              " can be moved, but not reduced");
  return {type, number_op(op), count};
}

size_t count_of(const at::Tensor &tensor) {
  return static_cast<size_t>(tensor.numel());
}

std::vector<size_t> counts_of(const Tensors &list) {
  std::vector<size_t> counts;
  for (const at::Tensor &tensor : list)
    counts.push_back(count_of(tensor));
  return counts;
}

void check(const at::Tensor &tensor) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "coll: tensors must be dense, not ",
              tensor.layout());
  TORCH_CHECK(tensor.device().is_cpu() || tensor.device().is_cuda(),
              "coll: tensors must be in host or CUDA memory, not on ", tensor.device());
  TORCH_CHECK(tensor.is_non_overlapping_and_dense(),
              "coll: a tensor has gaps or overlaps; pass its contiguous()");
}

void check_blocks(const at::Tensor &tensor) {
  check(tensor);
  TORCH_CHECK(tensor.is_contiguous(), "coll: a tensor is not contiguous; pass its contiguous()");
}

void check_alike(const Tensors &list, const at::Tensor &other) {
  for (const at::Tensor &tensor : list)
    TORCH_CHECK(tensor.numel() == other.numel() && tensor.scalar_type() == other.scalar_type(),
                "coll: tensors of ", tensor.numel(), " ", tensor.scalar_type(), " and ",
                other.numel(), " ", other.scalar_type(), " where they must be alike");
}

void check_times(const Tensors &longs, const Tensors &shorts, int times) {
  TORCH_CHECK(longs.size() == shorts.size(), "coll: ", longs.size(), " and ", shorts.size(),
              " tensors where there must be as many");
  for (size_t i = 0; i < longs.size(); i++) {
    check_blocks(longs[i]);
    check_blocks(shorts[i]);
    TORCH_CHECK(longs[i].numel() == shorts[i].numel() * times &&
                    longs[i].scalar_type() == shorts[i].scalar_type(),
                "coll: a tensor of ", longs[i].numel(), " ", longs[i].scalar_type(), " must have ",
                times, " times the elements of one of ", shorts[i].numel(), " ",
                shorts[i].scalar_type());
  }
}

at::Tensor single(const Tensors &tensors) {
  TORCH_CHECK(tensors.size() == 1, "coll: an operation takes one tensor, not ", tensors.size());
  check(tensors[0]);
  return tensors[0];
}

const Tensors &single(const std::vector<Tensors> &lists, int size) {
  TORCH_CHECK(lists.size() == 1 && lists[0].size() == static_cast<size_t>(size),
              "coll: an operation takes one list with a tensor for each of ", size, " ranks");
  for (const at::Tensor &tensor : lists[0]) {
    check_blocks(tensor);
    TORCH_CHECK(tensor.scalar_type() == lists[0][0].scalar_type() &&
                    tensor.device() == lists[0][0].device(),
                "coll: the tensors of a list have different types or devices");
  }
  return lists[0];
}

at::Tensor memory_of(const Tensors &list) {
  int64_t total = 0;
  bool adjacent = true;
  for (const at::Tensor &tensor : list) {
    adjacent &= tensor.data_ptr() == static_cast<char *>(list[0].data_ptr()) +
                                         total * static_cast<int64_t>(tensor.element_size());
    total += tensor.numel();
  }
  if (adjacent) { /* it keeps the first one's memory; the caller keeps the list */
    const at::Tensor first = list[0];
    return at::from_blob(
        first.data_ptr(), {total}, [first](void *) {}, first.options());
  }
  return at::empty({total}, list[0].options());
}

void gather_into(const at::Tensor &memory, const Tensors &list) {
  if (memory.data_ptr() == list[0].data_ptr())
    return;
  at::AutoDispatchBelowADInplaceOrView guard; /* to autograd this is no operation */
  int64_t at = 0;
  for (const at::Tensor &tensor : list) {
    memory.narrow(0, at, tensor.numel()).copy_(tensor.view(-1));
    at += tensor.numel();
  }
}

void scatter_from(const at::Tensor &memory, const Tensors &list) {
  if (memory.data_ptr() == list[0].data_ptr())
    return;
  at::AutoDispatchBelowADInplaceOrView guard;
  int64_t at = 0;
  for (const at::Tensor &tensor : list) {
    tensor.view(-1).copy_(memory.narrow(0, at, tensor.numel()));
    at += tensor.numel();
  }
}

void synchronize(const Tensors &tensors) {
  c10::Device last = at::kCPU;
  for (const at::Tensor &tensor : tensors) {
    if (!tensor.is_cuda() || tensor.device() == last)
      continue;
    last = tensor.device();
    c10::impl::VirtualGuardImpl(last.type()).getStream(last).synchronize();
  }
}

} // namespace coll_torch
