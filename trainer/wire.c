/* wire.c: gradients compressed for the wire, with error feedback. */
#include "trainer/wire.h"

#include "trainer/layers/layer.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK      256         /* numbers that share a scale */
#define MOST_CODE  127         /* of an int8 */
#define INFINITE   0x7f800000u /* the bits of infinity; larger values are NaN */
#define DIGIT      2048        /* values of the first digit by which magnitudes are sorted */
#define FIRST_PART 0.01f       /* of the numbers are sent by topk without a number */

static const char *const names[] = {"float32", "float16", "bfloat16", "int8", "topk"};

const char *wire_name(const wire *form) {
  return names[form->kind];
}

bool wire_parse(wire *form, const char *text, fail *why) {
  size_t length = strcspn(text, ":");
  *form = (wire){.kind = -1, .fraction = 0};
  for (int i = 0; i <= WIRE_TOPK; i++)
    if (strlen(names[i]) == length && memcmp(names[i], text, length) == 0)
      form->kind = i;
  bool has_part = text[length] == ':';
  if (form->kind < 0 || (has_part && form->kind != WIRE_TOPK))
    return fail_set(why, "--wire %s: must be float32, float16, bfloat16, int8, topk or topk:PART",
                    text);
  if (form->kind == WIRE_TOPK)
    form->fraction = FIRST_PART;
  if (!has_part)
    return true;
  char *end = NULL;
  form->fraction = strtof(text + length + 1, &end);
  return (end != text + length + 1 && *end == '\0' && form->fraction > 0 && form->fraction <= 1) ||
         fail_set(why, "--wire %s: the part must be above 0 and at most 1, such as topk:0.05",
                  text);
}

/* A number's bits, and the other way round. */
static inline uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}

static inline float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

/* Compares like the absolute value. */
static inline uint32_t magnitude(float x) {
  return bits_of(x) & 0x7fffffffu;
}

/* The error that is left if `sent` is sent instead of x. */
static inline float rest_of(float x, float sent) {
  float rest = x - sent;
  return magnitude(x) < INFINITE ? rest : 0.0f;
}

/* The nearest float16 (to even); a finite number stays finite. */
static inline uint16_t to_half(float x) {
  uint32_t size = magnitude(x), sign = (bits_of(x) - size) >> 16;
  uint32_t normal = (size + 0xfffu + (size >> 13 & 1u) - (112u << 23)) >> 13;
  uint32_t small = bits_of(float_of(size) + 0.5f) - bits_of(0.5f); /* in steps of 2^-24 */
  uint32_t large = size < INFINITE ? 0x7bffu : size == INFINITE ? 0x7c00u : 0x7e00u;
  uint32_t half = size < 0x38800000u ? small : size < 0x477ff000u ? normal : large;
  return (uint16_t)(half | sign);
}

static inline float from_half(uint16_t half) {
  uint32_t size = half & 0x7fffu, sign = (uint32_t)(half & 0x8000u) << 16;
  uint32_t small = bits_of((float)(int32_t)size * 0x1p-24f);
  uint32_t large = (size << 13) + ((size < 0x7c00u ? 112u : 224u) << 23);
  return float_of((size < 0x400u ? small : large) | sign);
}

/* The nearest bfloat16 (to even); a finite number stays finite. */
static inline uint16_t to_bfloat(float x) {
  uint32_t size = magnitude(x), sign = (bits_of(x) - size) >> 16;
  uint32_t near = (size + 0x7fffu + (size >> 16 & 1u)) >> 16;
  uint32_t finite = near < 0x7f7fu ? near : 0x7f7fu;
  uint32_t other = size == INFINITE ? 0x7f80u : 0x7fc0u;
  return (uint16_t)((size < INFINITE ? finite : other) | sign);
}

static inline float from_bfloat(uint16_t half) {
  return float_of((uint32_t)half << 16);
}

/* Packs each number on its own; inline, so that the conversions become vector instructions. */
static inline void pack_halves(size_t count, float *pending, uint16_t *packet,
                               uint16_t (*to)(float), float (*from)(uint16_t)) {
  for (size_t i = 0; i < count; i++) {
    packet[i] = to(pending[i]);
    pending[i] = rest_of(pending[i], from(packet[i]));
  }
}

/* Packs the numbers that share a scale. */
static void pack_block(size_t count, float *pending, float *scale, int8_t *codes) {
  const float round = 0x1.8p23f; /* adding it to a small number rounds that to an integer */
  int32_t most = 0;
  for (size_t i = 0; i < count; i++) {
    int32_t size = (int32_t)magnitude(pending[i]);
    most = size > most ? size : most;
  }
  float unit = float_of((uint32_t)most) / MOST_CODE;
  unit = isinf(unit * MOST_CODE) ? nextafterf(unit, 0) : unit; /* near FLT_MAX it was rounded up */
  *scale = most < (int32_t)INFINITE ? unit : NAN;
  if (!isnormal(*scale)) { /* all 0 or too small to divide by, or not finite */
    *scale = isnan(*scale) ? NAN : 0.0f;
    memset(codes, 0, count);
    if (isnan(*scale))
      memset(pending, 0, count * sizeof(float));
    return;
  }
  float inverse = 1.0f / unit;
  for (size_t i = 0; i < count; i++) {
    float shifted = pending[i] * inverse + round;
    codes[i] = (int8_t)(int32_t)(bits_of(shifted) - bits_of(round));
    float sent = (shifted - round) * unit;
    pending[i] -= sent;
  }
}

