/* check_internal.h: endpoint and connections of the decorator, as its files share them. */
#ifndef COLLI_TRANSPORTS_CHECK_CHECK_INTERNAL_H
#define COLLI_TRANSPORTS_CHECK_CHECK_INTERNAL_H

#include "libcoll/net/auth.h"
#include "transports/check/check.h"
#include "transports/check/check_crc32c.h"

#define CHECK_CODE_BYTES   COLLI_GMAC_BYTES
#define CHECK_SLOT_BYTES   64 /* by which slots of the inner transport are larger */
#define CHECK_DETAIL_BYTES 400

/* Follows each payload, not aligned. */
typedef struct check_trailer {
  uint64_t number; /* of the message on its connection, from 0 */
  uint8_t code[CHECK_CODE_BYTES];
} check_trailer;
_Static_assert(sizeof(check_trailer) <= CHECK_SLOT_BYTES, "fits in what slots are larger by");

/* One direction of a connection. */
typedef struct check_stream {
  int src, dst, channel;
  uint64_t number; /* of the next message */
  uint64_t bytes;  /* of the payloads before it */
  check_crc32c_fn crc32c;
  colli_gmac *mac; /* NULL: checksums */
} check_stream;

typedef struct check_conn {
  coll_conn conn;
  coll_conn *inner;
  coll_endpoint *ep;
  check_stream send, recv;
  char *slot; /* acquired, or NULL */
  bool seen;  /* the inner connection's next message was checked; it is: */
  coll_tag tag;
  size_t payload_bytes;
  char *copy; /* ... here, if others could still change it where it arrived; else NULL */
  coll_status status;
  char why[CHECK_DETAIL_BYTES];
} check_conn;

struct coll_endpoint {
  const check_table *table;
  coll_endpoint *inner;
  const coll_transport_env *env;
  coll_transport_env inner_env; /* the same, with larger slots */
};

/* ---- check_code.c: numbers and codes ----------------------------------------------------------
 */

/* What a message is found to be. */
typedef enum check_verdict {
  CHECK_GOOD,
  CHECK_CUT, /* shorter than a trailer */
  CHECK_ALTERED,
  CHECK_REPEATED, /* an earlier one */
  CHECK_SKIPPED,  /* a later one */
  CHECK_UNABLE    /* out of memory */
} check_verdict;

/* Prepares a direction from `src` to `dst`; false: out of memory. */
bool check_stream_open(check_stream *stream, const coll_endpoint *ep, int src, int dst,
                       int channel);
void check_stream_close(check_stream *stream);

/* Writes the trailer behind a payload, and counts the message; false: out of memory. */
bool check_seal(check_stream *stream, const coll_tag *tag, char *payload, size_t bytes);

/* Checks a received message of `bytes` bytes with its trailer, which says that it is number *came;
 * does not count it. */
check_verdict check_verify(const check_stream *stream, const coll_tag *tag, const char *message,
                           size_t bytes, uint64_t *came);

/* Counts a received message with `bytes` bytes of payload. */
void check_count(check_stream *stream, size_t bytes);

/* ---- check_conn.c: data calls ---------------------------------------------------------------- */

int check_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES], int channel,
                  coll_conn **conn);
void check_disconnect(coll_conn *conn);
int check_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);
int check_sent(coll_conn *conn, uint64_t *count);
int check_slot_acquire(coll_conn *conn, size_t bytes, void **buf);
int check_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes);
int check_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
               size_t *got_bytes);
int check_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes);
int check_slot_release(coll_conn *conn);
int check_paths(coll_conn *conn, char *text, size_t bytes);
double check_round_trip(coll_conn *conn);

#endif
