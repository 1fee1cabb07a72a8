/*
 * driver.h: what the files of the fake CUDA driver share: a shared object that looks like
 * libcuda.so.1 and runs kernels on the software GPU of tests/gpu/device.
 *
 * A device has GPU_QUEUES queues, and each stream uses one of them. One thread works for all queues
 * in turn: it executes the operation at the head of each queue, kernels a piece at a time. So what
 * waits in a queue blocks every stream of that queue, and kernels that spin do not stop other
 * queues. Memory of devices is memory of the host, which other processes can map.
 *
 * Environment variables, read by cuInit():
 *   GPU_SEED      decides what happens by chance (1)
 *   GPU_DEVICES   number of devices (1)
 *   GPU_PEERS     who can access whose memory: "all", "none", or a digit for each pair, row by row:
 *                 "0110" for two devices ("all")
 *   GPU_QUEUES    queues of a device (32)
 *   GPU_RESIDENT  blocks that a device can run at the same time, of all kernels together (64)
 *   GPU_STRICT=1  what allocates, frees, loads a module, creates a stream or opens a handle waits
 *                 until all kernels that were launched have ended, as real drivers may do
 *   GPU_SPLIT=1   accesses of 16 bytes become two of 8
 *   GPU_MODEL     plain, weak or races, see gpu_run.h. A race is written to stderr; if the program
 *                 does not take the races (fake_gpu_take_races()), its exit status is 66. A kernel
 *                 comes after all that ended before it began; what it learns while it runs, from
 *                 the host or from a stream that writes a value, orders nothing for the detector.
 *                 Copies do not count as accesses
 *   GPU_NO_IPC=1  no handles of memory for other processes
 *   GPU_FAIL=n    the n-th call returns CUDA_ERROR_UNKNOWN; cuInit() is call 1; the texts of errors
 *                 and cuGetProcAddress() do not count
 *
 * Refused (CUDA_ERROR_NOT_SUPPORTED): cuMemCreate() and all that maps what it makes,
 * handles of address ranges, flushing RDMA writes, user objects; capture of streams; the per-thread
 * default stream; `extra` of a launch; thread-block clusters.
 */
#ifndef TESTS_GPU_DRIVER_H
#define TESTS_GPU_DRIVER_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

#include "libcoll/gpu/cuda_abi.h"
#include "libcoll/gpu/cuda_entries.h"
#include "tests/gpu/device/gpu_run.h"

/* Errors that libcoll does not name. */
enum {
  ERROR_INVALID_DEVICE = 101,
  ERROR_INVALID_PTX = 218,
  ERROR_INVALID_HANDLE = 400,
  ERROR_NOT_FOUND = 500,
  ERROR_ILLEGAL_ADDRESS = 700,
  ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
  ERROR_MISALIGNED_ADDRESS = 716,
  ERROR_LAUNCH_FAILED = 719,
  ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
  ERROR_UNKNOWN = 999
};

enum { MOST_DEVICES = 16, MOST_QUEUES = 128, RACES_STATUS = 66, PEERS_TEXT = 300 };

typedef struct driver_op driver_op;
typedef struct driver_module driver_module;

/* The primary context of a device; there are no others. */
typedef struct driver_context {
  int device;
  int retained;
  colli_cu_result error; /* of a kernel or copy that failed; all later calls return it */
  uint32_t peers;        /* devices whose memory this one may access: a bit each */
} driver_context;

/* What handles point to. It remains until nothing uses it and its owner has destroyed it. */
typedef enum { STREAM = 1, EVENT, MODULE } driver_kind;
typedef struct driver_object {
  driver_kind kind;
  driver_context *context;
  int users; /* operations that are queued, and calls that wait */
  bool destroyed;
  struct driver_object *next;
} driver_object;

typedef struct driver_stream {
  driver_object object; /* first */
  int queue;
  bool legacy; /* the default stream: each other stream that is not `apart` waits for it */
  bool apart;  /* CU_STREAM_NON_BLOCKING */
  uint64_t queued, done;
} driver_stream;

typedef struct driver_event {
  driver_object object;  /* first */
  driver_stream *stream; /* where it was recorded last, or NULL */
  uint64_t position;     /* operations of that stream that must have ended */
} driver_event;

typedef struct driver_function {
  driver_module *module;
  const ptx_kernel *kernel;
  int most_dynamic_bytes;
} driver_function;

