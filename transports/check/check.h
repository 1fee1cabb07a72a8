/*
 * check.h: a decorator that notices on arrival if a message is not what the other rank sent.
 * COLL_DATA_CHECK says how; without it nothing is wrapped and nothing is paid.
 *
 *   crc32c  a checksum, against devices that damage data
 *   mac     a code (AES-256-GMAC) that only ranks of the communicator can compute, against those
 * who can change packets. Its key belongs to this communicator, pair, channel and direction.
 *
 * A message of the inner transport is the payload, then a *trailer*: the message's number on its
 * connection, and a checksum or code over sender, receiver, channel, number, tag, length and
 * payload. So damaged, altered, misdirected, lost, repeated and swapped messages are noticed, and
 * with a mac those of others, too. Nobody sees a payload before it was checked. What would pass by
 * the messages is hidden: references, shared work, and writes to announced places.
 */
#ifndef COLLI_TRANSPORTS_CHECK_CHECK_H
#define COLLI_TRANSPORTS_CHECK_CHECK_H

#include "coll/coll_transport.h"
#include "libcoll/base/param.h"
#include "libcoll/net/auth.h"

/* Reads what a rank has drawn for this communicator, so that keys are fresh even if the secret is
 * not; `ctx` is env->ctx. Called by connect(). */
typedef void check_nonce(void *ctx, int rank, uint8_t nonce[COLLI_NONCE_BYTES]);

/* The table of a decorated transport; `ops` comes first, as open() finds the rest from env->ops. */
typedef struct check_table {
  coll_transport_ops ops;
  const coll_transport_ops *inner;
  colli_data_check kind;
  check_nonce *nonce;
} check_table;

/*
 * Decorates a transport: fills in *table, which must stay where it is as long as the transport is
 * in use, and returns &table->ops. Memory that ranks share gets no mac: only they can write there,
 * and who can write to it in spite of that can write to their other memory, too. Then, and for
 * NONE, returns `inner`.
 */
const coll_transport_ops *colli_check_over(const coll_transport_ops *inner, colli_data_check kind,
                                           check_nonce *nonce, check_table *table);

#endif
