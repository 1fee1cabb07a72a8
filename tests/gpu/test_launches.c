/*
 * test_launches.c: the library's launches of kernels, on the fake driver: reductions against the
 * host's, bit for bit, copies, meets, and how large launches are.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/names.h"
#include "libcoll/base/prng.h"
#include "libcoll/exec/reduce.h"
#include "libcoll/gpu/programs.h"
#include "tests/gpu/driver/use.h"

enum {
  MOST_INPUTS = 17,
  MOST_OUTPUTS = 9,
  MOST = 4099, /* elements */
  GUARD = 32,  /* bytes around a buffer */
  FRAME = MOST * 16 + 2 * GUARD,
  RESIDENT = 64, /* multiprocessors of the fake GPU */
  MOST_BLOCKS = 3 * RESIDENT
};

TestSuite(launches, .timeout = 300);

/* What a test works with. */
typedef struct bench {
  use u;
  colli_gpu_programs *programs;
  colli_cu_stream stream;
  unsigned char *in[MOST_INPUTS], *out[MOST_OUTPUTS]; /* in memory of the device */
  uint64_t *table, table_at;
  unsigned char want[FRAME], temp[FRAME];
  float sum[MOST], term[MOST];
} bench;

static bench *make_bench(void) {
  bench *b = calloc(1, sizeof(*b));
  coll_error error = COLL_ERROR_INIT;
  setenv("GPU_HIDDEN", "1", 1);
  use_load(&b->u);
  use_device(&b->u, 0);
  b->stream = use_stream(&b->u);
  cr_assert_eq(colli_gpu_programs_load(&b->u.cuda, 0, &b->programs, &error), COLL_OK, "%s",
               error.message);
  for (int i = 0; i < MOST_INPUTS; i++)
    b->in[i] = (unsigned char *)use_memory(&b->u, FRAME / 4);
  for (int i = 0; i < MOST_OUTPUTS; i++)
    b->out[i] = (unsigned char *)use_memory(&b->u, FRAME / 4);
  void *table;
  OK(b->u.cuda.mem_host_alloc(&table, 4096, COLLI_CU_MEMHOSTALLOC_DEVICEMAP));
  OK(b->u.cuda.mem_host_get_device_pointer(&b->table_at, table, 0));
  b->table = table;
  return b;
}

static void free_bench(bench *b) {
  colli_gpu_programs_free(&b->u.cuda, b->programs);
  free(b);
}

/* ---- reductions ------------------------------------------------------------------------------ */

/* How buffers lie to each other. */
typedef enum { ALIGNED, TOGETHER, APART, SPREADS } spread;

/* One reduction. */
typedef struct shape {
  coll_type type;
  coll_op op;
  bool wide, in_place; /* the first output is the first input */
  uint32_t ninputs, noutputs;
  size_t count;
  spread spread;
  int nranks;
} shape;

/* Where a buffer begins in its frame. */
static size_t offset_of(const shape *s, uint32_t i) {
  const size_t bytes = colli_type_bytes(s->type), step = bytes < 4 ? bytes : 4;
  if (s->spread == APART)
    return GUARD + i % 3 * step;
  return GUARD + (s->spread == ALIGNED ? 0 : bytes < 16 ? bytes : 4);
}
static unsigned char *input(bench *b, const shape *s, uint32_t i) {
  return b->in[i] + offset_of(s, i + 1);
}
static unsigned char *output(bench *b, const shape *s, uint32_t i) {
  return s->in_place && i == 0 ? input(b, s, 0) : b->out[i] + offset_of(s, i);
}

/* Random bits, with many zeros and special floats among them. */
static void fill(bench *b, coll_type type, colli_prng *prng) {
  const bool is_long = type == COLL_INT64_LOC || type == COLL_FLOAT64_LOC;
  const size_t bytes = type < COLL_INT32_LOC ? colli_type_bytes(type) : is_long ? 8 : 4;
  const uint64_t special = bytes == 8 ? 0x7ff0000000000000 : 0x7f8000007f807f80;
  for (int i = 0; i < MOST_INPUTS; i++)
    for (size_t at = 0; at < FRAME; at += bytes) {
      uint64_t bits = colli_prng_next(prng);
      const uint64_t kind = bits >> 60;
      bits = kind < 2 ? 0 : kind < 4 ? bits | special : kind < 6 ? special : bits;
      memcpy(b->in[i] + at, &bits, bytes);
    }
}

