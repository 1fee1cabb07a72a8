/*
 * test_kernels_host.c: the functions of the GPU's kernels, compiled for this processor, against the
 * library's reductions: bit for bit, for all values of short types, and for each way to divide
 * buffers into vectors and single elements.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "libcoll/exec/reduce.h"
#include "libcoll/gpu/kernels/copy.c"
#include "libcoll/gpu/kernels/fold_float.c"
#include "libcoll/gpu/kernels/fold_float8.c"
#include "libcoll/gpu/kernels/fold_int.c"
#include "libcoll/gpu/kernels/fold_loc.c"
#include "libcoll/gpu/kernels/fold_names.h"

/* How kernels run. A test that includes this file runs their PTX instead. */
#ifndef RUN_FOLD
#define RUN_FOLD(kernel, fold) (kernel)->run(fold)
#define RUN_COPY(copy)         coll_copy(copy)
#define ROUNDS                 40 /* values with which all values of 16 bits are combined */
#endif

#define MAX_PLACES 12    /* inputs, outputs */
#define MAX_COUNT  65536 /* elements */
#define GUARD      32    /* bytes around a buffer */
#define FRAME      (MAX_COUNT * 16 + 2 * GUARD)

/* A kernel, and which operation of the host it equals. */
typedef struct kernel {
  const char *name;
  void (*run)(struct coll_gpu_fold fold);
  coll_type type;
  coll_op op;
  coll_gpu_divides divides;
  bool wide; /* computes in float32 throughout */
} kernel;

