/* test_trainer_wire.c: what packets carry plus what they leave is exactly the original. */
#include "trainer/wire.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST  5000
#define GUARD 16 /* guard bytes after a packet */

static const char *const forms[] = {"float16", "bfloat16", "int8",      "topk",
                                    "topk:1",  "topk:0.3", "topk:0.001"};
#define FORMS 7

static const size_t sizes[] = {0, 1, 2, 3, 255, 256, 257, 511, 1000, 4097, MOST};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static wire form_of(const char *text) {
  fail why = {.text = ""};
  wire form;
  cr_assert(wire_parse(&form, text, &why), "%s", why.text);
  return form;
}

/* Pseudorandom numbers below 2^31, the same on every machine. */
static uint32_t noise(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 1;
}

/* Numbers of many sizes, with zeroes, equal ones, and some too small to be normal. */
static void fill(float *x, size_t count, uint32_t seed) {
  for (size_t i = 0; i < count; i++) {
    int exponent = (int)(noise(&seed) >> 10) % 60 - 50;
    float value = ldexpf((float)noise(&seed) / 0x1p31f - 0.5f, exponent);
    static const float odd[] = {0, -0.0f, 1e-42f, -FLT_MIN, 0.25f, -0.25f};
    x[i] = noise(&seed) >> 28 == 0 ? odd[i % 6] : value;
  }
}

/* Packs `pending`, and adds the packet to `sum`, which begins at 0. */
static void send_it(const wire *form, size_t count, float *pending, float *sum) {
  size_t bytes = wire_bytes(form, count);
  unsigned char *packet = malloc(bytes + GUARD);
  memset(packet, 0x5a, bytes + GUARD);
  wire_pack(form, count, pending, packet);
  for (size_t i = 0; i < GUARD; i++)
    cr_assert_eq(packet[bytes + i], 0x5a, "a packet of %zu numbers is too long", count);
  memset(sum, 0, count * sizeof(float));
  fail why = {.text = ""};
  cr_assert(wire_add(form, count, packet, sum, &why), "%s", why.text);
  free(packet);
}

/* In float64 the sum of two float32 of similar magnitude is exact. */
Test(trainer_wire, nothing_is_lost) {
  static float x[MOST], pending[MOST], sent[MOST];
  for (size_t f = 0; f < FORMS; f++)
    for (size_t s = 0; s < SIZES; s++) {
      wire form = form_of(forms[f]);
      fill(x, sizes[s], (uint32_t)(f + 1));
      memcpy(pending, x, sizeof(x));
      send_it(&form, sizes[s], pending, sent);
      for (size_t i = 0; i < sizes[s]; i++)
        cr_assert((double)sent[i] + (double)pending[i] == (double)x[i],
                  "%s: %a of %zu: sent %a, left %a", forms[f], (double)x[i], sizes[s],
                  (double)sent[i], (double)pending[i]);
    }
}

/* The rest is at most half the distance between two numbers that can be sent. */
Test(trainer_wire, as_exact_as_it_can_be) {
  static float x[MOST], pending[MOST], sent[MOST];
  for (size_t f = 0; f < 3; f++) {
    wire form = form_of(forms[f]);
    fill(x, MOST, 7);
    memcpy(pending, x, sizeof(x));
    send_it(&form, MOST, pending, sent);
    for (size_t i = 0; i < MOST; i++) {
      double most = 0, step = f == 0 ? 0x1p-11 : 0x1p-8, least = f == 0 ? 0x1p-25 : 0x1p-134;
      for (size_t j = i / 256 * 256; j < MOST && j < i / 256 * 256 + 256; j++)
        most = fmax(most, fabs((double)x[j]));
      double allowed = f == 2 ? most / 254 * (1 + 1e-6) : fmax(fabs((double)x[i]) * step, least);
      cr_assert_leq(fabs((double)pending[i]), allowed, "%s: %a", forms[f], (double)x[i]);
    }
  }
}

