/* main.c: coll_explain shows which algorithm a collective gets, why, how long it should take, and
 * what each rank does. */
#include <stdio.h>
#include <string.h>

#include "explain.h"

/* Prints the shares, if there are any. */
static void print_shares(const answer *a) {
  if (!a->shape.share)
    return;
  printf("shares of hosts in weighted algorithms:");
  for (int host = 0; host < a->weights->nhosts; host++)
    printf(" %d", a->shape.share[host]);
  printf("\n");
}

/* Prints what messages cost. */
static void print_costs(const question *q, const answer *a) {
  const colli_model *m = &a->model;
  printf("\nmodel: alpha %.0f ns a message, beta %.3g ns a byte, gamma %.3g ns a byte reduced, "
         "%.0f ns a step; %u slots of %zu bytes\n",
         m->alpha_ns, m->beta_ns_per_byte, m->gamma_ns_per_byte, m->step_ns, a->limits.slot_count,
         a->limits.slot_bytes);
  for (int i = q->net.network.nlevels - 2; i >= 0; i--)
    printf("within %d ranks: alpha %.0f ns a message, beta %.3g ns a byte\n",
           q->net.network.level[i].ranks, q->net.network.level[i].alpha_ns,
           q->net.network.level[i].beta_ns_per_byte);
  if (a->shape.ngroups > 1 && !q->net.network.nlevels)
    printf("within a %s: alpha %.0f ns a message, beta %.3g ns a byte\n",
           a->shape.ninner > 0 ? "group" : "host", m->near_alpha_ns, m->near_beta_ns_per_byte);
  if (m->host_beta_ns_per_byte > 0)
    printf("the ranks of a host share its link to the network: %.3g ns a byte\n",
           m->host_beta_ns_per_byte);
}

/* Prints the question and the model. */
static void print_question(const question *q, const answer *a) {
  printf("%s", q->name);
  if (q->last_bytes)
    printf(" of %zu to %zu bytes (%s)%s", q->bytes, q->last_bytes, q->type_name,
           colli_exact(q->coll) ? " a block" : "");
  else if (q->coll != COLLI_BARRIER)
    printf(" of %zu bytes (%zu %s)%s", q->bytes, q->bytes / q->type_bytes, q->type_name,
           colli_exact(q->coll) ? " a block" : "");
  if (colli_rooted(q->coll))
    printf(", root %d", q->root);
  if (a->shape.order == COLLI_ORDER_TREE)
    printf(", deterministic");
  if (a->shape.order == COLLI_ORDER_LEFT)
    printf(", from left to right");
  printf(", %d ranks", q->net.nranks);
  if (q->net.hosts > 1)
    printf(" on %d hosts", q->net.hosts);
  printf(" over %s", q->net.cluster           ? "the network of --input"
                     : q->net.network.nlevels ? "a network with levels"
                                              : described_far_transport(&q->net));
  if (q->net.cluster)
    printf(", of cores shared as there");
  else if (q->net.cores > 0)
    printf(" on %d cores%s%s", q->net.cores, q->net.hosts > 1 ? " each" : "",
           q->net.cores_given ? "" : " (those of this machine; --cores C assumes others)");
  else
    printf(", each on its own core");
  print_costs(q, a);
  print_shares(a);
  if (q->net.cluster)
    printf("costs are those of the run that wrote the file\n\n");
  else if (q->net.network.nlevels)
    printf("the network is as assumed by --levels; nothing of it was measured\n\n");
  else if (a->origin.path[0])
    printf("measured on %s with %d cores, %s (%s)%s\n\n", a->origin.host, a->origin.cores,
           a->origin.date, a->origin.path,
           a->model.corrections ? ", and all algorithms measured" : "");
  else
    printf("typical costs; coll_calibrate measures those of this machine\n\n");
}

/* Prints the candidates, best first. */
static void print_candidates(const colli_choice *list, int count, const colli_choice *chosen,
                             const question *q, const answer *a) {
  printf("  %-16s %12s %12s %12s %10s %8s\n", "algorithm", "formula", "events", "chunk", "slice",
         "passes");
  for (int i = 0; i < count; i++) {
    const colli_partition *part = &list[i].partition;
    char formula[32], events[32];
    explain_time(formula, list[i].predicted_ns);
    double ns = explain_events(&list[i], q, a);
    strcpy(events, "-");
    if (ns >= 0)
      explain_time(events, ns);
    size_t slice = part->slice < part->piece ? part->slice : part->piece;
    printf("%c %-16s %12s %12s %10zu B %8zu B %8d\n", list[i].algo == chosen->algo ? '*' : ' ',
           list[i].algo->name, formula, events, part->piece * q->type_bytes, slice * q->type_bytes,
           part->passes);
  }
}

