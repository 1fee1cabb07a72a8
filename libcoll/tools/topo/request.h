/* request.h: what the command line of coll_topo asks for. */
#ifndef COLLI_TOOLS_TOPO_REQUEST_H
#define COLLI_TOOLS_TOPO_REQUEST_H

#include "libcoll/tools/described/described.h"

typedef struct request {
  const char *source; /* a machine; NULL: COLL_TOPO_FILE or this one, and the ranks on it */
  const char *xml;    /* file to write, or NULL */
  const char *svg;
  const char *json;
  int pair[2];         /* of ranks to explain; -1: not given */
  const char *network; /* file to write, or NULL */
  colli_coll coll;     /* what it shows */
  size_t bytes;
  const char *save;      /* file to write, or NULL */
  bool messages;         /* these were given */
  described_network net; /* its ranks are also those to place; 0: not given */
  bool describes;        /* the network is that one, not that of a run */
} request;

/* Reads the command line; ends the program if it is bad. */
request topo_ask(int argc, char **argv);

/* Whether it asks for a file, so that nothing is printed. */
bool topo_ask_writes(const request *asked);

#endif
