/*
 * paced.c: looks at this rank's connections to other machines: NETWORK [CONTROL]. Rank r is on host
 * r + 1, which is NETWORK.(r + 1); hosts with odd numbers are at one site, the others at another.
 * Each host of the other site must be reached by a paced connection, no near connection may be
 * paced, and paced ones must have that control of congestion. Exits with 1, and says what is wrong.
 */
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "coll/coll.h"
#include "libcoll/net/path.h"
#include "sockets.h"

enum { DESCRIPTORS = 1024, COUNT = 10000, HOSTS = 4 };

/* Ends the program if a call has failed. */
static void need(coll_status status, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, coll_status_name(status));
  exit(1);
}

/* The last number of the address in the network to which a connection leads; 0: it is none. */
static int peer_of(int fd, const char *network) {
  char text[INET6_ADDRSTRLEN];
  return tcp_peer(fd, text) && strstr(text, network) ? atoi(strrchr(text, '.') + 1) : 0;
}

/* Looks at a connection of a rank to a host: whether it is paced. Ends the program if it must not
 * be so, or is and has another control of congestion than `control` (NULL: any). */
static bool look(int fd, int rank, int peer, const char *control) {
  unsigned long rate = 0;
  socklen_t bytes = sizeof(rate), name_bytes = 15;
  char name[16] = "";
  need(getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &bytes) == 0 &&
               getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes) == 0
           ? COLL_OK
           : COLL_ERR_SYSTEM,
       "getsockopt");
  const bool paced = rate != ULONG_MAX;
  const bool far =
      colli_path_round_trip_ns(fd) >= COLLI_PATH_FAR_NS; /* by chance also to a near host */
  if (paced <= far && (!control || !paced || strcmp(name, control) == 0))
    return paced;
  fprintf(stderr, "rank %d to host %d: %s, %s\n", rank, peer, paced ? "paced" : "not paced", name);
  exit(1);
}

/* Looks at all connections; how many hosts of the other site are not reached by paced ones. */
static int count_unpaced(int rank, int nranks, const char *network, const char *control) {
  bool paced[HOSTS + 1] = {false};
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS; fd++) {
    const int peer = peer_of(fd, network);
    if (peer > 0 && peer <= HOSTS)
      paced[peer] |= look(fd, rank, peer, control);
  }
  for (int peer = 1; peer <= nranks; peer++)
    count += (peer - rank) % 2 == 0 && !paced[peer];
  return count;
}

int main(int argc, char **argv) {
  int rank, nranks;
  coll_comm *comm;
  if (argc < 2)
    return 2;
  need(coll_init_from_env(&comm, NULL), "creation");
  need(coll_comm_rank(comm, &rank), "rank");
  need(coll_comm_nranks(comm, &nranks), "ranks");
  float *sent = calloc(2 * (size_t)nranks, COUNT * sizeof(*sent));
  need(sent ? COLL_OK : COLL_ERR_NO_MEMORY, "memory");
  need(coll_alltoall(sent, sent + (size_t)nranks * COUNT, COUNT, COLL_FLOAT32, comm), "alltoall");
  const int count = count_unpaced(rank, nranks, argv[1], argc > 2 ? argv[2] : NULL);
  if (count > 0)
    fprintf(stderr, "rank %d: connections to %d hosts of the other site are not paced\n", rank,
            count);
  need(coll_barrier(comm), "barrier");
  need(coll_comm_destroy(&comm), "destroy");
  free(sent);
  return count > 0;
}
