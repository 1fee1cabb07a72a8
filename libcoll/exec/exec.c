/* exec.c: operations in flight, and the order in which their lanes run. */
#include "libcoll/exec/exec.h"

#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/exec/event.h"
#include "libcoll/exec/rooms.h"
#include "libcoll/exec/step.h"
#include "libcoll/exec/worksharing.h"

colli_step_fn *colli_exec_step_of(bool in_rooms) {
  return in_rooms ? colli_rooms_step : colli_exec_step;
}

void colli_exec_enlist(colli_exec *exec, coll_request *op) {
  COLLI_ASSERT_RANK(!exec->newest == !exec->oldest, exec->rank);
  COLLI_ASSERT_RANK(!exec->newest || (!exec->newest->newer && exec->newest != op), exec->rank);
  op->done = false;
  op->status = COLL_OK;
  op->moved = true;
  op->older = exec->newest;
  op->newer = NULL;
  if (exec->newest)
    exec->newest->newer = op;
  else
    exec->oldest = op;
  exec->newest = op;
  colli_event_begins(exec, op);
}

/* Releases what an operation has only while it runs. */
__attribute__((noinline, cold)) static void release(coll_request *op) {
  if (op->registered & COLLI_HAS_ROOMS) {
    colli_rooms_free(op);
  } else if (op->registered & COLLI_HAS_LENT) {
    colli_exec_return_lent(op->lent);
    op->registered = 0;
  } else {
    colli_exec_release(op);
  }
}

/* Takes an operation out of the list of those in flight and marks it complete. */
void colli_exec_finish(colli_exec *exec, coll_request *op, coll_status status) {
  COLLI_ASSERT_RANK(!op->done, exec->rank);
  COLLI_ASSERT_RANK((op->older ? op->older->newer : exec->oldest) == op, exec->rank);
  COLLI_ASSERT_RANK((op->newer ? op->newer->older : exec->newest) == op, exec->rank);
  if (op->older)
    op->older->newer = op->newer;
  else
    exec->oldest = op->newer;
  if (op->newer)
    op->newer->older = op->older;
  else
    exec->newest = op->older;
  if (__builtin_expect(op->registered, 0))
    release(op);
  colli_event_ends(exec, op, status);
  op->status = status;
  op->done = true;
  if (__builtin_expect(exec->ended != NULL, 0))
    exec->ended(exec->ctx, op);
}

/* Queues each lane of a collective on its channel. */
static void start_lanes(colli_exec *exec, coll_request *op) {
  const colli_sched *sched = op->sched;
  op->lanes_left = 0;
  COLLI_ASSERT_RANK(sched->nlanes <= COLLI_MAX_LANES && sched->rank == exec->rank, exec->rank);
  for (int l = 0; l < sched->nlanes; l++) {
    colli_lane *lane = &op->lane[l];
    lane->op = op;
    COLLI_ASSERT_RANK(!exec->head[l] == !(exec->active >> l & 1u), exec->rank);
    COLLI_ASSERT_RANK(!exec->head[l] || !exec->tail[l]->next, exec->rank);
    lane->next = NULL;
    lane->index = l;
    lane->pass = 0;
    lane->step = sched->lane_first[l];
    lane->received = false;
    lane->cut = false;
    lane->shares_work = exec->shares_work && op->by_ref && op->region[COLLI_OUTPUT];
    lane->offered = 0;
    lane->preposted = 0;
    lane->done = 0;
    lane->npending = 0;
    lane->waits_for = -1;
    if (sched->lane_first[l] == sched->lane_first[l + 1]) {
      lane->pass = op->partition.passes;
      continue;
    }
    op->lanes_left++;
    if (exec->head[l])
      exec->tail[l]->next = lane;
    else
      exec->head[l] = lane;
    exec->tail[l] = lane;
    exec->active |= 1u << l;
  }
}

void colli_exec_start(colli_exec *exec, coll_request *op) {
  colli_exec_enlist(exec, op);
  start_lanes(exec, op);
  if (op->lanes_left == 0)
    colli_exec_finish(exec, op, COLL_OK);
}

