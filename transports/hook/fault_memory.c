/*
 * fault_memory.c: the decorator's calls about memory. Regions, references, targets and
 * registrations may be refused, and messages are copied then. Work that a caller has done may be
 * reported late, as a slow worker would. Memory of GPUs is refused where messages are changed,
 * which only the processor could do.
 */
#include "transports/hook/fault_internal.h"

/* Whether an endpoint refuses now. */
static bool refuses(coll_endpoint *ep) {
  return ep->plan.refuse && colli_prng_below(&ep->prng, 100) < ep->plan.refuse;
}

int fault_region_add(coll_endpoint *ep, uint32_t region, const void *memory, size_t bytes, int fd) {
  if (refuses(ep))
    return COLL_ERR_NO_MEMORY;
  return ep->inner_ops->region_add(ep->inner, region, memory, bytes, fd);
}

void fault_region_remove(coll_endpoint *ep, uint32_t region) {
  ep->inner_ops->region_remove(ep->inner, region);
}

int fault_send_ref(coll_conn *conn, const coll_tag *tag, uint32_t region, const void *buf,
                   size_t bytes) {
  return fault_send_from((fault_conn *)conn, tag, region, buf, bytes);
}

/* Whether an optional call is passed on: it must neither fail nor break the connection. */
static bool passes_on(const fault_conn *fc) {
  return fc->status == COLL_OK && fc->inner && fc->messages < fc->limit &&
         !fault_chance(fc, fc->ep->plan.again);
}

int fault_offer_work(coll_conn *conn, const coll_work_offer *offer_work) {
  fault_conn *fc = (fault_conn *)conn;
  if (fault_tampers(fc) || !passes_on(fc) || fault_chance(fc, fc->ep->plan.refuse))
    return 0;
  return fc->inner->ops->offer_work(fc->inner, offer_work);
}

int fault_claim_work(coll_conn *conn, coll_work *work) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  fault_settle(fc);
  return status == COLL_T_DONE ? fault_noted(fc, fc->inner->ops->claim_work(fc->inner, work))
                               : status;
}

int fault_finish_work(coll_conn *conn, const coll_work *work) {
  fault_conn *fc = (fault_conn *)conn;
  if (!fault_chance(fc, fc->ep->plan.pending))
    return fault_noted(fc, fc->inner->ops->finish_work(fc->inner, work));
  fc->worked = true;
  fc->work = *work;
  return COLL_T_DONE;
}

int fault_unfinished_work(coll_endpoint *ep, uint32_t region, size_t *offset, size_t *bytes) {
  return ep->inner_ops->unfinished_work(ep->inner, region, offset, bytes);
}

void fault_register_buffer(coll_endpoint *ep, const void *owner, const void *memory, size_t bytes,
                           int written) {
  if (!refuses(ep))
    ep->inner_ops->register_buffer(ep->inner, owner, memory, bytes, written);
}

void fault_release_buffers(coll_endpoint *ep, const void *owner) {
  ep->inner_ops->release_buffers(ep->inner, owner);
}

int fault_expect(coll_conn *conn, uint64_t ahead, const coll_tag *tag, void *buf, size_t bytes,
                 size_t slice) {
  fault_conn *fc = (fault_conn *)conn;
  if (!passes_on(fc))
    return COLL_T_AGAIN;
  if (fault_tampers(fc) || fault_chance(fc, fc->ep->plan.refuse))
    return COLL_T_DONE;
  return fc->inner->ops->expect(fc->inner, ahead, tag, buf, bytes, slice);
}

/* Whether the plan changes what some connection of an endpoint receives. */
static bool changes_messages(const coll_endpoint *ep) {
  for (int i = 0; i < ep->plan.nlinks; i++)
    if (ep->plan.links[i].kind > FAULT_STALL && ep->plan.links[i].b == ep->env->rank)
      return true;
  return false;
}

int fault_register_device(coll_endpoint *ep, int fd, uint64_t offset, const void *address,
                          size_t bytes, int written, coll_device_memory **memory,
                          const char **why) {
  *why = "COLL_FAULT refuses it";
  if (refuses(ep) || (written && changes_messages(ep)))
    return COLL_ERR_NO_MEMORY;
  return ep->inner_ops->register_device(ep->inner, fd, offset, address, bytes, written, memory,
                                        why);
}

void fault_release_device(coll_endpoint *ep, coll_device_memory *memory) {
  ep->inner_ops->release_device(ep->inner, memory);
}

/* Begins a send that is passed on at once, unlike others, which may be held back. */
static int enter_to_send(fault_conn *fc) {
  int status = fault_enter(fc);
  return fault_noted(fc, status == COLL_T_DONE ? fault_flush(fc) : status);
}

int fault_send_device(coll_conn *conn, const coll_tag *tag, const coll_device_memory *memory,
                      size_t at, size_t bytes, int to_target) {
  fault_conn *fc = (fault_conn *)conn;
  int status = enter_to_send(fc);
  if (status != COLL_T_DONE)
    return status;
  return fault_counted(fc,
                       fc->inner->ops->send_device(fc->inner, tag, memory, at, bytes, to_target));
}

int fault_send_to_target(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes) {
  fault_conn *fc = (fault_conn *)conn;
  int status = enter_to_send(fc);
  if (status != COLL_T_DONE)
    return status;
  return fault_counted(fc, fc->inner->ops->send_to_target(fc->inner, tag, buf, bytes));
}

int fault_offer_device(coll_conn *conn, const coll_tag *tag, const coll_device_memory *memory,
                       size_t at, size_t bytes, size_t slice, int copied) {
  fault_conn *fc = (fault_conn *)conn;
  int status = fault_enter(fc);
  if (status != COLL_T_DONE)
    return status;
  return fault_noted(
      fc, fc->inner->ops->offer_device(fc->inner, tag, memory, at, bytes, slice, copied));
}
