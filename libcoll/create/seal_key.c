/* seal_key.c: a message that only who has a key can open, or have made. */
#include <errno.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/create/seal.h"
#include "libcoll/net/aead.h"
#include "libcoll/net/auth.h"

static coll_status no_memory(coll_error *error) {
  return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                         "out of memory for the encryption of an id; see ulimit -v");
}

/* Seals. */
static coll_status wrap_message(const colli_seal *seal, uint64_t deadline_ns, const void *data,
                                size_t bytes, uint8_t out[COLLI_SEALED_MAX], size_t *used,
                                coll_error *error) {
  (void)deadline_ns;
  int failed = colli_aead_encrypt(seal->key, data, bytes, out);
  *used = bytes + COLLI_AEAD_EXTRA;
  if (failed == ENOMEM)
    return no_memory(error);
  return failed ? colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", failed,
                                  "no random bytes for a nonce")
                : COLL_OK;
}

/* Opens. */
static coll_status unwrap_message(const colli_seal *seal, uint64_t deadline_ns,
                                  const uint8_t *sealed, size_t sealed_bytes, void *data,
                                  size_t bytes, coll_error *error) {
  (void)deadline_ns;
  int failed = sealed_bytes == bytes + COLLI_AEAD_EXTRA
                   ? colli_aead_decrypt(seal->key, sealed, data, bytes)
                   : EBADMSG;
  if (failed == ENOMEM)
    return no_memory(error);
  return failed ? colli_error_set(error, COLL_ERR_AUTH, "create",
                                  "something without this job's key answers")
                : COLL_OK;
}

coll_status colli_seal_key(const colli_secret *secret, const char *text, colli_seal *seal,
                           coll_error *error) {
  static const uint8_t fixed[COLL_SECRET_BYTES] = "libcoll: known to everybody";
  *seal = (colli_seal){.wrap = wrap_message, .unwrap = unwrap_message};
  bool known = secret && colli_secret_present(secret->bytes);
  return colli_hmac(known ? secret->bytes : fixed, text, strlen(text), seal->key)
             ? COLL_OK
             : no_memory(error);
}
