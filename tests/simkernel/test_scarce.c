/*
 * test_scarce.c: a rank is out of memory when others speak in a shrink, so that it can neither use
 * what they say nor pass it on (libcoll/recovery/shrink_links.c). It leaves, and says why; all
 * others go on at once, those who spoke through it as well.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "libcoll/recovery/shrink_internal.h"
#include "support_job.h"

enum { RANKS = 12, DIES = 11 };

#define SOON_NS (500 * SK_MS) /* others would wait for seconds */

/* Which rank cannot allocate what it needs to keep messages of which size. */
static struct {
  int rank;
  size_t bytes;
  int failed;
  bool own; /* a rank speaks itself */
  int reduces;
} scarce;

void *__real_shrink_alloc(shrink *s, size_t bytes);
void *__wrap_shrink_alloc(shrink *s, size_t bytes);
bool __real_shrink_say_record(shrink *s, const colli_rank_info *record);
bool __wrap_shrink_say_record(shrink *s, const colli_rank_info *record);
bool __real_shrink_say_report(shrink *s, const shrink_report *report);
bool __wrap_shrink_say_report(shrink *s, const shrink_report *report);

void *__wrap_shrink_alloc(shrink *s, size_t bytes) {
  if (s->b.rank != scarce.rank || scarce.own || bytes != scarce.bytes)
    return __real_shrink_alloc(s, bytes);
  scarce.failed++;
  return NULL;
}

bool __wrap_shrink_say_record(shrink *s, const colli_rank_info *record) {
  scarce.own = true;
  const bool said = __real_shrink_say_record(s, record);
  scarce.own = false;
  return said;
}

bool __wrap_shrink_say_report(shrink *s, const shrink_report *report) {
  scarce.own = true;
  const bool said = __real_shrink_say_report(s, report);
  scarce.own = false;
  return said;
}

/* A rank dies, so that the others shrink. */
static void about(int rank, job_call call, int generation) {
  if (call == JOB_REDUCE && generation == 0 && rank == DIES && scarce.reduces++ == 2)
    sk_kill_after(rank, 5);
}

/* Ranks shrink, and one of them runs out of memory when it keeps records or reports. */
static void shrink_while_scarce(int rank, size_t bytes) {
  job_config config = job_defaults(1, RANKS, 2);
  config.stays = config.direct = true;
  config.about = about;
  config.timeout_ms = config.create_timeout_ms = 20000;
  scarce.rank = rank;
  scarce.bytes = bytes;
  scarce.failed = scarce.reduces = 0;
  sk_open(&config.kernel);
  cr_expect(job_run(&config));
  cr_expect_eq(job_check(), 0);
  cr_expect_gt(scarce.failed, 0);
  for (int r = 0; r < DIES; r++) {
    const job_entry *e = job_last(r, JOB_SHRINK);
    cr_assert(e && e->ended, "rank %d", r);
    if (r == rank)
      cr_expect(e->status == COLL_ERR_NO_MEMORY && strstr(e->message, "ran out of memory"),
                "rank %d: %s", r, e->message);
    else
      cr_expect(e->status == COLL_OK && e->nranks == RANKS - 2, "rank %d of %d: %s", r, e->nranks,
                e->message);
    cr_expect_lt(e->end_ns - e->begin_ns, SOON_NS, "rank %d", r);
  }
  job_free();
  sk_close();
}

Test(scarce, reports, .timeout = 100) {
  shrink_while_scarce(0, sizeof(shrink_report));
  shrink_while_scarce(1, sizeof(shrink_report));
}

Test(scarce, records, .timeout = 100) {
  shrink_while_scarce(0, sizeof(colli_rank_info));
  shrink_while_scarce(1, sizeof(colli_rank_info));
}
