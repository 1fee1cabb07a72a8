/* test_aead.c: encrypted messages: known ones, any size, altered, with another key. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "libcoll/net/aead.h"

/* Test cases 13 and 14 of "The Galois/Counter Mode of Operation" (McGrew and Viega): all zeros. */
Test(aead, known_messages) {
  static const uint8_t key[COLL_SECRET_BYTES];
  static const uint8_t nothing[COLLI_AEAD_EXTRA] = {[12] = 0x53, 0x0f, 0x8a, 0xfb, 0xc7, 0x45,
                                                    0x36,        0xb9, 0xa9, 0x63, 0xb4, 0xf1,
                                                    0xc4,        0xcb, 0x73, 0x8b};
  static const uint8_t sixteen[COLLI_AEAD_EXTRA + 16] = {
      [12] = 0xce, 0xa7, 0x40, 0x3d, 0x4d, 0x60, 0x6b, 0x6e, 0x07, 0x4e, 0xc5,
      0xd3,        0xba, 0xf3, 0x9d, 0x18, 0xd0, 0xd1, 0xc8, 0xa7, 0x99, 0x99,
      0x6b,        0xf0, 0x26, 0x5b, 0x98, 0xb5, 0xd4, 0x8a, 0xb9, 0x19};
  static const uint8_t zeros[16];
  uint8_t data[16];
  cr_expect_eq(colli_aead_decrypt(key, nothing, data, 0), 0);
  memset(data, 1, sizeof(data));
  cr_expect_eq(colli_aead_decrypt(key, sixteen, data, 16), 0);
  cr_expect_arr_eq(data, zeros, 16);
}

Test(aead, any_size_and_each_altered_bit) {
  const size_t sizes[] = {0, 1, 15, 16, 17, 500, 1999};
  const uint8_t key[COLL_SECRET_BYTES] = {7}, other[COLL_SECRET_BYTES] = {8};
  static const uint8_t zeros[2000];
  uint8_t data[2000], back[2000], message[2000 + COLLI_AEAD_EXTRA];
  for (size_t i = 0; i < sizeof(data); i++)
    data[i] = (uint8_t)(i * 31 + 1);
  for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
    const size_t bytes = sizes[s], all = bytes + COLLI_AEAD_EXTRA;
    cr_assert_eq(colli_aead_encrypt(key, data, bytes, message), 0);
    cr_expect_eq(colli_aead_decrypt(key, message, back, bytes), 0);
    cr_expect_arr_eq(back, data, bytes);
    cr_expect_eq(colli_aead_decrypt(other, message, back, bytes), EBADMSG);
    cr_expect_arr_eq(back, zeros, bytes);
    for (size_t bit = 0; bit < 8 * all; bit += bytes < 100 ? 1 : 97) {
      message[bit / 8] ^= (uint8_t)(1 << bit % 8);
      cr_assert_eq(colli_aead_decrypt(key, message, back, bytes), EBADMSG, "bit %zu", bit);
      message[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
  }
}

Test(aead, equal_messages_look_different) {
  const uint8_t key[COLL_SECRET_BYTES] = {7};
  uint8_t a[COLLI_AEAD_EXTRA + 4], b[COLLI_AEAD_EXTRA + 4];
  cr_assert_eq(colli_aead_encrypt(key, "same", 4, a), 0);
  cr_assert_eq(colli_aead_encrypt(key, "same", 4, b), 0);
  cr_expect_neq(memcmp(a, b, COLLI_AEAD_NONCE_BYTES), 0);
  cr_expect_neq(memcmp(a + COLLI_AEAD_NONCE_BYTES, b + COLLI_AEAD_NONCE_BYTES, 4), 0);
}
