/* traits.c: the collectives that coll_perf knows, and how their sizes are counted. */
#include "perf.h"

const perf_traits perf_collectives[PERF_WHAT_COUNT] = {
    /* name, algorithms of, reduces, rooted, varying, send, recv */
    [PERF_ALLREDUCE] = {"allreduce", "allreduce", true, false, false, PERF_ONE_BLOCK,
                        PERF_ONE_BLOCK},
    [PERF_REDUCE] = {"reduce", "reduce", true, true, false, PERF_ONE_BLOCK, PERF_ONE_BLOCK},
    [PERF_REDUCE_SCATTER] = {"reduce_scatter", "reduce_scatter", true, false, false,
                             PERF_ALL_BLOCKS, PERF_ONE_BLOCK},
    [PERF_REDUCE_SCATTERV] = {"reduce_scatterv", "reduce_scatter", true, false, true,
                              PERF_ALL_BLOCKS, PERF_ONE_BLOCK},
    [PERF_SCAN] = {"scan", "scan", true, false, false, PERF_ONE_BLOCK, PERF_ONE_BLOCK},
    [PERF_EXSCAN] = {"exscan", "exscan", true, false, false, PERF_ONE_BLOCK, PERF_ONE_BLOCK},
    [PERF_BROADCAST] = {"broadcast", "broadcast", false, true, false, PERF_ONE_BLOCK,
                        PERF_ONE_BLOCK},
    [PERF_ALLGATHER] = {"allgather", "allgather", false, false, false, PERF_ONE_BLOCK,
                        PERF_ALL_BLOCKS},
    [PERF_ALLGATHERV] = {"allgatherv", "allgather", false, false, true, PERF_ONE_BLOCK,
                         PERF_ALL_BLOCKS},
    [PERF_GATHER] = {"gather", "gather", false, true, false, PERF_ONE_BLOCK, PERF_ALL_BLOCKS},
    [PERF_GATHERV] = {"gatherv", "gather", false, true, true, PERF_ONE_BLOCK, PERF_ALL_BLOCKS},
    [PERF_SCATTER] = {"scatter", "scatter", false, true, false, PERF_ALL_BLOCKS, PERF_ONE_BLOCK},
    [PERF_SCATTERV] = {"scatterv", "scatter", false, true, true, PERF_ALL_BLOCKS, PERF_ONE_BLOCK},
    [PERF_ALLTOALL] = {"alltoall", "alltoall", false, false, false, PERF_ALL_BLOCKS,
                       PERF_ALL_BLOCKS},
    [PERF_ALLTOALLV] = {"alltoallv", "alltoall", false, false, true, PERF_ALL_BLOCKS,
                        PERF_ALL_BLOCKS},
    [PERF_BARRIER] = {"barrier", "barrier", false, false, false, PERF_NOTHING, PERF_NOTHING},
    [PERF_SENDRECV] = {"sendrecv", NULL, false, false, false, PERF_ONE_BLOCK, PERF_ONE_BLOCK},
    [PERF_REDUCE_BROADCAST] = {"reduce_broadcast", NULL, true, true, false, PERF_ONE_BLOCK,
                               PERF_ONE_BLOCK},
};

/* How many blocks of equal length the larger buffer holds. */
static size_t blocks_of(const perf_traits *traits, int nranks) {
  bool blocks = traits->send == PERF_ALL_BLOCKS || traits->recv == PERF_ALL_BLOCKS;
  return blocks ? (size_t)nranks : 1;
}

size_t perf_count_of(const perf_traits *traits, size_t bytes, size_t elem_bytes, int nranks) {
  return traits->send == PERF_NOTHING ? 0 : bytes / (elem_bytes * blocks_of(traits, nranks));
}

size_t perf_bytes_of(const perf_traits *traits, size_t count, size_t elem_bytes, int nranks) {
  return count * elem_bytes * blocks_of(traits, nranks);
}

bool perf_can_overlap(perf_what what) {
  return what == PERF_ALLREDUCE || what == PERF_REDUCE_SCATTER || what == PERF_ALLGATHER ||
         what == PERF_ALLTOALL || what == PERF_BROADCAST;
}
