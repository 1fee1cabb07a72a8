/*
 * fault_tamper.c: a message that arrives wrong, twice, late or never. The messages of such a
 * connection are taken from the inner one first, and shown from memory of the decorator.
 */
#include <stdlib.h>
#include <string.h>

#include "transports/hook/fault_internal.h"

/* Makes sure that a message has memory. */
static int need_memory(fault_conn *fc, fault_message *message) {
  if (!message->payload)
    message->payload = malloc(fc->ep->env->slot_bytes);
  if (message->payload)
    return COLL_T_DONE;
  fc->status = COLL_ERR_NO_MEMORY;
  fc->why = "out of memory for a message that COLL_FAULT changes";
  return fault_report(fc);
}

/* Takes the next message from the inner connection. */
static int take(fault_conn *fc, fault_message *message) {
  const void *payload;
  int status = fc->inner->ops->slot_peek(fc->inner, &message->tag, &payload, &message->bytes);
  if (status != COLL_T_DONE)
    return status;
  if (message->bytes > 0)
    memcpy(message->payload, payload, message->bytes);
  message->full = true;
  fc->tamper.taken++;
  return fc->inner->ops->slot_release(fc->inner);
}

/* Changes one bit of a message's tag or payload. */
static void flip(fault_conn *fc, fault_message *message) {
  size_t bit = (size_t)colli_prng_below(&fc->ep->prng, 8 * (sizeof(coll_tag) + message->bytes));
  size_t byte = bit / 8;
  char *at = byte < sizeof(coll_tag) ? (char *)&message->tag + byte
                                     : message->payload + (byte - sizeof(coll_tag));
  *at = (char)(*at ^ 1 << bit % 8);
}

/* Does to the message that was just taken what the plan says. */
static void tamper(fault_conn *fc) {
  fault_tamper *t = &fc->tamper;
  fault_message taken = t->shown;
  if (t->kind == FAULT_FLIP) {
    flip(fc, &t->shown);
  } else if (t->kind == FAULT_LOSE) {
    t->shown.full = false;
  } else if (t->kind == FAULT_SWAP) {
    t->shown = t->kept;
    t->kept = taken;
  } else {
    t->kept.full = true;
    t->kept.tag = taken.tag;
    t->kept.bytes = taken.bytes;
    memcpy(t->kept.payload, taken.payload, taken.bytes);
  }
}

int fault_tamper_peek(fault_conn *fc, coll_tag *got, const void **buf, size_t *bytes) {
  fault_tamper *t = &fc->tamper;
  int status = need_memory(fc, &t->shown);
  if (status == COLL_T_DONE)
    status = need_memory(fc, &t->kept);
  while (status == COLL_T_DONE && !t->shown.full) {
    status = take(fc, &t->shown);
    if (status == COLL_T_DONE && t->taken == t->at + 1)
      tamper(fc);
  }
  *got = t->shown.tag;
  *buf = t->shown.payload;
  *bytes = t->shown.bytes;
  return status;
}

int fault_tamper_release(fault_conn *fc) {
  fault_tamper *t = &fc->tamper;
  fault_message released = t->shown;
  t->shown = t->kept;
  t->kept = released;
  t->kept.full = false;
  return COLL_T_DONE;
}

int fault_tamper_recv(fault_conn *fc, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  const void *payload;
  int status = fault_tamper_peek(fc, got, &payload, got_bytes);
  if (status != COLL_T_DONE)
    return status;
  if (*got_bytes != bytes || memcmp(got, expect, sizeof(*got)) != 0)
    return COLL_ERR_MISMATCH;
  if (bytes > 0)
    memcpy(buf, payload, bytes);
  return fault_tamper_release(fc);
}

void fault_tamper_free(fault_conn *fc) {
  free(fc->tamper.shown.payload);
  free(fc->tamper.kept.payload);
}
