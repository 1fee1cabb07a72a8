/*
 * test_stage.c: conversions of short floats to float32 and back, and the multiplication of whole
 * vectors, against the reference, with few and many elements, so that every code path runs.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/exec/reduce.h"
#include "libcoll/exec/stage.h"
#include "support_reduce.h"

static const coll_type shorts[] = {COLL_FLOAT16, COLL_BFLOAT16, COLL_FLOAT8_E4M3, COLL_FLOAT8_E5M2};
#define FOR_SHORTS(type) for (const coll_type *type = shorts; type < shorts + 4; type++)

/* Writes an element from its bits, and reads them. */
static void put_bits(coll_type type, void *at, unsigned bits) {
  memcpy(at, &(uint16_t){(uint16_t)bits}, ref_bytes(type));
}
static unsigned get_bits(coll_type type, const void *at) {
  uint16_t bits = 0;
  memcpy(&bits, at, ref_bytes(type));
  return bits;
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof(bits));
  return bits;
}

/* How many bit patterns a type has, and which is its largest finite number. */
static unsigned patterns(coll_type type) {
  return ref_is_float8(type) ? 256 : 65536;
}
static unsigned largest(coll_type type) {
  return type == COLL_FLOAT16    ? 0x7bff
         : type == COLL_BFLOAT16 ? 0x7f7f
                                 : ref_narrow(type, (double)INFINITY);
}

/* Checks the conversion of one float32. */
static unsigned narrow(coll_type type, float value) {
  const colli_kernels *kernels = colli_kernels_for(COLLI_ISA_PORTABLE);
  unsigned char to[2] = {0};
  colli_stage_narrow(kernels, to, &value, 1, type);
  return get_bits(type, to);
}

Test(stage, every_short_float_is_widened_exactly_by_every_instruction_set) {
  unsigned char *from = malloc(65536 * 2);
  float *to = malloc(65536 * sizeof(float));
  FOR_SHORTS(type) {
    for (unsigned bits = 0; bits < patterns(*type); bits++)
      put_bits(*type, from + bits * ref_bytes(*type), bits);
    for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
      const colli_kernels *k = colli_kernels_for((colli_isa)isa);
      if (!k)
        continue;
      k->widen[*type](to, from, patterns(*type));
      for (unsigned bits = 0; bits < patterns(*type); bits++) {
        double want = ref_widen(*type, bits);
        if (isnan(want))
          cr_assert(isnan(to[bits]), "%s type %d %04x", colli_isa_name(k->isa), *type, bits);
        else
          cr_assert_eq(bits_of(to[bits]), bits_of((float)want), "%s type %d %04x: %a",
                       colli_isa_name(k->isa), *type, bits, (double)to[bits]);
      }
    }
  }
  free(from);
  free(to);
}

Test(stage, every_short_float_comes_back) {
  const colli_kernels *kernels = colli_kernels_for(COLLI_ISA_PORTABLE);
  FOR_SHORTS(type)
  for (unsigned bits = 0; bits < patterns(*type); bits++) {
    unsigned char from[2];
    float wide;
    put_bits(*type, from, bits);
    colli_stage_widen(kernels, &wide, from, 1, *type);
    unsigned want = ref_narrow(*type, ref_widen(*type, bits)); /* NaN canonical, saturated */
    cr_assert_eq(narrow(*type, wide), want, "type %d %04x", *type, bits);
  }
}

/* Between two neighbours: the midpoint is rounded to the even one, the floats next to it to the
 * nearer one. */
Test(stage, every_tie_and_its_neighbours) {
  FOR_SHORTS(type) {
    unsigned most = largest(*type), sign = patterns(*type) / 2, end = ref_narrow(*type, INFINITY);
    for (unsigned bits = 0; bits < most; bits++) {
      double low = ref_widen(*type, bits), high = ref_widen(*type, bits + 1);
      float middle = (float)((low + high) / 2);
      unsigned even = bits + (bits & 1);
      cr_assert_eq(narrow(*type, middle), even, "type %d %a", *type, (double)middle);
      cr_assert_eq(narrow(*type, -middle), sign | even, "type %d %a", *type, (double)middle);
      cr_assert_eq(narrow(*type, nextafterf(middle, 0)), bits, "type %d", *type);
      cr_assert_eq(narrow(*type, nextafterf(middle, INFINITY)), bits + 1, "type %d", *type);
    }
    /* Half a step above the largest number. */
    double top = ref_widen(*type, most);
    float beyond = (float)(top + (top - ref_widen(*type, most - 1)) / 2);
    cr_assert_eq(narrow(*type, nextafterf(beyond, 0)), most, "type %d", *type);
    cr_assert_eq(narrow(*type, beyond), end, "type %d", *type);
    cr_assert_eq(narrow(*type, -INFINITY), sign | end, "type %d", *type);
  }
}

/* Float8 saturates, the others do not. */
Test(stage, overflow_is_the_type_s_own) {
  cr_assert_eq(narrow(COLL_FLOAT16, 65520.0f), 0x7c00);
  cr_assert_eq(narrow(COLL_BFLOAT16, 3.4e38f), 0x7f80);
  cr_assert_eq(narrow(COLL_FLOAT8_E4M3, -3.4e38f), 0xfe);
  cr_assert_eq(narrow(COLL_FLOAT8_E4M3, INFINITY), 0x7e);
  cr_assert_eq(narrow(COLL_FLOAT8_E5M2, 1e30f), 0x7b);
  cr_assert_eq(narrow(COLL_FLOAT8_E5M2, -INFINITY), 0xfb);
}

