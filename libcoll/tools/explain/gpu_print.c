/* gpu_print.c: prints what a call in streams does, and the time that assumptions give it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "libcoll/base/param.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/levels.h"

/* ---- counts ---------------------------------------------------------------------------------- */

/* Prints the question. */
static void print_question(const question *q) {
  printf("%s in streams", q->name);
  if (q->coll != COLLI_BARRIER)
    printf(" of %zu bytes (%zu %s)%s", q->bytes, q->bytes / q->type_bytes, q->type_name,
           colli_exact(q->coll) ? " a block" : "");
  if (colli_rooted(q->coll))
    printf(", root %d", q->root);
  printf(", %d ranks on %d GPU%s", q->net.nranks, q->gpus, q->gpus == 1 ? "" : "s");
  if (q->net.hosts > 1)
    printf(" of each of %d hosts", q->net.hosts);
  printf("%s%s\n", q->threads ? ", threads of one process" : "", q->captured ? ", captured" : "");
}

/* Prints the mode, and how the call is cut. */
static void print_cut(const question *q, const gpu_call *call) {
  printf("mode: %s, because %s\n", colli_param_word(COLLI_PARAM_GPU_MODE, call->mode),
         call->reason);
  if (call->mode == COLLI_GPU_STAGED) {
    puts("buffers are copied to the host, the algorithm of host memory runs, results are copied "
         "back");
    if (call->parts > 1)
      printf("%zu parts of up to %zu bytes%s, up to %d of them under way at a time\n", call->parts,
             call->part_bytes, colli_exact(q->coll) ? " a block" : "", COLLI_STAGED_DEPTH);
    return;
  }
  if (call->party) {
    puts("one rank reads and writes the buffers of all, after 1 meet; unless some are on the host, "
         "or not aligned");
    return;
  }
  if (call->in_place) {
    printf("registered %s are read where they are%s, %zu meets\n",
           !call->reads_inputs   ? "results"
           : call->reads_results ? "inputs, and segments of results,"
                                 : "inputs",
           call->in_slots ? ", and folded in segments, one a rank, in slots" : "", call->meets);
    return;
  }
  if (q->registered)
    printf("in slots, because %s\n", call->readable
                                         ? "these take fewer meets than buffers that are registered"
                                         : "no buffer that others could read is registered");
  printf("%zu round%s of up to %zu bytes a block (slots of %zu bytes)%s, %zu meet%s\n",
         call->rounds, call->rounds == 1 ? "" : "s", call->piece, call->slot_bytes,
         call->in_segments ? ", folded in segments, one a rank" : "", call->meets,
         call->meets == 1 ? "" : "s");
}

/* Prints what ranks do, those alike on one line. */
static void print_ranks(const question *q, const gpu_call *call) {
  const char *far = call->mode == COLLI_GPU_STAGED ? "" : "     reads others";
  printf("\n  %-14s %11s %16s %16s%s\n", "rank", "operations", "reads", "writes", far);
  for (int rank = 0, end; rank < q->net.nranks; rank = end) {
    const gpu_rank *it = &call->ranks[rank];
    char text[40];
    for (end = rank + 1; end < q->net.nranks; end++) {
      const gpu_rank *other = &call->ranks[end];
      if (other->reads != it->reads || other->writes != it->writes ||
          other->reads_far != it->reads_far || other->operations != it->operations)
        break;
    }
    snprintf(text, sizeof(text), end > rank + 1 ? "%d-%d" : "%d", rank, end - 1);
    printf("  %-14s %11.0f %14.0f B %14.0f B", text, it->operations, it->reads, it->writes);
    if (call->mode != COLLI_GPU_STAGED)
      printf(" %14.0f B", it->reads_far);
    putchar('\n');
  }
  puts(call->mode == COLLI_GPU_STAGED
           ? "operations of its stream; bytes of its own GPU that are copied"
           : "operations of its stream; bytes in memory of its own GPU, and of other GPUs");
}

/* ---- the time -------------------------------------------------------------------------------- */

