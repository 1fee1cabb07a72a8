/* op_text.c: describes an operation in words, for messages about failures. */
#include "libcoll/failure/op_text.h"

#include <stdio.h>

#include "libcoll/base/names.h"
#include "libcoll/call/tag.h"

/* "float32", "elements of 12 bytes" */
const char *colli_type_text(int type, char text[COLLI_TYPE_TEXT]) {
  if (type < COLL_TYPE_USER_BASE)
    return colli_type_name(type);
  snprintf(text, COLLI_TYPE_TEXT, "elements of %d bytes", type - COLL_TYPE_USER_BASE);
  return text;
}

/* ", tag 5" */
static const char *tag_text(int tag, char text[24]) {
  if (tag == COLL_ANY_TAG)
    return ", any tag";
  snprintf(text, 24, ", tag %d", tag);
  return text;
}

/* Describes one send, receive or one-sided operation. */
void colli_post_text(const colli_post *post, char text[COLLI_POST_TEXT]) {
  char type[COLLI_TYPE_TEXT], tag[24], source[24] = "any rank";
  if (post->peer != COLL_ANY_SOURCE)
    snprintf(source, sizeof(source), "rank %d", post->peer);
  switch (post->kind) {
  case COLLI_POST_SEND:
  case COLLI_POST_RECV:
    if (post->tag == COLLI_OWN_TAG(COLLI_PART_TAG)) {
      snprintf(text, COLLI_POST_TEXT, "a part of %s that %s %s", post->op->request.name,
               post->kind == COLLI_POST_SEND ? "goes to" : "comes from", source);
      break;
    }
    if (post->tag < COLL_ANY_TAG) {
      snprintf(text, COLLI_POST_TEXT, "coll_comm_create_group() with %s, tag %d", source,
               COLLI_OWN_TAG(post->tag));
      break;
    }
    snprintf(text, COLLI_POST_TEXT, "%s(count %zu, %s) %s %s%s",
             post->kind == COLLI_POST_SEND ? "send" : "recv", post->count,
             colli_type_text(post->type, type), post->kind == COLLI_POST_SEND ? "to" : "from",
             source, tag_text(post->tag, tag));
    break;
  case COLLI_POST_PROBE:
    snprintf(text, COLLI_POST_TEXT, "probe for a message from %s%s", source,
             tag_text(post->tag, tag));
    break;
  case COLLI_POST_PUT:
    snprintf(text, COLLI_POST_TEXT, "put of %zu bytes to %s", post->bytes, source);
    break;
  case COLLI_POST_SIGNAL:
    snprintf(text, COLLI_POST_TEXT, "signal to %s", source);
    break;
  case COLLI_POST_WAIT:
    snprintf(text, COLLI_POST_TEXT, "wait_signal for %llu of %s", (unsigned long long)post->signals,
             source);
    break;
  default:
    snprintf(text, COLLI_POST_TEXT, "window_destroy");
  }
}

/* Describes a point-to-point or one-sided operation; for sendrecv both halves, or the incomplete
 * one. */
static void p2p_text(const coll_request *request, char *text, size_t bytes) {
  const colli_p2p_op *op = colli_p2p_op_of(request);
  char halves[2][COLLI_POST_TEXT];
  int count = 0;
  for (int i = 0; i < op->nposts; i++)
    if (op->nposts == 1 || !op->post[i].over)
      colli_post_text(&op->post[i], halves[count++]);
  snprintf(text, bytes, "%s%s%s", count ? halves[0] : request->name, count > 1 ? " and " : "",
           count > 1 ? halves[1] : "");
}

/* "operation 3, allreduce(count 8, float32, sum)"; "recv(count 8, float32) from any rank, tag 5" */
const char *colli_op_text(const coll_request *op, char text[COLLI_OP_TEXT]) {
  char tag[COLLI_TAG_TEXT];
  if (op->coll == COLLI_SENDRECV)
    p2p_text(op, text, COLLI_OP_TEXT);
  else
    snprintf(text, COLLI_OP_TEXT, "operation %llu, %s", (unsigned long long)op->sequence,
             colli_tag_text(&op->tag, tag));
  return text;
}
