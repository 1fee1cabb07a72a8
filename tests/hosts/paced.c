/*
 * paced.c: looks at this rank's connections to other machines: NETWORK [CONTROL]. Rank r is at
 * NETWORK.(r + 1); odd and even ones are at different sites. Those to the other site must be paced,
 * those inside not, and all must have that control of congestion. Exits with 1, and says which is
 * wrong.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "coll/coll.h"

enum { DESCRIPTORS = 1024, COUNT = 10000 };

/* Ends the program if a call has failed. */
static void need(coll_status status, const char *what) {
  if (status == COLL_OK)
    return;
  fprintf(stderr, "%s: %s\n", what, coll_status_name(status));
  exit(1);
}

/* The last number of the address in the network to which a connection leads; 0: it is none. */
static int peer_of(int fd, const char *network) {
  struct sockaddr_in6 peer = {0};
  socklen_t bytes = sizeof(peer);
  int protocol = 0;
  socklen_t word = sizeof(protocol);
  char text[INET6_ADDRSTRLEN] = "";
  if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &word) != 0 || protocol != IPPROTO_TCP ||
      getpeername(fd, (struct sockaddr *)&peer, &bytes) != 0)
    return 0;
  if (peer.sin6_family == AF_INET6)
    inet_ntop(AF_INET6, &peer.sin6_addr, text, sizeof(text));
  else
    inet_ntop(AF_INET, &((struct sockaddr_in *)&peer)->sin_addr, text, sizeof(text));
  const char *last = strrchr(text, '.');
  return strstr(text, network) && last ? atoi(last + 1) : 0;
}

/* How many connections of a rank to the other site are paced; ends the program if one is wrong. */
static int count_paced(int rank, const char *network, const char *control) {
  int count = 0;
  for (int fd = 0; fd < DESCRIPTORS; fd++) {
    const int peer = peer_of(fd, network);
    uint32_t rate = UINT32_MAX; /* what a connection has that is not paced */
    socklen_t bytes = sizeof(rate), name_bytes = 15;
    char name[16] = "";
    if (peer == 0 || getsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, &bytes) != 0 ||
        getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_bytes) != 0)
      continue;
    const int paced = rate != UINT32_MAX, elsewhere = (peer - rank) % 2 == 0;
    count += paced;
    if ((!paced || elsewhere) && (!control || strcmp(name, control) == 0))
      continue;
    fprintf(stderr, "rank %d's to host %d: %s, %s\n", rank, peer, paced ? "paced" : "not paced",
            name);
    exit(1);
  }
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
  const int count = count_paced(rank, argv[1], argc > 2 ? argv[2] : NULL);
  if (count < nranks / 2)
    fprintf(stderr, "rank %d: only %d paced connections\n", rank, count);
  need(coll_barrier(comm), "barrier");
  need(coll_comm_destroy(&comm), "destroy");
  free(sent);
  return count < nranks / 2;
}
