/* tensors.hpp: tensors as buffers of libcoll. */
#pragma once

#include <vector>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/version.h>

#include <coll/coll.h>

namespace coll_torch {

using Tensors = std::vector<at::Tensor>;

/* How tensors are reduced. */
struct Reduction {
  coll_type type;
  coll_op op;
  size_t count; /* of elements of `type` */
};

/* libcoll's type for tensors that are only moved. */
coll_type moved_type(const at::Tensor &tensor);

/* How `count` elements like a tensor's are reduced. Throws if libcoll cannot. */
Reduction reduction_of(const at::Tensor &tensor, const c10d::ReduceOp &reduce, size_t count);

size_t count_of(const at::Tensor &tensor);
std::vector<size_t> counts_of(const Tensors &list);

/* Throws if libcoll cannot use a tensor's memory: on another device, sparse, with gaps. */
void check(const at::Tensor &tensor);

/* The same, and it must be contiguous: for tensors whose place tells which rank's block is where.
 */
void check_blocks(const at::Tensor &tensor);

/* Throws if tensors have not all as many elements as a given one, of the same type. */
void check_alike(const Tensors &list, const at::Tensor &other);

/* Throws unless each tensor of `longs` is as long as `times` of that of `shorts`, of the same type,
 * and both are as check_blocks() wants them. */
void check_times(const Tensors &longs, const Tensors &shorts, int times);

/* The only tensor of an operation, checked. */
at::Tensor single(const Tensors &tensors);

/* The only list of tensors, one for each of `size` ranks and of one type, checked. */
const Tensors &single(const std::vector<Tensors> &lists, int size);

/* Memory for all tensors of a list, one behind the other: their own if they lie so. */
at::Tensor memory_of(const Tensors &list);

/* Copies a list into its memory, or the other way round, unless that is their own. */
void gather_into(const at::Tensor &memory, const Tensors &list);
void scatter_from(const at::Tensor &memory, const Tensors &list);

/* Waits until what this thread has started on the GPUs of tensors has ended. */
void synchronize(const Tensors &tensors);

} // namespace coll_torch
