/* seal.h: what makes an id safe that rank 0 hands to anybody who connects. */
#ifndef COLLI_CREATE_SEAL_H
#define COLLI_CREATE_SEAL_H

#include "libcoll/base/param.h"
#include "libcoll/base/secret.h"

#define COLLI_SEALED_MAX 2048 /* bytes of a sealed message */

/*
 * One way to seal. Only the same user (munge) or who knows the key can open, and only they can have
 * sealed. Errors of both: AUTH (opening: this was sealed by somebody else, or is no such message),
 * INVALID_USAGE (the machine lacks something, so that trying again is pointless), TIMEOUT,
 * NO_MEMORY, SYSTEM.
 */
typedef struct colli_seal {
  /* Seals `bytes` of data; sealing again gives another result. *used: its bytes. */
  coll_status (*wrap)(const struct colli_seal *seal, uint64_t deadline_ns, const void *data,
                      size_t bytes, uint8_t out[COLLI_SEALED_MAX], size_t *used, coll_error *error);
  /* Opens what must have been `bytes` of data. */
  coll_status (*unwrap)(const struct colli_seal *seal, uint64_t deadline_ns, const uint8_t *sealed,
                        size_t sealed_bytes, void *data, size_t bytes, coll_error *error);
  const char *socket; /* munge: of its daemon; "": the usual one */
  uint8_t key[COLL_SECRET_BYTES];
} colli_seal;

/* The daemon munged, which knows who asks it: libmunge is loaded at run time. */
colli_seal colli_seal_munge(const colli_params *params);

/* A key that is made of a secret and a text. A secret of zeros, or NULL: of the text alone, so that
 * whoever knows the text has the key. Errors: NO_MEMORY. */
coll_status colli_seal_key(const colli_secret *secret, const char *text, colli_seal *seal,
                           coll_error *error);

#endif
