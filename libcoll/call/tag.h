/* tag.h: the tag of a collective, on which all its ranks must agree, and its description in
 * words. */
#ifndef COLLI_CALL_TAG_H
#define COLLI_CALL_TAG_H

#include "libcoll/sched/tag.h"

/* The tag of an operation; op: as in colli_tag_put_op(). */
coll_tag colli_tag_make(colli_coll coll, bool varying, size_t count, int type, uint32_t op,
                        int root, uint64_t sequence, int algo, int passes);

/* "allreduce(count 8, float32, sum)"; of a user-defined operation "operation 0x2c01d5" */
#define COLLI_TAG_TEXT 192
const char *colli_tag_text(const coll_tag *tag, char text[COLLI_TAG_TEXT]);

/* "allreduce #1042 (4 MiB float32 sum)"; of a point-to-point operation "message (8 B int32)" */
const char *colli_tag_brief(const coll_tag *tag, char text[COLLI_TAG_TEXT]);

/* The low 32 bits of a sequence number, which a tag contains. */
static inline uint32_t colli_tag_sequence(const coll_tag *tag) {
  return (uint32_t)colli_tag_get(tag, COLLI_TAG_SEQUENCE);
}

/* Whether two tags mean the same call; fields that ranks choose by themselves are ignored. */
bool colli_tag_same_call(const coll_tag *a, const coll_tag *b);

#endif
