/*
 * levels.h: a communicator whose ranks are in groups: GPUs of one group reach each other, those of
 * different groups do not. Long calls in streams are divided among the ranks of a group
 * (stream/levels.h). Two communicators of its own make the parts of such a call, but for those that
 * are messages (stream/levels_messages.h). Groups have one rank only where there are such.
 */
#ifndef COLLI_COMM_LEVELS_H
#define COLLI_COMM_LEVELS_H

#include "coll/coll.h"
#include "libcoll/sched/collective.h"

typedef struct colli_levels {
  coll_comm *within;     /* this rank's group, where calls are direct */
  coll_comm *across;     /* the ranks that have this one's place in their groups; staged */
  int ngroups, size;     /* all groups have the same number of ranks */
  int group, place;      /* this rank's */
  bool by_messages;      /* long parts across groups are messages that the network's devices move
                            from and to GPU memory */
  size_t room_bytes;     /* for pieces that no buffer has: the shortest slot of a rank */
  const char *operation; /* the call that has begun last, for messages */
  int *member;           /* ngroups * size ranks, group by group */
} colli_levels;

/* The rank that has a place in a group. */
static inline int colli_levels_member(const colli_levels *levels, int group, int place) {
  return levels->member[group * levels->size + place];
}

/* ---- what is divided, for the library and for coll_explain ------------------------------------
 */

/* Parts of a staged call whose copies are on the host at a time; later ones use the memory of
 * earlier ones. One is as long as a slot, divided by this. */
#define COLLI_STAGED_DEPTH 4

/* How long such a part is, from the length of a slot: the inputs of the parts that are under way
 * together fit into one. At most 1 MiB: longer parts would overlap less; shorter ones would mostly
 * wait for the host. */
static inline size_t colli_staged_part_of(size_t slot_bytes) {
  const size_t part = slot_bytes / COLLI_STAGED_DEPTH, most = (size_t)1 << 20;
  return part < most ? part : most;
}

#define COLLI_STAGED_BLOCK_MIN 4096 /* shorter messages cost more than overlap gains */

/* Elements of such a part; of each block, if there are blocks: all together are as long as a part
 * of another call, unless so many ranks would send short messages. 0: the call is not cut, because
 * its blocks differ, or because elements depend on others. */
static inline size_t colli_staged_elements(colli_coll coll, bool varying, int nranks,
                                           size_t elem_bytes, size_t part_bytes) {
  const bool blocks = coll == COLLI_ALLGATHER || coll == COLLI_REDUCE_SCATTER ||
                      coll == COLLI_GATHER || coll == COLLI_SCATTER || coll == COLLI_ALLTOALL;
  const bool elementwise = coll == COLLI_ALLREDUCE || coll == COLLI_REDUCE ||
                           coll == COLLI_BROADCAST || coll == COLLI_SCAN || coll == COLLI_EXSCAN;
  if (varying || !(blocks || elementwise))
    return 0;
  const size_t least = part_bytes < COLLI_STAGED_BLOCK_MIN ? part_bytes : COLLI_STAGED_BLOCK_MIN;
  const size_t each = blocks ? part_bytes / (size_t)nranks : part_bytes;
  const size_t fit = (blocks && each < least ? least : each) / elem_bytes;
  return fit > 0 ? fit : 1;
}

/* How many parts of so many elements such a call has. */
static inline size_t colli_staged_count(size_t count, size_t elements) {
  return elements == 0 || count / elements < 2 ? 1 : count / elements + (count % elements > 0);
}

#define COLLI_LEVELS_ALIGN 16 /* elements: pieces begin at multiples, for kernels */

/* Whether each rank's piece of a call, or block, is at least as long as a part of a staged call.
 * Shorter calls would wait more often than they save copies. */
static inline bool colli_levels_is_long(colli_coll coll, size_t bytes, int size,
                                        size_t part_bytes) {
  const bool blocks = coll == COLLI_ALLGATHER || coll == COLLI_REDUCE_SCATTER;
  return bytes >= (blocks ? 1 : (size_t)size) * part_bytes;
}

