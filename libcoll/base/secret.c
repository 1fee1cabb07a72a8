/* secret.c: the one page that holds a communicator's secret. */
#include "libcoll/base/secret.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

colli_secret *colli_secret_create(void) {
  colli_secret *secret = malloc(sizeof(*secret));
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (!secret)
    return NULL;
  secret->bytes = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (secret->bytes == MAP_FAILED) {
    int sys_errno = errno;
    free(secret);
    errno = sys_errno;
    return NULL;
  }
  /* A kernel without these (sandboxes that imitate Linux) can still run the job. */
  (void)madvise(secret->bytes, page, MADV_DONTDUMP);
  (void)madvise(secret->bytes, page, MADV_WIPEONFORK);
  atomic_init(&secret->refs, 1);
  return secret;
}

colli_secret *colli_secret_acquire(colli_secret *secret) {
  if (secret)
    atomic_fetch_add(&secret->refs, 1);
  return secret;
}

void colli_secret_release(colli_secret *secret) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  if (!secret || atomic_fetch_sub(&secret->refs, 1) != 1)
    return;
  explicit_bzero(secret->bytes, page);
  munmap(secret->bytes, page);
  free(secret);
}

bool colli_secret_present(const uint8_t bytes[COLL_SECRET_BYTES]) {
  static const uint8_t none[COLL_SECRET_BYTES];
  return CRYPTO_memcmp(bytes, none, sizeof(none)) != 0;
}

/* The value of a hexadecimal digit, or -1. */
static int digit_value(char digit) {
  if (digit >= '0' && digit <= '9')
    return digit - '0';
  digit |= 'a' ^ 'A';
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

bool colli_secret_parse(colli_secret *secret, const char *text) {
  for (int i = 0; i < COLL_SECRET_BYTES; i++) {
    int high = digit_value(text[2 * i]), low = high < 0 ? -1 : digit_value(text[2 * i + 1]);
    if (low < 0)
      return false;
    secret->bytes[i] = (uint8_t)(high << 4 | low);
  }
  text += COLLI_SECRET_DIGITS;
  return text[strspn(text, " \t\r\n")] == '\0' && colli_secret_present(secret->bytes);
}
