/* copy.c: copies pieces of memory. */
#include "libcoll/gpu/kernels/device.h"

/* Piece `i` of the arguments or of the table. */
COLL_DEVICE struct coll_gpu_piece coll_piece(const struct coll_gpu_copy *copy, uint32_t i) {
  if (i < COLL_GPU_PLACES)
    return copy->piece[i];
  const uint64_t at = copy->more + (i - COLL_GPU_PLACES) * sizeof(struct coll_gpu_piece);
  return (struct coll_gpu_piece){coll_load_64(at), coll_load_64(at + 8), coll_load_64(at + 16)};
}

/* Copies all whole units of 2^`log2` bytes, and the bytes before and after them. */
#define COLL_COPY_BY(log2, LOAD, STORE)                                                            \
  do {                                                                                             \
    const uint64_t to_unit = (0 - piece.to) & ((1u << log2) - 1);                                  \
    const uint64_t head = to_unit < piece.bytes ? to_unit : piece.bytes;                           \
    const uint64_t units = (piece.bytes - head) >> log2, inner = units << log2;                    \
    for (uint64_t i = coll_thread(); i < units; i += step)                                         \
      STORE(piece.to + head + (i << log2), LOAD(piece.from + head + (i << log2)));                 \
    for (uint64_t i = coll_thread(); i < piece.bytes - inner; i += step) {                         \
      const uint64_t offset = i < head ? i : i + inner;                                            \
      coll_store_8(piece.to + offset, coll_load_8(piece.from + offset));                           \
    }                                                                                              \
  } while (0)

/* All threads share each piece: 16 bytes at a time, or fewer if the addresses do not agree. */
COLL_KERNEL coll_copy(struct coll_gpu_copy copy) {
  const uint64_t step = coll_threads();
  if (coll_is_stopped(copy.guard))
    return;
  for (uint32_t p = 0; p < copy.pieces; p++) {
    const struct coll_gpu_piece piece = coll_piece(&copy, p);
    const uint64_t differ = piece.to ^ piece.from;
    if ((differ & 15) == 0)
      COLL_COPY_BY(4, coll_load_vec, coll_store_vec);
    else if ((differ & 3) == 0)
      COLL_COPY_BY(2, coll_load_32, coll_store_32);
    else
      COLL_COPY_BY(0, coll_load_8, coll_store_8);
  }
}
