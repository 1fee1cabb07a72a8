/*
 * plain_crc32c.c: CRC32C has the published values, with the processor's instruction and without it,
 * in one piece and in two. Needs nothing else, so that it also runs under an emulator.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "transports/check/check_crc32c.h"

#define MOST_BYTES 40000u

static uint8_t bytes[MOST_BYTES + 64];

/* Ends the program if values differ. */
static void expect(uint32_t got, uint32_t wanted, const char *what, size_t count) {
  if (got == wanted)
    return;
  fprintf(stderr, "%s, %zu bytes: %08x instead of %08x\n", what, count, got, wanted);
  exit(1);
}

/* Values of RFC 3720, B.4, and of the catalogues. */
static void known(check_crc32c_fn crc32c) {
  expect(crc32c(0, "123456789", 9), 0xe3069283u, "digits", 9);
  expect(crc32c(0, bytes, 0), 0, "nothing", 0);
  memset(bytes, 0, 32);
  expect(crc32c(0, bytes, 32), 0x8a9136aau, "zeros", 32);
  memset(bytes, 0xff, 32);
  expect(crc32c(0, bytes, 32), 0x62a8ab43u, "ones", 32);
}

int main(void) {
  check_crc32c_fn fast = check_crc32c(false), portable = check_crc32c(true);
  colli_prng prng = {17};
  known(fast);
  known(portable);
  for (size_t i = 0; i < sizeof(bytes); i++)
    bytes[i] = (uint8_t)colli_prng_below(&prng, 256);
  for (size_t i = 0; i < 3000; i++) {
    const uint8_t *at = bytes + colli_prng_below(&prng, 64);
    size_t count = i < 2000 ? i : colli_prng_below(&prng, MOST_BYTES);
    size_t part = colli_prng_below(&prng, count + 1);
    uint32_t whole = portable(0, at, count);
    expect(fast(0, at, count), whole, "at once", count);
    expect(fast(fast(0, at, part), at + part, count - part), whole, "in two parts", count);
  }
  printf("crc32c: %s\n", fast == portable ? "portable only" : "same values");
  return 0;
}
