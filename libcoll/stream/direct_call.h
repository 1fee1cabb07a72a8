/*
 * direct_call.h: a collective in GPU memory, as parts of a stream. In rounds: each rank copies a
 * piece of its input into its slot, all meet, and kernels read what they need of all slots:
 *
 *   copy to the slot -> meet -> fold or copy from all slots -> copy the next piece to another slot
 *
 * Before a slot is used again, its ranks have met in a round that uses another one, so all have
 * read it. A long all-reduce meets twice in a round: each rank folds one segment into its slot,
 * then all copy all segments. Buffers that are registered are read where they are
 * (direct_in_place.h). These kernels never wait: the stream does, at a meet, where the host
 * tells it when all have come.
 */
#ifndef COLLI_STREAM_DIRECT_CALL_H
#define COLLI_STREAM_DIRECT_CALL_H

#include "libcoll/call/call.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/direct_shape.h"
#include "libcoll/gpu/passage.h"

/* Registered buffers that other ranks read where they are; all ranks find the same. NULL: none. */
typedef struct colli_direct_places {
  coll_registration *from, *to; /* with the input, and with the result */
  size_t from_at, to_at;        /* where it begins there */
  uint32_t check;               /* of all this, which meets compare; 0: neither */
} colli_direct_places;

/* What belongs to one call until its stream has passed. */
typedef struct colli_direct_call {
  coll_comm *comm;
  coll_request *request; /* persistent: it keeps the call */
  const colli_call *call;
  size_t reads, writes; /* bytes from the beginnings of its buffers */
  colli_direct_shape shape;
  size_t piece; /* bytes of each block that are in a slot at a time */
  size_t rounds;
  colli_direct_places places;
  bool captured;
  uint64_t torn_ns;        /* since when it is known that a rank went on too early; 0: none has */
  colli_gpu_mode way;      /* how it meets: */
  uint32_t first, number;  /* if not ORDERED the number of its first meet, and its own */
  unsigned place;          /* MEET: meets so far */
  bool waits;              /* the stream waits before the first round, for calls in other streams */
  bool afar;               /* the input is on another device */
  bool on_host;            /* the result goes to memory of the host */
  colli_pinned *in, *out;  /* for input on the host, and for results that kernels do not reach */
  colli_pinned *addresses; /* more than kernels take as arguments, or NULL */
  size_t used;             /* bytes of them */
} colli_direct_call;

/* Whether a checked call runs in GPU memory, and then in which shape: all ranks find the same. */
bool colli_direct_takes(const coll_comm *comm, const colli_call *call, colli_direct_shape *shape);

/* Checks a stream of a device, and of its primary context or not, against the areas that it would
 * use. Errors, recorded: INVALID_USAGE (another device or context). */
coll_status colli_direct_check_stream(coll_comm *comm, const char *name,
                                      const colli_gpu_peers *peers, int device, bool primary);

/*
 * Describes a call of a shape on comm->direct in a stream of a device, and of its primary context
 * or not, and takes memory for it. Errors, recorded: NO_MEMORY, SYSTEM, INVALID_USAGE (another
 * device or context).
 */
coll_status colli_direct_call_make(coll_comm *comm, coll_request *request,
                                   const colli_direct_shape *shape, int device, bool primary,
                                   colli_direct_call *it);
void colli_direct_call_free(colli_direct_call *it);

/*
 * Settles how often the stream stops, now that it is known whether it is captured: at each meet,
 * and before the first one if calls of other streams have not ended. Takes the word for which it
 * waits. Errors: NO_MEMORY, SYSTEM.
 */
coll_status colli_direct_call_settle(colli_direct_call *it, colli_gpu_passage *passage, bool waits,
                                     unsigned *stops, coll_error *error);

/* Puts the call and its end into the stream of a passage, which is entered; the thread has let
 * others in. Errors: those of colli_direct_put_meet(). */
coll_status colli_direct_call_fill(colli_direct_call *it, colli_gpu_passage *passage,
                                   coll_error *error);

#endif
