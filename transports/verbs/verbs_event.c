/* verbs_event.c: asynchronous events of devices, and what failed completions mean. */
#include "transports/verbs/verbs_event.h"

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#define EVENTS_AT_ONCE 64 /* events of other ports, which are skipped */

/* ---- asynchronous events --------------------------------------------------------------------- */

/* Classifies an event. *port: it concerns only one port of the device. */
static verbs_event_kind kind_of(enum ibv_event_type type, bool *port) {
  *port = true;
  switch (type) {
  case IBV_EVENT_PORT_ERR:
    return VERBS_EVENT_PORT_DOWN;
  case IBV_EVENT_PORT_ACTIVE:
    return VERBS_EVENT_PORT_UP;
  case IBV_EVENT_LID_CHANGE:
  case IBV_EVENT_PKEY_CHANGE:
  case IBV_EVENT_GID_CHANGE:
    return VERBS_EVENT_ADDRESS;
  case IBV_EVENT_SM_CHANGE:
  case IBV_EVENT_CLIENT_REREGISTER:
    return VERBS_EVENT_OTHER;
  default:
    *port = false;
  }
  switch (type) {
  case IBV_EVENT_DEVICE_FATAL:
    return VERBS_EVENT_DEVICE_LOST;
  case IBV_EVENT_QP_FATAL:
  case IBV_EVENT_QP_REQ_ERR:
  case IBV_EVENT_QP_ACCESS_ERR:
    return VERBS_EVENT_QP_LOST;
  case IBV_EVENT_CQ_ERR:
    return VERBS_EVENT_CQ_LOST;
  case IBV_EVENT_SRQ_ERR:
    return VERBS_EVENT_SRQ_LOST;
  default:
    return VERBS_EVENT_OTHER;
  }
}

/* The object that an event is about. */
static const void *object_of(const struct ibv_async_event *event, verbs_event_kind kind) {
  switch (kind) {
  case VERBS_EVENT_QP_LOST:
    return event->element.qp;
  case VERBS_EVENT_CQ_LOST:
    return event->element.cq;
  case VERBS_EVENT_SRQ_LOST:
    return event->element.srq;
  default:
    return NULL;
  }
}

int verbs_event_next(const verbs_lib *lib, const verbs_rail *rail, verbs_event *event,
                     verbs_fault *fault) {
  for (int i = 0; i < EVENTS_AT_ONCE; i++) {
    struct ibv_async_event raw;
    errno = 0;
    if (lib->get_async_event(rail->context, &raw) != 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return 0;
      verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_get_async_event", errno,
                      "device %s is gone: it was removed, reset, or its driver was unloaded; see "
                      "dmesg",
                      rail->name);
      return -1;
    }
    bool port;
    verbs_event_kind kind = kind_of(raw.event_type, &port);
    bool own = !port || raw.element.port_num == rail->port;
    *event = (verbs_event){kind, raw.event_type, object_of(&raw, kind)};
    lib->ack_async_event(&raw); /* at once, because destroying an object waits for this */
    if (own && kind != VERBS_EVENT_OTHER)
      return 1;
  }
  return 0;
}

bool verbs_event_listed(const verbs_rail *rail) {
  return access(rail->context->device->dev_path, F_OK) == 0;
}

bool verbs_event_removed(const verbs_rail *rail, verbs_fault *fault) {
  if (!rail->listed || verbs_event_listed(rail))
    return false;
  verbs_fault_set(fault, COLL_ERR_SYSTEM, NULL, 0,
                  "device %s is being removed, which ends when all have closed it: destroy this "
                  "communicator, after a shrink if there is another way to go on",
                  rail->name);
  return true;
}

coll_status verbs_event_fault(const verbs_rail *rail, const verbs_event *event,
                              verbs_fault *fault) {
  const char *name = rail->name;
  switch (event->kind) {
  case VERBS_EVENT_PORT_DOWN:
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, NULL, 0,
                           "%s port %u went down: check cable and switch, or whether somebody "
                           "took its network interface down",
                           name, (unsigned)rail->port);
  case VERBS_EVENT_PORT_UP:
    return verbs_fault_set(fault, COLL_OK, NULL, 0, "%s port %u is up again", name,
                           (unsigned)rail->port);
  case VERBS_EVENT_ADDRESS:
    return verbs_fault_set(fault, COLL_OK, NULL, 0,
                           "an address of %s port %u changed (LID, GID or partition key)", name,
                           (unsigned)rail->port);
  case VERBS_EVENT_DEVICE_LOST:
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, NULL, 0,
                           "device %s failed or was removed; see dmesg, it may need a reset", name);
  case VERBS_EVENT_QP_LOST:
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, NULL, 0,
                           event->type == IBV_EVENT_QP_FATAL
                               ? "device %s gave up a connection (queue pair error); see dmesg"
                               : "device %s ended a connection: the other end sent a request that "
                                 "does not fit it or its memory",
                           name);
  case VERBS_EVENT_CQ_LOST:
    return verbs_fault_set(fault, COLL_ERR_INTERNAL, NULL, 0,
                           "a completion queue of device %s failed, perhaps because it was too "
                           "short; please report this",
                           name);
  case VERBS_EVENT_SRQ_LOST:
    return verbs_fault_set(fault, COLL_ERR_SYSTEM, NULL, 0,
                           "a receive queue of device %s failed; see dmesg", name);
  default:
    return verbs_fault_set(fault, COLL_OK, NULL, 0, "device %s reported event %d", name,
                           (int)event->type);
  }
}

