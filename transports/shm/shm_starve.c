/* shm_starve.c: peers that dial cannot be let in, because descriptors or memory ran out. */
#include "libcoll/net/sockets.h"
#include "transports/shm/shm_internal.h"

void shm_starve_note(shm_endpoint *ep, int error, bool inside) {
  if (colli_errno_is_shortage(error)) {
    if (ep->starved_ns == 0)
      ep->starved_ns = ep->env->now_ns(ep->env->ctx);
    ep->starved_errno = error;
    ep->starved_inside |= inside;
  } else if (error == 0 || !ep->starved_inside) {
    ep->starved_ns = 0;
    ep->starved_inside = false;
  }
}

int shm_starve_check(const shm_endpoint *ep) {
  if (ep->starved_ns == 0 || ep->connecting == 0 ||
      ep->env->now_ns(ep->env->ctx) - ep->starved_ns < ep->patience_ns)
    return COLL_OK;
  coll_transport_failure failure = {
      COLL_ERR_SYSTEM,
      -1,
      -1,
      ep->starved_errno,
      "accept4",
      "no connection of a peer can be accepted; if descriptors ran out, raise ulimit -n"};
  ep->env->fail(ep->env->ctx, &failure);
  return COLL_ERR_SYSTEM;
}
