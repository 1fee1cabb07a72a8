/* hosts.h: coll_calibrate --hosts: measures the links between the hosts of a run. */
#ifndef COLLI_TOOLS_CALIBRATE_HOSTS_H
#define COLLI_TOOLS_CALIBRATE_HOSTS_H

#include <stdio.h>

#include "libcoll/comm/inspect.h"
#include "libcoll/create/measure_links.h"

/* Two hosts, and what was measured between them. */
typedef struct hosts_pair {
  int a, b;    /* numbers of hosts */
  int common;  /* how many levels they have in common, from the widest on */
  double ns;   /* round trip; 0: not measured */
  double mbit; /* each way, while both send, whichever is less; 0: not measured */
} hosts_pair;

/* What was found. */
typedef struct hosts_found {
  colli_delegates delegates; /* the hosts' first ranks */
  colli_rank_info *info;     /* of each */
  int depth;                 /* levels */
  colli_measured_levels levels;
  int npairs;
  hosts_pair *pair;
} hosts_found;

/* hosts.c: measures and prints, as a rank of a run; `output`: the file of levels that rank 0
 * writes, NULL or "-": none. Returns the exit status. */
int calibrate_hosts(const char *output);

/* hosts_pairs.c: lists the pairs that are measured: all of a few hosts, else for each host about
 * three, in its group and between groups of each level. False: out of memory. */
bool hosts_list_pairs(hosts_found *found);

/* hosts_print.c: prints all of it. False: out of memory; then nothing was printed. */
bool hosts_print(const hosts_found *found, FILE *out);

/* hosts_print.c: writes the file of levels. False after a failure, which it prints. */
bool hosts_write(const hosts_found *found, const char *path);

#endif
