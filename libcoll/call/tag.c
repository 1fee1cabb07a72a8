/* tag.c: makes the tag of a collective, and describes it in words. */
#include "libcoll/call/tag.h"

#include <stdio.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/names.h"
#include "libcoll/call/ops.h"

/* The tag of an operation. */
coll_tag colli_tag_make(colli_coll coll, bool varying, size_t count, int type, uint32_t op,
                        int root, uint64_t sequence, int algo, int passes) {
  COLLI_ASSERT(coll < COLLI_COLL_COUNT && root >= 0 && passes >= 0);
  COLLI_ASSERT(algo >= 0 && algo <= 255);
  coll_tag tag = {{0}};
  colli_tag_put_elements(&tag, type, count);
  colli_tag_put(&tag, COLLI_TAG_ROOT, (uint64_t)root);
  colli_tag_put(&tag, COLLI_TAG_SEQUENCE, sequence);
  colli_tag_put(&tag, COLLI_TAG_COLL, (uint64_t)coll);
  colli_tag_put(&tag, COLLI_TAG_VARYING, varying);
  colli_tag_put_op(&tag, op, (uint64_t)passes);
  colli_tag_put(&tag, COLLI_TAG_ALGO, (uint64_t)algo);
  return tag;
}

/* The name of the call behind an all-gather that makes a communicator or window, or NULL. */
static const char *maker_name(colli_coll coll, unsigned makes) {
  static const char *const names[COLLI_MAKES_COUNT] = {NULL,
                                                       "coll_comm_split()",
                                                       "coll_comm_dup()",
                                                       "coll_comm_subset()",
                                                       "coll_window_create()",
                                                       "coll_comm_use_gpu()",
                                                       "coll_comm_register()",
                                                       "coll_comm_deregister()"};
  return coll == COLLI_ALLGATHER && makes < COLLI_MAKES_COUNT ? names[makes] : NULL;
}

/* "float32", "elements of 12 bytes" */
static void write_type(const coll_tag *tag, char *text, size_t bytes) {
  int type = colli_tag_type(tag);
  if (type >= COLL_TYPE_USER_BASE)
    snprintf(text, bytes, "elements of %d bytes", type - COLL_TYPE_USER_BASE);
  else
    snprintf(text, bytes, "%s", colli_type_name(type));
}

/* ", sum"; nothing where nothing is combined. */
static void write_op(colli_coll coll, const coll_tag *tag, char *text, size_t bytes) {
  const uint32_t op = colli_tag_op(tag);
  const uint32_t number = op & ~(COLLI_TAG_USER_OP_CODE << 16);
  *text = 0;
  if (!colli_reduces(coll))
    return;
  if (!colli_tag_has_user_op(tag))
    snprintf(text, bytes, ", %s", colli_op_name(op));
  else if (number == COLLI_OP_PREMUL)
    snprintf(text, bytes, ", pre-multiplied sum");
  else
    snprintf(text, bytes, ", operation 0x%06x", number);
}

/* "count 8, ", or for a v-form whose counts all ranks know "counts with checksum 1f, ", or for a
 * part of a call "count 8 of a longer call with checksum 4001f, ". */
static void write_count(const coll_tag *tag, char *text, size_t bytes) {
  unsigned long long count = colli_tag_count(tag), part = colli_tag_part(tag);
  *text = 0;
  if (part)
    snprintf(text, bytes, "count %llu of a longer call with checksum %llx, ", count, part);
  else if (!colli_tag_get(tag, COLLI_TAG_VARYING))
    snprintf(text, bytes, "count %llu, ", count);
  else if (count)
    snprintf(text, bytes, "counts with checksum %llx, ", count);
}

/* "allreduce(count 8, float32, sum)" */
const char *colli_tag_text(const coll_tag *tag, char text[COLLI_TAG_TEXT]) {
  colli_coll coll = (colli_coll)colli_tag_get(tag, COLLI_TAG_COLL);
  unsigned op = (unsigned)colli_tag_get(tag, COLLI_TAG_OP);
  const char *name = coll < COLLI_COLL_COUNT ? colli_coll_name(coll) : "unknown";
  const char *maker = maker_name(coll, op);
  char type_text[32], op_text[32], root_text[32] = "", count_text[72];
  write_type(tag, type_text, sizeof(type_text));
  write_op(coll, tag, op_text, sizeof(op_text));
  write_count(tag, count_text, sizeof(count_text));
  if (colli_rooted(coll))
    snprintf(root_text, sizeof(root_text), ", root %u",
             (unsigned)colli_tag_get(tag, COLLI_TAG_ROOT));
  if (coll == COLLI_BARRIER)
    snprintf(text, COLLI_TAG_TEXT, "%s()", name);
  else if (maker)
    snprintf(text, COLLI_TAG_TEXT, "%s", maker);
  else
    snprintf(text, COLLI_TAG_TEXT, "%s%s(%s%s%s%s)", name,
             colli_tag_get(tag, COLLI_TAG_VARYING) ? "v" : "", count_text, type_text, op_text,
             root_text);
  return text;
}

/* "4 MiB ", "12 B ", "1.5 GiB "; nothing where ranks may have different counts. */
static void write_bytes(const coll_tag *tag, char *text, size_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int type = colli_tag_type(tag), unit = 0;
  double size = (double)colli_tag_count(tag) * (double)(type >= COLL_TYPE_USER_BASE
                                                            ? (size_t)(type - COLL_TYPE_USER_BASE)
                                                            : coll_type_bytes((coll_type)type));
  for (; size >= 1024 && unit < 4; unit++)
    size /= 1024;
  *text = 0;
  if (!colli_tag_get(tag, COLLI_TAG_VARYING))
    snprintf(text, bytes, "%.4g %s ", size, units[unit]);
}

const char *colli_tag_brief(const coll_tag *tag, char text[COLLI_TAG_TEXT]) {
  colli_coll coll = (colli_coll)colli_tag_get(tag, COLLI_TAG_COLL);
  unsigned op = (unsigned)colli_tag_get(tag, COLLI_TAG_OP);
  const char *name = coll < COLLI_COLL_COUNT ? colli_coll_name(coll) : "unknown";
  const char *maker = maker_name(coll, op);
  char size[32], type[32], combine[48], number[16] = "";
  write_bytes(tag, size, sizeof(size));
  write_type(tag, type, sizeof(type));
  write_op(coll, tag, combine, sizeof(combine));
  if (coll != COLLI_SENDRECV)
    snprintf(number, sizeof(number), " #%u", colli_tag_sequence(tag));
  if (maker || coll == COLLI_BARRIER)
    snprintf(text, COLLI_TAG_TEXT, "%s%s", maker ? maker : name, number);
  else
    snprintf(text, COLLI_TAG_TEXT, "%s%s%s (%s%s%s)", coll == COLLI_SENDRECV ? "message" : name,
             colli_tag_get(tag, COLLI_TAG_VARYING) ? "v" : "", number, size, type,
             *combine ? combine + 1 : "");
  return text;
}

/* Whether two tags mean the same call; fields that ranks choose by themselves are ignored. */
bool colli_tag_same_call(const coll_tag *a, const coll_tag *b) {
  const colli_tag_field passes =
      colli_tag_has_user_op(a) ? COLLI_TAG_USER_PASSES : COLLI_TAG_PASSES;
  uint64_t chosen = colli_tag_mask(COLLI_TAG_ALGO) | colli_tag_mask(passes);
  return a->word[0] == b->word[0] && a->word[1] == b->word[1] &&
         ((a->word[2] ^ b->word[2]) & ~chosen) == 0;
}
