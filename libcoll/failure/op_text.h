/* op_text.h: describes an operation in words, for messages about failures. */
#ifndef COLLI_FAILURE_OP_TEXT_H
#define COLLI_FAILURE_OP_TEXT_H

#include "libcoll/p2p/p2p.h"

/* "operation 3, allreduce(count 8, float32, sum)"; "recv(count 8, float32) from any rank, tag 5" */
#define COLLI_OP_TEXT 224
const char *colli_op_text(const coll_request *op, char text[COLLI_OP_TEXT]);

/* One send, receive or one-sided operation: "recv(count 8, float32) from any rank, tag 5" */
#define COLLI_POST_TEXT 104
void colli_post_text(const colli_post *post, char text[COLLI_POST_TEXT]);

/* "float32", "elements of 12 bytes" */
#define COLLI_TYPE_TEXT 40
const char *colli_type_text(int type, char text[COLLI_TYPE_TEXT]);

#endif
