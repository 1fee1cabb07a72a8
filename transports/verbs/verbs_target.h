/*
 * verbs_target.h: long messages that are written straight to where the receiver wants them. No
 * device needed.
 *
 * A receiver that knows where its next messages belong sends an *advert*: the number of the first
 * of them, an address and its key, and the tag that they must carry. Messages of those numbers that
 * the sender has not sent by then, whose lengths and tag are as advertised, are written straight to
 * their target; all others go through the ring (verbs_ring.h). The sender has compared tags and
 * lengths with what the receiver expects, so what arrives there need not carry its tag.
 *
 * A receiver that does not know how many other messages come before offers a target to a sender
 * that will wait for it: the first number then counts only messages that go to targets. What the
 * sender copies takes its place in the ring all the same, at both ends, because it is put together
 * in the memory that mirrors the ring; only its bytes go elsewhere. Of one direction, all adverts
 * are offers, or none.
 *
 * Adverts lie in memory of the sender of messages: VERBS_TARGETS of them, used in turn. One is
 * overwritten once its receiver has said, in the immediate bits of its messages, that it has copied
 * it.
 */
#ifndef COLLI_TRANSPORTS_VERBS_TARGET_H
#define COLLI_TRANSPORTS_VERBS_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coll/coll_transport.h"

#define VERBS_TARGETS 8u /* a power of two */
#define VERBS_TARGETS_COUNTED                                                                      \
  64u /* copied adverts are counted modulo this; older counts are recognized */

/* Who fills a target that was offered. */
enum { VERBS_OFFERED_DEVICE = 1, VERBS_OFFERED_COPIES = 2 };

/* Describes a target; it is sent byte for byte. */
typedef struct verbs_advert {
  uint64_t first; /* message of the connection, from 0 */
  uint64_t address;
  uint64_t bytes; /* of all messages together */
  uint32_t slice; /* of each but the last */
  uint32_t key;
  coll_tag tag;
  uint64_t offered; /* VERBS_OFFERED_..., or 0 */
} verbs_advert;
_Static_assert(sizeof(verbs_advert) == 64, "travels as it is");

/* Messages that a target holds. */
static inline uint64_t verbs_advert_count(const verbs_advert *advert) {
  return (advert->bytes + advert->slice - 1) / advert->slice;
}

/* The adverts of one direction, as both ends know them: from `over` to `made`, modulo their number.
 */
typedef struct verbs_targets {
  verbs_advert advert[VERBS_TARGETS];
  uint64_t made;
  uint64_t over;   /* no more messages for them will come */
  bool offered;    /* what messages are counted: as in the adverts */
  uint64_t copied; /* the receiver of the advert has them */
} verbs_targets;

/* Whether one more can be advertised. */
bool verbs_targets_free(const verbs_targets *targets);

/*
 * The peer has said how many it has copied, modulo VERBS_TARGETS_COUNTED; false: it makes no sense.
 * What a completion says may be older than what a short message behind it has said, by
 * VERBS_TARGETS that were under way then, and one for each of VERBS_SENDS that could be sent before
 * the completion was taken: fewer than VERBS_TARGETS_COUNTED - VERBS_TARGETS.
 */
bool verbs_targets_copied(verbs_targets *targets, uint32_t low);

/* Adds an advert, made or come from the peer; false: it makes no sense. */
bool verbs_targets_add(verbs_targets *targets, const verbs_advert *advert);

/* Forgets targets all of whose messages lie before number `next`. */
void verbs_targets_pass(verbs_targets *targets, uint64_t next);

/* The target of message number `number`, the offset in it and its length; NULL: there is none. */
const verbs_advert *verbs_targets_find(const verbs_targets *targets, uint64_t number,
                                       uint64_t *offset, size_t *bytes);

#endif
