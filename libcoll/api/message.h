/*
 * message.h: sends and receives, which end at once if they can. The arguments are those of the
 * public calls, so that these only jump here.
 */
#ifndef COLLI_API_MESSAGE_H
#define COLLI_API_MESSAGE_H

#include "libcoll/call/call.h"

/* coll_send() and coll_recv(). */
coll_status colli_send_run(const void *buf, size_t count, coll_type type, int peer, int tag,
                           coll_comm *comm);
coll_status colli_recv_run(void *buf, size_t count, coll_type type, int peer, int tag,
                           coll_message *message, coll_comm *comm);

/* coll_isend() and coll_irecv(). */
coll_status colli_send_launch(const void *buf, size_t count, coll_type type, int peer, int tag,
                              coll_comm *comm, coll_request **request);
coll_status colli_recv_launch(void *buf, size_t count, coll_type type, int peer, int tag,
                              coll_message *message, coll_comm *comm, coll_request **request);

/* A send as a call, for the general way. */
static inline colli_call colli_send_call(const void *buf, size_t count, coll_type type, int peer,
                                         int tag) {
  return (colli_call){.name = "send",
                      .coll = COLLI_SENDRECV,
                      .p2p = COLLI_P2P_SEND,
                      .sendbuf = buf,
                      .count = count,
                      .type = (int)type,
                      .dest = peer,
                      .send_tag = tag};
}

/* A receive. */
static inline colli_call colli_recv_call(void *buf, size_t count, coll_type type, int peer, int tag,
                                         coll_message *message) {
  return (colli_call){.name = "recv",
                      .coll = COLLI_SENDRECV,
                      .p2p = COLLI_P2P_RECV,
                      .recvbuf = buf,
                      .recv_count = count,
                      .type = (int)type,
                      .source = peer,
                      .recv_tag = tag,
                      .message = message};
}

#endif
