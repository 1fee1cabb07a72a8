/*
 * driver.h: what the files of the fake CUDA driver share: a shared object that looks like
 * libcuda.so.1 and runs kernels on the software GPU of tests/gpu/device.
 *
 * A device has GPU_QUEUES queues, and each stream uses one of them. One thread works for all queues
 * in turn: it executes the operation at the head of each queue, kernels a piece at a time. So what
 * waits in a queue blocks every stream of that queue, and kernels that spin do not stop other
 * queues. That thread is the worker; calls that ask or wait for the end of something take its place
 * while it is away, which saves waking it. Memory of devices is memory of the host, which other
 * processes can map.
 *
 * Environment variables, read by cuInit():
 *   GPU_SEED      decides what happens by chance (1)
 *   GPU_DEVICES   number of devices (1)
 *   GPU_ARCH      the devices' compute capability ("7.0")
 *   GPU_PEERS     who can access whose memory: "all", "none", or a digit for each pair, row by row:
 *                 "0110" for two devices ("all")
 *   GPU_QUEUES    queues of a device (32)
 *   GPU_RESIDENT  blocks that a device can run at the same time, of all kernels together (64)
 *   GPU_STRICT=1  what allocates, frees, pins, registers, loads or unloads a module, creates a
 *                 stream, opens or closes a handle waits until all kernels that were launched have
 *                 ended, as real drivers may do
 *   GPU_SPLIT=1   accesses of 16 bytes become two of 8
 *   GPU_MODEL     plain, weak or races, see gpu_run.h. A race is written to stderr; if the program
 *                 does not take the races (fake_gpu_take_races()), its exit status is 66. A kernel
 *                 comes after all that ended before it began; what it learns while it runs, from
 *                 the host or from a stream that writes a value, orders nothing for the detector.
 *                 Copies do not count as accesses
 *   GPU_HIDDEN=1  the program cannot access memory of devices (SIGSEGV). The driver and kernels
 *                 have the same pages at another place. Memory of the host is as without it
 *   GPU_NO_IPC=1  no handles of memory for other processes
 *   GPU_PITCH     most bytes from a row to the next in copies of rows (2147483647)
 *   GPU_RDMA      whether devices of a network can use memory: 0: no; 1: yes; 2: yes, and what they
 *                 write has to be flushed; 3: that has to be, but cannot; 4: devices say that they
 *                 can, but there are no dma-bufs (0)
 *   GPU_SASS_ERROR=n  modules of SASS are refused with this error, as by a driver that is older
 * than the compiler. Without it a module of SASS is checked, and runs as the PTX that it was made
 * from GPU_FAIL=n    the n-th call returns CUDA_ERROR_UNKNOWN; cuInit() is call 1; the texts of
 * errors and cuGetProcAddress() do not count
 *
 * Capture of streams is stricter than CUDA's documentation where that says little: what GPU_STRICT
 * would hold back, and queries and waits of all streams and events, count as potentially unsafe
 * calls. A launch of a graph puts what a stream captured into one stream, and these wait for each
 * other as the graph says; the first is that of the launch.
 *
 * cuPointerGetAttributes() needs no context; CUDA's documentation leaves that open.
 *
 * A dma-buf is a descriptor of the file that the memory lies in, which stands where the range
 * begins.
 *
 * Refused (CUDA_ERROR_NOT_SUPPORTED): the per-thread default stream; the launch of a graph in a
 * stream that is captured; `extra` of a launch; thread-block clusters.
 */
#ifndef TESTS_GPU_DRIVER_H
#define TESTS_GPU_DRIVER_H

#include <pthread.h>
#include <stdbool.h>

#include "libcoll/gpu/cuda_abi.h"
#include "libcoll/gpu/cuda_entries.h"
#include "tests/gpu/device/gpu_run.h"
#include "tests/gpu/driver/driver_memory.h"
#include "tests/gpu/driver/extra.h"

enum { RDMA_NONE, RDMA_ORDERED, RDMA_FLUSHED, RDMA_UNFLUSHABLE, RDMA_NO_RANGES };
enum { MOST_DEVICES = 16, MOST_QUEUES = 128, RACES_STATUS = 66, PEERS_TEXT = 300 };

typedef struct driver_op driver_op;
typedef struct driver_module driver_module;
typedef struct driver_node driver_node;
typedef struct driver_capture driver_capture;
typedef struct driver_user_object driver_user_object;

/* The primary context of a device; there are no others. */
struct driver_context {
  int device;
  int retained;
  colli_cu_result error; /* of a kernel or copy that failed; all later calls return it */
  uint32_t peers;        /* devices whose memory this one may access: a bit each */
};

