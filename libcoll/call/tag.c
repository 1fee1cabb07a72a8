/*
 * tag.c: what travels in front of every message. It holds all that the ranks must agree on:
 *   word 0: count (48 bits) and the size of a type of the caller's own (16 bits); word 1: sequence
 *   number (high half) and root (16 bits); word 2: collective (bit 7: a v-form), type, operation,
 *   algorithm (a byte each) and the number of passes (24 bits). Bits 16 .. 31 of word 1 and the top
 *   byte of word 2 are left to connections that several communicators share (mux.h).
 */
#include "libcoll/call/tag.h"

#include <stdio.h>

#include "libcoll/base/names.h"

#define COUNT_MASK  0xffffffffffffull
#define CALL_MASK   0xffffffull /* collective, type and operation in word 2 */
#define ROOT_MASK   0xffffull
#define PASSES_MASK 0xffffffull

#define VARYING   0x80u
#define USER_TYPE 0xffu /* its size is in word 0 */
#define USER_OP   0x80u /* plus its number */

/* The tag of an operation. */
coll_tag colli_tag_make(colli_coll coll, bool varying, size_t count, int type, int op, int root,
                        uint64_t sequence, int algo, int passes) {
  uint64_t code = (uint64_t)type, size = 0, op_code = (uint64_t)op & 0xff;
  if (type >= COLL_TYPE_USER_BASE)
    code = USER_TYPE, size = (uint64_t)(type - COLL_TYPE_USER_BASE);
  if (op >= COLL_OP_USER_BASE)
    op_code = USER_OP + (uint64_t)(op - COLL_OP_USER_BASE);
  coll_tag tag;
  tag.word[0] = (count & COUNT_MASK) | size << 48;
  tag.word[1] = (sequence & 0xffffffffu) << 32 | ((uint64_t)root & ROOT_MASK);
  tag.word[2] = (uint64_t)coll | (varying ? VARYING : 0) | code << 8 | op_code << 16 |
                (uint64_t)algo << 24 | ((uint64_t)passes & PASSES_MASK) << 32;
  return tag;
}

/* The name of the call behind an all-gather that makes a communicator or window, or NULL. */
static const char *maker_name(int coll, int op) {
  static const char *const names[] = {NULL, "coll_comm_split()", "coll_comm_dup()",
                                      "coll_comm_subset()", "coll_window_create()"};
  return coll == COLLI_ALLGATHER && op < 5 ? names[op] : NULL;
}

/* "allreduce(count 8, float32, sum)" */
const char *colli_tag_text(const coll_tag *tag, char text[COLLI_TAG_TEXT]) {
  int coll = tag->word[2] & 0x7f, type = tag->word[2] >> 8 & 0xff, op = tag->word[2] >> 16 & 0xff;
  bool varying = tag->word[2] & VARYING;
  const char *name = coll < COLLI_COLL_COUNT ? colli_coll_name((colli_coll)coll) : "unknown";
  char type_text[32], op_text[32] = "", root_text[32] = "", count_text[40] = "";
  if (type == USER_TYPE)
    snprintf(type_text, sizeof(type_text), "elements of %u bytes", (unsigned)(tag->word[0] >> 48));
  else
    snprintf(type_text, sizeof(type_text), "%s", colli_type_name(type));
  if (colli_reduces((colli_coll)coll) && op >= (int)USER_OP)
    snprintf(op_text, sizeof(op_text), ", operation %u of the caller's", op - USER_OP);
  else if (colli_reduces((colli_coll)coll))
    snprintf(op_text, sizeof(op_text), ", %s", colli_op_name(op));
  if (colli_rooted((colli_coll)coll))
    snprintf(root_text, sizeof(root_text), ", root %u", (unsigned)(tag->word[1] & ROOT_MASK));
  if (!varying)
    snprintf(count_text, sizeof(count_text), "count %llu, ",
             (unsigned long long)(tag->word[0] & COUNT_MASK));
  else if (tag->word[0] & COUNT_MASK)
    snprintf(count_text, sizeof(count_text), "counts with checksum %llx, ",
             (unsigned long long)(tag->word[0] & COUNT_MASK));
  if (coll == COLLI_BARRIER)
    snprintf(text, COLLI_TAG_TEXT, "%s()", name);
  else if (maker_name(coll, op))
    snprintf(text, COLLI_TAG_TEXT, "%s", maker_name(coll, op));
  else
    snprintf(text, COLLI_TAG_TEXT, "%s%s(%s%s%s%s)", name, varying ? "v" : "", count_text,
             type_text, op_text, root_text);
  return text;
}

uint32_t colli_tag_sequence(const coll_tag *tag) {
  return (uint32_t)(tag->word[1] >> 32);
}

/* Whether two tags are the same call; what the ranks chose by themselves is left out. */
bool colli_tag_same_call(const coll_tag *a, const coll_tag *b) {
  return a->word[0] == b->word[0] && a->word[1] == b->word[1] &&
         (a->word[2] & CALL_MASK) == (b->word[2] & CALL_MASK);
}
