/*
 * gpu_lend.h: GPU memory of long messages that is lent to the transport of their peer, whose device
 * then reads and writes it (GPUDirect RDMA), so that it is not copied in host memory.
 */
#ifndef COLLI_RUN_GPU_LEND_H
#define COLLI_RUN_GPU_LEND_H

#include "libcoll/run/gpu_call.h"

/* The length from which messages of a communicator may be lent memory. All ranks find the same. */
size_t colli_gpu_lend_least(const coll_comm *comm);

/* Whether messages to and from a peer may be lent memory of GPUs: its transport takes it, and
 * COLL_GPU_DIRECT_RDMA is not off. */
bool colli_gpu_is_taken(const coll_comm *comm, int peer);

/* Whether that transport takes a page of a device's memory, which gets it back; the log knows why
 * not. A thread is inside. */
bool colli_gpu_try_lending(coll_comm *comm, int device, int peer, const void *memory);

/* Whether memory of a call may be lent, as far as is known without trying. */
bool colli_gpu_may_lend(const coll_comm *comm, const colli_call *call,
                        const colli_gpu_places *places);

/* Lends what can be lent. What cannot is copied; the log says why. */
void colli_gpu_lend_to(coll_comm *comm, const colli_call *call, const colli_gpu_places *places,
                       colli_lent lent[COLLI_LENT_COUNT]);

#endif
