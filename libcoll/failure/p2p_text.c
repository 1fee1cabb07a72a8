/* p2p_text.c: mail in words: what an operation is, and what was wrong with a message. */
#include <stdio.h>

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"

#define POST_TEXT 104

/* "float32", "elements of 12 bytes" */
static const char *type_text(int type, char text[40]) {
  if (type < COLL_TYPE_USER_BASE)
    return colli_type_name(type);
  snprintf(text, 40, "elements of %d bytes", type - COLL_TYPE_USER_BASE);
  return text;
}

/* ", tag 5" */
static const char *tag_text(int tag, char text[24]) {
  if (tag == COLL_ANY_TAG)
    return ", any tag";
  snprintf(text, 24, ", tag %d", tag);
  return text;
}

/* One half of an operation. */
static void post_text(const colli_post *post, char text[POST_TEXT]) {
  char type[40], tag[24], source[24] = "any rank";
  if (post->peer != COLL_ANY_SOURCE)
    snprintf(source, sizeof(source), "rank %d", post->peer);
  switch (post->kind) {
  case COLLI_POST_SEND:
  case COLLI_POST_RECV:
    snprintf(text, POST_TEXT, "%s(count %zu, %s) %s %s%s",
             post->kind == COLLI_POST_SEND ? "send" : "recv", post->count,
             type_text(post->type, type), post->kind == COLLI_POST_SEND ? "to" : "from", source,
             tag_text(post->tag, tag));
    break;
  case COLLI_POST_PUT:
    snprintf(text, POST_TEXT, "put of %zu bytes to %s", post->bytes, source);
    break;
  case COLLI_POST_SIGNAL:
    snprintf(text, POST_TEXT, "signal to %s", source);
    break;
  case COLLI_POST_WAIT:
    snprintf(text, POST_TEXT, "wait_signal for %llu of %s", (unsigned long long)post->signals,
             source);
    break;
  default:
    snprintf(text, POST_TEXT, "window_destroy");
  }
}

/* What an operation is; of sendrecv both halves, or the one that is left. */
void colli_p2p_op_text(const coll_request *request, char *text, size_t bytes) {
  const colli_p2p_op *op = colli_p2p_op_of(request);
  char halves[2][POST_TEXT];
  int count = 0;
  for (int i = 0; i < op->nposts; i++)
    if (op->nposts == 1 || !op->post[i].over)
      post_text(&op->post[i], halves[count++]);
  snprintf(text, bytes, "%s%s%s", count ? halves[0] : request->name, count > 1 ? " and " : "",
           count > 1 ? halves[1] : "");
}

/* A message has another type or number of elements than the receive that took it. */
void colli_p2p_unfit(void *ctx, const colli_post *recv, int peer, const colli_p2p_header *head) {
  coll_comm *comm = ctx;
  coll_error record;
  char text[POST_TEXT], type[40];
  colli_comm_record(comm, &record, COLL_ERR_MISMATCH, peer, &recv->op->request);
  post_text(recv, text);
  const char *advice = head->type != recv->type   ? "give both the same type"
                       : head->word < recv->count ? "give the receive a coll_message, or the same "
                                                    "count"
                                                  : "make room for it in the receive";
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s) called %s, but rank %d (host %s, pid %d) called send(count %llu, %s) "
           "to it, tag %d; %s",
           comm->rank, comm->host, text, peer, record.peer_host, record.peer_pid,
           (unsigned long long)head->word, type_text(head->type, type), head->tag, advice);
  colli_comm_fail(comm, &record);
}

/* A message came that no libcoll of this version sends. */
void colli_p2p_broken(void *ctx, coll_request *op, int peer, const char *detail) {
  coll_comm *comm = ctx;
  coll_error record;
  colli_comm_record(comm, &record, COLL_ERR_PROTOCOL, peer, op);
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s, pid %d) sent rank %d (host %s) %s; all ranks must run the same "
           "libcoll",
           peer, record.peer_host, record.peer_pid, comm->rank, comm->host, detail);
  colli_comm_fail(comm, &record);
}
