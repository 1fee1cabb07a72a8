/* meet_wire.h: what rank 0 and the others exchange when they meet. */
#ifndef COLLI_CREATE_MEET_WIRE_H
#define COLLI_CREATE_MEET_WIRE_H

#include "libcoll/create/meet.h"
#include "libcoll/net/auth.h"

/* What comes first, so that rank 0's kernel need not hand over who says nothing or something else.
 */
typedef struct colli_meet_greeting {
  uint32_t magic;
  uint8_t pad[4];
} colli_meet_greeting;
#define COLLI_MEET_GREETING 0x676d4c43u /* "CLmg" */

/* Sealed in rank 0's answer. */
typedef struct colli_meet_message {
  char job[COLLI_MEET_JOB];
  uint8_t key[COLL_SECRET_BYTES]; /* fresh, for receipts */
  uint8_t has_id;                 /* 0: rank 0 failed */
  uint8_t pad[7];
  coll_id id;
} colli_meet_message;

/* In front of it. */
typedef struct colli_meet_header {
  uint32_t magic;
  uint32_t bytes; /* at most COLLI_SEALED_MAX */
} colli_meet_header;
#define COLLI_MEET_MAGIC 0x746d4c43u /* "CLmt" */

/* A rank has opened it. */
typedef struct colli_meet_receipt {
  uint32_t rank;
  uint8_t mac[COLLI_MAC_BYTES];
} colli_meet_receipt;

/* Rank 0's part. */
coll_status colli_meet_host(const colli_meeting *meeting, uint64_t deadline_ns, int nranks,
                            const colli_id *id, coll_error *error);

#endif
