/* gpu_table.c: coll_explain --gpu with a range of sizes: what calls in streams take. */
#include <stdio.h>

#include "explain.h"
#include "libcoll/base/param.h"

/* The row of a size: which algorithm the host runs, of which part, and the time of each. */
static void print_row(const question *q) {
  static answer a;
  char size[32], text[32], how[64] = "no host";
  double us[EXPLAIN_PARTS];
  a = (answer){0};
  explain_set_up(q, &a);
  const gpu_parts all = explain_gpu_divide(q, &a);
  described_free(&a);
  for (int i = 0; i < all.count; i++) {
    colli_choice choice;
    size_t pieces;
    us[i] = explain_gpu_part_price(&all.part[i], &choice, &pieces);
    if (all.part[i].messages)
      snprintf(how, sizeof(how), "messages");
    else if (choice.algo && pieces > 1)
      snprintf(how, sizeof(how), "%s, %zu parts", choice.algo->name, pieces);
    else if (choice.algo)
      snprintf(how, sizeof(how), "%s", choice.algo->name);
  }
  explain_size_text(size, q->bytes);
  explain_time(text, explain_gpu_total(q, &all, us) * 1e3);
  printf("%12s  %-28s %12s", size, how, text);
  for (int i = 0; i < all.count && all.group_size > 0; i++) {
    explain_time(text, (double)all.part[i].times * us[i] * 1e3);
    printf("  %s: %s", all.part[i].where, text);
  }
  putchar('\n');
}

void explain_gpu_table(const question *q) {
  question one = *q;
  printf("%12s  %-28s %12s  of which\n", "bytes", "algorithm on the host", "time");
  for (one.bytes = q->bytes; one.bytes <= q->last_bytes;
       one.bytes = one.bytes ? one.bytes * EXPLAIN_TABLE_STEP : one.type_bytes)
    print_row(&one);
  puts("Times are of assumptions (--assume, --levels); one size instead of a range shows how they "
       "come about.");
}