/* The result by the host's kernels, from left to right. */
static void reduce_on_host(bench *b, const shape *s) {
  const colli_kernels *host = colli_kernels_best();
  const coll_type type = s->wide ? COLL_FLOAT32 : s->type;
  const size_t bytes = s->count * colli_type_bytes(s->type);
  void *acc = s->wide ? (void *)b->sum : b->want;
  for (uint32_t i = 0; i < s->ninputs; i++) {
    void *next = memcpy(i ? b->temp : b->want, input(b, s, i), bytes);
    if (s->wide)
      host->widen[s->type](i ? b->term : b->sum, next, s->count);
    if (i)
      host->reduce[type][s->op](acc, NULL, acc, s->wide ? (void *)b->term : next, s->count);
  }
  const bool is_truth = s->op >= COLL_LAND && s->op <= COLL_LXOR;
  if (s->ninputs == 1 && (is_truth || type >= COLL_INT32_LOC64)) /* it has its result's form */
    host->reduce[type][is_truth ? COLL_LAND : s->op](acc, NULL, acc, acc, s->count);
  if (s->op == COLL_AVG)
    host->average[type](acc, s->count, s->nranks);
  if (s->wide)
    host->narrow[s->type](b->want, b->sum, s->count);
}

/* The same by the library's launch. */
static void reduce_on_device(bench *b, const shape *s) {
  uint64_t inputs[MOST_INPUTS], outputs[MOST_OUTPUTS];
  coll_error error = COLL_ERROR_INIT;
  for (uint32_t i = 0; i < s->ninputs; i++)
    inputs[i] = use_address(input(b, s, i));
  for (uint32_t i = 0; i < s->noutputs; i++)
    outputs[i] = use_address(output(b, s, i));
  const uint32_t words = colli_gpu_fold_words(s->ninputs, s->noutputs);
  const colli_gpu_fold_call call = {.type = s->type,
                                    .op = s->op,
                                    .wide = s->wide,
                                    .nranks = s->nranks,
                                    .ninputs = s->ninputs,
                                    .noutputs = s->noutputs,
                                    .inputs = inputs,
                                    .outputs = outputs,
                                    .count = s->count,
                                    .table = words ? b->table : NULL,
                                    .table_at = words ? b->table_at : 0};
  cr_assert_eq(colli_gpu_launch_fold(&b->u.cuda, b->programs, b->stream, &call, &error), COLL_OK,
               "%s", error.message);
  OK(b->u.cuda.stream_synchronize(b->stream));
}

/* Compares the two, and whether nothing else was written. */
static void check_fold(bench *b, const shape *s) {
  const size_t bytes = s->count * colli_type_bytes(s->type);
  reduce_on_host(b, s);
  for (uint32_t i = s->in_place; i < s->noutputs; i++)
    memset(output(b, s, i) - 16, 0xa5, bytes + 32);
  reduce_on_device(b, s);
  for (uint32_t i = 0; i < s->noutputs; i++) {
    const unsigned char *out = output(b, s, i);
    bool same = memcmp(out, b->want, bytes) == 0;
    for (int k = 1; k <= 16 && !(s->in_place && i == 0); k++)
      same = same && out[-k] == 0xa5 && out[bytes - 1 + (size_t)k] == 0xa5;
    cr_assert(same, "%s of %s, wide %d: output %u of %u, %u inputs, %zu elements, spread %d",
              colli_op_name(s->op), colli_type_name(s->type), s->wide, i, s->noutputs, s->ninputs,
              s->count, s->spread);
  }
}

