/*
 * seal_key.c: a message under a key that both sides have: nonce, the message exclusive-or
 * HMAC(key, "s" nonce i), HMAC(key, "m" nonce and all that).
 */
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/create/seal.h"
#include "libcoll/net/auth.h"

#define NONCE 16 /* bytes */

/* Adds the stream of a nonce to data, or takes it away. */
static bool stir(const colli_seal *seal, const uint8_t nonce[NONCE], uint8_t *data, size_t bytes) {
  uint8_t block[COLLI_MAC_BYTES], message[1 + NONCE + 1] = {'s'};
  memcpy(message + 1, nonce, NONCE);
  for (size_t at = 0; at < bytes; at++) {
    message[1 + NONCE] = (uint8_t)(at / COLLI_MAC_BYTES);
    if (at % COLLI_MAC_BYTES == 0 && !colli_hmac(seal->key, message, sizeof(message), block))
      return false;
    data[at] ^= block[at % COLLI_MAC_BYTES];
  }
  explicit_bzero(block, sizeof(block));
  return true;
}

/* The code of a sealed message without its code. */
static bool sign(const colli_seal *seal, const uint8_t *sealed, size_t bytes,
                 uint8_t mac[COLLI_MAC_BYTES]) {
  uint8_t message[1 + COLLI_SEALED_MAX] = {'m'};
  memcpy(message + 1, sealed, bytes);
  return colli_hmac(seal->key, message, 1 + bytes, mac);
}

static coll_status no_memory(coll_error *error) {
  return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                         "out of memory for an HMAC; see ulimit -v");
}

/* Seals. */
static coll_status wrap_message(const colli_seal *seal, uint64_t deadline_ns, const void *data,
                                size_t bytes, uint8_t out[COLLI_SEALED_MAX], size_t *used,
                                coll_error *error) {
  (void)deadline_ns;
  int failed = colli_random_secret(out, NONCE);
  if (failed)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", failed,
                           "no random bytes for a nonce");
  memcpy(out + NONCE, data, bytes);
  if (!stir(seal, out, out + NONCE, bytes) || !sign(seal, out, NONCE + bytes, out + NONCE + bytes))
    return no_memory(error);
  *used = NONCE + bytes + COLLI_MAC_BYTES;
  return COLL_OK;
}

/* Opens. */
static coll_status unwrap_message(const colli_seal *seal, uint64_t deadline_ns,
                                  const uint8_t *sealed, size_t sealed_bytes, void *data,
                                  size_t bytes, coll_error *error) {
  uint8_t mac[COLLI_MAC_BYTES];
  (void)deadline_ns;
  bool sound = sealed_bytes == NONCE + bytes + COLLI_MAC_BYTES;
  if (sound && !sign(seal, sealed, NONCE + bytes, mac))
    return no_memory(error);
  if (!sound || !colli_hmac_equal(mac, sealed + NONCE + bytes))
    return colli_error_set(error, COLL_ERR_AUTH, "create",
                           "something without this job's key answers");
  memcpy(data, sealed + NONCE, bytes);
  return stir(seal, sealed, data, bytes) ? COLL_OK : no_memory(error);
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
