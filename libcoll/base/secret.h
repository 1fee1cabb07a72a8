/*
 * secret.h: a communicator's secret, once in this process: in a page of its own that core dumps
 * leave out, that forked children find empty, and that is zeroed before it is freed. Everybody else
 * keeps a pointer to it.
 */
#ifndef COLLI_BASE_SECRET_H
#define COLLI_BASE_SECRET_H

#include <stdatomic.h>
#include <stdbool.h>

#include "coll/coll_transport.h"

#define COLLI_SECRET_DIGITS (2 * COLL_SECRET_BYTES)

typedef struct colli_secret {
  atomic_int refs;
  uint8_t *bytes; /* COLL_SECRET_BYTES; the rest of the page is zero */
} colli_secret;

/* A secret of zeros, which is none yet, with one reference. NULL with errno. */
colli_secret *colli_secret_create(void);

/* Take and drop a reference; the last drop erases the secret. NULL is allowed. */
colli_secret *colli_secret_acquire(colli_secret *secret);
void colli_secret_release(colli_secret *secret);

/* Whether there is one. Zeros are none: a forked child finds them in its parent's secret. */
bool colli_secret_present(const uint8_t bytes[COLL_SECRET_BYTES]);

/* Reads the hexadecimal digits of a text that consists of nothing else, apart from spaces and line
 * ends behind them. False if it is malformed, or if all digits are zero. */
bool colli_secret_parse(colli_secret *secret, const char *text);

#endif