/* All shapes of few elements, and some of many. */
static void check_kernel(bench *b, shape s, unsigned *k) {
  static const uint32_t inputs[] = {1, 2, 3, 8, 9, 17}, outputs[] = {1, 2, 9};
  static const size_t counts[] = {0, 1, 37};
  const unsigned stride = (unsigned)extent(5, 1, 35);
  for (int i = 0; i < 6 * 3 * SPREADS * 3; i++, (*k)++) {
    s.ninputs = inputs[i % 6];
    s.noutputs = outputs[i / 6 % 3];
    s.spread = (spread)(i / 18 % SPREADS);
    s.count = counts[i / 18 / SPREADS];
    s.in_place = *k % 4 == 0;
    s.nranks = (int)(*k % 9) + 1;
    if (*k % stride == 0)
      check_fold(b, &s);
  }
  for (int i = 0; i < SPREADS; i++) {
    s.ninputs = inputs[(*k + (unsigned)i) % 6];
    s.noutputs = outputs[*k % 3];
    s.spread = (spread)i;
    s.count = MOST;
    if (!SANITIZED || *k % SPREADS == (unsigned)i)
      check_fold(b, &s);
  }
  (*k)++;
}

Test(launches, folds) {
  bench *b = make_bench();
  colli_prng prng = {11};
  unsigned kernels = 0, k = 0;
  for (int i = 0; i < COLL_TYPE_COUNT * COLL_OP_COUNT * 2; i++) {
    const shape s = {
        .type = (coll_type)(i / 2 / COLL_OP_COUNT), .op = i / 2 % COLL_OP_COUNT, .wide = i % 2};
    if (!colli_gpu_folds(s.type, s.op, s.wide))
      continue;
    fill(b, s.type, &prng);
    check_kernel(b, s, &k);
    kernels++;
  }
  cr_assert_eq(kernels, 138);
  free_bench(b);
}

Test(launches, no_folds) {
  cr_assert_not(colli_gpu_folds(COLL_TYPE_USER(4), COLL_SUM, false));
  cr_assert_not(colli_gpu_folds(COLL_FLOAT32, COLL_BAND, false));
  cr_assert_not(colli_gpu_folds(COLL_FLOAT32, COLL_SUM, true));
  cr_assert_not(colli_gpu_folds(COLL_INT32, COLL_OP_COUNT, false));
  cr_assert_not(colli_gpu_folds(COLL_INT32, 1000000, false));
  cr_assert(colli_gpu_folds_at(COLL_INT8, 3));
  cr_assert(colli_gpu_folds_at(COLL_FLOAT16, 2) && !colli_gpu_folds_at(COLL_FLOAT16, 3));
  cr_assert(colli_gpu_folds_at(COLL_FLOAT64, 4) && !colli_gpu_folds_at(COLL_FLOAT64, 6));
  cr_assert(colli_gpu_folds_at(COLL_FLOAT64_LOC, 4) && !colli_gpu_folds_at(COLL_FLOAT64_LOC, 2));
}

/* ---- the size of launches -------------------------------------------------------------------- */

static colli_cu_launch_config launched;
static int launches;

static colli_cu_result note_launch(const colli_cu_launch_config *config, colli_cu_function function,
                                   void **arguments, void **extra) {
  (void)function, (void)arguments, (void)extra;
  launched = *config;
  launches++;
  return COLLI_CUDA_SUCCESS;
}

/* Notes how a sum of so many bytes would be launched. */
static void size_of_launch(bench *b, uint64_t count) {
  colli_cuda cuda = b->u.cuda;
  const uint64_t at = use_address(b->in[0]);
  const colli_gpu_fold_call call = {.type = COLL_INT8,
                                    .op = COLL_SUM,
                                    .nranks = 1,
                                    .ninputs = 1,
                                    .noutputs = 1,
                                    .inputs = &at,
                                    .outputs = &at,
                                    .count = count};
  cuda.launch_kernel = note_launch;
  launches = 0;
  cr_assert_eq(colli_gpu_launch_fold(&cuda, b->programs, b->stream, &call, NULL), COLL_OK);
}

