/* aead.h: short messages encrypted under a key: AES-256-GCM, from OpenSSL. */
#ifndef COLLI_NET_AEAD_H
#define COLLI_NET_AEAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll_transport.h"

#define COLLI_AEAD_NONCE_BYTES 12
#define COLLI_AEAD_CODE_BYTES  16
/* Bytes that a message grows by: nonce before it, code behind it. */
#define COLLI_AEAD_EXTRA (COLLI_AEAD_NONCE_BYTES + COLLI_AEAD_CODE_BYTES)

/* Encrypts `bytes` of data to bytes + COLLI_AEAD_EXTRA of out, with a random nonce: good for some
 * thousands of messages of a key. 0, or an errno: ENOMEM, or what getrandom() returned. */
int colli_aead_encrypt(const uint8_t key[COLL_SECRET_BYTES], const void *data, size_t bytes,
                       uint8_t *out);

/* Decrypts to `bytes` of data. 0, EBADMSG (made with another key, or altered; data is then zeros),
 * or ENOMEM. */
int colli_aead_decrypt(const uint8_t key[COLL_SECRET_BYTES], const uint8_t *message, void *data,
                       size_t bytes);

#endif
