/* meet.c: ranks meet: the only kernel that waits. See meet_args.h. */
#include "libcoll/gpu/kernels/meet_args.h"

#include "libcoll/gpu/kernels/device.h"

/* Earlier stores, and what this thread knows of, become visible before later stores, to all. */
COLL_DEVICE void coll_fence_system(void) {
  __asm__ volatile("fence.acq_rel.sys;" ::: "memory");
}

/* A word that others read at the same time: other GPUs and the host. */
COLL_DEVICE void coll_store_system(uint64_t at, uint32_t value) {
  __asm__ volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}

/* Later loads see what came before the store, and the fence before it, that is read. */
COLL_DEVICE uint32_t coll_load_acquire(uint64_t at) {
  uint32_t value;
  __asm__ volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

/* Address of this rank's word at a peer. */
COLL_DEVICE uint64_t coll_word_at(const struct coll_gpu_meet *meet, uint32_t peer) {
  return peer < COLL_GPU_PLACES ? meet->there[peer]
                                : coll_load_64(meet->more_there + 8ull * (peer - COLL_GPU_PLACES));
}

/* Tells this thread's peers. One fence serves all of them. */
COLL_DEVICE void coll_tell_peers(const struct coll_gpu_meet *meet, uint32_t thread,
                                 uint32_t threads, uint32_t epoch) {
  if (thread >= meet->nranks)
    return;
  coll_fence_system();
  for (uint32_t peer = thread; peer < meet->nranks; peer += threads)
    if (peer != meet->rank)
      coll_store_system(coll_word_at(meet, peer), epoch);
}

/* Waits for this thread's peers; false if the host released this rank first. */
COLL_DEVICE int coll_await_peers(const struct coll_gpu_meet *meet, uint32_t thread,
                                 uint32_t threads, uint32_t epoch) {
  for (uint32_t peer = thread; peer < meet->nranks; peer += threads) {
    const uint64_t word = meet->here + 4ull * peer;
    uint32_t reads = 0;
    while (peer != meet->rank && (int32_t)(coll_load_acquire(word) - epoch) < 0)
      if (++reads % COLL_GPU_MEET_READS == 0 && coll_load_system(meet->abort))
        return 0;
  }
  return 1;
}

/* Each thread takes every n-th peer. */
COLL_KERNEL coll_meet(struct coll_gpu_meet meet) {
  __attribute__((shared)) static volatile uint32_t gave_up;
  const uint32_t thread = (uint32_t)__nvvm_read_ptx_sreg_tid_x();
  const uint32_t threads = (uint32_t)__nvvm_read_ptx_sreg_ntid_x();
  const uint64_t released = meet.state + offsetof(struct coll_gpu_meet_state, released);
  const uint32_t epoch = coll_load_32(meet.state) + 1;
  if (coll_load_32(released))
    return;
  if (thread == 0)
    gave_up = 0;
  __syncthreads();
  coll_tell_peers(&meet, thread, threads, epoch);
  if (thread == 0) /* after the fence, which would wait for it */
    coll_store_system(meet.arrived, epoch);
  if (!coll_await_peers(&meet, thread, threads, epoch))
    gave_up = 1;
  __syncthreads();
  if (thread == 0 && gave_up) {
    coll_store_32(released, 1);
  } else if (thread == 0) {
    coll_store_32(meet.state, epoch);
    coll_store_system(meet.left, epoch);
  }
}