Test(stage, random_floats_are_narrowed_by_every_instruction_set) {
  enum { COUNT = 100003 };
  float *from = malloc(COUNT * sizeof(float));
  unsigned char *to = malloc(2 * COUNT + 1);
  colli_prng prng = {3};
  for (size_t i = 0; i < COUNT; i++) {
    uint32_t bits = (uint32_t)colli_prng_next(&prng);
    if (i % 2)                                   /* and of a size that all types have */
      bits = (bits & 0x8fffffffu) | 0x38000000u; /* 2^-15 to 2^16 */
    memcpy(&from[i], &bits, sizeof(bits));
  }
  FOR_SHORTS(type)
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    const colli_kernels *k = colli_kernels_for((colli_isa)isa);
    if (!k)
      continue;
    k->narrow[*type](to + 1, from, COUNT);
    for (size_t i = 0; i < COUNT; i++) {
      unsigned got = get_bits(*type, to + 1 + i * ref_bytes(*type));
      cr_assert_eq(got, ref_narrow(*type, (double)from[i]), "%s type %d: %a gives %04x",
                   colli_isa_name(k->isa), *type, (double)from[i], got);
    }
  }
  free(from);
  free(to);
}

/* Vectors of every length around the point where a different kernel is used, at odd addresses. */
Test(stage, vectors_of_all_lengths_are_converted_and_nothing_else) {
  enum { MOST = 300 };
  const colli_kernels *kernels = colli_kernels_best();
  unsigned char from[2 * MOST + 1], to[2 * MOST + 2];
  float wide[MOST + 1];
  colli_prng prng = {5};
  FOR_SHORTS(type)
  for (size_t count = 0; count <= MOST; count++) {
    size_t bytes = count * ref_bytes(*type);
    ref_fill(&prng, *type, from + 1, count);
    wide[count] = 77;
    memset(to, 0xa5, sizeof(to));
    colli_stage_widen(kernels, wide, from + 1, count, *type);
    colli_stage_narrow(kernels, to + 1, wide, count, *type);
    cr_assert_eq(wide[count], 77);
    cr_assert(to[0] == 0xa5 && to[bytes + 1] == 0xa5);
    for (size_t i = 0; i < count; i++) {
      double value = ref_widen(*type, get_bits(*type, from + 1 + i * ref_bytes(*type)));
      cr_assert_eq(get_bits(*type, to + 1 + i * ref_bytes(*type)), ref_narrow(*type, value),
                   "type %d, %zu of %zu", *type, i, count);
    }
  }
}

/* Every type that can be multiplied, over and across the blocks of copies of the factor. */
Test(stage, scaling_is_the_product) {
  const colli_kernels *kernels = colli_kernels_best();
  static const size_t counts[] = {0, 1, 63, 64, 65, 128, 129, 1023, 1024, 1025, 4095, 4097, 9001};
  unsigned char *from = malloc(9001 * 8 + 3), *to = malloc(9001 * 8 + 3), *want = malloc(9001 * 8);
  colli_prng prng = {9};
  for (coll_type type = COLL_INT8; type <= COLL_FLOAT8_E5M2; type++)
    for (size_t c = 0; c < 2 * sizeof(counts) / sizeof(*counts); c++) {
      size_t count = counts[c / 2], each = ref_bytes(type), bytes = count * each;
      unsigned char factor[8];
      ref_fill(&prng, type, factor, 1);
      ref_fill(&prng, type, from + 1, count);
      for (size_t i = 0; i < count; i++)
        ref_element(type, COLL_PROD, want + i * each, from + 1 + i * each, factor);
      unsigned char *out = c % 2 ? from + 1 : to + 1; /* in place and not */
      out[-1] = out[bytes] = 0xa5;
      colli_stage_combine(kernels, out, from + 1, count, type, COLL_PROD, factor);
      cr_assert_eq(memcmp(out, want, bytes), 0, "type %d count %zu", type, count);
      cr_assert(out[-1] == 0xa5 && out[bytes] == 0xa5);
    }
  free(from);
  free(to);
  free(want);
}

/* ---- single float16 and bfloat16 ------------------------------------------------------------- */

/* A NaN becomes the canonical one. */
Test(convert, every_float16_and_bfloat16_and_back) {
  for (unsigned bits = 0; bits < 65536; bits++) {
    float half = colli_half_to_float((uint16_t)bits),
          bfloat = colli_bfloat_to_float((uint16_t)bits);
    double want_half = ref_widen(COLL_FLOAT16, bits), want_bfloat = ref_widen(COLL_BFLOAT16, bits);
    cr_assert(isnan(want_half) ? isnan(half) : bits_of(half) == bits_of((float)want_half));
    cr_assert(isnan(want_bfloat) ? isnan(bfloat) : bits_of(bfloat) == bits_of((float)want_bfloat));
    cr_assert_eq(colli_float_to_half(half), isnan(want_half) ? 0x7e00 : bits);
    cr_assert_eq(colli_float_to_bfloat(bfloat), isnan(want_bfloat) ? 0x7fc0 : bits);
  }
}

Test(convert, random_floats) {
  colli_prng prng = {3};
  for (int i = 0; i < 300000; i++) {
    uint32_t bits = (uint32_t)colli_prng_next(&prng);
    float value;
    memcpy(&value, &bits, 4);
    if (isnan(value))
      continue;
    cr_assert_eq(colli_float_to_half(value), ref_narrow(COLL_FLOAT16, (double)value), "%a",
                 (double)value);
    cr_assert_eq(colli_float_to_bfloat(value), ref_narrow(COLL_BFLOAT16, (double)value), "%a",
                 (double)value);
  }
}
