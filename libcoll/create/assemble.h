/*
 * assemble.h: makes a communicator from its parts. The three public ways to create one, and the
 * simulator, differ only in where the parts come from.
 */
#ifndef COLLI_CREATE_ASSEMBLE_H
#define COLLI_CREATE_ASSEMBLE_H

#include "coll/coll_transport.h"
#include "libcoll/wireup/bootstrap.h"

/* What a communicator takes from the world besides its transports. */
typedef struct colli_world {
  void *ctx;
  uint64_t (*now_ns)(void *ctx);
  void *device; /* goes into coll_transport_env.device */
  /*
   * NULL, or what a waiting rank does instead of spinning and sleeping: lets the others of its
   * world go on (simulator). moved: something happened since the last time. False if nobody else
   * can go on before the call returns: then it must not wait.
   */
  bool (*pause)(void *ctx, bool moved);
} colli_world;

/* The real one. */
extern const colli_world colli_world_real;

typedef struct colli_assembly {
  int rank;
  int nranks;
  uint64_t comm_id;
  uint8_t secret[COLL_SECRET_BYTES];
  const colli_params *params; /* copied */
  colli_world world;
  /* The transports that may be used, best first, NULL-terminated; their order is the blob index. */
  const coll_transport_ops *const *transports;
} colli_assembly;

/*
 * First half: opens the endpoints and fills in *info (except control_addrs), so that it can be
 * exchanged. On failure *comm is NULL and `error` says why.
 */
coll_status colli_comm_open(const colli_assembly *assembly, coll_comm **comm, colli_rank_info *info,
                            coll_error *error);

/*
 * Second half: takes over `ctrl` (in every case) and copies the table of nranks records, chooses a
 * transport for each peer. On failure the communicator is destroyed.
 */
coll_status colli_comm_join(coll_comm **comm, const colli_rank_info *table, colli_ctrl *ctrl,
                            coll_error *error);

/* Moves everything on as far as it goes without waiting; 1 if something moved, else 0. */
int colli_comm_progress(coll_comm *comm);

#endif
