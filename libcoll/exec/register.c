/* register.c: registers the buffers of an operation with transports that use registration, and
 * releases them at its end; also what of GPUs' memory is lent to transports for a message. */
#include "libcoll/base/assert.h"
#include "libcoll/exec/step.h"

/* Whether the input is part of the output, that is, in place. */
static bool is_in_place(const coll_request *op) {
  size_t offset = (uintptr_t)op->in - (uintptr_t)op->out;
  return offset < op->extent[COLLI_OUTPUT];
}

/* The part of the input that the schedule sends, in elements of the vector. The device need not
 * know the rest, which this rank only combines with messages. */
static colli_range sent_of_input(const coll_request *op) {
  const colli_partition *p = &op->partition;
  size_t first = SIZE_MAX, end = 0;
  for (int i = 0; i < op->sched->nsteps; i++) {
    const colli_step *step = &op->sched->steps[i];
    if (!(step->bits & COLLI_SEND) || step->bits & COLLI_RECV || step->src_buf != COLLI_INPUT)
      continue;
    colli_range begins = colli_partition_range(p, COLLI_INPUT, step->chunk_in, 0);
    colli_range ends = colli_partition_range(p, COLLI_INPUT, step->chunk_in, p->passes - 1);
    first = begins.first < first ? begins.first : first;
    end = ends.first + ends.count > end ? ends.first + ends.count : end;
  }
  return first < end ? (colli_range){first, end - first} : (colli_range){op->in_first, 0};
}

/* Registers the input, or the part of it that is sent. */
static void register_input(coll_request *op, coll_endpoint *endpoint) {
  colli_range sent = sent_of_input(op);
  const char *from = op->in + (sent.first - op->in_first) * op->elem_bytes;
  if (sent.count > 0)
    op->registered_with->register_buffer(endpoint, op, from, sent.count * op->elem_bytes, false);
}

void colli_exec_register(colli_exec *exec, coll_request *op, const coll_conn *conn, int buf) {
  COLLI_ASSERT_RANK(buf != COLLI_SCRATCH && !op->done && !(op->registered & 1u << buf), exec->rank);
  coll_endpoint *endpoint = exec->links[conn->peer].endpoint;
  if (!op->registered) {
    op->registered_with = conn->ops;
    op->registered_at = endpoint;
  }
  unsigned bits = 1u << buf;
  if (buf == COLLI_INPUT && is_in_place(op)) {
    buf = COLLI_OUTPUT;
    bits |= 1u << buf;
  }
  bool known = op->registered & 1u << buf;
  op->registered |= bits;
  if (known || op->registered_at != endpoint) /* at most one transport has them */
    return;
  if (buf == COLLI_INPUT)
    register_input(op, endpoint);
  else
    op->registered_with->register_buffer(endpoint, op, op->out, op->extent[buf], true);
}

void colli_exec_release(coll_request *op) {
  COLLI_ASSERT(op->registered && op->registered_with);
  op->registered = 0;
  op->registered_with->release_buffers(op->registered_at, op);
}

void colli_exec_return_lent(colli_lent *lent) {
  for (int i = 0; i < COLLI_LENT_COUNT; i++) {
    if (lent[i].with)
      lent[i].with->release_device(lent[i].at, lent[i].memory);
    lent[i].with = NULL;
  }
}
