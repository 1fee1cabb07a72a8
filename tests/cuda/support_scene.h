/* support_scene.h: what ranks that are processes do on a direct communicator, twice: the second
 * time no more is held than before, of the driver's objects and of descriptors. */
#ifndef TESTS_CUDA_SUPPORT_SCENE_H
#define TESTS_CUDA_SUPPORT_SCENE_H

#include "coll/coll.h"

enum { SCENE_LIMIT_S = 60 }; /* after which a rank is killed */

/* A rank's part: 0 if all is as it should be. */
typedef int scene_fn(coll_comm *comm, int rank, int nranks);

typedef struct scene {
  scene_fn *run;
  coll_id id;
  int timeout_ms; /* the communicator's */
} scene;

/* A scene with a usual deadline, in memory that processes share. */
scene *scene_make(scene_fn *run);

/* Plays it on all ranks: for run_processes(). */
int scene_play(coll_comm *comm, int rank, int nranks, void *scene);

#endif
