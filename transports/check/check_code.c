/* check_code.c: the number and the code of a message. */
#include <string.h>

#include "transports/check/check_internal.h"

/* What a code covers besides the payload. It has no padding. */
typedef struct cover {
  int32_t src, dst, channel;
  uint32_t bytes;
  uint64_t number;
  coll_tag tag;
} cover;
_Static_assert(sizeof(cover) == 48, "covered byte for byte");

/* What the key of a direction is derived from. It has no padding. */
typedef struct key_source {
  char use[16];
  uint64_t comm_id;
  int32_t src, dst, channel, nranks;
  uint8_t src_nonce[COLLI_NONCE_BYTES], dst_nonce[COLLI_NONCE_BYTES];
} key_source;
_Static_assert(sizeof(key_source) == 40 + 2 * COLLI_NONCE_BYTES, "hashed byte for byte");

/* The key of a direction; false: out of memory. */
static bool derive_key(const coll_endpoint *ep, const check_stream *stream,
                       uint8_t key[COLLI_MAC_BYTES]) {
  const coll_transport_env *env = ep->env;
  key_source source = {.use = "libcoll data mac",
                       .comm_id = env->comm_id,
                       .src = stream->src,
                       .dst = stream->dst,
                       .channel = stream->channel,
                       .nranks = env->nranks};
  ep->table->nonce(env->ctx, stream->src, source.src_nonce);
  ep->table->nonce(env->ctx, stream->dst, source.dst_nonce);
  return colli_hmac(env->secret, &source, sizeof(source), key);
}

bool check_stream_open(check_stream *stream, const coll_endpoint *ep, int src, int dst,
                       int channel) {
  *stream =
      (check_stream){.src = src, .dst = dst, .channel = channel, .crc32c = check_crc32c(false)};
  if (ep->table->kind != COLLI_DATA_CHECK_MAC)
    return true;
  uint8_t key[COLLI_MAC_BYTES];
  if (derive_key(ep, stream, key))
    stream->mac = colli_gmac_open(key);
  explicit_bzero(key, sizeof(key));
  return stream->mac != NULL;
}

void check_stream_close(check_stream *stream) {
  colli_gmac_close(stream->mac);
  stream->mac = NULL;
}

/* The code of message `number`; false: out of memory. */
static bool compute_code(const check_stream *stream, uint64_t number, const coll_tag *tag,
                         const char *payload, size_t bytes, uint8_t code[CHECK_CODE_BYTES]) {
  cover head = {stream->src, stream->dst, stream->channel, (uint32_t)bytes, number, *tag};
  if (stream->mac)
    return colli_gmac_compute(stream->mac, number, &head, sizeof(head), payload, bytes, code);
  uint32_t crc = stream->crc32c(stream->crc32c(0, &head, sizeof(head)), payload, bytes);
  memset(code, 0, CHECK_CODE_BYTES);
  memcpy(code, &crc, sizeof(crc));
  return true;
}

void check_count(check_stream *stream, size_t bytes) {
  stream->number++;
  stream->bytes += bytes;
}

bool check_seal(check_stream *stream, const coll_tag *tag, char *payload, size_t bytes) {
  check_trailer trailer = {.number = stream->number};
  if (!compute_code(stream, trailer.number, tag, payload, bytes, trailer.code))
    return false;
  memcpy(payload + bytes, &trailer, sizeof(trailer));
  check_count(stream, bytes);
  return true;
}

/* Takes the same time for all codes. */
static bool differ(const uint8_t a[CHECK_CODE_BYTES], const uint8_t b[CHECK_CODE_BYTES]) {
  uint8_t bits = 0;
  for (int i = 0; i < CHECK_CODE_BYTES; i++)
    bits |= a[i] ^ b[i];
  return bits != 0;
}

check_verdict check_verify(const check_stream *stream, const coll_tag *tag, const char *message,
                           size_t bytes, uint64_t *came) {
  check_trailer trailer;
  uint8_t code[CHECK_CODE_BYTES];
  *came = stream->number;
  if (bytes < sizeof(trailer))
    return CHECK_CUT;
  bytes -= sizeof(trailer);
  memcpy(&trailer, message + bytes, sizeof(trailer));
  if (!compute_code(stream, trailer.number, tag, message, bytes, code))
    return CHECK_UNABLE;
  if (differ(code, trailer.code))
    return CHECK_ALTERED;
  *came = trailer.number;
  if (trailer.number == stream->number)
    return CHECK_GOOD;
  return trailer.number < stream->number ? CHECK_REPEATED : CHECK_SKIPPED;
}