/* What handles point to. It remains until nothing uses it and its owner has destroyed it. */
typedef enum { STREAM = 1, EVENT, MODULE, GRAPH, EXEC, USER_OBJECT, ALLOCATION, POOL } driver_kind;
typedef struct driver_object {
  driver_kind kind;
  driver_context *context;
  int users; /* operations that are queued, and calls that wait */
  bool destroyed;
  struct driver_object *next;
} driver_object;

/* Nodes of a graph. */
typedef struct driver_nodes {
  driver_node **node;
  int count, room;
} driver_nodes;

/* A call that waits until so many operations of a stream have ended. */
typedef struct driver_waiter {
  uint64_t position;
  pthread_cond_t ended;
  struct driver_waiter *next;
} driver_waiter;

typedef struct driver_stream {
  driver_object object; /* first */
  int queue;
  bool legacy; /* the default stream: each other stream that is not `apart` waits for it */
  bool apart;  /* CU_STREAM_NON_BLOCKING */
  uint64_t queued, done;
  driver_waiter *waiters;
  driver_capture *capture; /* NULL: what is submitted is executed */
  driver_nodes after;      /* what the next node of the capture comes after */
  int lane;                /* this stream's number in the capture */
} driver_stream;

typedef struct driver_event {
  driver_object object;  /* first */
  driver_stream *stream; /* where it was recorded last, or NULL */
  uint64_t position;     /* operations of that stream that must have ended */
  uint64_t capture;      /* the capture in which it was recorded last, or 0 */
  driver_nodes after;    /* its place in that capture */
} driver_event;

typedef struct driver_function {
  driver_module *module;
  const ptx_kernel *kernel;
  int most_dynamic_bytes;
} driver_function;

struct driver_module {
  driver_object object; /* first */
  ptx_module *code;
  int arch;                   /* for which its SASS is: 90 for sm_90 */
  driver_function *functions; /* one for each kernel */
};

/* Memory that cuMemCreate() made. */
struct driver_allocation {
  driver_object object; /* first; its context is that of the device, its users are mappings */
  int fd;               /* of a file with the memory */
  size_t bytes;
  int handle_types; /* in which it may be exported */
  uint64_t references;
};

/* A pool of this process, or another one's that it has imported. */
struct driver_pool {
  driver_object object; /* first; its context is that of the device, its users are allocations */
  int fd;               /* of a file that stands for it */
  uint64_t inode;       /* of that file */
  int handle_types;
  bool imported;
  uint32_t readable, writable; /* devices that may access it, a bit each */
};

typedef enum {
  KERNEL,
  WAIT_VALUE,
  WRITE_VALUE,
  COPY,
  FILL,
  HOST,
  RECORD,
  WAIT_EVENT,
  WAIT_OUTSIDE /* in graphs: for an event as it is recorded when the graph is launched */
} op_kind;

/* What a stream does. */
struct driver_op {
  op_kind kind;
  driver_stream *stream;
  uint64_t number; /* of all operations, in the order of the calls */
  driver_op *next;
  uint64_t to, from;         /* addresses */
  bool check_to, check_from; /* they belong to ranges, which must be there still */
  size_t bytes;
  void *staged; /* what to copy if it is not `from` */
  uint32_t value;
  unsigned flags;
  driver_stream *after; /* WAIT_EVENT: a stream, of which so many operations must have ended */
  uint64_t position;
  colli_cu_host_fn host;
  void *host_context;
  driver_function *function;
  gpu_launch launch;
  void *params;
  bool cooperative;
  gpu_run *run;
  driver_event *event;  /* WAIT_OUTSIDE */
  driver_object *graph; /* to which `params` belong, or NULL */
};

/* A node of a graph. */
struct driver_node {
  driver_op op;
  driver_context *context;
  int lane;              /* nodes of a lane run in one stream */
  driver_nodes after;    /* nodes that come before it */
  bool joined;           /* the end of the capture comes after it */
  driver_stream *stream; /* in the launch that is being submitted: where it is */
  uint64_t position;
};

/* References to a user object. */
typedef struct driver_hold {
  driver_user_object *of;
  unsigned count;
  struct driver_hold *next;
} driver_hold;

typedef struct driver_graph {
  driver_object object; /* first; executable graphs and launches are its users */
  driver_nodes nodes;   /* each after those that it comes after */
  int lanes;
  bool capturing;
  driver_hold *holds;
} driver_graph;

/* An executable graph. */
typedef struct driver_exec {
  driver_object object; /* first */
  driver_graph *graph;
  driver_stream **lanes; /* NULL until it is needed */
  driver_stream *last;   /* where it was launched last, or NULL */
  uint64_t position;
} driver_exec;

