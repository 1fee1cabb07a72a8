/*
 * coll_profiler.h: the interface for profilers. A profiler is a shared library that libcoll tells
 * when operations begin and end. It exports one object:
 *
 *   const coll_profiler_ops coll_profiler = {sizeof(coll_profiler_ops), COLL_PROFILER_ABI, "mine",
 *                                            open, event, close};
 *
 * COLL_PROFILER=/path/to/lib.so loads it when a communicator is created. Ranks may have different
 * profilers, or none. docs/tracing.md has an example.
 */
#ifndef COLL_COLL_PROFILER_H
#define COLL_COLL_PROFILER_H

#include "coll/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_PROFILER_ABI 1

typedef enum coll_profiler_kind {
  COLL_PROFILER_BEGIN = 1, /* an operation begins */
  COLL_PROFILER_END = 2,   /* it ends, with `status` */
  COLL_PROFILER_FAILED = 3 /* the communicator has failed, with `status` and `message` */
} coll_profiler_kind;

/* An event. It and its strings are valid only during the call. Later versions may add fields at the
 * end, which a profiler can tell by `size`. */
typedef struct coll_profiler_event {
  size_t size; /* of this record, as libcoll was compiled */
  coll_profiler_kind kind;
  int rank; /* in the communicator */
  int nranks;
  uint64_t communicator; /* identifies it, the same on all ranks */
  uint64_t time_ns;      /* CLOCK_MONOTONIC of this host */
  /* BEGIN and END; both events of an operation have the same values, except for `status`. */
  const char *operation; /* "allreduce", ..., "send", "recv", ...; never NULL */
  uint64_t number;       /* collectives of a communicator count from 1, and so do all others */
  int collective;        /* 1: of all ranks, which all use the same number for it; else 0 */
  int peer;              /* the root, or the other rank; -1: none, or any */
  size_t count;          /* elements; 0 for v-forms */
  size_t bytes;          /* of these elements */
  const char *type;      /* "float32", ... */
  const char *op;        /* "sum", ...; "": nothing is combined */
  coll_status status;    /* END and FAILED */
  const char *message;   /* FAILED: what coll_last_error() says; else "" */
} coll_profiler_event;

typedef struct coll_profiler_ops {
  size_t size;      /* sizeof(coll_profiler_ops) as the profiler was compiled */
  int abi;          /* COLL_PROFILER_ABI */
  const char *name; /* for messages */
  /*
   * Called once for a created communicator and all that are split from it; *ctx is passed to the
   * other two functions. Returns 0; anything else fails the creation. May be NULL; ctx is NULL
   * then.
   */
  int (*open)(void **ctx, int rank, int nranks);
  /* An event; never from two threads at once with the same ctx. It must be quick and must not call
   * libcoll. */
  void (*event)(void *ctx, const coll_profiler_event *event);
  /* Called at the end. May be NULL. */
  void (*close)(void *ctx);
} coll_profiler_ops;

/* What a profiler defines; libcoll itself does not. */
extern COLL_API const coll_profiler_ops coll_profiler;

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_PROFILER_H */
