/* test_queue.c: the lists of libcoll/base/queue.h, against an array that gets the same changes. */
#include <criterion/criterion.h>
#include <stdbool.h>

#include "libcoll/base/prng.h"
#include "libcoll/base/queue.h"

enum { ELEMENTS = 6, CHANGES = 2000 };

typedef struct element {
  int number;
  bool in;
  LIST_ENTRY(element) in_list;
  TAILQ_ENTRY(element) in_queue;
} element;

LIST_HEAD(list, element);
TAILQ_HEAD(queue, element);

/* What should be in the queue, from the front; the list has it in the opposite order. */
typedef struct expected {
  int numbers[ELEMENTS];
  int count;
} expected;

static void compare(struct list *list, struct queue *queue, const expected *want) {
  const element *e;
  int i = 0;
  TAILQ_FOREACH(e, queue, in_queue) {
    cr_assert_lt(i, want->count);
    cr_assert_eq(e->number, want->numbers[i++]);
    cr_assert_eq(TAILQ_NEXT(e, in_queue) == NULL, i == want->count);
  }
  cr_assert_eq(i, want->count);
  LIST_FOREACH(e, list, in_list) {
    cr_assert_gt(i, 0);
    cr_assert_eq(e->number, want->numbers[--i]);
    cr_assert_eq(LIST_NEXT(e, in_list) == NULL, i == 0);
  }
  cr_assert_eq(i, 0);
  cr_assert_eq(LIST_EMPTY(list), want->count == 0);
  cr_assert_eq(TAILQ_EMPTY(queue), want->count == 0);
  cr_assert_eq(LIST_FIRST(list) == NULL, want->count == 0);
  if (want->count > 0)
    cr_assert_eq(TAILQ_FIRST(queue)->number, want->numbers[0]);
}

static void remove_number(expected *want, int number) {
  int kept = 0;
  for (int i = 0; i < want->count; i++)
    if (want->numbers[i] != number)
      want->numbers[kept++] = want->numbers[i];
  want->count = kept;
}

Test(queue, insertions_and_removals_in_random_order) {
  struct list list = LIST_HEAD_INITIALIZER(list);
  struct queue queue = TAILQ_HEAD_INITIALIZER(queue);
  element elements[ELEMENTS] = {0};
  expected want = {.count = 0};
  colli_prng random = {1};
  compare(&list, &queue, &want);
  for (int change = 0; change < CHANGES; change++) {
    element *e = &elements[colli_prng_below(&random, ELEMENTS)];
    e->number = (int)(e - elements);
    if (e->in) {
      LIST_REMOVE(e, in_list);
      TAILQ_REMOVE(&queue, e, in_queue);
      remove_number(&want, e->number);
    } else {
      LIST_INSERT_HEAD(&list, e, in_list);
      TAILQ_INSERT_TAIL(&queue, e, in_queue);
      want.numbers[want.count++] = e->number;
    }
    e->in = !e->in;
    compare(&list, &queue, &want);
  }
  LIST_INIT(&list);
  TAILQ_INIT(&queue);
  want.count = 0;
  compare(&list, &queue, &want);
}
