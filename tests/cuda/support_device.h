/*
 * support_device.h: memory and streams of GPUs, for tests of the library on them. The GPUs are the
 * fake driver's; TEST_GPU=real in the environment takes those of the machine.
 */
#ifndef TESTS_CUDA_SUPPORT_DEVICE_H
#define TESTS_CUDA_SUPPORT_DEVICE_H

#include <stdbool.h>

#include "case.h"
#include "libcoll/gpu/cuda_load.h"

enum { MOST_DEVICES = 16 };

/* Loads the driver without initialising it: before ranks are forked, each of which initialises its
 * own. The fake one takes the name libcuda.so.1 and has MOST_DEVICES devices, whose memory the
 * processor cannot access, unless the environment says otherwise. Ends the program if that fails,
 * as do the others. */
void device_load(void);

/* Whether the machine's GPUs are used, and how many devices there are (at least as many as any test
 * of the fake needs). Neither initialises the driver in this process. */
bool device_is_real(void);
int device_count(void);

/* Skips a Criterion test for which a real driver lacks something. */
#define DEVICE_NEEDS_FAKE(what)                                                                    \
  do {                                                                                             \
    if (device_is_real())                                                                          \
      cr_skip_test("a real driver has no %s", what);                                               \
  } while (0)
#define DEVICE_NEEDS_TWO                                                                           \
  do {                                                                                             \
    if (device_count() < 2)                                                                        \
      cr_skip_test("there is only one GPU");                                                       \
  } while (0)

/* Makes the calling thread work on a device, modulo their number. Any thread. */
const colli_cuda *device_use(int device);

/* Memory of the device that the calling thread uses; the second kind begins at odd addresses. The
 * third is that of the next device. */
extern const case_device device_memory, device_odd_memory, device_far_memory;

/*
 * The modes in which tests have calls in streams run (COLL_GPU_MODE). Sets one for communicators
 * that are made from then on; NULL: there are not enough devices. Ranks use two devices, but with
 * ONE_GPU and MEET one, and with SPIN each has its own. With MEET, a call waits for those of all
 * other ranks.
 */
enum { MODE_STAGED, MODE_ORDERED, MODE_ONE_GPU, MODE_SPIN, MODE_MEET, MODES };
const char *device_mode(int i);

/* Goes through modes from one to another, as far as they are possible here. */
#define EACH_MODE(mode, first, last)                                                               \
  for (int mode = (first); mode <= (last); mode++)                                                 \
    if (device_mode(mode))

/* Which device a rank has in the mode that was set last; before that, two take turns. */
int device_of_rank(int rank);

/* In another mode than "staged": has a communicator of several ranks that are threads use GPU
 * memory. Collective. On the device that the calling thread uses. */
coll_status device_share(coll_comm *comm);

/* A communicator of the same ranks, which are processes, by coll_comm_create(): it finds out by
 * itself whether calls are direct. Collective. `id` is in memory that all share. Before, the thread
 * uses the rank's device. */
coll_status device_create(coll_comm *comm, coll_id *id, const coll_config *config,
                          coll_comm **created);

/* Where the host finds memory of a fake device. */
void *device_place(const void *memory);

/* Copies to and from memory of a device, at once; no stream waits for it. */
void device_write(void *memory, const void *from, size_t bytes);
void device_read(void *to, const void *memory, size_t bytes);

/* A vector in memory of the device, all of whose elements are `value`; makes them so; whether
 * `count` are. */
int32_t *device_vector(size_t count, int32_t value);
void device_fill(int32_t *vector, size_t count, int32_t value);
bool device_has(const int32_t *vector, size_t count, int32_t value);

/* Where functions of streams, which must not call the driver, have memory of a device: what they
 * wrote there is in the memory after a push in the stream, what they read there after a pull. On
 * the fake it is the memory. Without a stream both are at once. For as long as the process lives.
 */
typedef struct device_view {
  void *memory;
  unsigned char *seen;
  size_t bytes;
} device_view;
device_view device_look(void *memory, size_t bytes);
void device_push(const device_view *view, colli_cu_stream stream);
void device_pull(const device_view *view, colli_cu_stream stream);

/* Whether a call gave this error, and the record says so with these words. */
bool device_refused(const coll_comm *comm, coll_status got, coll_status want, const char *words);

/* A stream of that device, for as long as the thread lives, or until it gives it back. */
colli_cu_stream device_stream(void);
void device_stream_give(colli_cu_stream stream);

/* Waits until a stream has done everything. */
void device_await(colli_cu_stream stream);

/* Captures what is put into a stream from here on, by this thread; the end gives a graph. */
typedef struct device_graph {
  colli_cu_graph graph;
  struct colli_cu_graph_exec_st *exec;
} device_graph;
void device_capture(colli_cu_stream stream);
device_graph device_capture_end(colli_cu_stream stream);
void device_launch(const device_graph *graph, colli_cu_stream stream);
void device_graph_free(const device_graph *graph);

/* Lets a stream wait until another one has done what is in it so far. */
void device_follow(colli_cu_stream stream, colli_cu_stream other);

/* Has a thread of the driver call a function when the stream comes there. */
void device_call(colli_cu_stream stream, colli_cu_host_fn function, void *arg);

/* Holds a stream until the gate is opened: by a kernel that spins, or by a wait for a value, which
 * costs nothing. */
typedef struct device_gate device_gate;
device_gate *device_hold(colli_cu_stream stream);
device_gate *device_stop(colli_cu_stream stream);
void device_open(device_gate *gate);

/* Runs a kernel that traps: the device of this thread is broken from then on. */
void device_break(colli_cu_stream stream);

/* The races that the software GPU has found in this process since the last call (GPU_MODEL=races).
 * A real one finds none. */
uint64_t device_take_races(void);

/* From here on this thread's memory may leak: streams may use it after the library. */
void device_may_leak(void);

/* How much of the driver the process holds: memory, streams, modules, contexts. A real one does not
 * say: 0. */
uint64_t device_held(void);

#endif
