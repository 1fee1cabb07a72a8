/* aead.c: short messages encrypted under a key. */
#include "libcoll/net/aead.h"

#include <errno.h>
#include <openssl/evp.h>
#include <string.h>

#include "libcoll/base/prng.h"

int colli_aead_encrypt(const uint8_t key[COLL_SECRET_BYTES], const void *data, size_t bytes,
                       uint8_t *out) {
  uint8_t *text = out + COLLI_AEAD_NONCE_BYTES;
  int used, failed = colli_random_secret(out, COLLI_AEAD_NONCE_BYTES);
  if (failed)
    return failed;
  EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  bool good =
      context && EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), NULL, key, out) == 1 &&
      EVP_EncryptUpdate(context, text, &used, data, (int)bytes) == 1 &&
      EVP_EncryptFinal_ex(context, text + bytes, &used) == 1 &&
      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, COLLI_AEAD_CODE_BYTES, text + bytes) == 1;
  EVP_CIPHER_CTX_free(context);
  return good ? 0 : ENOMEM;
}

int colli_aead_decrypt(const uint8_t key[COLL_SECRET_BYTES], const uint8_t *message, void *data,
                       size_t bytes) {
  const uint8_t *text = message + COLLI_AEAD_NONCE_BYTES;
  uint8_t code[COLLI_AEAD_CODE_BYTES], rest[1];
  int used;
  memcpy(code, text + bytes, sizeof(code)); /* OpenSSL takes no constant */
  EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
  bool able = context && EVP_DecryptInit_ex(context, EVP_aes_256_gcm(), NULL, key, message) == 1 &&
              EVP_DecryptUpdate(context, data, &used, text, (int)bytes) == 1 &&
              EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, COLLI_AEAD_CODE_BYTES, code) == 1;
  bool good = able && EVP_DecryptFinal_ex(context, rest, &used) == 1;
  EVP_CIPHER_CTX_free(context);
  if (!good)
    explicit_bzero(data, bytes);
  return good ? 0 : able ? EBADMSG : ENOMEM;
}