/* Runs the lane at the head of a channel: 1 if it moved, 0 if not, negative if the executor failed.
 */
static int run_lane(colli_exec *exec, colli_lane *lane) {
  coll_request *op = lane->op;
  const colli_sched *sched = op->sched;
  int end = sched->lane_first[lane->index + 1];
  int moved = 0;
  COLLI_ASSERT_RANK(lane == exec->head[lane->index] && !op->done, exec->rank);
  COLLI_ASSERT_RANK(op->lanes_left > 0 && op->lanes_left <= sched->nlanes, exec->rank);
  while (lane->pass < op->partition.passes) {
    size_t before = lane->done;
    COLLI_ASSERT_RANK(lane->step >= sched->lane_first[lane->index] && lane->step < end, exec->rank);
    bool received = lane->received;
    int result = op->step(exec, lane, &sched->steps[lane->step]);
    if (result == COLLI_STEP_FAILED)
      return result;
    if (result != COLLI_STEP_DONE) {
      if (moved || lane->done != before || lane->received != received || result == COLLI_STEP_MOVED)
        op->moved = true, moved = 1;
      return moved;
    }
    COLLI_ASSERT_RANK(!lane->cut && !lane->received, exec->rank);
    moved = 1;
    colli_event_step(exec, lane);
    lane->done = 0;
    if (++lane->step == end) {
      lane->step = sched->lane_first[lane->index];
      lane->pass++;
    }
  }
  op->moved |= moved != 0;
  int reaped = lane->npending ? colli_exec_reap(exec, lane) : 1;
  if (reaped <= 0)
    return reaped < 0 ? reaped : moved;
  exec->head[lane->index] = lane->next;
  if (!lane->next)
    exec->active &= ~(1u << lane->index);
  if (--op->lanes_left == 0)
    colli_exec_finish(exec, op, COLL_OK);
  return 1;
}

int colli_exec_progress(colli_exec *exec) {
  int moved = 0;
  for (unsigned active = exec->active; active; active &= active - 1) {
    int channel = __builtin_ctz(active);
    while (exec->head[channel]) {
      colli_lane *lane = exec->head[channel];
      int result = run_lane(exec, lane);
      if (result < 0)
        return result;
      moved |= result;
      if (exec->head[channel] == lane)
        break;
    }
  }
  return !moved && exec->shares_work ? colli_worksharing_claim(exec) : moved;
}

void colli_exec_cancel(colli_exec *exec, coll_status status) {
  memset(exec->head, 0, sizeof(exec->head));
  exec->active = 0;
  while (exec->oldest)
    colli_exec_finish(exec, exec->oldest, status);
  COLLI_ASSERT_RANK(!exec->newest, exec->rank);
}

/* Whether a lane has work left, or sends that are not complete. */
static bool is_open(const coll_request *op, const colli_lane *lane) {
  return lane->pass < op->partition.passes || lane->npending > 0;
}

int colli_exec_waits_for(const coll_request *op, int *channel, int *step) {
  for (int l = 0; l < op->sched->nlanes; l++) {
    const colli_lane *lane = &op->lane[l];
    if (!is_open(op, lane) || lane->waits_for < 0)
      continue;
    *channel = l;
    *step = lane->step;
    return lane->waits_for;
  }
  return -1;
}

int colli_exec_add_peer(int *peers, int count, int max, int peer) {
  for (int i = 0; i < count; i++)
    if (peers[i] == peer)
      return count;
  COLLI_ASSERT(count <= max);
  if (count < max && peer >= 0)
    peers[count++] = peer;
  return count;
}

int colli_exec_add_waits(const coll_request *op, int *peers, int count, int max) {
  for (int l = 0; l < op->sched->nlanes; l++)
    if (is_open(op, &op->lane[l]))
      count = colli_exec_add_peer(peers, count, max, op->lane[l].waits_for);
  return count;
}
