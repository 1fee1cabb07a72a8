/* verbs_post.c: work requests that are not messages: credit, the farewell, notices. */
#include "transports/verbs/verbs_post.h"

#include <string.h>

void verbs_post_init(verbs_conn *conn) {
  conn->write = (struct ibv_send_wr){
      .sg_list = conn->part, .opcode = IBV_WR_RDMA_WRITE, .wr.rdma.rkey = conn->peer_offer.key};
  conn->peer_memory = conn->peer_offer.memory;
  uint32_t packet = (128u << conn->path.mtu) - VERBS_FRAME_BYTES;
  conn->short_bytes = packet < VERBS_SHORT ? packet : VERBS_SHORT;
  conn->peer_adverts = conn->peer_memory + 2 * (uint64_t)conn->peer_offer.units * VERBS_UNIT;
}

int verbs_post_failed(verbs_conn *conn, int error) {
  verbs_fault fault;
  /* The device's events say why, if it has failed. */
  verbs_port_events(conn->ep, conn->port);
  verbs_fault_set(&fault, COLL_ERR_SYSTEM, "ibv_post_send", error,
                  "device %s refuses RDMA write number %llu", conn->port->rail->name,
                  (unsigned long long)conn->posted);
  verbs_conn_break(conn, &fault);
  return verbs_conn_report(conn);
}

void verbs_post_credit(verbs_conn *conn) {
  if (conn->gate || verbs_in_flight(conn) + 1 >= VERBS_SENDS) /* the last is for the farewell */
    return;
  (void)verbs_post(conn, 0, VERBS_IMM_CREDIT, 0);
}

bool verbs_post_farewell(verbs_conn *conn) {
  if (conn->gate || verbs_in_flight(conn) >= VERBS_SENDS)
    return false;
  return verbs_post(conn, 0, VERBS_IMM_CREDIT | VERBS_IMM_TAG, IBV_SEND_SIGNALED) == COLL_T_DONE;
}

void verbs_post_sleep(verbs_conn *conn) {
  uint64_t word = verbs_tx_sleeps(&conn->tx);
  if (conn->gate || conn->announced_sleep == word || verbs_in_flight(conn) + 2 >= VERBS_SENDS)
    return;
  /* The first bytes of the mirror belong to no message either. */
  memcpy(conn->tx_memory, &word, sizeof(word));
  conn->write.wr.rdma.remote_addr = conn->peer_memory;
  conn->part[0] = (struct ibv_sge){(uintptr_t)conn->tx_memory, sizeof(word), conn->slab.mr->lkey};
  if (verbs_post_plain(conn, 1, IBV_SEND_SIGNALED) == COLL_T_DONE)
    conn->announced_sleep = word;
}