/* What a program wants to be told the end of. */
struct driver_user_object {
  driver_object object; /* first */
  colli_cu_host_fn destroy;
  void *argument;
  uint64_t references;
  driver_user_object *next; /* of those without references */
};

/* Streams that are captured together. */
struct driver_capture {
  uint64_t id;
  colli_cu_capture_mode mode;
  pthread_t thread; /* that began it */
  driver_stream *origin;
  driver_graph *graph;
  bool invalidated;
  driver_capture *next;
};

typedef struct driver_queue {
  driver_op *first, *last;
} driver_queue;

typedef struct driver_device {
  driver_context context;
  driver_stream *legacy;
  driver_queue queues[MOST_QUEUES];
  int streams;        /* created so far */
  int legacy_pending; /* operations of the default stream */
  uint64_t free;      /* blocks that could become resident */
} driver_device;

typedef struct driver_settings {
  uint64_t seed, fail;
  int devices, queues, resident;
  int arch; /* 70 for compute capability 7.0 */
  colli_cu_result sass_error;
  bool strict, split, hidden, no_ipc;
  int pitch;
  int rdma; /* RDMA_... */
  gpu_model model;
  char peers[PEERS_TEXT];
} driver_settings;

typedef struct driver_state {
  driver_settings settings;
  bool forked;          /* this is a child of the process that it belongs to */
  pthread_mutex_t lock; /* of all that follows; not held while kernels, copies and functions run */
  pthread_cond_t work;  /* for the worker */
  pthread_cond_t changed;
  pthread_t worker;
  bool asleep; /* the worker, until somebody wakes it */
  bool busy;   /* somebody goes around the queues */
  bool stop;
  uint64_t rounds, wanted_rounds; /* of the worker around all queues */
  uint64_t calls, ops;
  uint64_t random_step, random_turn; /* the first depends on what kernels do, not on time */
  int pending;                       /* operations that have not ended */
  int kernels;                       /* kernels of them */
  int running;                       /* kernels that have begun and not ended */
  int held_back;                     /* calls that wait because of GPU_STRICT */
  int running_device;                /* whose kernel the worker runs now */
  gpu_world *world;
  uint64_t races, races_taken;
  int races_told;
  driver_object *objects;
  driver_capture *captures;
  driver_user_object *unused; /* to be destroyed */
  driver_memory **memory;     /* by address */
  int nmemory, memory_room;
  driver_memory *freed; /* not unmapped yet */
  driver_memory *kept;  /* device memory for the next that want as much */
  int nkept;
  driver_memory *reserved;
  uint64_t ids;
  driver_device devices[MOST_DEVICES];
} driver_state;

/* ---- driver_state.c ---- */

/* The state, or NULL before cuInit(). */
driver_state *driver_get(void);

/*
 * Begins a call: counts it and takes the lock. An error, and no lock, if the driver is not
 * initialised in this process, in a host function of a stream, and where GPU_FAIL says so.
 */
colli_cu_result driver_enter(void);

/* The same for calls that need a current context without errors. */
colli_cu_result driver_enter_context(driver_context **context);

/*
 * The same for calls that allocate, free, load and the like: a capture may forbid them, and
 * GPU_STRICT holds them back until no kernel is left.
 */
colli_cu_result driver_enter_heavy(driver_context **context);

/* The same for calls that ask about a stream; NULL is the default stream of the current context. */
colli_cu_result driver_enter_info(colli_cu_stream handle, driver_stream **stream);

/* The same for calls that use a stream, which must not be a default stream that would have to wait
 * for a capture. */
colli_cu_result driver_enter_stream(colli_cu_stream handle, driver_stream **stream);

/* Ends a call: releases the lock. Returns its argument. */
colli_cu_result driver_leave(colli_cu_result result);

/* Adds an object; NULL if memory is short. */
void *driver_object_add(driver_kind kind, size_t bytes, driver_context *context);

/* The object of a handle, or NULL if there is none. */
void *driver_object_find(driver_kind kind, const void *handle);

/* Ends a use of an object, or its owner's. */
void driver_object_drop(driver_object *object, bool by_owner);

/* ---- driver_device.c ---- */

/* The context of this thread, or NULL. */
driver_context *driver_current(void);
driver_device *driver_device_of(const driver_context *context);

/* Whether a device can access another one's memory. */
bool driver_can_access(const driver_state *state, int device, int peer);

/* ---- driver_stream.c ---- */

/* Adds a stream, which waits for no default stream if it is `apart`; NULL if memory is short. */
driver_stream *driver_stream_add(driver_context *context, bool apart);

