/* verify_step.c: runs lanes symbolically. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/verify/verify_state.h"

enum { STEP_DONE, STEP_BLOCKED, STEP_BAD };

/* Adds a lane to those to run. */
void colli_vwake(colli_verifier *v, int rank, int lane) {
  colli_vlane *at = &v->ranks[rank].lane[lane];
  if (at->queued || lane >= v->ranks[rank].sched->nlanes)
    return;
  at->queued = true;
  v->todo[(v->todo_first + v->todo_count++) % v->todo_capacity] = rank * COLLI_MAX_LANES + lane;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Appends a message to a connection. */
static bool post_message(colli_verifier *v, int conn, colli_vmsg msg) {
  int32_t at = v->free_msg;
  if (at >= 0) {
    v->free_msg = v->msgs[at].next;
  } else {
    if (v->nmsgs == v->msgs_capacity) {
      int32_t capacity = v->msgs_capacity ? 2 * v->msgs_capacity : 1024;
      colli_vmsg *grown = realloc(v->msgs, (size_t)capacity * sizeof(*grown));
      if (!grown)
        return colli_vno_memory(v);
      v->msgs = grown;
      v->msgs_capacity = capacity;
    }
    at = v->nmsgs++;
  }
  msg.next = -1;
  v->msgs[at] = msg;
  colli_vconn *c = &v->conn[conn];
  if (c->head < 0)
    c->head = at;
  else
    v->msgs[c->tail].next = at;
  c->tail = at;
  c->count++;
  return true;
}

/* Removes the oldest message from a connection; if it was a reference, releases it at `sender`. */
static colli_vmsg take_message(colli_verifier *v, int conn, int sender) {
  colli_vconn *c = &v->conn[conn];
  int32_t at = c->head;
  colli_vmsg msg = v->msgs[at];
  c->head = msg.next;
  c->count--;
  v->msgs[at].next = v->free_msg;
  v->free_msg = at;
  if (msg.by_ref >= 0)
    v->ranks[sender].by_ref[msg.by_ref]--;
  return msg;
}

/* ---- sets of ranks, for the barrier
 * -------------------------------------------------------------- */

/* A copy of a rank's set, to be sent; -1 if out of memory. */
static int32_t copy_set(colli_verifier *v, int rank) {
  size_t words = colli_vset_words(v);
  if (v->nsets == v->sets_capacity) {
    size_t capacity = 2 * (size_t)v->sets_capacity;
    uint64_t *grown = realloc(v->sets, capacity * words * sizeof(*grown));
    if (!grown)
      return -1;
    v->sets = grown;
    v->sets_capacity = (int32_t)capacity;
  }
  memcpy(v->sets + (size_t)v->nsets * words, v->sets + (size_t)rank * words,
         words * sizeof(uint64_t));
  return v->nsets++;
}

/* Adds a message's set to a rank's set. */
static void join_set(colli_verifier *v, int rank, int32_t set) {
  size_t words = colli_vset_words(v);
  for (size_t w = 0; w < words; w++)
    v->sets[(size_t)rank * words + w] |= v->sets[(size_t)set * words + w];
}

/* ---- accesses
 * ----------------------------------------------------------------------------------------- */

/* Reads from src_buf or dst_buf of a lane's step; -1 after an objection. */
static int32_t read_place(colli_verifier *v, int rank, const colli_step *step, int buf, int chunk) {
  colli_vrank *at = &v->ranks[rank];
  const colli_vlane *lane = &at->lane[step->lane];
  int place = colli_vplace(v, rank, (colli_buf)buf, chunk, lane->pass);
  int other = colli_vorder_access(at, step->lane, place, false);
  if (other >= 0)
    colli_vobject(v, rank, lane->step, lane->pass, "reads chunk %d while lane %d writes it", chunk,
                  other);
  else if (at->place[place] == COLLI_UNWRITTEN)
    colli_vobject(v, rank, lane->step, lane->pass, "reads chunk %d, which nobody wrote", chunk);
  return v->status == COLL_OK ? at->place[place] : -1;
}

/* Stores the value of a lane's step. */
static bool write_place(colli_verifier *v, int rank, const colli_step *step, int32_t value) {
  colli_vrank *at = &v->ranks[rank];
  const colli_vlane *lane = &at->lane[step->lane];
  int place = colli_vplace(v, rank, (colli_buf)step->dst_buf, step->chunk_out, lane->pass);
  int other = colli_vorder_access(at, step->lane, place, true);
  if (other >= 0)
    return colli_vobject(v, rank, lane->step, lane->pass, "writes chunk %d while lane %d uses it",
                         step->chunk_out, other);
  at->place[place] = value;
  return true;
}

/* ---- steps
 * -------------------------------------------------------------------------------------------- */

/* left op right, if they may be combined; -1 after an objection. */
static int32_t reduce_values(colli_verifier *v, int rank, const colli_vlane *lane, int32_t left,
                             int32_t right) {
  const colli_expr *a = &v->exprs.node[left], *b = &v->exprs.node[right];
  if (a->chunk != b->chunk || a->pass != b->pass) {
    colli_vobject(v, rank, lane->step, lane->pass, "reduces chunk %d with chunk %d", a->chunk,
                  b->chunk);
    return -1;
  }
  if (a->final || b->final) {
    colli_vobject(v, rank, lane->step, lane->pass, "reduces what is complete already");
    return -1;
  }
  int32_t made = colli_expr_op(&v->exprs, left, right);
  if (made < 0)
    colli_vno_memory(v);
  return made;
}

/* The value of a step that carries data; `msg` is its message, if it has one. -1 after an
 * objection. */
static int32_t value_of(colli_verifier *v, int rank, const colli_step *step, int32_t msg) {
  const colli_vlane *lane = &v->ranks[rank].lane[step->lane];
  int32_t value = msg;
  if (colli_step_reads(step)) {
    int32_t own = read_place(v, rank, step, step->src_buf, step->chunk_in);
    if (own < 0)
      return -1;
    value = own;
    if ((step->bits & COLLI_FOLD) && (step->bits & COLLI_RECV)) {
      bool msg_left = step->bits & COLLI_MSG_LEFT;
      value = reduce_values(v, rank, lane, msg_left ? msg : own, msg_left ? own : msg);
    } else if (step->bits & COLLI_FOLD) {
      int32_t left = read_place(v, rank, step, step->dst_buf, step->chunk_out);
      value = left < 0 ? -1 : reduce_values(v, rank, lane, left, own);
    }
  }
  if (value < 0 || !(step->bits & COLLI_FINAL))
    return value;
  if (v->exprs.node[value].final || !colli_expr_whole(&v->exprs, value, v->nranks)) {
    colli_vobject(v, rank, lane->step, lane->pass, "completes a reduction that is not whole");
    return -1;
  }
  value = colli_expr_final(&v->exprs, value);
  if (value < 0)
    colli_vno_memory(v);
  return value;
}

/* The number that identifies the length of a step's messages. */
static int64_t length_of(const colli_verifier *v, int rank, const colli_step *step) {
  if (v->coll == COLLI_BARRIER)
    return 0;
  return colli_vlength(v, rank, colli_step_buf(step), colli_step_chunk(step));
}

/* Checks that a message is the one that the step expects. */
static bool fits_step(colli_verifier *v, int rank, const colli_step *step, const colli_vmsg *msg) {
  const colli_vlane *lane = &v->ranks[rank].lane[step->lane];
  if (msg->pass != lane->pass)
    return colli_vobject(v, rank, lane->step, lane->pass, "gets a message of pass %d", msg->pass);
  int64_t length = length_of(v, rank, step);
  if (msg->length != length)
    return colli_vobject(v, rank, lane->step, lane->pass,
                         "gets a message as long as chunk %lld instead of chunk %lld",
                         (long long)msg->length, (long long)length);
  return true;
}

/* Whether a step stores to memory that was sent by reference and is not received yet. */
static int check_unreferenced(colli_verifier *v, int rank, const colli_step *step) {
  const colli_vrank *at = &v->ranks[rank];
  const colli_vlane *lane = &at->lane[step->lane];
  if (v->coll == COLLI_BARRIER || !(step->bits & COLLI_STORE))
    return STEP_DONE;
  int place = colli_vplace(v, rank, (colli_buf)step->dst_buf, step->chunk_out, lane->pass);
  if (at->by_ref[place] == 0)
    return STEP_DONE;
  if (at->by_ref_lane[place] == step->lane)
    return STEP_BLOCKED;
  colli_vobject(v, rank, lane->step, lane->pass,
                "stores to chunk %d, which lane %d has sent by reference", step->chunk_out,
                at->by_ref_lane[place]);
  return STEP_BAD;
}

/* The first half of a step: its message and value. */
static int run_first_half(colli_verifier *v, int rank, const colli_step *step) {
  colli_vlane *lane = &v->ranks[rank].lane[step->lane];
  int32_t msg_value = -1;
  int by_ref = check_unreferenced(v, rank, step);
  if (by_ref != STEP_DONE)
    return by_ref;
  if (step->bits & COLLI_RECV) {
    int conn = colli_conns_find(&v->conns, step->peer_recv, rank, step->lane);
    if (conn < 0 || v->conn[conn].count == 0)
      return STEP_BLOCKED;
    /* With more than one slot a step keeps its message's slot while it waits for the next one. */
    if ((step->bits & COLLI_SEND) && v->options->slots > 1) {
      int out = colli_conns_find(&v->conns, rank, step->peer_send, step->lane);
      if (v->conn[out].count >= v->options->slots)
        return STEP_BLOCKED;
    }
    colli_vmsg msg = take_message(v, conn, step->peer_recv);
    colli_vwake(v, step->peer_recv, step->lane);
    if (!fits_step(v, rank, step, &msg))
      return STEP_BAD;
    msg_value = msg.value;
  }
  if (v->coll == COLLI_BARRIER) {
    if (msg_value >= 0)
      join_set(v, rank, msg_value);
    return STEP_DONE;
  }
  colli_vorder_begin(&v->ranks[rank], step, lane->pass);
  lane->value = value_of(v, rank, step, msg_value);
  if (lane->value < 0)
    return STEP_BAD;
  if ((step->bits & COLLI_STORE) && !write_place(v, rank, step, lane->value))
    return STEP_BAD;
  return STEP_DONE;
}

/* Records that a step sends by reference. Returns the place, or -1 if it may not. */
static int32_t note_reference(colli_verifier *v, int rank, const colli_step *step) {
  unsigned bit = v->options->in_place ? COLLI_BY_REF_IN_PLACE : COLLI_BY_REF;
  if (!(step->bits & bit))
    return -1;
  colli_vrank *at = &v->ranks[rank];
  bool kept = step->bits & COLLI_STORE;
  int place = colli_vplace(v, rank, (colli_buf)(kept ? step->dst_buf : step->src_buf),
                           kept ? step->chunk_out : step->chunk_in, at->lane[step->lane].pass);
  at->by_ref[place]++;
  at->by_ref_lane[place] = (int8_t)step->lane;
  return place;
}

/* The second half of a step: its sending. */
static int run_second_half(colli_verifier *v, int rank, const colli_step *step) {
  const colli_vlane *lane = &v->ranks[rank].lane[step->lane];
  int conn = colli_conns_find(&v->conns, rank, step->peer_send, step->lane);
  if (v->options->slots != COLLI_SLOTS_UNLIMITED && v->conn[conn].count >= v->options->slots)
    return STEP_BLOCKED;
  int32_t value = v->coll == COLLI_BARRIER ? copy_set(v, rank) : lane->value;
  if (value < 0) {
    colli_vno_memory(v);
    return STEP_BAD;
  }
  if (!post_message(v, conn,
                    (colli_vmsg){value, length_of(v, rank, step), lane->pass,
                                 note_reference(v, rank, step), -1}))
    return STEP_BAD;
  colli_vwake(v, step->peer_send, step->lane);
  return STEP_DONE;
}

/* Whether the step's deps are done. */
static bool deps_done(const colli_vrank *rank, const colli_step *step) {
  int pass = rank->lane[step->lane].pass;
  for (int d = 0; d < 2; d++) {
    if (step->dep[d] == COLLI_NO_DEP)
      continue;
    const colli_vlane *other = &rank->lane[rank->sched->steps[step->dep[d]].lane];
    if (other->pass < pass || (other->pass == pass && other->step <= step->dep[d]))
      return false;
  }
  return true;
}

/* Runs a lane until it blocks or ends. */
bool colli_vrun_lane(colli_verifier *v, int rank, int index) {
  colli_vrank *at = &v->ranks[rank];
  const colli_sched *sched = at->sched;
  colli_vlane *lane = &at->lane[index];
  while (lane->pass < v->passes && sched->lane_first[index] < sched->lane_first[index + 1]) {
    const colli_step *step = &sched->steps[lane->step];
    if (!lane->received) {
      if (!deps_done(at, step))
        return true;
      int result = run_first_half(v, rank, step);
      if (result != STEP_DONE)
        return result == STEP_BLOCKED;
      lane->received = true;
    }
    if (step->bits & COLLI_SEND) {
      int result = run_second_half(v, rank, step);
      if (result != STEP_DONE)
        return result == STEP_BLOCKED;
    }
    lane->received = false;
    colli_vorder_end(at, index, lane->pass, lane->step);
    if (++lane->step == sched->lane_first[index + 1]) {
      lane->step = sched->lane_first[index];
      lane->pass++;
    }
    for (int l = 0; l < sched->nlanes; l++)
      if (l != index)
        colli_vwake(v, rank, l);
  }
  return true;
}
