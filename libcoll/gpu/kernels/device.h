/*
 * device.h: what kernels need of the machine: threads, loads and stores. Compiled for the host, as
 * tests do, a kernel is a function that runs as a single thread.
 */
#ifndef COLLI_GPU_KERNELS_DEVICE_H
#define COLLI_GPU_KERNELS_DEVICE_H

/* The host's element operations also serve kernels. */
#ifdef __CUDA__
#pragma clang force_cuda_host_device begin
#endif
#include "libcoll/exec/reduce_loc.h"
#include "libcoll/exec/reduce_ops.h"
#ifdef __CUDA__
#pragma clang force_cuda_host_device end
#endif

#include "libcoll/gpu/kernels/fold_args.h"

/* 16 bytes: what one load or store moves. */
typedef uint32_t coll_vec __attribute__((vector_size(16)));

#ifdef __CUDA__
#define COLL_KERNEL                                                                                \
  extern "C" __attribute__((global)) __attribute__((launch_bounds(COLL_GPU_THREADS))) void
#define COLL_DEVICE static inline __attribute__((device)) __attribute__((always_inline))

/* This thread's number among all of the grid, and how many there are. */
COLL_DEVICE uint64_t coll_thread(void) {
  return (uint64_t)(uint32_t)__nvvm_read_ptx_sreg_ctaid_x() *
             (uint32_t)__nvvm_read_ptx_sreg_ntid_x() +
         (uint32_t)__nvvm_read_ptx_sreg_tid_x();
}
COLL_DEVICE uint64_t coll_threads(void) {
  return (uint64_t)(uint32_t)__nvvm_read_ptx_sreg_nctaid_x() *
         (uint32_t)__nvvm_read_ptx_sreg_ntid_x();
}

/*
 * Loads and stores by address. They are written in assembly because the compiler would split those
 * of 16 bytes, and volatile to remain in this order: an output may be an input.
 */
COLL_DEVICE coll_vec coll_load_vec(uint64_t at) {
  uint32_t a, b, c, d;
  __asm__ volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                   : "l"(at));
  return (coll_vec){a, b, c, d};
}
COLL_DEVICE void coll_store_vec(uint64_t at, coll_vec v) {
  __asm__ volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v[0]), "r"(v[1]),
                   "r"(v[2]), "r"(v[3])
                   : "memory");
}

/* Defines loads and stores of one number of `bits`; a constraint names the kind of register. */
#define COLL_ACCESS(bits, reg)                                                                     \
  COLL_DEVICE uint##bits##_t coll_load_##bits(uint64_t at) {                                       \
    uint##bits##_t value;                                                                          \
    __asm__ volatile("ld.global.u" #bits " %0, [%1];" : "=" reg(value) : "l"(at));                 \
    return value;                                                                                  \
  }                                                                                                \
  COLL_DEVICE void coll_store_##bits(uint64_t at, uint##bits##_t value) {                          \
    __asm__ volatile("st.global.u" #bits " [%0], %1;" ::"l"(at), reg(value) : "memory");           \
  }
COLL_ACCESS(16, "h")
COLL_ACCESS(32, "r")
COLL_ACCESS(64, "l")

/* Bytes have no registers of their own. */
COLL_DEVICE uint8_t coll_load_8(uint64_t at) {
  uint16_t value;
  __asm__ volatile("ld.global.u8 %0, [%1];" : "=h"(value) : "l"(at));
  return (uint8_t)value;
}
COLL_DEVICE void coll_store_8(uint64_t at, uint8_t value) {
  __asm__ volatile("st.global.u8 [%0], %1;" ::"l"(at), "h"((uint16_t)value) : "memory");
}

/* A word that others write at the same time: other GPUs and the host. */
COLL_DEVICE uint32_t coll_load_system(uint64_t at) {
  uint32_t value;
  __asm__ volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}

/* float16 to float32 and back; the instruction's NaN is another one than the host's. */
COLL_DEVICE float coll_widen_f16(uint32_t half) {
  float value;
  __asm__("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((uint16_t)half));
  return value;
}
COLL_DEVICE uint32_t coll_narrow_f16(float value) {
  uint16_t half;
  __asm__("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return value != value ? COLLI_NAN_F16 : half;
}
#else
#define COLL_KERNEL static void
#define COLL_DEVICE static inline __attribute__((unused))

/* The same on the host: one thread. */
COLL_DEVICE uint64_t coll_thread(void) {
  return 0;
}
COLL_DEVICE uint64_t coll_threads(void) {
  return 1;
}

#define COLL_ACCESS(name, type)                                                                    \
  COLL_DEVICE type coll_load_##name(uint64_t at) {                                                 \
    type value;                                                                                    \
    memcpy(&value, (const void *)(uintptr_t)at, sizeof(value));                                    \
    return value;                                                                                  \
  }                                                                                                \
  COLL_DEVICE void coll_store_##name(uint64_t at, type value) {                                    \
    memcpy((void *)(uintptr_t)at, &value, sizeof(value));                                          \
  }
COLL_ACCESS(vec, coll_vec)
COLL_ACCESS(8, uint8_t)
COLL_ACCESS(16, uint16_t)
COLL_ACCESS(32, uint32_t)
COLL_ACCESS(64, uint64_t)
#define coll_load_system coll_load_32
#define coll_widen_f16   colli_widen_f16
#define coll_narrow_f16  colli_narrow_f16
#endif

/* Whether a kernel has nothing to do, because its memory belongs to others by now. The guard is the
 * host's and far away, so one thread of a block reads it for all; all of them call this. */
COLL_DEVICE int coll_is_stopped(uint64_t guard) {
#ifdef __CUDA__
  __attribute__((shared)) static volatile uint32_t stopped;
  if (!guard)
    return 0;
  if (__nvvm_read_ptx_sreg_tid_x() == 0)
    stopped =
        coll_load_system(guard + COLL_GPU_GUARD_BYTES * ((uint32_t)__nvvm_read_ptx_sreg_ctaid_x() %
                                                         COLL_GPU_GUARD_WORDS));
  __syncthreads();
  return stopped != 0;
#else
  return guard && coll_load_system(guard);
#endif
}

#endif
