/* fault_internal.h: endpoint and connections of the decorator, as its files share them. */
#ifndef COLLI_TRANSPORTS_HOOK_FAULT_INTERNAL_H
#define COLLI_TRANSPORTS_HOOK_FAULT_INTERNAL_H

#include "libcoll/base/prng.h"
#include "transports/hook/fault.h"

/* A received message, in memory of its own. */
typedef struct fault_message {
  bool full;
  coll_tag tag;
  char *payload; /* room for the largest one; or NULL */
  size_t bytes;
} fault_message;

/* What happens to one message that a connection receives. */
typedef struct fault_tamper {
  fault_kind kind; /* FAULT_CUT: nothing */
  uint64_t at, taken;
  fault_message shown; /* the next one */
  fault_message kept;  /* comes after that */
} fault_tamper;

/*
 * A connection; `inner` is made late if the plan delays it, and ended early if the plan breaks it.
 */
typedef struct fault_conn {
  coll_conn conn;
  coll_conn *inner; /* NULL: not yet, or no more */
  coll_endpoint *ep;
  struct fault_conn *next, *prev;
  uint64_t connect_at_ns;
  uint8_t blob[COLL_BLOB_BYTES];
  coll_status status;
  const char *why;
  uint64_t messages; /* sent and received */
  uint64_t limit;    /* breaks or falls silent after that many */
  bool silent;
  bool broken; /* the inner connection has failed: no faults are added from now on */
  bool held;   /* a send was accepted whose buffer has not been read */
  coll_tag held_tag;
  uint32_t held_region; /* 0: it is none by reference */
  const void *held_buf;
  size_t held_bytes;
  uint64_t sent;  /* last count of the inner connection */
  bool worked;    /* work is done, but the inner connection was not told */
  coll_work work; /* that */
  fault_tamper tamper;
} fault_conn;

struct coll_endpoint {
  const coll_transport_ops *inner_ops;
  const coll_transport_ops *ops;
  coll_endpoint *inner;
  const coll_transport_env *env;
  fault_plan plan;
  colli_prng prng;
  fault_conn *conns;
  bool armed; /* a waiter is about to sleep: no AGAIN without reason now */
};

/* ---- fault_conn.c: what a connection does on every call ---------------------------------- */

/* Reports what broke a connection; returns its status. */
int fault_report(fault_conn *fc);

/* Decides by chance whether something goes wrong now, in `percent` of 100 cases. */
bool fault_chance(const fault_conn *fc, unsigned percent);

/* Sets what the plan has for this connection, and when. */
void fault_plan_limit(fault_conn *fc);

/* Makes the inner connection once its time has come: DONE, AGAIN or an error. */
int fault_connect_inner(fault_conn *fc);

/*
 * DONE if the inner connection may be called. Breaks or silences the connection if its time has
 * come and the call moves data.
 */
int fault_prepare(fault_conn *fc, bool moves_data);

/* What every data call does first: fault_prepare(), and AGAIN now and then for no reason. */
int fault_enter(fault_conn *fc);

/* Notes an error of the inner connection; returns the status. */
int fault_noted(fault_conn *fc, int status);

/* Counts a message that went through, or notes an error; returns the status. */
int fault_counted(fault_conn *fc, int status);

/* Sends a message, from a region or (0) from other memory. */
int fault_send_from(fault_conn *fc, const coll_tag *tag, uint32_t region, const void *buf,
                    size_t bytes);

/* Passes on to the inner connection what was held back: DONE, AGAIN or an error. */
int fault_flush(fault_conn *fc);

/* Tells the inner connection of work that is done, if it does not know yet. */
void fault_settle(fault_conn *fc);

/* ---- fault_tamper.c: messages that arrive wrong --------------------------------------------- */

/* Whether the plan has something for a message that this connection receives. */
static inline bool fault_tampers(const fault_conn *fc) {
  return fc->tamper.kind != FAULT_CUT;
}

/* slot_peek(), slot_release() and recv() of such a connection. */
int fault_tamper_peek(fault_conn *fc, coll_tag *got, const void **buf, size_t *bytes);
int fault_tamper_release(fault_conn *fc);
int fault_tamper_recv(fault_conn *fc, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes);
void fault_tamper_free(fault_conn *fc);

/* ---- fault_memory.c: entries of the table that not all transports have ------------------- */

int fault_region_add(coll_endpoint *ep, uint32_t region, const void *memory, size_t bytes, int fd);
void fault_region_remove(coll_endpoint *ep, uint32_t region);
int fault_send_ref(coll_conn *conn, const coll_tag *tag, uint32_t region, const void *buf,
                   size_t bytes);
int fault_offer_work(coll_conn *conn, const coll_work_offer *offer_work);
int fault_claim_work(coll_conn *conn, coll_work *work);
int fault_finish_work(coll_conn *conn, const coll_work *work);
int fault_unfinished_work(coll_endpoint *ep, uint32_t region, size_t *offset, size_t *bytes);
void fault_register_buffer(coll_endpoint *ep, const void *owner, const void *memory, size_t bytes,
                           int written);
void fault_release_buffers(coll_endpoint *ep, const void *owner);
int fault_paths(coll_conn *conn, char *text, size_t bytes);
double fault_round_trip(coll_conn *conn);
int fault_expect(coll_conn *conn, uint64_t ahead, const coll_tag *tag, void *buf, size_t bytes,
                 size_t slice);
int fault_register_device(coll_endpoint *ep, int fd, uint64_t offset, const void *address,
                          size_t bytes, int written, coll_device_memory **memory, const char **why);
void fault_release_device(coll_endpoint *ep, coll_device_memory *memory);
int fault_send_device(coll_conn *conn, const coll_tag *tag, const coll_device_memory *memory,
                      size_t at, size_t bytes, int to_target);
int fault_send_to_target(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);
int fault_offer_device(coll_conn *conn, const coll_tag *tag, const coll_device_memory *memory,
                       size_t at, size_t bytes, size_t slice, int copied);

#endif
