/* kernels.c: kernels for test_ptx_kernels.c; libcoll/gpu/kernels/compile.sh makes kernels.ptx. */
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL extern "C" __attribute__((global))

typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f4 __attribute__((vector_size(16)));

/* Sums of blocks, in a tree in shared memory. */
KERNEL void sums(float GLOBAL *out, const f4 GLOBAL *in, u32 count) {
  __attribute__((shared)) static float part[256];
  u32 t = __nvvm_read_ptx_sreg_tid_x(), n = __nvvm_read_ptx_sreg_ntid_x();
  u32 b = __nvvm_read_ptx_sreg_ctaid_x(), step = n * __nvvm_read_ptx_sreg_nctaid_x();
  float sum = 0;
  for (u32 i = b * n + t; i < count; i += step)
    sum += in[i][0] + in[i][1] + in[i][2] + in[i][3];
  part[t] = sum;
  __syncthreads();
  for (u32 half = n / 2; half; half /= 2) {
    if (t < half)
      part[t] += part[t + half];
    __syncthreads();
  }
  if (!t)
    out[b] = part[0];
}

/* Integer arithmetic with divisions, shifts, bits and comparisons. */
KERNEL void integers(long long GLOBAL *out, const int GLOBAL *in) {
  u32 t =
      __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  int x = in[t];
  long long sum = 0;
  for (int i = 1; i < 20; i++) {
    sum += x / i + (x % i) * 3 + (u32)x / (u32)i;
    sum ^= (long long)x << i | (x >> i & 0xff);
    sum += __builtin_popcount((u32)x + (u32)i) + __builtin_clz((u32)i) + (x > i * 1000 ? x : -i);
    sum = sum / (i + 3) + (long long)((u64)sum % 1000003);
    sum += (signed char)(x * i) + (unsigned short)(x - i) + (short)(sum >> 3);
  }
  out[t] = sum;
}

/* Conversions between floating-point types and integers. */
KERNEL void numbers(double GLOBAL *out, const float GLOBAL *in) {
  u32 t =
      __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  float x = in[t];
  double y = (double)x * 1.5 + (double)(int)x - (double)(u64)(x < 0 ? -x : x);
  y += __builtin_fmaf(x, x, 1.0f) + (float)(long long)(x * 8) + (signed char)x;
  out[t] = x > 100 ? y / 3 : -y;
}

/* Tickets from one counter. */
KERNEL void tickets(u32 GLOBAL *out, u32 GLOBAL *next) {
  u32 t =
      __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
  out[t] = __nvvm_atom_add_gen_i((int *)next, 1);
}
