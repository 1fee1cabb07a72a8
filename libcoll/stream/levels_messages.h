/*
 * levels_messages.h: the parts of divided calls that go across groups, as messages which the
 * network's devices move from and to GPU memory (GPUDirect RDMA), with kernels between them:
 *
 *   all-reduce, reduce  each rank's pieces to those ranks whose pieces they are -> a kernel folds
 *                       what has come -> the result to all, or to the root
 *   reduce-scatter      the first two of these
 *   all-gather          each block from its rank to all others
 *   broadcast           pieces along a chain: each rank receives one while it sends the last one
 *
 * The first three are made in rounds: what comes to a rank at a time fits into its room for
 * results. So each rank sends and receives the least bytes that the operation takes (a reduce:
 * twice that), and none passes through host memory. That a reduction is a scatter of pieces and a
 * gather of results, with a message between each two ranks: R. Thakur, R. Rabenseifner, W. Gropp,
 * "Optimization of collective communication operations in MPICH", 2005.
 *
 * The messages are on the communicator's own connections, which end if it fails, so that no device
 * writes to its memory any more. Those of its parts are shared with others (comm/mux), and do not
 * end. Any end may have memory that cannot be lent: it is copied then (run/gpu_lend.h).
 */
#ifndef COLLI_STREAM_LEVELS_MESSAGES_H
#define COLLI_STREAM_LEVELS_MESSAGES_H

#include "libcoll/call/call.h"
#include "libcoll/gpu/passage.h"

/* Whether a part across groups of a communicator with levels is made of messages: its pieces are
 * long enough. All ranks with this rank's place find the same. */
bool colli_levels_can_message(const coll_comm *comm, const colli_call *part);

/*
 * Puts such a part into the stream of a passage behind a gate. room: memory of the stream's GPU,
 * levels->room_bytes. Errors, recorded: those of colli_stream_call().
 */
coll_status colli_levels_put_messages(coll_comm *comm, const colli_call *part,
                                      const colli_gpu_passage *passage, char *room);

#endif