#define KERNEL(op, OP, name, TYPE)                                                                 \
  { #op "_" #name, coll_fold_##op##_##name, COLL_##TYPE, COLL_##OP, COLL_GPU_DIVIDES_FLOAT, false }
#define AVERAGE(name, TYPE, KIND)                                                                  \
  { "avg_" #name, coll_fold_avg_##name, COLL_##TYPE, COLL_AVG, COLL_GPU_DIVIDES_##KIND, false }
#define FOUR(name, TYPE)                                                                           \
  KERNEL(sum, SUM, name, TYPE), KERNEL(prod, PROD, name, TYPE), KERNEL(min, MIN, name, TYPE),      \
      KERNEL(max, MAX, name, TYPE)
#define INTS(bits, KIND)                                                                           \
  FOUR(u##bits, UINT##bits), KERNEL(sum, SUM, u##bits, INT##bits),                                 \
      KERNEL(prod, PROD, u##bits, INT##bits), KERNEL(min, MIN, i##bits, INT##bits),                \
      KERNEL(max, MAX, i##bits, INT##bits), KERNEL(band, BAND, u##bits, INT##bits),                \
      KERNEL(bor, BOR, u##bits, INT##bits), KERNEL(bxor, BXOR, u##bits, INT##bits),                \
      KERNEL(land, LAND, u##bits, INT##bits), KERNEL(lor, LOR, u##bits, INT##bits),                \
      KERNEL(lxor, LXOR, u##bits, INT##bits), AVERAGE(u##bits, UINT##bits, KIND),                  \
      AVERAGE(i##bits, INT##bits, KIND)
#define WIDE(name, TYPE)                                                                           \
  {"sum_" #name "_wide",                                                                           \
   coll_fold_sum_##name##_wide,                                                                    \
   COLL_##TYPE,                                                                                    \
   COLL_SUM,                                                                                       \
   COLL_GPU_DIVIDES_FLOAT,                                                                         \
   true},                                                                                          \
  {                                                                                                \
    "avg_" #name "_wide", coll_fold_avg_##name##_wide, COLL_##TYPE, COLL_AVG,                      \
        COLL_GPU_DIVIDES_FLOAT, true                                                               \
  }
#define LOCS(name, TYPE) KERNEL(min, MINLOC, name, TYPE), KERNEL(max, MAXLOC, name, TYPE)

static const kernel kernels[] = {
    INTS(8, SHORT_INT),
    INTS(16, SHORT_INT),
    INTS(32, INT),
    INTS(64, LONG_INT),
    FOUR(f16, FLOAT16),
    AVERAGE(f16, FLOAT16, FLOAT),
    WIDE(f16, FLOAT16),
    FOUR(bf16, BFLOAT16),
    AVERAGE(bf16, BFLOAT16, FLOAT),
    WIDE(bf16, BFLOAT16),
    FOUR(f32, FLOAT32),
    AVERAGE(f32, FLOAT32, FLOAT),
    FOUR(f64, FLOAT64),
    AVERAGE(f64, FLOAT64, DOUBLE),
    FOUR(e4m3, FLOAT8_E4M3),
    AVERAGE(e4m3, FLOAT8_E4M3, FLOAT),
    WIDE(e4m3, FLOAT8_E4M3),
    FOUR(e5m2, FLOAT8_E5M2),
    AVERAGE(e5m2, FLOAT8_E5M2, FLOAT),
    WIDE(e5m2, FLOAT8_E5M2),
    LOCS(i32_loc, INT32_LOC),
    LOCS(i64_loc, INT64_LOC),
    LOCS(f32_loc, FLOAT32_LOC),
    LOCS(f64_loc, FLOAT64_LOC),
    LOCS(i32_loc64, INT32_LOC64),
    LOCS(f32_loc64, FLOAT32_LOC64),
};
#define KERNELS (sizeof(kernels) / sizeof(*kernels))

TestSuite(kernels_host, .timeout = 300);

/* The buffers of one test, each with guards. */
typedef struct buffers {
  unsigned char in[MAX_PLACES][FRAME], out[MAX_PLACES][FRAME], want[FRAME], temp[FRAME];
  float sum[MAX_COUNT], term[MAX_COUNT];
} buffers;

/* What to do with the buffers: how many places, and where they begin after their guards. */
typedef struct shape {
  uint32_t inputs, outputs;
  size_t count, offset[2]; /* of even and odd places */
  int nranks;
  bool in_place; /* the outputs are the first inputs */
} shape;

static unsigned char *input(buffers *b, const shape *s, uint32_t i) {
  return b->in[i] + GUARD + s->offset[i % 2];
}
static unsigned char *output(buffers *b, const shape *s, uint32_t i) {
  return s->in_place ? input(b, s, i) : b->out[i] + GUARD + s->offset[i % 2];
}

/* The result by the library's reductions. */
static void reduce_on_host(const kernel *k, buffers *b, const shape *s) {
  const colli_kernels *host = colli_kernels_for(COLLI_ISA_PORTABLE);
  const size_t bytes = s->count * coll_type_bytes(k->type);
  void *acc = k->wide ? (void *)b->sum : b->want;
  const coll_type type = k->wide ? COLL_FLOAT32 : k->type;
  for (uint32_t p = 0; p < s->inputs; p++) {
    const void *next = input(b, s, p);
    if (k->wide) {
      host->widen[k->type](p ? b->term : b->sum, memcpy(b->temp, next, bytes), s->count);
      next = b->term;
    } else if (p == 0) {
      memcpy(acc, next, bytes);
    }
    if (p)
      host->reduce[type][k->op](acc, NULL, acc, next, s->count);
  }
  bool logical = k->op >= COLL_LAND && k->op <= COLL_LXOR;
  if (s->inputs == 1 && (logical || k->type >= COLL_INT32_LOC64)) /* as prepare.c does */
    host->reduce[type][logical ? COLL_LAND : k->op](acc, NULL, acc, acc, s->count);
  if (k->op == COLL_AVG)
    host->average[type](acc, s->count, s->nranks);
  if (k->wide)
    host->narrow[k->type](b->want, b->sum, s->count);
}

/* The result by the kernel. */
static void reduce_by_kernel(const kernel *k, buffers *b, const shape *s) {
  struct coll_gpu_fold fold = {.inputs = s->inputs, .outputs = s->outputs};
  uint64_t more_in[MAX_PLACES], more_out[MAX_PLACES], or_of = 0, and_of = ~0ull;
  for (uint32_t i = 0; i < s->inputs + s->outputs; i++) {
    const bool is_in = i < s->inputs;
    const uint32_t p = is_in ? i : i - s->inputs;
    const uint64_t at = (uintptr_t)(is_in ? input(b, s, p) : output(b, s, p));
    uint64_t *places = is_in ? fold.in : fold.out, *more = is_in ? more_in : more_out;
    *(p < COLL_GPU_PLACES ? &places[p] : &more[p - COLL_GPU_PLACES]) = at;
    or_of |= at;
    and_of &= at;
  }
  fold.more_in = (uintptr_t)more_in;
  fold.more_out = (uintptr_t)more_out;
  coll_gpu_fold_split(&fold, s->count, (uint32_t)coll_type_bytes(k->type), or_of, and_of);
  coll_gpu_fold_average(&fold, k->divides, s->nranks);
  RUN_FOLD(k, fold);
}

/* Compares the two, and whether nothing else was written. */
static void check(const kernel *k, buffers *b, const shape *s) {
  const size_t bytes = s->count * coll_type_bytes(k->type);
  reduce_on_host(k, b, s);
  for (uint32_t p = 0; p < s->outputs && !s->in_place; p++)
    memset(b->out[p], 0xa5, bytes + 2 * GUARD);
  reduce_by_kernel(k, b, s);
  for (uint32_t p = 0; p < s->outputs; p++) {
    const unsigned char *out = output(b, s, p);
    for (size_t i = 0; i < bytes; i++)
      cr_assert_eq(out[i], b->want[i], "%s of %u inputs, %zu elements, nranks %d: byte %zu of %u",
                   k->name, s->inputs, s->count, s->nranks, i, p);
    for (int i = 1; i <= 16 && !s->in_place; i++)
      cr_assert(out[-i] == 0xa5 && out[(ptrdiff_t)bytes - 1 + i] == 0xa5, "%s: guards", k->name);
  }
}

/* Fills elements with random bits, half of them with one of the type's special values. */
static void fill(colli_prng *prng, unsigned char *to, size_t bytes, size_t word) {
  static const uint64_t special_32[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                        0x7fc00000, 0x7f800001, 0xffc12345, 1,
                                        0x80000001, 0x7f7fffff, 0x3f800000, 0xffffffff};
  static const uint64_t special_64[] = {0,
                                        1ull << 63,
                                        0x7ff0000000000000,
                                        0xfff0000000000000,
                                        0x7ff8000000000000,
                                        0x7ff0000000000001,
                                        0xfff8123456789abc,
                                        1,
                                        0x7fefffffffffffff,
                                        0x3ff0000000000000,
                                        ~0ull,
                                        0x7fffffffffffffff};
  for (size_t i = 0; i < bytes; i += word) {
    uint64_t bits = colli_prng_next(prng);
    const uint64_t *special = word == 8 ? special_64 : special_32;
    if (word >= 4 && bits % 2)
      bits = special[bits / 2 % 12];
    memcpy(to + i, &bits, word);
  }
}

/* The size of the numbers that elements of a type are made of. */
static size_t word_of(coll_type type) {
  if (type < COLL_INT32_LOC)
    return coll_type_bytes(type);
  return type == COLL_INT64_LOC || type == COLL_FLOAT64_LOC ? 8 : 4;
}

/* Each kernel is found by its type and operation, and there are no others. */
Test(kernels_host, names) {
  size_t named = 0;
  for (int i = 0; i < COLL_TYPE_COUNT * COLL_OP_COUNT * 2; i++) {
    char name[COLL_GPU_NAME_BYTES];
    named += coll_gpu_fold_name(name, (coll_type)(i / 2 / COLL_OP_COUNT), i / 2 % COLL_OP_COUNT,
                                i % 2 == 1);
  }
  size_t matching = 0;
  for (size_t i = 0; i < KERNELS; i++) {
    const kernel *k = &kernels[i];
    char name[COLL_GPU_NAME_BYTES];
    cr_assert(coll_gpu_fold_name(name, k->type, k->op, k->wide), "%s", k->name);
    matching += strcmp(name + strlen("coll_fold_"), k->name) == 0;
    if (k->op == COLL_AVG)
      cr_assert_eq(coll_gpu_divides_of(k->type), k->divides, "%s", k->name);
  }
  /* The table lacks the six operations on bits of the unsigned types, which are those of the signed
   * ones. */
  cr_assert_eq(matching, KERNELS);
  cr_assert_eq(named, KERNELS + 4 * 6);
}

/* All pairs of 8 bits, and all values of 16 bits with some others. */
Test(kernels_host, pairs) {
  buffers *b = malloc(sizeof(*b));
  colli_prng prng = {7};
  for (size_t i = 0; i < KERNELS; i++) {
    const size_t bytes = coll_type_bytes(kernels[i].type);
    const int rounds = bytes == 2 ? ROUNDS : 1;
    shape s = {.inputs = 2, .outputs = 1, .count = MAX_COUNT, .nranks = 2};
    for (int round = 0; round < rounds; round++) {
      const unsigned drawn = (unsigned)colli_prng_next(&prng);
      const unsigned other = round < 16 ? (unsigned)(round << 12 | round % 3) : drawn;
      fill(&prng, input(b, &s, 0), MAX_COUNT * bytes, word_of(kernels[i].type));
      fill(&prng, input(b, &s, 1), MAX_COUNT * bytes, word_of(kernels[i].type));
      for (unsigned v = 0; v < MAX_COUNT && bytes <= 2; v++) {
        const unsigned value = bytes == 1 ? v >> 8 : other;
        memcpy(input(b, &s, 0) + v * bytes, &v, bytes);
        memcpy(input(b, &s, 1) + v * bytes, &value, bytes);
      }
      check(&kernels[i], b, &s);
    }
  }
  free(b);
}

/* Averages by many numbers of ranks. */
Test(kernels_host, averages) {
  buffers *b = malloc(sizeof(*b));
  colli_prng prng = {8};
  for (size_t i = 0; i < KERNELS; i++) {
    const size_t bytes = coll_type_bytes(kernels[i].type);
    if (kernels[i].op != COLL_AVG)
      continue;
    for (int nranks = 1; nranks < 5000; nranks += nranks < 40 ? 1 : nranks / 5) {
      shape s = {.inputs = 1, .outputs = 1, .count = bytes == 2 ? MAX_COUNT : 1000};
      s.nranks = nranks;
      fill(&prng, input(b, &s, 0), s.count * bytes, bytes);
      for (unsigned v = 0; v < s.count && bytes <= 2; v++)
        memcpy(input(b, &s, 0) + v * bytes, &v, bytes);
      check(&kernels[i], b, &s);
    }
  }
  free(b);
}

/* Numbers of inputs and outputs, lengths, and addresses. */
Test(kernels_host, shapes) {
  buffers *b = malloc(sizeof(*b));
  colli_prng prng = {9};
  for (size_t i = 0; i < KERNELS; i++) {
    const size_t bytes = coll_type_bytes(kernels[i].type), word = word_of(kernels[i].type);
    for (uint32_t round = 0; round < 150; round++) {
      shape s = {.inputs = round % MAX_PLACES + 1, .count = round % 41, .nranks = (int)round + 1};
      s.in_place = round % 5 == 0;
      s.outputs = s.in_place ? 1 + round % s.inputs : round % 7 * round % MAX_PLACES + 1;
      s.offset[0] = round / 3 * word % 16;
      s.offset[1] = round % 4 == 3 ? round * word % 16 : s.offset[0];
      for (uint32_t p = 0; p < s.inputs; p++)
        fill(&prng, input(b, &s, p), s.count * bytes, word);
      check(&kernels[i], b, &s);
    }
  }
  free(b);
}

/* Copies of pieces, more than fit into the arguments, at all distances of addresses. */
Test(kernels_host, copies) {
  enum { PIECES = 11, ROOM = 128 };
  unsigned char from[PIECES * ROOM], to[PIECES * ROOM], want[PIECES * ROOM];
  colli_prng prng = {10};
  for (unsigned round = 0; round < 2000; round++) {
    struct coll_gpu_piece pieces[PIECES];
    struct coll_gpu_copy copy = {.pieces = PIECES, .more = (uintptr_t)(pieces + COLL_GPU_PLACES)};
    fill(&prng, from, sizeof(from), 4);
    memset(to, 0xa5, sizeof(to));
    memset(want, 0xa5, sizeof(want));
    for (unsigned p = 0; p < PIECES; p++) {
      const uint64_t bits = colli_prng_next(&prng);
      const size_t source = p * ROOM + bits % 17, bytes = bits >> 16 & 63;
      const size_t target = round % 3 ? p * ROOM + (bits >> 8) % 17 : source;
      memcpy(want + target, from + source, bytes);
      pieces[p] =
          (struct coll_gpu_piece){(uintptr_t)(to + target), (uintptr_t)(from + source), bytes};
    }
    memcpy(copy.piece, pieces, sizeof(copy.piece));
    RUN_COPY(copy);
    cr_assert_arr_eq(to, want, sizeof(to));
  }
}