/* Prints the choice and its reason. */
static void print_reason(const colli_choice *list, int count, const colli_choice *chosen,
                         const question *q, const answer *a) {
  const char *name = list[0].algo->name;
  double share = list[0].predicted_ns / chosen->predicted_ns;
  printf("\nchosen: %s, best for %s\n", chosen->algo->name, chosen->algo->when);
  printf("source: %s\n", chosen->algo->source);
  if (colli_force_find(&a->chooser.force, q->coll, q->bytes))
    printf("why: %s asks for it", q->algo ? "--algo" : "COLL_ALGO");
  else if (a->chooser.tuner && list[0].algo != chosen->algo)
    printf("why: the tuner chose it");
  else if (list[0].algo != chosen->algo)
    printf("why: it is the best for the smallest size of its class");
  else if (count > 1 && list[0].predicted_ns > 0)
    printf("why: lowest cost by formula; the next, %s, takes %.2f times as long",
           list[1].algo->name, list[1].predicted_ns / list[0].predicted_ns);
  else
    printf("why: it is the only candidate for %d ranks", q->net.nranks);
  if (list[0].algo != chosen->algo)
    printf("; %s would take %.2f times its time", name, share);
  putchar('\n');
}

/* Prints what one rank does. */
static int print_rank(const colli_choice *chosen, const answer *a) {
  colli_sched *sched = NULL;
  if (chosen->algo->emit(&a->shape, &sched) != COLL_OK) {
    fprintf(stderr, "coll_explain: out of memory for the schedule\n");
    return 1;
  }
  putchar('\n');
  colli_sched_dump(sched, stdout);
  colli_sched_free(sched);
  return 0;
}

/* Explains one size. */
static int explain_size(const question *q, answer *a) {
  colli_choice chosen = explain_choose(a, q, q->bytes), best, list[COLLI_MAX_CANDIDATES + 1];
  int listed = colli_select(&a->shape, q->bytes / q->type_bytes, q->type_bytes, &a->limits,
                            &a->model, "", &best, list, COLLI_MAX_CANDIDATES);
  bool listed_too = false;
  if (listed < 0)
    described_refuse("out of memory");
  for (int i = 0; i < listed; i++)
    listed_too |= list[i].algo == chosen.algo;
  if (!listed_too)
    list[listed++] = chosen; /* asked for by name only */
  print_candidates(list, listed, &chosen, q, a);
  print_reason(list, listed, &chosen, q, a);
  return q->rank < 0 ? 0 : print_rank(&chosen, a);
}

/* Prints which algorithm each size of a range gets. */
static void explain_range(const question *q, answer *a) {
  const colli_algo *before = NULL;
  printf("%14s  %-16s %12s\n", "from (bytes)", "algorithm", "formula");
  for (size_t bytes = q->bytes; bytes <= q->last_bytes;) {
    size_t whole = (bytes + q->type_bytes - 1) / q->type_bytes * q->type_bytes;
    colli_choice choice = explain_choose(a, q, whole);
    char text[32];
    explain_time(text, choice.predicted_ns);
    if (choice.algo != before)
      printf("%14zu  %-16s %12s\n", whole, choice.algo->name, text);
    before = choice.algo;
    size_t power = whole < 8 ? 0 : (size_t)63 - (size_t)__builtin_clzll(whole);
    size_t step = power ? (size_t)1 << (power - 2) : 1; /* to the next class of sizes */
    bytes = (whole / step + 1) * step;
  }
}

/* Prints the algorithms of a collective as rows of a Markdown table. */
static void list_algos(const question *q) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    if ((*algo)->coll == q->coll && ((*algo)->varying || !q->varying))
      printf("| %s | %s | %s |\n", (*algo)->name, (*algo)->when, (*algo)->source);
}

int main(int argc, char **argv) {
  question q = explain_ask(argc, argv);
  static answer a;
  int status = 0;
  if (q.list) {
    list_algos(&q);
    described_unload(&q.net);
    return 0;
  }
  explain_set_up(&q, &a);
  explain_choose(&a, &q, q.bytes); /* refuses before anything is printed */
  if (q.gpus) {
    if (q.table)
      explain_gpu_table(&q);
    else
      explain_gpu(&q, &a);
    described_free(&a);
    return 0;
  }
  print_question(&q, &a);
  if (q.table)
    explain_table(&q, &a);
  else if (q.last_bytes)
    explain_range(&q, &a);
  else
    status = explain_size(&q, &a);
  described_free(&a);
  described_unload(&q.net);
  return status;
}
