/* rooms.c: collects elements that are longer than a slot, combines them, and sends them on. */
#include "libcoll/exec/rooms.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/exec/connect.h"
#include "libcoll/exec/step.h"

/* Where elements from one peer arrive. */
typedef struct room {
  int peer;
  size_t left;    /* elements that are still to arrive, with the current one */
  size_t arrived; /* bytes of the current one */
  char *memory;
  char *into; /* the current one arrives here: in `memory`, or where its step stores it */
} room;

/* The rooms of a lane. */
typedef struct lane_rooms {
  room *first;
  int count;
  bool forwards; /* it sends results that it does not store */
  char *leaving; /* those are here meanwhile */
  size_t sent;   /* bytes of the current step's element */
} lane_rooms;

struct colli_rooms {
  lane_rooms lane[COLLI_MAX_LANES];
  char *memory; /* of all elements */
  room room[];
};

/* ---- making ---------------------------------------------------------------------------------- */

/* Passes in which a step has an element. */
static size_t count_elements(const coll_request *op, const colli_step *step) {
  size_t count = 0, out_first;
  for (int pass = 0; pass < op->partition.passes; pass++)
    count += colli_exec_range(op, step, pass, &out_first).count;
  return count;
}

/* The room of a peer, or the one behind the last. */
static room *find_room(const lane_rooms *lane, int peer) {
  room *at = lane->first;
  while (at < lane->first + lane->count && at->peer != peer)
    at++;
  return at;
}

/* Counts what a step needs. */
static void add_step(const coll_request *op, lane_rooms *lane, const colli_step *step) {
  size_t count = step->bits & COLLI_RECV ? count_elements(op, step) : 0;
  if (count == 0)
    return;
  room *at = find_room(lane, step->peer_recv);
  if (at == lane->first + lane->count) {
    *at = (room){.peer = step->peer_recv};
    lane->count++;
  }
  at->left += count;
  lane->forwards |= (step->bits & (COLLI_SEND | COLLI_STORE)) == COLLI_SEND;
}

/* Gives each room its part of the memory. */
static void divide_memory(struct colli_rooms *rooms, int nlanes, size_t bytes) {
  char *at = rooms->memory;
  for (int l = 0; l < nlanes; l++) {
    lane_rooms *lane = &rooms->lane[l];
    for (int i = 0; i < lane->count; i++, at += bytes)
      lane->first[i].memory = lane->first[i].into = at;
    lane->leaving = lane->forwards ? at : NULL;
    at += lane->forwards ? bytes : 0;
  }
}

bool colli_rooms_make(coll_request *op) {
  const colli_sched *sched = op->sched;
  size_t bytes = (op->elem_bytes + 63) / 64 * 64, elements = 0;
  COLLI_ASSERT(!op->rooms && op->user_fn && op->partition.piece <= 1);
  struct colli_rooms *rooms =
      calloc(1, sizeof(*rooms) + (size_t)sched->nsteps * sizeof(*rooms->room));
  if (!rooms)
    return false;
  for (int l = 0; l < sched->nlanes; l++) {
    lane_rooms *lane = &rooms->lane[l];
    lane->first = &rooms->room[sched->lane_first[l]];
    for (int i = sched->lane_first[l]; i < sched->lane_first[l + 1]; i++)
      add_step(op, lane, &sched->steps[i]);
    elements += (size_t)lane->count + lane->forwards;
  }
  rooms->memory = elements ? aligned_alloc(64, elements * bytes) : NULL;
  if (elements && !rooms->memory) {
    free(rooms);
    return false;
  }
  divide_memory(rooms, sched->nlanes, bytes);
  op->rooms = rooms;
  op->registered = COLLI_HAS_ROOMS;
  return true;
}

