/* network.c: finds the level of a network on which two ranks meet. */
#include "libcoll/cost/network.h"

/* The lowest level on which two ranks are in one group. */
const colli_level *colli_network_link(const colli_network *network, int a, int b) {
  int at = 0;
  while (at + 1 < network->nlevels && a / network->level[at].ranks != b / network->level[at].ranks)
    at++;
  return &network->level[at];
}
