/* reduce_stream.c: reductions and copies that write the result past the caches. */
#include <stdint.h>
#include <string.h>

#include "libcoll/exec/reduce.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define LINE        64
#define BLOCK_BYTES 4096 /* fits into the first-level cache together with its inputs */

/*
 * Copies whole cache lines to `to`, which starts at a line, without reading them first. Meanwhile
 * it prefetches the next inputs, so that the memory never waits for the processor.
 */
static void store_lines(char *to, const char *from, size_t bytes, const char *a, const char *b) {
  for (size_t at = 0; at < bytes; at += LINE) {
    _mm_prefetch(a + at, _MM_HINT_T0);
    _mm_prefetch(b + at, _MM_HINT_T0);
    for (size_t i = at; i < at + LINE; i += sizeof(__m128i))
      _mm_stream_si128((__m128i *)(void *)(to + i), _mm_load_si128((const __m128i *)(from + i)));
  }
}

void colli_reduce_stream(colli_reduce_fn reduce, void *dst, void *dst2, const void *a,
                         const void *b, size_t count, size_t elem_bytes, bool both) {
  _Alignas(LINE) char block[BLOCK_BYTES];
  char *d = dst, *d2 = dst2;
  const char *x = a, *y = b;
  size_t bytes = count * elem_bytes, head = (0 - (uintptr_t)dst) % LINE;
  both = d2 && both && ((uintptr_t)d2 - (uintptr_t)d) % LINE == 0;
  /* A result that overwrites an input is in the cache anyway. If elements straddle cache lines, no
   * number of them fills a line. */
  if (dst == a || dst == b || head % elem_bytes != 0 || bytes < 2 * LINE) {
    reduce(dst, dst2, a, b, count);
    return;
  }
  reduce(d, d2, x, y, head / elem_bytes);
  size_t at = head, end = bytes - (bytes - head) % LINE;
  while (at < end) {
    size_t some = end - at < BLOCK_BYTES ? end - at : BLOCK_BYTES, next = at + some;
    reduce(block, d2 && !both ? d2 + at : NULL, x + at, y + at, some / elem_bytes);
    store_lines(d + at, block, some, x + next, y + next);
    if (both)
      store_lines(d2 + at, block, some, x + next, y + next);
    at = next;
  }
  reduce(d + at, d2 ? d2 + at : NULL, x + at, y + at, (bytes - at) / elem_bytes);
  /* These stores are not ordered with others. The fence lets whoever is told about the result see
   * it. */
  _mm_sfence();
}

/* Copies whole lines to the start of a line, past the caches. */
static void copy_lines(char *to, const char *from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += LINE) {
    __m128i part[LINE / sizeof(__m128i)];
    memcpy(part, from + at, LINE);
    for (size_t i = 0; i < LINE / sizeof(__m128i); i++)
      _mm_stream_si128((__m128i *)(void *)(to + at) + i, part[i]);
  }
}

/* The same with one store per line, which is a little faster. */
__attribute__((target("avx512f"))) static void copy_lines_512(char *to, const char *from,
                                                              size_t bytes) {
  for (size_t at = 0; at < bytes; at += LINE)
    _mm512_stream_si512((void *)(to + at), _mm512_loadu_si512(from + at));
}

void colli_copy_stream(void *dst, const void *src, size_t bytes) {
  char *to = dst;
  const char *from = src;
  if (bytes < 2 * LINE) {
    memcpy(to, from, bytes);
    return;
  }
  size_t head = (0 - (uintptr_t)dst) % LINE, lines = (bytes - head) / LINE * LINE;
  memcpy(to, from, head);
  if (__builtin_cpu_supports("avx512f"))
    copy_lines_512(to + head, from + head, lines);
  else
    copy_lines(to + head, from + head, lines);
  memcpy(to + head + lines, from + head + lines, bytes - head - lines);
  _mm_sfence();
}
#else
void colli_copy_stream(void *dst, const void *src, size_t bytes) {
  memcpy(dst, src, bytes);
}

void colli_reduce_stream(colli_reduce_fn reduce, void *dst, void *dst2, const void *a,
                         const void *b, size_t count, size_t elem_bytes, bool both) {
  (void)elem_bytes, (void)both;
  reduce(dst, dst2, a, b, count);
}
#endif