/* Prints a sum that was worked out in us. */
static void print_time(double us) {
  char text[32];
  explain_time(text, us * 1e3);
  printf("  = %s under these assumptions\n", text);
}

/* Prints the formula of a call in GPU memory with its numbers. */
static void print_direct_time(const question *q, const gpu_call *call, const gpu_time *t) {
  const gpu_costs *c = &q->costs;
  const bool asks = call->mode == COLLI_GPU_ORDERED;
  const double link_bytes = call->in_bytes > call->out_bytes ? call->in_bytes : call->out_bytes;
  puts("time = operations * launch + meets * (ordered: host; else: meet) + bytes of the busiest "
       "link / link\n       + bytes in the busiest GPU's memory / memory");
  printf("  = %.0f * %g us + %zu * %g us + %.0f B / %g GB/s + %.0f B / %g GB/s\n", t->operations,
         c->launch_us, call->meets, asks ? c->host_us : c->meet_us, link_bytes, c->link_gb,
         call->memory_bytes, c->memory_gb);
}

/* The same for a staged call that is made in parts. */
static void print_parts_time(const question *q, const gpu_call *call, const gpu_time *t) {
  char way[32], next[32], stream[32], pace[32], host[32];
  explain_time(way, t->host.first + (q->costs.host_us + t->stream_us) * 1e3);
  explain_time(next, t->host.next);
  explain_time(stream, t->stream_us * 1e3);
  explain_time(pace, t->pace_us * 1e3);
  explain_time(host, q->costs.host_us * 1e3);
  printf("a part's way: in the stream %s (%.0f operations and copies), host %s, and on the host as "
         "above: %s.\nfrom one to the next: the longest of %s on the host while others are under "
         "way, %s in the stream,\nand the way / %d: %s\n",
         stream, t->operations, host, way, next, stream, COLLI_STAGED_DEPTH, pace);
  puts("time = a part's way + (parts - 1) * from one to the next");
  printf("  = %s + %zu * %s\n", way, call->parts - 1, pace);
}

/* The same for a staged call: the host's part is what coll_explain predicts without --gpu. */
static void print_staged_time(const question *q, const answer *a, const gpu_call *call,
                              const gpu_time *t) {
  const gpu_costs *c = &q->costs;
  char text[32];
  explain_time(text, t->host.first);
  printf("on the host: %s, %s%s by the model of coll_explain without --gpu (%s)\n",
         t->choice.algo->name, text, call->parts > 1 ? " for a part" : "",
         q->net.network.nlevels ? "as assumed by --levels"
         : a->origin.path[0]    ? "measured"
                                : "typical costs");
  if (call->parts > 1) {
    print_parts_time(q, call, t);
    return;
  }
  puts("time = operations * launch + host + bytes to the host / copy + on the host + bytes from it "
       "/ copy");
  printf("  = %.0f * %g us + %g us + %.0f B / %g GB/s + %s + %.0f B / %g GB/s\n", t->operations,
         c->launch_us, c->host_us, call->out_bytes, c->copy_gb, text, call->in_bytes, c->copy_gb);
}

double explain_gpu_part(const question *q, answer *a) {
  const gpu_costs *c = &q->costs;
  gpu_call call;
  explain_gpu_count(q, a, &call);
  const gpu_time t = explain_gpu_price(q, a, &call);
  print_question(q);
  print_cut(q, &call);
  print_ranks(q, &call);
  printf("\nassumed%s, not measured on your GPU (--assume changes it): "
         "launch %g us,\nhost %g us, meet %g us, link %g GB/s, memory %g GB/s, copy %g GB/s\n",
         q->assumes ? " as asked" : "", c->launch_us, c->host_us, c->meet_us, c->link_gb,
         c->memory_gb, c->copy_gb);
  if (call.mode == COLLI_GPU_STAGED)
    print_staged_time(q, a, &call, &t);
  else
    print_direct_time(q, &call, &t);
  print_time(t.us);
  free(call.ranks);
  return t.us;
}
