/* rank_runs.c: writes, reads and checks runs. */
#include "libcoll/wireup/rank_runs.h"

#include <string.h>

#define RECORD_BYTES sizeof(colli_rank_info)
#define RUN_MOST     255 /* bytes that one run leaves out, or has */
#define GAP_LEAST    3   /* as many equal bytes end a run: it takes two to begin the next */
#define BLOCK_BYTES  64  /* compared at once: a multiple of a word */

_Static_assert(RECORD_BYTES % COLLI_RANK_WORD == 0, "is compared by words, and has no padding");

/* Notes that records differ in these bytes. */
static void note_words(colli_rank_words *words, size_t at, size_t count) {
  for (size_t word = at / COLLI_RANK_WORD; count > 0 && word * COLLI_RANK_WORD < at + count; word++)
    words->bits[word / 64] |= 1ull << word % 64;
}

bool colli_rank_words_has(const colli_rank_words *words, size_t at, size_t count) {
  for (size_t word = at / COLLI_RANK_WORD; count > 0 && word * COLLI_RANK_WORD < at + count; word++)
    if (words->bits[word / 64] & 1ull << word % 64)
      return true;
  return false;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Whether a block is equal in both: a loop for vector registers. */
static bool is_equal_block(const uint8_t *a, const uint8_t *b) {
  uint64_t left[BLOCK_BYTES / 8], right[BLOCK_BYTES / 8], differ = 0;
  memcpy(left, a, sizeof(left));
  memcpy(right, b, sizeof(right));
  for (size_t i = 0; i < BLOCK_BYTES / 8; i++)
    differ |= left[i] ^ right[i];
  return differ == 0;
}

/* How many bytes from `at` on are equal, before `end`. */
static size_t count_equal(const uint8_t *a, const uint8_t *b, size_t at, size_t end) {
  const size_t begin = at;
  while (at + BLOCK_BYTES <= end && is_equal_block(a + at, b + at))
    at += BLOCK_BYTES;
  for (; at + sizeof(uint64_t) <= end; at += sizeof(uint64_t)) {
    uint64_t left, right;
    memcpy(&left, a + at, sizeof(left));
    memcpy(&right, b + at, sizeof(right));
    if (left != right)
      break;
  }
  while (at < end && a[at] == b[at])
    at++;
  return at - begin;
}

/* How many bytes from `at` on belong to one run, before `end`. */
static size_t count_run(const uint8_t *a, const uint8_t *b, size_t at, size_t end) {
  size_t count = 0, equal = 0; /* at its end */
  while (at + count < end && count < RUN_MOST && equal < GAP_LEAST) {
    equal = a[at + count] == b[at + count] ? equal + 1 : 0;
    count++;
  }
  return count - equal;
}

/* Writes a run of `count` bytes that begins at `at`. */
static void write_run(colli_rank_writer *w, size_t at, const uint8_t *bytes, size_t count) {
  size_t skip = at - w->end;
  for (; skip > RUN_MOST; skip -= RUN_MOST, w->used += 2)
    memcpy(w->out + w->used, (uint8_t[]){RUN_MOST, 0}, 2);
  memcpy(w->out + w->used, (uint8_t[]){(uint8_t)skip, (uint8_t)count}, 2);
  memcpy(w->out + w->used + 2, bytes, count);
  note_words(w->words, at, count);
  w->used += 2 + count;
  w->end = at + count;
}

void colli_rank_runs_write(colli_rank_writer *w, const colli_rank_info *base,
                           const colli_rank_info *record, size_t at, size_t end) {
  const uint8_t *left = (const uint8_t *)base, *right = (const uint8_t *)record;
  while ((at += count_equal(left, right, at, end)) < end) {
    const size_t count = count_run(left, right, at, end);
    write_run(w, at, right + at, count);
    at += count;
  }
}

void colli_rank_runs_rewrite(colli_rank_writer *w, const uint8_t *runs, size_t bytes, size_t from,
                             size_t to) {
  size_t at = 0;
  for (size_t used = 0; used < bytes && at < to; used += 2u + runs[used + 1]) {
    at += runs[used];
    const size_t end = at + runs[used + 1];
    const size_t first = at > from ? at : from, last = end < to ? end : to;
    if (first < last)
      write_run(w, first, runs + used + 2 + (first - at), last - first);
    at = end;
  }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Copies a run. Most have a few bytes, for which a call of memcpy() takes longer than the copy. */
static inline void copy_run(uint8_t *to, const uint8_t *from, size_t count) {
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= count; at += sizeof(uint64_t))
    memcpy(to + at, from + at, sizeof(uint64_t));
  if (count & 4)
    memcpy(to + at, from + at, 4), at += 4;
  if (count & 2)
    memcpy(to + at, from + at, 2), at += 2;
  if (count & 1)
    to[at] = from[at];
}

void colli_rank_runs_read(const uint8_t *runs, size_t bytes, colli_rank_info *info) {
  size_t at = 0;
  for (size_t used = 0; used < bytes; used += 2u + runs[used + 1]) {
    at += runs[used];
    copy_run((uint8_t *)info + at, runs + used + 2, runs[used + 1]);
    at += runs[used + 1];
  }
}

void colli_rank_runs_undo(const uint8_t *runs, size_t bytes, const colli_rank_info *base,
                          colli_rank_info *info) {
  size_t at = 0;
  for (size_t used = 0; used < bytes; used += 2u + runs[used + 1]) {
    at += runs[used];
    copy_run((uint8_t *)info + at, (const uint8_t *)base + at, runs[used + 1]);
    at += runs[used + 1];
  }
}

bool colli_rank_runs_check(const uint8_t *runs, size_t bytes, colli_rank_words *words) {
  size_t at = 0;
  for (size_t used = 0; used < bytes;) {
    if (bytes - used < 2)
      return false;
    const size_t skip = runs[used], count = runs[used + 1];
    at += skip;
    used += 2;
    if (at > RECORD_BYTES || count > RECORD_BYTES - at || count > bytes - used)
      return false;
    note_words(words, at, count);
    at += count;
    used += count;
  }
  return true;
}
