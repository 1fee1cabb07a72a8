/*
 * support_levels.h: ranks on (fake) GPUs that are in groups. Threads: the GPUs of a group have peer
 * access to each other alone. Processes: each group is on a host of its own.
 */
#ifndef TESTS_CUDA_SUPPORT_LEVELS_H
#define TESTS_CUDA_SUPPORT_LEVELS_H

#include "support_device.h"

enum { LEVELS_GPUS = 4 }; /* of a group */

/* Before the driver is initialised: each LEVELS_GPUS devices have peer access to each other. */
void levels_peers(void);

/* Groups of `size` ranks, which follow each other or take turns. */
typedef struct levels_shape {
  int ngroups, size;
  bool take_turns;
} levels_shape;

/* The group of a rank, and its place there. */
int levels_group(const levels_shape *shape, int rank);
int levels_place(const levels_shape *shape, int rank);

/* The device of a rank in a mode (device_mode()). */
int levels_device(const levels_shape *shape, int rank, int mode);

/* Makes this process say that it is on the host of its group. */
void levels_move(const levels_shape *shape, int rank);

/* Bytes that this thread's communicator has copied between devices and the host since the last
 * call; the first one begins to count. One rank a process or thread. */
uint64_t levels_take_copied(coll_comm *comm);

#endif