/* Every float16 and bfloat16 is sent unchanged, and arrives as its value. */
Test(trainer_wire, all_numbers_of_16_bits) {
  for (uint32_t bits = 0; bits < 0x10000; bits++)
    for (int f = 0; f < 2; f++) {
      wire form = form_of(forms[f]);
      int fraction = f == 0 ? 10 : 7, bias = f == 0 ? 15 : 127;
      uint32_t exponent = (bits & 0x7fff) >> fraction, rest = bits & ((1u << fraction) - 1);
      if (exponent == (f == 0 ? 31 : 255))
        continue;
      double value = exponent == 0 ? ldexp(rest, 1 - bias - fraction)
                                   : ldexp(rest | 1u << fraction, (int)exponent - bias - fraction);
      value = bits & 0x8000 ? -value : value;
      uint16_t packet = (uint16_t)bits, again;
      float sum = 0, pending = (float)value;
      fail why = {.text = ""};
      cr_assert(wire_add(&form, 1, &packet, &sum, &why));
      cr_assert((double)sum == value, "%s: %x", forms[f], bits);
      wire_pack(&form, 1, &pending, &again);
      cr_assert(again == packet && pending == 0, "%s: %x, %x", forms[f], bits, again);
    }
}

/* Halfway between two neighbours, rounding goes to the even one. */
Test(trainer_wire, halves_go_to_even) {
  static const struct {
    float x;
    uint16_t half, bfloat;
  } cases[] = {{1 + 0x1p-11f, 0x3c00, 0x3f80}, {1 + 0x3p-11f, 0x3c02, 0x3f80},
               {1 + 0x1p-8f, 0x3c04, 0x3f80},  {-1 - 0x3p-8f, 0xbc0c, 0xbf82},
               {0x1p-25f, 0, 0x3300},          {0x3p-25f, 2, 0x33c0},
               {65519, 0x7bff, 0x4780},        {65520, 0x7bff, 0x4780},
               {-1e30f, 0xfbff, 0xf14a},       {FLT_MAX, 0x7bff, 0x7f7f}};
  wire half = form_of("float16"), bfloat = form_of("bfloat16");
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    uint16_t packet;
    float pending = cases[i].x;
    wire_pack(&half, 1, &pending, &packet);
    cr_assert_eq(packet, cases[i].half, "%a: %x", (double)cases[i].x, packet);
    pending = cases[i].x;
    wire_pack(&bfloat, 1, &pending, &packet);
    cr_assert_eq(packet, cases[i].bfloat, "%a: %x", (double)cases[i].x, packet);
  }
}

/* topk sends no number smaller than one that it leaves, exactly as many as it should, and the first
 * of equal ones. */
Test(trainer_wire, the_largest_are_sent) {
  static float x[MOST], sent[MOST];
  static const float parts[] = {0.001f, 0.01f, 0.3f, 1};
  for (int f = 0; f < 4; f++)
    for (size_t s = 1; s < SIZES; s++) {
      wire form = {.kind = WIRE_TOPK, .fraction = parts[f]};
      size_t count = sizes[s], sends = 0;
      float least = FLT_MAX, most = 0;
      fill(x, count, 3);
      for (size_t i = 0; i < count; i++)
        x[i] = x[i] == 0 ? 0.125f : x[i]; /* else one does not see whether it was sent */
      send_it(&form, count, x, sent);
      for (size_t i = 0; i < count; i++) {
        sends += sent[i] != 0;
        cr_assert(sent[i] == 0 || x[i] == 0);
        least = sent[i] != 0 ? fminf(least, fabsf(sent[i])) : least;
        most = fmaxf(most, fabsf(x[i]));
      }
      cr_assert_eq(sends, (size_t)ceil((double)parts[f] * (double)count));
      cr_assert_eq(wire_bytes(&form, count), 8 * sends);
      cr_assert_leq(most, least);
    }
  float equal[] = {1, -2, 3, -2, 2, 0}, expected[] = {0, -2, 3, -2, 0, 0};
  wire half = form_of("topk:0.5");
  send_it(&half, 6, equal, sent);
  cr_assert_arr_eq(sent, expected, sizeof(expected));
  cr_assert(equal[0] == 1 && equal[4] == 2 && equal[5] == 0);
}

