/*
 * tag.c: what travels in front of every message. It holds all that the ranks must agree on:
 *   word 0: count; word 1: sequence number (high half) and root; word 2: collective, type,
 * operation, algorithm (a byte each) and the number of passes.
 */
#include <stdio.h>

#include "libcoll/comm/comm.h"

#define CALL_MASK 0xffffffull /* collective, type and operation in word 2 */

/* The tag of an operation. */
coll_tag colli_tag_make(colli_coll coll, size_t count, int type, int op, int root,
                        uint64_t sequence, int algo, int passes) {
  coll_tag tag;
  tag.word[0] = count;
  tag.word[1] = (sequence & 0xffffffffu) << 32 | (uint32_t)root;
  tag.word[2] = (uint64_t)coll | (uint64_t)type << 8 | (uint64_t)op << 16 | (uint64_t)algo << 24 |
                (uint64_t)passes << 32;
  return tag;
}

const char *colli_type_name(int type) {
  static const char *const names[COLL_TYPE_COUNT] = {
      "int8",        "uint8",       "int16",     "uint16",    "int32",       "uint32",
      "int64",       "uint64",      "float16",   "bfloat16",  "float32",     "float64",
      "float8_e4m3", "float8_e5m2", "int32_loc", "int64_loc", "float32_loc", "float64_loc"};
  return type >= 0 && type < COLL_TYPE_COUNT ? names[type] : "unknown type";
}

const char *colli_op_name(int op) {
  static const char *const names[COLL_OP_COUNT] = {"sum",  "prod",   "min",   "max",  "avg",
                                                   "band", "bor",    "bxor",  "land", "lor",
                                                   "lxor", "minloc", "maxloc"};
  return op >= 0 && op < COLL_OP_COUNT ? names[op] : "unknown operation";
}

/* "allreduce(count 8, float32, sum)" */
const char *colli_tag_text(const coll_tag *tag, char text[COLLI_TAG_TEXT]) {
  int coll = tag->word[2] & 0xff, type = tag->word[2] >> 8 & 0xff, op = tag->word[2] >> 16 & 0xff;
  unsigned long long count = tag->word[0];
  const char *name = coll < COLLI_COLL_COUNT ? colli_coll_name((colli_coll)coll) : "unknown";
  if (coll == COLLI_BARRIER)
    snprintf(text, COLLI_TAG_TEXT, "%s()", name);
  else if (coll == COLLI_ALLREDUCE)
    snprintf(text, COLLI_TAG_TEXT, "%s(count %llu, %s, %s)", name, count, colli_type_name(type),
             colli_op_name(op));
  else if (coll == COLLI_BROADCAST)
    snprintf(text, COLLI_TAG_TEXT, "%s(count %llu, %s, root %u)", name, count,
             colli_type_name(type), (unsigned)tag->word[1]);
  else
    snprintf(text, COLLI_TAG_TEXT, "%s(count %llu, %s)", name, count, colli_type_name(type));
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
