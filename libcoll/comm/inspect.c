/* inspect.c: queries on a communicator for programs of this project. */
#include "libcoll/comm/inspect.h"

#include <stdio.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/exec/connect.h"

/* Which transport connects this rank and another one of the base, and why. */
void colli_family_link(const colli_family *family, int rank, const char **transport, char *reason,
                       size_t reason_bytes) {
  const int route = family->routes[rank];
  coll_link how = {.reason = "the rank itself"};
  *transport = "self";
  if (route >= 0) {
    const coll_transport_ops *ops = family->ports[route].ops;
    const colli_rank_info self = colli_rank_at(family->table, family->rank),
                          other = colli_rank_at(family->table, rank);
    *transport = ops->name;
    ops->reach(self.blob[route], other.blob[route], &how);
  }
  snprintf(reason, reason_bytes, "%s", how.reason);
}

void colli_family_say_unreached(const colli_family *family, const colli_rank_info *self, int peer,
                                const colli_rank_info *other, char *text, size_t bytes) {
  *text = '\0';
  for (int i = 0; i < family->nports; i++) {
    const colli_port *port = &family->ports[i];
    coll_link link = {0};
    if (!port->endpoint || !(self->transports & 1u << i))
      continue;
    if (!(other->transports & 1u << i))
      snprintf(link.reason, sizeof(link.reason), "rank %d does not have it", peer);
    else
      port->ops->reach(self->blob[i], other->blob[i], &link);
    const size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s: %s", used ? "; " : "", port->ops->name, link.reason);
  }
}

/* Which transport connects this rank and another one of a communicator, and why. */
coll_status colli_comm_link(const coll_comm *comm, int peer, const char **transport, char *reason,
                            size_t reason_bytes) {
  if (peer < 0 || peer >= comm->nranks)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_family_link(comm->family, colli_comm_base_rank(comm, peer), transport, reason,
                    reason_bytes);
  return COLL_OK;
}

int colli_comm_paths(coll_comm *comm, int peer, char *text, size_t bytes) {
  coll_endpoint *endpoint;
  *text = '\0';
  if (peer == comm->rank ||
      !coll_transport_tells_paths(colli_comm_transport(comm, peer, &endpoint)))
    return 0;
  coll_conn *conn = colli_exec_conn(&comm->exec, NULL, peer, 0);
  return conn ? conn->ops->paths(conn, text, bytes) : 1;
}

double colli_comm_round_trip(coll_comm *comm, int peer) {
  coll_endpoint *endpoint;
  double shortest = 0;
  if (!comm->exec.links || peer == comm->rank ||
      !coll_transport_tells_round_trip(colli_comm_transport(comm, peer, &endpoint)))
    return 0;
  for (int channel = 0; channel < COLLI_CHANNELS; channel++) {
    coll_conn *conn = comm->exec.links[peer].conn[channel];
    const double ns = conn ? conn->ops->round_trip(conn) : 0;
    if (ns > 0 && (shortest == 0 || ns < shortest))
      shortest = ns;
  }
  return shortest;
}

/* What is known of a rank. */
colli_rank_info colli_comm_info(const coll_comm *comm, int rank) {
  return colli_rank_at(comm->table, rank);
}

int colli_comm_host(const coll_comm *comm, int rank) {
  return colli_rank_host(comm->table, rank);
}

colli_shape colli_comm_shape(const coll_comm *comm, colli_coll coll) {
  colli_plan plan = {.key = {.coll = (uint8_t)coll}};
  if (colli_reduces(coll))
    plan.order = colli_order_of_sums(comm->calls.deterministic, coll);
  colli_shape shape = colli_plans_shape(&comm->calls.plans, &plan);
  shape.rank = 0;
  return shape;
}

int colli_comm_level_names(const coll_comm *comm, int level) {
  return level > 0 ? comm->calls.plans.names[level] : 0;
}

colli_chooser *colli_comm_chooser(coll_comm *comm) {
  return &comm->calls.plans.chooser;
}

colli_pair_cost colli_comm_pair_cost(const coll_comm *comm, int a, int b) {
  const colli_shape shape = colli_comm_shape(comm, COLLI_ALLREDUCE);
  return colli_host_links_pair(&comm->calls.plans.model, &shape, a, b);
}