/* ---- completions ----------------------------------------------------------------------------- */

/* What a status of a completion means for the user. */
typedef struct meaning {
  enum ibv_wc_status status;
  coll_status result;
  const char *text;
} meaning;

static const meaning meanings[] = {
    {IBV_WC_RNR_RETRY_EXC_ERR, COLL_ERR_PEER_LOST,
     "the rank has offered no room for it in time; is its process stopped?"},
    {IBV_WC_REM_ACCESS_ERR, COLL_ERR_PEER_LOST,
     "the rank does not let this memory be written to (any more): it is leaving, or its memory was "
     "given back too early"},
    {IBV_WC_REM_INV_REQ_ERR, COLL_ERR_PEER_LOST,
     "the rank's device refuses the request; are both of the same version of libcoll?"},
    {IBV_WC_REM_OP_ERR, COLL_ERR_PEER_LOST, "the rank's device failed while it was at it"},
    {IBV_WC_REM_ABORT_ERR, COLL_ERR_PEER_LOST, "the rank's device ended it"},
    {IBV_WC_BAD_RESP_ERR, COLL_ERR_PEER_LOST, "the rank's device gave an answer that does not fit"},
    {IBV_WC_RESP_TIMEOUT_ERR, COLL_ERR_PEER_LOST, "the rank's device gave no answer"},
    {IBV_WC_WR_FLUSH_ERR, COLL_ERR_PEER_LOST,
     "the connection had failed before, or the rank has closed it"},
    {IBV_WC_LOC_PROT_ERR, COLL_ERR_INTERNAL,
     "memory was not registered, or was unmapped while it was in use"},
    {IBV_WC_LOC_QP_OP_ERR, COLL_ERR_SYSTEM,
     "the device could not send it; has its port gone down or lost its address? Otherwise this is "
     "a "
     "defect of libcoll or of the driver: please report it"},
    {IBV_WC_FATAL_ERR, COLL_ERR_SYSTEM, "the device failed; see dmesg"},
    {IBV_WC_GENERAL_ERR, COLL_ERR_SYSTEM, "the device failed; see dmesg"},
};

/* Says that a peer is silent, and how long this rank has waited. */
static coll_status explain_silence(const verbs_rail *rail, const verbs_settings *settings,
                                   const char *work, int peer, verbs_fault *fault) {
  double seconds = 4.096e-6 * (double)(1u << (settings->timeout & 31)) * (settings->retry + 1);
  return verbs_fault_set(
      fault, COLL_ERR_PEER_LOST, NULL, 0,
      "%s: rank %d did not answer %d times, for %.2g s or more, over %s port %u: its process or "
      "host is gone, a cable or switch is down%s; see COLL_VERBS_TIMEOUT and COLL_VERBS_RETRY",
      work, peer, settings->retry + 1, seconds, rail->name, (unsigned)rail->port,
      rail->link_layer == IBV_LINK_LAYER_ETHERNET ? ", or the network loses packets" : "");
}

coll_status verbs_completion_fault(const verbs_lib *lib, const verbs_rail *rail,
                                   const verbs_settings *settings, const struct ibv_wc *wc,
                                   const char *work, int peer, verbs_fault *fault) {
  if (wc->status == IBV_WC_RETRY_EXC_ERR)
    return explain_silence(rail, settings, work, peer, fault);
  coll_status result = COLL_ERR_INTERNAL;
  const char *text = "a defect of libcoll or of the driver; please report this";
  for (size_t i = 0; i < sizeof(meanings) / sizeof(*meanings); i++)
    if (meanings[i].status == wc->status) {
      result = meanings[i].result;
      text = meanings[i].text;
    }
  return verbs_fault_set(fault, result, NULL, 0,
                         "%s: rank %d, %s port %u: %s (%d, vendor code 0x%x): %s", work, peer,
                         rail->name, (unsigned)rail->port, lib->wc_status_str(wc->status),
                         (int)wc->status, (unsigned)wc->vendor_err, text);
}
