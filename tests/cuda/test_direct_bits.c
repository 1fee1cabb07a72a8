/*
 * test_direct_bits.c: reductions in the memory of (fake) GPUs give the bits of host memory, as far
 * as COLL_DETERMINISTIC and COLL_ACCUMULATE promise some.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { COUNT = 1501, MOST_RANKS = 5, BYTES = MOST_RANKS * COUNT * 8, MOST_ROUNDS = 4 };

TestSuite(direct_bits, .timeout = 120);

typedef enum kind { ALLREDUCE, REDUCE, REDUCE_SCATTER, SCAN, EXSCAN, KINDS } kind;

/* What to reduce, and how. */
typedef struct setting {
  coll_determinism deterministic;
  coll_accumulate accumulate;
  bool exact; /* in float32, whatever the order */
} setting;

/* Numbers of a type whose sums round. With `exact` they have few bits. */
static void fill(void *memory, coll_type type, bool exact, colli_prng *random) {
  for (size_t i = 0; i < (size_t)BYTES / coll_type_bytes(type); i++) {
    const uint64_t bits = colli_prng_next(random);
    const double value =
        ((double)(bits % 4096) - 2048) / 64 * (exact ? 1 : 1 + (double)(bits % 99));
    if (type == COLL_FLOAT64) {
      ((double *)memory)[i] = value / 3;
    } else if (type == COLL_FLOAT32) {
      ((float *)memory)[i] = (float)(value / 3);
    } else if (type == COLL_BFLOAT16) { /* the upper half of a float32 */
      const float narrow = (float)value;
      uint32_t word;
      memcpy(&word, &narrow, sizeof(word));
      ((uint16_t *)memory)[i] = (uint16_t)(word >> 16);
    } else { /* float16: a sign, an exponent near that of 1, any fraction */
      ((uint16_t *)memory)[i] =
          (uint16_t)(bits & 0x83ff) | (uint16_t)((13 + bits / 65536 % 5) << 10);
    }
  }
}

/* A call on host memory, or in a stream. */
static coll_status reduce(kind what, const void *in, void *out, coll_type type, coll_op op,
                          coll_comm *comm, void *stream) {
  switch (what) {
  case ALLREDUCE:
    return stream ? coll_allreduce_on_stream(in, out, COUNT, type, op, comm, stream)
                  : coll_allreduce(in, out, COUNT, type, op, comm);
  case REDUCE:
    return stream ? coll_reduce_on_stream(in, out, COUNT, type, op, 1, comm, stream)
                  : coll_reduce(in, out, COUNT, type, op, 1, comm);
  case REDUCE_SCATTER:
    return stream ? coll_reduce_scatter_on_stream(in, out, COUNT, type, op, comm, stream)
                  : coll_reduce_scatter(in, out, COUNT, type, op, comm);
  case SCAN:
    return stream ? coll_scan_on_stream(in, out, COUNT, type, op, comm, stream)
                  : coll_scan(in, out, COUNT, type, op, comm);
  default:
    return stream ? coll_exscan_on_stream(in, out, COUNT, type, op, comm, stream)
                  : coll_exscan(in, out, COUNT, type, op, comm);
  }
}

/* What a rank compares with what. */
typedef struct pair {
  coll_comm *direct, *host;
  colli_cu_stream stream;
  void *in, *out;           /* on the device */
  void *host_in, *host_out; /* of as many bytes */
  colli_prng random;
} pair;

/* One call in both ways. */
static int compare(pair *p, int rank, kind what, coll_type type, coll_op op, bool exact) {
  coll_comm *comm = p->direct;
  const size_t bytes = COUNT * coll_type_bytes(type);
  fill(p->host_in, type, exact, &p->random);
  memset(p->host_out, 0, BYTES);
  device_memory.write(p->in, p->host_in, BYTES);
  device_memory.write(p->out, p->host_out, BYTES);
  RANK_OK(reduce(what, p->in, p->out, type, op, p->direct, p->stream));
  device_await(p->stream);
  RANK_OK(coll_comm_async_error(p->direct));
  comm = p->host;
  RANK_OK(reduce(what, p->host_in, p->host_out, type, op, p->host, NULL));
  device_read(p->host_in, p->out, bytes);
  if (memcmp(p->host_in, p->host_out, bytes) == 0)
    return 0;
  fprintf(stderr, "rank %d: kind %d, type %d, op %d: other bits\n", rank, what, type, (int)op);
  return 1;
}

/* All types and operations that may round. */
static int compare_all(coll_comm *comm, int rank, int nranks, void *arg) {
  static const coll_type types[] = {COLL_FLOAT16, COLL_BFLOAT16, COLL_FLOAT32, COLL_FLOAT64};
  static const coll_op ops[] = {COLL_SUM, COLL_AVG, COLL_PROD};
  const setting *s = arg;
  pair p = {.direct = comm, .random = {(uint64_t)(rank + 1)}};
  (void)nranks;
  RANK_OK(coll_comm_dup(comm, NULL, &p.host));
  device_use(device_of_rank(rank));
  RANK_OK(coll_comm_use_gpu(comm));
  RANK_CHECK(comm->direct && !p.host->direct);
  p.stream = device_stream();
  p.in = device_memory.take(BYTES);
  p.out = device_memory.take(BYTES);
  p.host_in = malloc(BYTES);
  p.host_out = malloc(BYTES);
  for (int what = 0; what < KINDS; what++)
    for (unsigned k = 0; k < 12; k++) {
      const coll_type type = types[k / 3];
      const coll_op op = ops[k % 3];
      const bool wide = s->accumulate == COLL_ACCUMULATE_FLOAT32 && type <= COLL_BFLOAT16;
      if ((what >= SCAN && op == COLL_AVG) || (s->exact && (!wide || op == COLL_PROD)))
        continue;
      RANK_CHECK(compare(&p, rank, (kind)what, type, op, s->exact) == 0);
    }
  RANK_OK(coll_comm_destroy(&p.host));
  device_memory.give(p.in);
  device_memory.give(p.out);
  free(p.host_in);
  free(p.host_out);
  return 0;
}

/* With 2 to 5 ranks in all modes, or a part of that. */
static void run(setting s) {
  const int stride = extent(7, 3, 7);
  coll_config config = COLL_CONFIG_INIT;
  config.deterministic = s.deterministic;
  config.accumulate = s.accumulate;
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  for (int k = 0; k < 4 * (MOST_RANKS - 1); k += stride) {
    const int mode = MODE_ORDERED + k % 4, nranks = 2 + k / 4;
    if (device_mode(mode))
      cr_assert_eq(run_threads(nranks, &config, compare_all, &s), 0, "%d ranks, mode %d", nranks,
                   mode);
  }
}

Test(direct_bits, ordered) {
  run((setting){COLL_DETERMINISTIC_ORDERED, COLL_ACCUMULATE_NATIVE, false});
}

Test(direct_bits, ordered_wide) {
  run((setting){COLL_DETERMINISTIC_ORDERED, COLL_ACCUMULATE_FLOAT32, false});
}

Test(direct_bits, tree) {
  run((setting){COLL_DETERMINISTIC_ON, COLL_ACCUMULATE_NATIVE, false});
  run((setting){COLL_DETERMINISTIC_ON, COLL_ACCUMULATE_FLOAT32, false});
}

Test(direct_bits, any_order_wide) {
  run((setting){COLL_DETERMINISTIC_OFF, COLL_ACCUMULATE_FLOAT32, true});
}
