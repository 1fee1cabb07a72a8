/*
 * coll_tuner.h: the interface for tuners. A tuner is a shared library that chooses algorithms
 * instead of libcoll's cost model. It exports one object:
 *
 *   const coll_tuner_ops coll_tuner = {sizeof(coll_tuner_ops), COLL_TUNER_ABI, "mine",
 *                                      open, choose, close};
 *
 * COLL_TUNER=/path/to/lib.so loads it when a communicator is created. libcoll does not ask it if
 * COLL_ALGO forces an algorithm. A tuner must give the same answers on all ranks: they may depend
 * on its arguments and on files that are the same everywhere, but not on ranks or clocks. Ranks
 * that get different answers fail with COLL_ERR_MISMATCH at the first message.
 */
#ifndef COLL_COLL_TUNER_H
#define COLL_COLL_TUNER_H

#include "coll/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_TUNER_ABI 1

typedef struct coll_tuner_ops {
  size_t size;      /* sizeof(coll_tuner_ops) as the tuner was compiled */
  int abi;          /* COLL_TUNER_ABI */
  const char *name; /* for messages */
  /*
   * Called once for a created communicator and all that are split from it; *ctx is passed to the
   * other two functions. Returns 0; anything else fails the creation. May be NULL; ctx is NULL
   * then.
   */
  int (*open)(void **ctx);
  /*
   * Chooses for a collective ("allreduce", ...; a v-form has its plain form's name) of nranks
   * ranks. `bytes` are those of the call's count elements (blocks: of a typical one). candidates:
   * `count` algorithms that can do it, fastest prediction first. Returns an index, or -1 to leave
   * the choice to libcoll. libcoll asks on the first call of a kind, and again after it has dropped
   * the answer from its cache; never from two threads at once with the same ctx.
   */
  int (*choose)(void *ctx, const char *collective, int nranks, size_t bytes,
                const coll_candidate *candidates, int count);
  /* Called at the end. May be NULL. */
  void (*close)(void *ctx);
} coll_tuner_ops;

/* What a tuner defines; libcoll itself does not. */
extern COLL_API const coll_tuner_ops coll_tuner;

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_TUNER_H */