/* With error feedback nothing is left out forever: the sum of what was sent stays near the sum of
 * the gradients. */
Test(trainer_wire, what_is_left_stays_small) {
  enum { COUNT = 300, TURNS = 400 };
  float g[COUNT], pending[COUNT], sent[COUNT];
  for (size_t f = 0; f < 4; f++) {
    wire form = form_of(f == 3 ? "topk:0.1" : forms[f]);
    double total[COUNT] = {0}, limit = f == 3 ? 40 : 0.01;
    uint32_t seed = 5;
    for (int i = 0; i < COUNT; i++) {
      g[i] = (float)noise(&seed) / 0x1p31f - 0.5f;
      pending[i] = 0;
    }
    for (int t = 0; t < TURNS; t++) {
      for (int i = 0; i < COUNT; i++)
        pending[i] += g[i];
      send_it(&form, COUNT, pending, sent);
      for (int i = 0; i < COUNT; i++)
        total[i] += (double)sent[i];
    }
    for (int i = 0; i < COUNT; i++)
      cr_assert_float_eq(total[i], TURNS * (double)g[i], limit, "%s: %g instead of %g", forms[f],
                         total[i], TURNS * (double)g[i]);
  }
}

/* Infinities and NaN are sent, and do not stay behind. */
Test(trainer_wire, what_is_not_finite_is_carried) {
  static const float odd[] = {INFINITY, -INFINITY, NAN};
  float sent[300];
  for (size_t f = 0; f < FORMS; f++)
    for (int o = 0; o < 3; o++) {
      wire form = form_of(forms[f]);
      float pending[300];
      for (int i = 0; i < 300; i++)
        pending[i] = 1;
      pending[7] = odd[o];
      send_it(&form, 300, pending, sent);
      bool block = form.kind == WIRE_INT8;
      cr_assert(block || isnan(odd[o]) ? isnan(sent[7]) : sent[7] == odd[o], "%s", forms[f]);
      cr_assert(!block || (isnan(sent[0]) && isnan(sent[255]) && sent[256] == 1));
      for (int i = 0; i < 300; i++)
        cr_assert(isfinite(pending[i]));
    }
}

Test(trainer_wire, largest_numbers_stay_finite) {
  for (size_t f = 0; f < FORMS; f++) {
    wire form = form_of(forms[f]);
    float pending[] = {FLT_MAX, -FLT_MAX, 0, FLT_MIN}, sent[4];
    send_it(&form, 4, pending, sent);
    for (int i = 0; i < 4; i++)
      cr_assert(isfinite(sent[i]) && isfinite(pending[i]), "%s: %d: %a", forms[f], i,
                (double)sent[i]);
  }
}

Test(trainer_wire, names) {
  static const char *const bad[] = {"",        "int",      "int88",     "float64",   "int8:0.5",
                                    "topk:",   "topk:0",   "topk:1.1",  "topk:-1",   "topk:x",
                                    "topk:1x", "topk:nan", "float32:1", "topk:0.1:2"};
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    wire form;
    fail why = {.text = ""};
    cr_assert_not(wire_parse(&form, bad[i], &why), "'%s' was accepted", bad[i]);
    cr_assert(strstr(why.text, "--wire"), "%s", why.text);
  }
  cr_assert_eq(form_of("float32").kind, WIRE_FLOAT32);
  cr_assert_str_eq(wire_name(&(wire){.kind = form_of("topk:0.5").kind}), "topk");
  cr_assert_float_eq(form_of("topk:0.5").fraction, 0.5, 1e-9);
}

/* Indices come from another rank. */
Test(trainer_wire, an_index_beyond_the_end_is_refused) {
  wire form = form_of("topk:0.5");
  const uint32_t packet[4] = {1, 0x3f800000, 4, 0x3f800000}; /* two of index and number, of 4 */
  float sum[5] = {0};
  fail why = {.text = ""};
  cr_assert_not(wire_add(&form, 4, packet, sum, &why));
  cr_assert_not_null(strstr(why.text, "index 4"));
  cr_assert_eq(sum[4], 0);
}
