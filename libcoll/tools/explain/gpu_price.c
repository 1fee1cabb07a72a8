/* gpu_price.c: the time that assumptions give a call in streams, for coll_explain. */
#include "explain.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/levels.h"

/* The most operations of a rank. */
static double most_operations(const question *q, const gpu_call *call) {
  double most = 0;
  for (int rank = 0; rank < q->net.nranks; rank++)
    most = call->ranks[rank].operations > most ? call->ranks[rank].operations : most;
  return most;
}

/* The time for so many bytes, in microseconds. */
static double us_of(double bytes, double gb) {
  return bytes / gb / 1e3;
}

/* A call in GPU memory. */
static void price_direct(const question *q, const gpu_call *call, gpu_time *t) {
  const gpu_costs *c = &q->costs;
  const double link_bytes = call->in_bytes > call->out_bytes ? call->in_bytes : call->out_bytes;
  t->us = t->operations * c->launch_us +
          (double)call->meets * (call->mode == COLLI_GPU_ORDERED ? c->host_us : c->meet_us) +
          us_of(link_bytes, c->link_gb) + us_of(call->memory_bytes, c->memory_gb);
}

/* A staged call: the host's part is what coll_explain predicts without --gpu. Of several parts, the
 * stream copies some while the host works on others. */
static void price_staged(const question *q, answer *a, const gpu_call *call, gpu_time *t) {
  const gpu_costs *c = &q->costs;
  const double parts = (double)call->parts, copied = call->in_bytes + call->out_bytes;
  t->choice = explain_choose(a, q, call->part_bytes);
  t->host = (colli_parts){t->choice.predicted_ns, t->choice.predicted_ns};
  if (call->parts > 1)
    t->host = colli_parts_price(&t->choice, &a->shape, q->type_bytes, &a->model);
  t->operations /= parts;
  t->stream_us = t->operations * c->launch_us + us_of(copied, c->copy_gb) / parts;
  const colli_parts_besides besides = {t->stream_us * 1e3, c->host_us * 1e3};
  t->pace_us = colli_parts_pace(&t->host, COLLI_STAGED_DEPTH, besides) / 1e3;
  t->us = colli_parts_time(&t->host, call->parts, COLLI_STAGED_DEPTH, besides) / 1e3;
}

gpu_time explain_gpu_price(const question *q, answer *a, const gpu_call *call) {
  gpu_time t = {.operations = most_operations(q, call)};
  if (call->mode == COLLI_GPU_STAGED)
    price_staged(q, a, call, &t);
  else
    price_direct(q, call, &t);
  return t;
}
