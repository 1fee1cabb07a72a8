/*
 * shards.h: the parameters cut into shards, as many as there were servers at first. Of the servers
 * that are left, shard j is served by number j modulo their count, and the next one is its replica.
 */
#ifndef TRAINER_STRATEGIES_SHARDS_H
#define TRAINER_STRATEGIES_SHARDS_H

#include "trainer/worker.h"

typedef struct shards {
  size_t count;
  int *server, servers; /* the ranks that serve, of those that are left */
  int *worker, workers; /* ... that work */
  int seat;             /* this rank's number among the workers, or -1 */
  uint64_t *version;    /* updates that this rank's weights of a shard have had */
  bool *kept;           /* this rank serves a shard or is its replica, and has its velocity */
} shards;

/* How many servers a run begins with: --servers, where 0 stands for all ranks. */
int shards_servers(const options *o, int nranks);

/* Takes memory, and assigns the shards. */
bool shards_open(shards *s, worker *w, fail *why);

/* Finds out who of those that are left serves and who works. If all of one kind are lost, or no
 * servers are dedicated, everybody does. */
bool shards_assign(shards *s, worker *w, fail *why);

/* After a loss, collective: gives all ranks the newest copy of each shard, and sets the worker's
 * place to the first step that some shard still lacks. */
bool shards_share_newest(shards *s, worker *w, fail *why);

/* The parameters of shard j. */
shard shards_range(const shards *s, const worker *w, size_t j);

/* The rank that serves shard j, and the one that has the copy, or -1 if one server is left. */
int shards_server(const shards *s, size_t j);
int shards_replica(const shards *s, size_t j);

#endif
