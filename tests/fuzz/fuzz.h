/* fuzz.h: what the fuzz targets share. Each is one file that parses bytes from outside. */
#ifndef TESTS_FUZZ_H
#define TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parses one input; a crash, a leak, or a hang is a finding. libFuzzer calls it, or main.c. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* A copy as a string; the caller frees it. */
static inline char *fuzz_text(const uint8_t *data, size_t bytes) {
  char *text = malloc(bytes + 1);
  if (!text)
    abort();
  if (bytes)
    memcpy(text, data, bytes);
  text[bytes] = '\0';
  return text;
}

/* Takes the next bytes of the input; what is missing is zero. */
static inline void fuzz_take(const uint8_t **data, size_t *bytes, void *to, size_t want) {
  size_t have = *bytes < want ? *bytes : want;
  memset(to, 0, want);
  if (have)
    memcpy(to, *data, have);
  *data += have;
  *bytes -= have;
}

/* The path of a file with these bytes, in a folder of this process that is removed when it exits.
 * The next call overwrites the path. */
const char *fuzz_file(const char *name, const uint8_t *data, size_t bytes);

#endif
