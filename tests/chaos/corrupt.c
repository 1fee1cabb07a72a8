/*
 * corrupt.c: a worker of tests/chaos/run that is faulty while a byte of the file CHAOS_CLOCK says
 * so (byte CORRUPT_AT + COLL_RANK). One in four of its control messages then has wrong fields:
 * check-ins, notices, reports, messages of a shrink. They are changed before they are sealed, so
 * their codes are valid.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "libcoll/net/sealed.h"

enum { FILE_BYTES = 4096, CORRUPT_AT = 2048, MOST_BYTES = 65536 };

int __real_colli_sealed_push(colli_sealed *sealed, const void *msg, size_t bytes, size_t *done);
int __wrap_colli_sealed_push(colli_sealed *sealed, const void *msg, size_t bytes, size_t *done);

/* The byte that decides, or NULL. */
static const volatile unsigned char *find_switch(void) {
  const char *path = getenv("CHAOS_CLOCK"), *rank = getenv("COLL_RANK");
  int fd = path && rank ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0)
    return NULL;
  const unsigned char *file = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  return file == MAP_FAILED ? NULL : file + CORRUPT_AT + atoi(rank);
}

/* Changes some of its words, or pairs of words. */
static void spoil(colli_prng *prng, char *msg, size_t bytes) {
  for (uint64_t left = 1 + colli_prng_below(prng, 3); left > 0 && bytes >= 8; left--) {
    const uint64_t values[] = {0,          1,          UINT64_MAX, INT32_MAX,
                               1ull << 31, 1ull << 63, INT64_MAX,  colli_prng_next(prng)};
    uint64_t value = values[colli_prng_below(prng, sizeof(values) / sizeof(*values))];
    memcpy(msg + 4 * colli_prng_below(prng, bytes / 4 - 1), &value, 4 + 4 * (prng->state >> 9 & 1));
  }
  if (bytes < 8 && bytes > 0)
    msg[colli_prng_below(prng, bytes)] ^= (char)colli_prng_next(prng);
}

int __wrap_colli_sealed_push(colli_sealed *sealed, const void *msg, size_t bytes, size_t *done) {
  static const volatile unsigned char *corrupt;
  static char copy[MOST_BYTES];
  if (!corrupt)
    corrupt = find_switch();
  /* A message that is sent in parts gets the same changes again. */
  colli_prng prng = {sealed->sent * 2654435761u + (uint64_t)sealed->send_key[0]};
  if (!corrupt || !*corrupt || bytes > sizeof(copy) || colli_prng_below(&prng, 4) != 0)
    return __real_colli_sealed_push(sealed, msg, bytes, done);
  memcpy(copy, msg, bytes);
  spoil(&prng, copy, bytes);
  return __real_colli_sealed_push(sealed, copy, bytes, done);
}