/* How many scales come before the int8 codes. */
static size_t scales_of(size_t count) {
  return (count + BLOCK - 1) / BLOCK;
}

/* Packs scales, then codes. */
static void pack_int8(size_t count, float *pending, float *packet) {
  int8_t *codes = (int8_t *)(packet + scales_of(count));
  for (size_t i = 0; i < count; i += BLOCK)
    pack_block(count - i < BLOCK ? count - i : BLOCK, pending + i, packet++, codes + i);
}

/* A number and its index. */
typedef struct entry {
  uint32_t index;
  float value;
} entry;

/* How many numbers topk sends. */
static size_t kept(const wire *form, size_t count) {
  size_t some = (size_t)ceil((double)form->fraction * (double)count);
  return some < count ? some : count;
}

/* The k-th largest magnitude, found by radix select. *equals: how many numbers of exactly that
 * magnitude are among the k largest. */
static uint32_t threshold(size_t count, const float *x, size_t k, size_t *equals) {
  uint32_t found = 0;
  for (int shift = 20, known = 31; shift >= 0; known = shift, shift -= 10) {
    size_t tally[DIGIT] = {0};
    uint32_t digit = (1u << (known - shift)) - 1;
    for (size_t i = 0; i < count; i++) {
      uint32_t size = magnitude(x[i]);
      if (size >> known == found)
        tally[size >> shift & digit]++;
    }
    while (tally[digit] < k)
      k -= tally[digit--];
    found = found << (known - shift) | digit;
  }
  *equals = k;
  return found;
}

/* Packs the k largest. */
static void pack_topk(size_t count, float *pending, entry *packet, size_t k) {
  size_t equals;
  uint32_t least = threshold(count, pending, k, &equals);
  for (size_t i = 0; i < count; i++) {
    uint32_t size = magnitude(pending[i]);
    if (size < least || (size == least && equals == 0))
      continue;
    equals -= size == least;
    *packet++ = (entry){.index = (uint32_t)i, .value = pending[i]};
    pending[i] = 0;
  }
}

size_t wire_bytes(const wire *form, size_t count) {
  switch (form->kind) {
  case WIRE_INT8:
    return scales_of(count) * sizeof(float) + (count + 3) / 4 * 4;
  case WIRE_TOPK:
    return kept(form, count) * sizeof(entry);
  default:
    return count * (form->kind == WIRE_FLOAT32 ? sizeof(float) : sizeof(uint16_t));
  }
}

void wire_pack(const wire *form, size_t count, float *pending, void *packet) {
  if (form->kind == WIRE_FLOAT16)
    pack_halves(count, pending, packet, to_half, from_half);
  else if (form->kind == WIRE_BFLOAT16)
    pack_halves(count, pending, packet, to_bfloat, from_bfloat);
  else if (form->kind == WIRE_INT8)
    pack_int8(count, pending, packet);
  else if (count > 0)
    pack_topk(count, pending, packet, kept(form, count));
}

/* Adds numbers of 16 bits. */
static inline void add_halves(size_t count, const uint16_t *packet, float *sum,
                              float (*from)(uint16_t)) {
  for (size_t i = 0; i < count; i++)
    sum[i] += from(packet[i]);
}

/* Adds codes times their scales. */
static void add_int8(size_t count, const float *packet, float *sum) {
  const int8_t *codes = (const int8_t *)(packet + scales_of(count));
  for (size_t first = 0; first < count; first += BLOCK, packet++) {
    size_t end = count - first < BLOCK ? count : first + BLOCK;
    for (size_t i = first; i < end; i++) {
      float sent = (float)codes[i] * *packet;
      sum[i] += sent;
    }
  }
}

/* Adds numbers to where their indices say. */
static bool add_entries(size_t count, const entry *entries, size_t few, float *sum, fail *why) {
  for (size_t i = 0; i < few; i++) {
    if (entries[i].index >= count)
      return fail_set(why,
                      "a packet of gradients is damaged: index %u, where %zu numbers are; look at "
                      "the rank that sent it",
                      (unsigned)entries[i].index, count);
    sum[entries[i].index] += entries[i].value;
  }
  return true;
}

bool wire_add(const wire *form, size_t count, const void *packet, float *sum, fail *why) {
  if (form->kind == WIRE_FLOAT32)
    rows_add(count, sum, packet);
  else if (form->kind == WIRE_FLOAT16)
    add_halves(count, packet, sum, from_half);
  else if (form->kind == WIRE_BFLOAT16)
    add_halves(count, packet, sum, from_bfloat);
  else if (form->kind == WIRE_INT8)
    add_int8(count, packet, sum);
  else
    return add_entries(count, packet, kept(form, count), sum, why);
  return true;
}
