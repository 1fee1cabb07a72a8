/* prng.c: secrets from the kernel; the seeded generator is all in the header. */
#include "libcoll/base/prng.h"

#include <errno.h>
#include <sys/random.h>

int colli_random_secret(void *buf, size_t bytes) {
  unsigned char *at = buf;
  while (bytes > 0) {
    /* Signals never cut a request for up to 256 bytes short. */
    ssize_t got = getrandom(at, bytes < 256 ? bytes : 256, 0);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got < 0 ? errno : EIO;
    at += got;
    bytes -= (size_t)got;
  }
  return 0;
}