/* ---- driver_queue.c ---- */

/* Appends a copy of an operation to a stream, or to the graph that is captured there. */
colli_cu_result driver_submit(driver_stream *stream, const driver_op *fields);

/* Waits until so many operations of a stream have ended; the error of its context, if there is one.
 */
colli_cu_result driver_drain(driver_stream *stream, uint64_t position);

/* COLLI_CUDA_ERROR_NOT_READY until so many operations of a stream have ended; then as above. */
colli_cu_result driver_poll(driver_stream *stream, uint64_t position);

/* Waits for something to change. */
void driver_wait(void);

/* Wakes the worker if it sleeps. */
void driver_wake(void);

/* The worker. */
void *driver_work(void *state);

/* The next number of a sequence; 31 bits. */
static inline uint64_t driver_random(uint64_t *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return *state >> 33;
}

/* ---- driver_run.c ---- */

typedef enum { OP_WAITS, OP_GOES_ON, OP_ENDS } op_progress;

/* Executes a part of an operation or all of it. May release the lock meanwhile. */
op_progress driver_run(driver_op *op);

/* ---- driver_pool.c ---- */

/* Whether a device may access memory of a pool. */
bool driver_pool_allows(const driver_pool *pool, int device, bool write);

/* ---- driver_sass.c ---- */

/* Whether an image has SASS: a cubin or a fat binary. Else it is PTX. */
bool driver_is_sass(const void *image);

/* Makes a module's code from SASS, and says for which architecture it is; the error if there is
 * something wrong with it, or the device cannot run it. */
colli_cu_result driver_load_sass(const void *image, ptx_module **code, int *arch);

/* ---- driver_capture.c ---- */

/* The error of a call that is potentially unsafe while streams are captured: forbidden, then it
 * invalidates what forbids it; or success. */
colli_cu_result driver_capture_unsafe(void);

/* The error of a call that a capture of this stream cannot have, and invalidates it; or success. */
colli_cu_result driver_capture_conflict(const driver_stream *stream);

/* Whether a stream is a default one, and a stream that it would wait for is captured. */
driver_capture *driver_capture_implied(const driver_stream *stream);

/* Records an event in a stream that is captured. */
colli_cu_result driver_capture_record(driver_stream *stream, driver_event *event);

/* Lets a stream wait for an event, where one of them at least is in a capture. */
colli_cu_result driver_capture_wait(driver_stream *stream, driver_event *event, unsigned flags);

/* The error of a call that asks for the state of an event of a capture; or success. */
colli_cu_result driver_capture_event(const driver_event *event);

/* ---- driver_graph.c ---- */

/* Adds those of `from` that are missing; false if memory is short. */
bool driver_nodes_join(driver_nodes *to, const driver_nodes *from);

/* Appends an operation to the graph that is captured in a stream. */
colli_cu_result driver_graph_add(driver_stream *stream, const driver_op *op);

/* Frees what belongs to a graph, or an executable one. */
void driver_graph_free(driver_graph *graph);
void driver_exec_free(driver_exec *exec);

/* Destroys the user objects without references; false if there are none. May release the lock. */
bool driver_user_objects_end(void);

/* ---- what the library exports ---- */

#pragma GCC visibility push(default)
#define DRIVER_DECLARE(field, name, suffix, version, arguments)                                    \
  colli_cu_result name##suffix arguments;
COLLI_CUDA_ENTRIES(DRIVER_DECLARE)
FAKE_CUDA_EXTRA(DRIVER_DECLARE)
#undef DRIVER_DECLARE

colli_cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    colli_cu_query_result *found);

/* For tests: returns after the worker has gone `rounds` times more around all queues. What can go
 * on by itself then went on as often. */
void fake_gpu_rounds(uint64_t rounds);

/* For tests: where the program can look at memory of a device, also with GPU_HIDDEN, and the
 * address of such a place. What is neither is returned. */
void *fake_gpu_place(colli_cu_deviceptr at);
colli_cu_deviceptr fake_gpu_address(const volatile void *place);

/* Waits until GPU_STRICT holds a call back. */
void fake_gpu_await_held_back(void);

/* For tests: how much the program holds: ranges of memory, objects and contexts. */
uint64_t fake_gpu_held(void);

/* The number of races that were found since the last call; they do not count at the end. */
uint64_t fake_gpu_take_races(void);

/* Has flushes of what a network has written call a function. */
void fake_gpu_on_flush(void (*function)(void));

/* How many bytes were copied between devices and the host. */
uint64_t fake_gpu_copied(void);
#pragma GCC visibility pop

#endif
