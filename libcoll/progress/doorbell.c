/* doorbell.c: the descriptors with which transports and control links wake a sleeping rank. */
#include "libcoll/progress/doorbell.h"

#include "libcoll/comm/mux/mux.h"

/* Arms the doorbells and collects their descriptors; false if there is already something to do. */
bool colli_doorbells_arm(colli_family *family, struct pollfd *fds, int *count) {
  bool ready = false;
  for (int i = 0; i < family->nports && !ready; i++) {
    colli_port *port = &family->ports[i];
    if (!port->endpoint)
      continue;
    ready = port->ops->arm(port->endpoint) != 0;
    int fd = port->ops->wait_fd(port->endpoint);
    if (fd >= 0)
      fds[(*count)++] = (struct pollfd){.fd = fd, .events = POLLIN};
  }
  fds[(*count)++] = (struct pollfd){.fd = colli_ctrl_fd(family->ctrl), .events = POLLIN};
  return !ready;
}

/* Whether nothing has arrived on shared connections. */
bool colli_doorbells_quiet(const colli_family *family) {
  return !family->mux || !colli_mux_progress(family->mux);
}

/* Disarms the doorbells after sleeping, unless another thread of this rank sleeps. */
void colli_doorbells_disarm(colli_family *family) {
  for (int i = 0; i < family->nports && family->sleepers == 0; i++)
    if (family->ports[i].endpoint)
      family->ports[i].ops->disarm(family->ports[i].endpoint);
}

/* Wakes whoever sleeps. */
void colli_doorbells_ring(const colli_family *family) {
  for (int i = 0; i < family->nports; i++)
    if (family->ports[i].endpoint)
      family->ports[i].ops->wake(family->ports[i].endpoint);
}