Test(launches, sizes) {
  bench *b = make_bench();
  size_of_launch(b, 0);
  cr_assert_eq(launches, 0);
  for (uint64_t count = 1; count < UINT64_C(1) << 45; count += count / 3 + 1) {
    const uint64_t work = count / 16 + count % 16;
    size_of_launch(b, count);
    const uint32_t blocks = launched.grid[0], threads = launched.block[0];
    cr_assert(launches == 1 && launched.stream == b->stream && launched.attributes_count == 0);
    cr_assert(blocks > 0 && blocks <= MOST_BLOCKS && threads > 0 && threads <= COLL_GPU_THREADS);
    cr_assert(threads % 32 == 0 && launched.grid[1] == 1 && launched.block[2] == 1);
    cr_assert_lt((uint64_t)(blocks - 1) * threads, work);
    cr_assert((uint64_t)blocks * threads >= work ||
                  blocks * threads == MOST_BLOCKS * COLL_GPU_THREADS,
              "%u of %u for %llu", blocks, threads, (unsigned long long)work);
  }
  free_bench(b);
}

/* ---- copies and meets ------------------------------------------------------------------------ */

Test(launches, copies) {
  bench *b = make_bench();
  colli_prng prng = {12};
  struct coll_gpu_piece pieces[MOST_OUTPUTS];
  fill(b, COLL_INT8, &prng);
  for (unsigned round = 0; round < 200; round++) {
    const colli_gpu_copy_call call = {.pieces = pieces,
                                      .count = round % (MOST_OUTPUTS + 1),
                                      .table = (struct coll_gpu_piece *)b->table,
                                      .table_at = b->table_at};
    for (unsigned i = 0; i < call.count; i++) {
      const uint64_t bits = colli_prng_next(&prng);
      memset(b->out[i], 0xa5, FRAME);
      pieces[i] = (struct coll_gpu_piece){use_address(b->out[i]) + bits % 20,
                                          use_address(b->in[i]) + (bits >> 8) % 20,
                                          round % 3 ? (bits >> 16) % 3000 : (bits >> 16) % 3};
    }
    cr_assert_eq(colli_gpu_launch_copy(&b->u.cuda, b->programs, b->stream, &call, NULL), COLL_OK);
    OK(b->u.cuda.stream_synchronize(b->stream));
    for (unsigned i = 0; i < call.count; i++) {
      const size_t to = pieces[i].to - use_address(b->out[i]), bytes = pieces[i].bytes;
      memset(b->want, 0xa5, FRAME);
      memcpy(b->want + to, b->in[i] + (pieces[i].from - use_address(b->in[i])), bytes);
      cr_assert_arr_eq(b->out[i], b->want, FRAME);
    }
  }
  free_bench(b);
}

/* Two ranks on one device, in two streams; and one rank alone. */
Test(launches, meets) {
  bench *b = make_bench();
  const colli_cu_stream streams[] = {b->stream, use_stream(&b->u)};
  uint32_t *words = (uint32_t *)b->table; /* abort, and for each rank arrived and left */
  memset(words, 0, 64);
  for (uint32_t nranks = 1; nranks <= 2; nranks++) {
    memset(b->in[0], 0, 64);
    memset(b->in[1], 0, 64);
    for (uint32_t rank = 0; rank < nranks; rank++) {
      struct coll_gpu_meet meet = {.here = use_address(b->in[rank]),
                                   .state = use_address(b->in[rank] + 32),
                                   .abort = b->table_at,
                                   .arrived = b->table_at + 4 + 8 * rank,
                                   .left = b->table_at + 8 + 8 * rank,
                                   .rank = rank,
                                   .nranks = nranks};
      meet.there[1 - rank] = use_address(b->in[1 - rank] + 4 * rank);
      cr_assert_eq(colli_gpu_launch_meet(&b->u.cuda, b->programs, streams[rank], &meet, NULL),
                   COLL_OK);
      if (rank + 1 < nranks) {
        b->u.rounds(100);
        cr_assert_eq(b->u.cuda.stream_query(streams[rank]), COLLI_CUDA_ERROR_NOT_READY);
      }
    }
    for (uint32_t rank = 0; rank < nranks; rank++) {
      OK(b->u.cuda.stream_synchronize(streams[rank]));
      cr_assert_eq(words[1 + 2 * rank], 1);
      cr_assert_eq(words[2 + 2 * rank], 1);
      memset(&words[1 + 2 * rank], 0, 8);
    }
  }
  free_bench(b);
}
