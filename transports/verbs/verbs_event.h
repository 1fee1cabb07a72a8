/* verbs_event.h: asynchronous events of devices, and what failed completions mean. */
#ifndef COLLI_TRANSPORTS_VERBS_EVENT_H
#define COLLI_TRANSPORTS_VERBS_EVENT_H

#include "transports/verbs/verbs_device.h"

typedef enum verbs_event_kind {
  VERBS_EVENT_PORT_DOWN,   /* connections of the rail end unless it comes back before the retries
                              are used up */
  VERBS_EVENT_PORT_UP,     /* again */
  VERBS_EVENT_ADDRESS,     /* LID, GID or partition keys changed: connections may end */
  VERBS_EVENT_DEVICE_LOST, /* the rail is unusable from now on */
  VERBS_EVENT_QP_LOST,     /* `object` is the queue pair */
  VERBS_EVENT_CQ_LOST,     /* `object` is the completion queue */
  VERBS_EVENT_SRQ_LOST,    /* `object` is the shared receive queue */
  VERBS_EVENT_OTHER        /* does not matter here */
} verbs_event_kind;

typedef struct verbs_event {
  verbs_event_kind kind;
  enum ibv_event_type type;
  const void *object; /* only to be compared */
} verbs_event;

/* Takes the next event that concerns this
 * rail: 1; 0 if there is none; -1 with a fault if the device cannot be asked any more. */
int verbs_event_next(const verbs_lib *lib, const verbs_rail *rail, verbs_event *event,
                     verbs_fault *fault);

/* Whether the system lists the rail's device. */
bool verbs_event_listed(const verbs_rail *rail);

/*
 * Whether the device is being removed, with a fault. Drivers that cannot take a device from its
 * users (rdma_rxe) send no event: the device disappears from the system's list but goes on working,
 * and its removal waits until all users have closed it.
 */
bool verbs_event_removed(const verbs_rail *rail, verbs_fault *fault);

/* Describes an event for the error record: what happened on which device and port, what to do. */
coll_status verbs_event_fault(const verbs_rail *rail, const verbs_event *event, verbs_fault *fault);

/*
 * Describes a completion that failed. `work` names the work request ("RDMA write of 4096 bytes"),
 * `peer` the rank at the other end. PEER_LOST where the other end is to blame or silent, SYSTEM for
 * this device, INTERNAL for mistakes of libcoll. IBV_WC_WR_FLUSH_ERR only says that the queue pair
 * had failed before: describe the first failure instead if it is known.
 */
coll_status verbs_completion_fault(const verbs_lib *lib, const verbs_rail *rail,
                                   const verbs_settings *settings, const struct ibv_wc *wc,
                                   const char *work, int peer, verbs_fault *fault);

#endif
