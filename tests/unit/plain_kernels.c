/*
 * plain_kernels.c: every kernel of every instruction set against the portable one, and that one
 * against the reference, bit for bit: all remainders of lengths, unaligned starts, one and two
 * results, in place of either input. Needs only the kernels, so that it also runs under an
 * emulator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/exec/reduce.h"
#include "support_reduce.h"

#define MAX_COUNT 150 /* elements */
#define BYTES     (MAX_COUNT * 16 + 16)
#define NFORMS    4

static unsigned char a[BYTES], b[BYTES], want[BYTES], got[BYTES], got2[BYTES];
static int checked;

/* Ends the program if the results differ. */
static void expect_same(const colli_kernels *k, const char *what, coll_type type, int op,
                        size_t count, const unsigned char *result, const unsigned char *wanted,
                        size_t bytes) {
  checked++;
  if (memcmp(result, wanted, bytes) == 0)
    return;
  fprintf(stderr, "%s: %s, type %d, op %d, %zu elements: differs\n", colli_isa_name(k->isa), what,
          (int)type, op, count);
  exit(1);
}

/* One reduction in each form. */
static void check_reductions(const colli_kernels *k, coll_type type, coll_op op, size_t count,
                             size_t shift) {
  size_t bytes = count * ref_bytes(type);
  colli_reduce_fn reduce = k->reduce[type][op];
  for (int form = 0; form < NFORMS; form++) {
    unsigned char *d = got + shift, *second = form == 1 ? got2 + 1 : NULL;
    memset(got, 0xa5, BYTES);
    if (form >= 2)
      memcpy(d, form == 2 ? a + 1 : b, bytes);
    reduce(d, second, form == 2 ? d : a + 1, form == 3 ? d : b, count);
    expect_same(k, "reduction", type, (int)op, count, d, want, bytes);
    if (second)
      expect_same(k, "second result", type, (int)op, count, second, want, bytes);
    expect_same(k, "byte behind", type, (int)op, count, d + bytes, (const unsigned char *)"\xa5",
                1);
  }
}

/* Average and conversions; the random bytes of `b` serve as float32. */
static void check_average_and_conversions(const colli_kernels *k, coll_type type, size_t count,
                                          size_t shift, int nranks) {
  const colli_kernels *portable = colli_kernels_for(COLLI_ISA_PORTABLE);
  size_t bytes = count * ref_bytes(type);
  if (k->average[type]) {
    for (size_t i = 0; i < count; i++)
      ref_average(type, want + i * ref_bytes(type), a + 1 + i * ref_bytes(type), nranks);
    memcpy(got + shift, a + 1, bytes);
    k->average[type](got + shift, count, nranks);
    expect_same(k, "average", type, nranks, count, got + shift, want, bytes);
  }
  if (k->widen[type]) {
    portable->widen[type](want, a + 1, count);
    k->widen[type](got + shift, a + 1, count);
    expect_same(k, "widening", type, 0, count, got + shift, want, count * sizeof(float));
    portable->narrow[type](want, b, count);
    k->narrow[type](got + shift, b, count);
    expect_same(k, "narrowing", type, 0, count, got + shift, want, bytes);
  }
}

/* All kernels of an instruction set, for one type. */
static void check_type(const colli_kernels *k, coll_type type, colli_prng *prng) {
  static const int nranks[] = {1, 2, 3, 7, 10, 255, 256, 257, 1000, 65537, 2147483647};
  size_t each = ref_bytes(type);
  for (size_t count = 0; count < MAX_COUNT; count += count < 70 ? 1 : 13) {
    ref_fill(prng, type, a + 1, count);
    ref_fill(prng, type, b, count);
    for (coll_op op = 0; op < COLL_OP_COUNT; op++) {
      if (!k->reduce[type][op])
        continue;
      for (size_t i = 0; i < count; i++)
        ref_element(type, op, want + i * each, a + 1 + i * each, b + i * each);
      check_reductions(k, type, op, count, count % 4);
    }
    for (size_t i = 0; i < sizeof(nranks) / sizeof(*nranks); i++) {
      ref_fill(prng, COLL_UINT32, b, count);
      check_average_and_conversions(k, type, count, count % 4, nranks[i]);
    }
  }
}

int main(void) {
  colli_prng prng = {1};
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    const colli_kernels *k = colli_kernels_for((colli_isa)isa);
    if (!k)
      continue;
    for (coll_type type = 0; type < COLL_TYPE_COUNT; type++)
      check_type(k, type, &prng);
    printf("%s: same bits\n", colli_isa_name(k->isa));
  }
  printf("%d comparisons\n", checked);
  return 0;
}
