/* test_ptx_kernels.c: kernels that clang compiled (ptx/kernels.c) against the same code in C. */
#include "tests/gpu/support_ptx.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(ptx_kernels, .timeout = 60);

/* Runs 3 blocks of 64 threads in a model. */
static void execute(const char *name, gpu_model model, uint64_t seed, const void *params) {
  ptx_module *m = must_read(COLL_KERNELS "/../../../tests/gpu/ptx/kernels.ptx");
  const gpu_launch launch = {.module = m,
                             .kernel = ptx_find(m, name),
                             .params = params,
                             .grid = {3, 1, 1},
                             .block = {64, 1, 1}};
  cr_assert(launch.kernel);
  cr_expect_eq(must_end(&(gpu_options){.model = model, .seed = seed}, &launch, NULL), 0);
  ptx_free(m);
}

Test(ptx_kernels, sums) {
  static _Alignas(16) float in[1000][4];
  for (int i = 0; i < 4000; i++)
    in[i / 4][i % 4] = (float)(i % 17);
  for (int round = 0; round < 9; round++) {
    float out[3] = {0}, sum = 0;
    struct {
      float *out, (*in)[4];
      uint32_t count;
    } params = {out, in, 1000};
    execute("sums", (gpu_model)(round % 3), (uint64_t)round, &params);
    for (int i = 0; i < 4000; i++)
      sum += in[i / 4][i % 4];
    cr_expect_eq(out[0] + out[1] + out[2], sum);
  }
}

/* What kernel integers computes; sums wrap. */
static long long integers(int x) {
  long long sum = 0;
  for (int i = 1; i < 20; i++) {
    sum += x / i + (x % i) * 3 + (uint32_t)x / (uint32_t)i;
    sum ^= (long long)((unsigned long long)x << i) | (x >> i & 0xff);
    sum += __builtin_popcount((uint32_t)x + (uint32_t)i) + __builtin_clz((uint32_t)i) +
           (x > i * 1000 ? x : -i);
    sum = sum / (i + 3) + (long long)((unsigned long long)sum % 1000003);
    sum += (signed char)(uint32_t)(x * i) + (unsigned short)(x - i) + (short)(sum >> 3);
  }
  return sum;
}

Test(ptx_kernels, integers) {
  int in[192];
  long long out[192];
  void *params[] = {out, in};
  for (int i = 0; i < 192; i++)
    in[i] = i % 2 ? -i * 7919 : i * i * 31;
  execute("integers", GPU_PLAIN, 1, params);
  for (int i = 0; i < 192; i++)
    cr_expect_eq(out[i], integers(in[i]), "%d: %lld, not %lld", in[i], out[i], integers(in[i]));
}

Test(ptx_kernels, numbers) {
  float in[192];
  double out[192];
  void *params[] = {out, in};
  for (int i = 0; i < 192; i++)
    in[i] = (float)(i - 90) * 1.23f;
  execute("numbers", GPU_PLAIN, 1, params);
  for (int i = 0; i < 192; i++) {
    float x = in[i];
    double y = (double)x * 1.5 + (double)(int)x - (double)(uint64_t)(x < 0 ? -x : x);
    y += fmaf(x, x, 1.0f) + (float)(long long)(x * 8) + (float)(signed char)x;
    cr_expect_eq(out[i], x > 100 ? y / 3 : -y, "%g: %g, not %g", (double)x, out[i], y);
  }
}

Test(ptx_kernels, tickets) {
  for (int round = 0; round < 6; round++) {
    uint32_t out[192], next = 0, seen[192] = {0};
    void *params[] = {out, &next};
    execute("tickets", (gpu_model)(round % 3), (uint64_t)round, params);
    for (int i = 0; i < 192; i++)
      cr_expect(out[i] < 192 && !seen[out[i]]++);
  }
}