/* Where the piece of a rank of a group begins; that of the one after the last is the end. */
static inline size_t colli_levels_piece_at(size_t count, int place, int size) {
  const size_t each = count / (size_t)size / COLLI_LEVELS_ALIGN * COLLI_LEVELS_ALIGN;
  return place < size ? each * (size_t)place : count;
}

/* A reduce and a reduce-scatter put what they have summed within a group into a room as long as a
 * slot, in rounds: how many elements of the vector, or of each block, are in a round. 0: the room
 * is too short. */
static inline size_t colli_levels_round(colli_coll coll, size_t room_bytes, size_t elem_bytes,
                                        int ngroups, int size) {
  size_t fit = room_bytes / elem_bytes;
  if (coll == COLLI_REDUCE_SCATTER) /* a block for a rank of each group */
    return fit / (size_t)ngroups / COLLI_LEVELS_ALIGN * COLLI_LEVELS_ALIGN;
  const size_t ends = (size_t)size * COLLI_LEVELS_ALIGN; /* the last piece may be longer by that */
  fit -= ends < fit ? ends : fit;
  return fit / COLLI_LEVELS_ALIGN * COLLI_LEVELS_ALIGN * (size_t)size;
}

/* ---- messages across groups (stream/levels_messages.h), for both as well ----------------------
 */

#define COLLI_LEND_LEAST           ((size_t)1 << 20)   /* bytes of a message that is lent memory */
#define COLLI_LEVELS_MESSAGE_BYTES ((size_t)256 << 20) /* the most, where no room is the limit */
#define COLLI_LEVELS_CHAIN_PIECES  4 /* of a broadcast, for each rank that passes them on */

/* Elements of each group's block that a room holds. */
static inline size_t colli_levels_message_room(size_t room_bytes, int ngroups, size_t elem_bytes) {
  return room_bytes / (size_t)ngroups / elem_bytes / COLLI_LEVELS_ALIGN * COLLI_LEVELS_ALIGN;
}

/* Whether a part is made of messages of at least `least` bytes. count: elements of its longest
 * block or piece, one of each group; of a broadcast, all. */
static inline bool colli_levels_are_messages(colli_coll coll, size_t count, size_t room,
                                             size_t elem_bytes, size_t least) {
  return count * elem_bytes >= least && (!colli_reduces(coll) || room * elem_bytes >= least);
}

/* So many elements of `count` at a time, at most `most`: as many each time, unless messages would
 * be too short to be lent memory. */
static inline size_t colli_levels_even(size_t count, size_t most, size_t align, size_t elem_bytes,
                                       size_t least) {
  const size_t times = (count + most - 1) / most, even = (count + times - 1) / times;
  const size_t each = (even + align - 1) / align * align;
  return each * elem_bytes < least ? most : each;
}

/* Elements of a message where no room is the limit, at most. */
static inline size_t colli_levels_longest(size_t elem_bytes) {
  return elem_bytes < COLLI_LEVELS_MESSAGE_BYTES ? COLLI_LEVELS_MESSAGE_BYTES / elem_bytes : 1;
}

/* Elements of such a block that are in a round. */
static inline size_t colli_levels_in_round(colli_coll coll, size_t count, size_t room,
                                           size_t elem_bytes, size_t least) {
  return colli_reduces(coll)
             ? colli_levels_even(count, room, COLLI_LEVELS_ALIGN, elem_bytes, least)
             : colli_levels_even(count, colli_levels_longest(elem_bytes), 1, elem_bytes, least);
}

/* Elements of a piece that goes along the chain of a broadcast: there are enough to keep all ranks
 * busy. */
static inline size_t colli_levels_in_chain(size_t count, int ngroups, size_t elem_bytes,
                                           size_t least) {
  const size_t passers = ngroups > 2 ? (size_t)ngroups - 2 : 0;
  const size_t wanted = passers > 0 ? count / (COLLI_LEVELS_CHAIN_PIECES * passers) : count;
  const size_t longest = colli_levels_longest(elem_bytes), shortest = least / elem_bytes + 1;
  const size_t most = wanted < longest ? wanted : longest;
  return colli_levels_even(count, most > shortest ? most : shortest, 1, elem_bytes, least);
}

#endif