void colli_rooms_free(coll_request *op) {
  free(op->rooms->memory);
  free(op->rooms);
  op->rooms = NULL;
  op->registered = 0;
  free(op->scratch);
  op->scratch = NULL;
  op->scratch_bytes = 0;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The next message of an element of which `done` bytes are done: its length. */
static size_t message_bytes(const colli_exec *exec, const coll_request *op, size_t done) {
  size_t left = op->elem_bytes - done;
  return left < exec->slot_bytes ? left : exec->slot_bytes;
}

/* Receives what has come from a peer, up to one element: 1 if anything has, 0, or FAILED. */
static int fill_room(colli_exec *exec, colli_lane *lane, room *at) {
  coll_request *op = lane->op;
  int moved = 0;
  while (at->left > 0 && at->arrived < op->elem_bytes) {
    coll_conn *conn = colli_exec_conn(exec, op, at->peer, lane->index);
    if (!conn)
      return COLLI_STEP_FAILED;
    coll_tag got;
    const void *msg;
    size_t bytes, wanted = message_bytes(exec, op, at->arrived);
    int status = conn->ops->slot_peek(conn, &got, &msg, &bytes);
    if (status == COLL_T_AGAIN)
      break;
    if (status > 0)
      return colli_exec_fail(exec, lane, at->peer, status);
    if (memcmp(&got, &op->tag, sizeof(got)) != 0 || bytes != wanted)
      return colli_exec_mismatch(exec, lane, at->peer, &got, bytes);
    memcpy(at->into + at->arrived, msg, bytes);
    status = conn->ops->slot_release(conn);
    if (status > 0)
      return colli_exec_fail(exec, lane, at->peer, status);
    at->arrived += bytes;
    moved = 1;
  }
  return moved;
}

/* The same for all peers of a lane. */
static int fill_rooms(colli_exec *exec, colli_lane *lane, const lane_rooms *rooms) {
  int moved = 0;
  for (int i = 0; i < rooms->count; i++) {
    int result = fill_room(exec, lane, &rooms->first[i]);
    if (result < 0)
      return result;
    moved |= result;
  }
  return moved;
}

/* Stores own op element (or element op own) to `to`. */
static void combine(const coll_request *op, const colli_step *step, const void *own,
                    const void *element, void *to) {
  bool left = step->bits & COLLI_MSG_LEFT;
  op->user_fn(left ? element : own, left ? own : element, to, 1, op->user_type, op->user_context);
}

/* Takes a step's element out of its room, once it is there as a whole: DONE, BLOCKED or FAILED. */
static int take_element(colli_exec *exec, colli_lane *lane, const colli_step *step,
                        const lane_rooms *rooms) {
  const colli_slice *s = &lane->slice;
  room *at = find_room(rooms, step->peer_recv);
  COLLI_ASSERT_RANK(at < rooms->first + rooms->count && at->left > 0, exec->rank);
  if (at->arrived < s->bytes)
    return colli_exec_block(lane, step->peer_recv);
  if (step->bits & COLLI_FOLD) {
    int result =
        s->dst ? COLLI_STEP_DONE : colli_exec_check_sent(exec, lane, rooms->leaving, s->bytes);
    if (result != COLLI_STEP_DONE)
      return result;
    combine(lane->op, step, s->src, at->into, s->dst ? s->dst : rooms->leaving);
  } else if (at->into != s->dst) {
    memcpy(s->dst, at->into, s->bytes);
  }
  at->arrived = 0;
  at->left--;
  at->into = at->memory;
  return COLLI_STEP_DONE;
}

/* The work of a step that receives nothing. */
static void work_alone(const coll_request *op, const colli_step *step, const colli_slice *s) {
  if (step->bits & COLLI_FOLD)
    combine(op, step, s->dst, s->src, s->dst);
  else if (step->bits & COLLI_STORE && s->dst != s->src)
    memcpy(s->dst, s->src, s->bytes);
}

/* Sends a step's element as far as possible: DONE, BLOCKED or FAILED. */
static int send_element(colli_exec *exec, colli_lane *lane, const colli_step *step,
                        lane_rooms *rooms) {
  coll_request *op = lane->op;
  const colli_slice *s = &lane->slice;
  const char *kept = step->bits & COLLI_RECV ? rooms->leaving : s->src;
  const char *from = step->bits & COLLI_STORE ? s->dst : kept;
  coll_conn *conn = colli_exec_conn(exec, op, step->peer_send, lane->index);
  if (!conn)
    return COLLI_STEP_FAILED;
  while (rooms->sent < s->bytes) {
    size_t bytes = message_bytes(exec, op, rooms->sent);
    int ready = colli_exec_limit_pending(exec, lane, COLLI_MAX_PENDING);
    if (ready != COLLI_STEP_DONE)
      return ready;
    int status = conn->ops->send(conn, &op->tag, from + rooms->sent, bytes);
    if (status == COLL_T_AGAIN)
      return colli_exec_block(lane, step->peer_send);
    if (status > 0)
      return colli_exec_fail(exec, lane, step->peer_send, status);
    colli_exec_note_sent(&exec->links[step->peer_send], lane, conn, status, from + rooms->sent,
                         bytes);
    rooms->sent += bytes;
  }
  return COLLI_STEP_DONE;
}

/* Runs a step whose element is known, as far as possible. */
static int run_step(colli_exec *exec, colli_lane *lane, const colli_step *step, lane_rooms *rooms) {
  int result = COLLI_STEP_DONE;
  if (!lane->received) {
    if (step->bits & COLLI_RECV)
      result = take_element(exec, lane, step, rooms);
    else
      work_alone(lane->op, step, &lane->slice);
    if (result != COLLI_STEP_DONE)
      return result;
    lane->received = true;
    rooms->sent = 0;
  }
  if (step->bits & COLLI_SEND)
    result = send_element(exec, lane, step, rooms);
  if (result == COLLI_STEP_DONE)
    lane->received = lane->cut = false;
  return result;
}

/* A step that only receives an element has it put where it stores it, if none of it is there yet:
 * the room of the step's peer. */
static void aim_room(const colli_lane *lane, const colli_step *step, const lane_rooms *rooms) {
  if (lane->received || (step->bits & (COLLI_RECV | COLLI_FOLD)) != COLLI_RECV)
    return;
  room *at = find_room(rooms, step->peer_recv);
  if (at->arrived == 0)
    at->into = lane->slice.dst;
}

int colli_rooms_step(colli_exec *exec, colli_lane *lane, const colli_step *step) {
  lane_rooms *rooms = &lane->op->rooms->lane[lane->index];
  size_t sent = rooms->sent;
  int cut = lane->cut ? 1 : colli_exec_cut(exec, lane, step);
  if (cut == COLLI_STEP_DONE || cut == COLLI_STEP_FAILED)
    return cut;
  if (cut > 0)
    aim_room(lane, step, rooms);
  int moved = fill_rooms(exec, lane, rooms);
  if (moved < 0)
    return moved;
  COLLI_ASSERT_RANK(cut < 0 || (lane->slice.count == 1 && lane->total == 1), exec->rank);
  int result = cut > 0 ? run_step(exec, lane, step, rooms) : cut;
  if (result == COLLI_STEP_BLOCKED && (moved || rooms->sent != sent))
    return COLLI_STEP_MOVED;
  return result;
}