struct driver_module {
  driver_object object; /* first */
  ptx_module *code;
  driver_function *functions; /* one for each kernel */
};

typedef enum { DEVICE_MEMORY, OPENED_MEMORY, PINNED_MEMORY, REGISTERED_MEMORY } memory_kind;

/* A range of addresses that devices can access. */
typedef struct driver_memory {
  memory_kind kind;
  uint64_t at;
  size_t bytes, mapped_bytes;
  driver_context *context; /* whose it is, or who opened it */
  int owner;               /* device where it lies; of another process if it was opened */
  int fd;
  uint64_t id;
  unsigned sync_memops;
  int opened;                 /* how often */
  uint64_t inode;             /* of the file that it lies in, which no other memory ever has */
  struct driver_memory *next; /* of those that were freed */
} driver_memory;

typedef enum { KERNEL, WAIT_VALUE, WRITE_VALUE, COPY, FILL, HOST, RECORD, WAIT_EVENT } op_kind;

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
  bool strict, split, no_ipc;
  gpu_model model;
  char peers[PEERS_TEXT];
} driver_settings;

typedef struct driver_state {
  driver_settings settings;
  pid_t pid;
  pthread_mutex_t lock; /* of all that follows; not held while kernels, copies and functions run */
  pthread_cond_t work;  /* for the worker */
  pthread_cond_t changed;
  pthread_t worker;
  bool stop;
  uint64_t rounds, wanted_rounds; /* of the worker around all queues */
  uint64_t calls, ops;
  uint64_t random_step, random_turn; /* the first depends on what kernels do, not on time */
  int kernels;                       /* launched and not ended */
  int running;                       /* begun and not ended */
  int held_back;                     /* calls that wait because of GPU_STRICT */
  int running_device;                /* whose kernel the worker runs now */
  gpu_world *world;
  uint64_t races, races_told, races_taken;
  driver_object *objects;
  driver_memory **memory; /* by address */
  int nmemory, memory_room;
  driver_memory *freed; /* not unmapped yet */
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

/* The same for calls about a stream; NULL is the default stream of the current context. */
colli_cu_result driver_enter_stream(colli_cu_stream handle, driver_stream **stream);

/* Ends a call: releases the lock. Returns its argument. */
colli_cu_result driver_leave(colli_cu_result result);

/* With GPU_STRICT, waits until no kernel is left. */
void driver_hold_back(void);

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

/* ---- driver_memory.c ---- */

/* The range that has all these bytes, or NULL. */
driver_memory *driver_memory_find(uint64_t at, size_t bytes);

/* Whether a range begins, ends or lies between these addresses. */
bool driver_memory_overlaps(uint64_t at, size_t bytes);

/* Adds a range, whose other fields the caller has set. Frees it and returns false if memory is
 * short. */
bool driver_memory_add(const driver_memory *fields);

/* Takes a range out; it is unmapped when no kernel runs. */
void driver_memory_remove(driver_memory *memory);

/* Unmaps what was removed. */
void driver_memory_unmap_freed(void);

/* Whether kernels of the device that runs now may access memory: gpu_options.allowed. */
bool driver_memory_allowed(void *context, uint64_t address, size_t bytes, bool write);

/* ---- driver_queue.c ---- */

/* Appends a copy of an operation to a stream. */
colli_cu_result driver_submit(driver_stream *stream, const driver_op *fields);

/* Waits until so many operations of a stream have ended; the error of its context, if there is one.
 */
colli_cu_result driver_drain(driver_stream *stream, uint64_t position);

/* Waits for something to change. */
void driver_wait(void);

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

/* Writes the races to stderr that were found since the last call. */
void driver_tell_races(void);

/* ---- what the library exports ---- */

#pragma GCC visibility push(default)
#define DRIVER_DECLARE(field, name, suffix, version, arguments)                                    \
  colli_cu_result name##suffix arguments;
COLLI_CUDA_ENTRIES(DRIVER_DECLARE)
#undef DRIVER_DECLARE

colli_cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    colli_cu_query_result *found);

/* For tests: returns after the worker has gone `rounds` times more around all queues. What can go
 * on by itself then went on as often. */
void fake_gpu_rounds(uint64_t rounds);

/* Waits until GPU_STRICT holds a call back. */
void fake_gpu_await_held_back(void);

/* The number of races that were found since the last call; they do not count at the end. */
uint64_t fake_gpu_take_races(void);
#pragma GCC visibility pop

#endif
