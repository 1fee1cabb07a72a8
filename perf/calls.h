/* calls.h: one operation: its buffers, in memory of the host or of a GPU; in a stream; messages. */
#ifndef PERF_CALLS_H
#define PERF_CALLS_H

#include "perf.h"

/* ---- memory.c: buffers in memory of the host or of a GPU ------------------------------------- */

/* Allocates both buffers. Call perf_memory_close() in any case. */
coll_status perf_memory_open(perf_bench *bench);
void perf_memory_close(perf_bench *bench);

/* Fills the receive buffer with what no result has, then `send` with this rank's input. */
coll_status perf_put_input(const perf_bench *bench, char *send);
/* *result: what is at `recv`, where the host can read it. */
coll_status perf_get_result(const perf_bench *bench, const char *recv, const char **result);

/* ---- bench.c --------------------------------------------------------------------------------- */

/* Runs operation `i` of a measurement, or puts it into the stream. */
coll_status perf_run_once(const perf_bench *bench, bool in_place, int i);

/* Runs operations back to back, until all are complete. */
coll_status perf_run_all(const perf_bench *bench, bool in_place, int count);

/* Makes a graph of operations; launches it so many times, and waits. */
coll_status perf_capture(const perf_bench *bench, bool in_place, int count, perf_graph *graph);
coll_status perf_launch_all(const perf_bench *bench, const perf_graph *graph, int launches);

/* ---- on_stream.c: operations in a stream of a GPU -------------------------------------------- */

/* Whether operations go to a stream. */
bool perf_is_streamed(const perf_options *options);

/* Puts one operation into the stream. */
coll_status perf_run_on_stream(const perf_bench *bench, const char *send, char *recv, int root);

/* So many operations may be in the stream before perf_finish(), or in a graph. */
int perf_stream_calls(const perf_bench *bench);

/* Waits for the operations in the stream, if there is one; their first error. */
coll_status perf_finish(const perf_bench *bench);

/* ---- windows.c: messages between two ranks, many in flight ----------------------------------- */

/* Sends and receives as --window and --pattern say. */
coll_status perf_run_window(const perf_bench *bench, const char *send, char *recv);
coll_status perf_run_window_on_stream(const perf_bench *bench, const char *send, char *recv);

/* The rank whose data this rank receives in sendrecv; -1: none. */
int perf_source(const perf_bench *bench);

/* Messages that one operation sends, of all ranks; and those of one rank to another, which follow
 * each other. */
double perf_window_messages(const perf_bench *bench);
double perf_window_share(const perf_bench *bench);

#endif
