/*
 * queue.h: doubly linked lists and tail queues as macros, with the names and meanings of BSD's
 * <sys/queue.h> (queue(3)), which not every C library has: musl has not.
 *
 * An element contains an ENTRY for each list that it can be in. Whoever owns the head owns the
 * list; elements belong to the caller. An element knows the pointer that points to it, so that it
 * can be removed without a search. Removing the current element of a FOREACH is an error: keep its
 * successor first.
 */
#ifndef COLLI_QUEUE_H
#define COLLI_QUEUE_H

#include <stddef.h>

/* ---- lists: inserted at the head ----------------------------------------------------------- */

#define LIST_HEAD(name, type)                                                                      \
  struct name {                                                                                    \
    struct type *first;                                                                            \
  }
#define LIST_HEAD_INITIALIZER(head)                                                                \
  { NULL }
#define LIST_ENTRY(type)                                                                           \
  struct {                                                                                         \
    struct type *le_next, **le_prev; /* what points to this element */                             \
  }
#define LIST_INIT(head)        ((void)((head)->first = NULL))
#define LIST_FIRST(head)       ((head)->first)
#define LIST_EMPTY(head)       (!(head)->first)
#define LIST_NEXT(elem, entry) ((elem)->entry.le_next)
#define LIST_FOREACH(var, head, entry)                                                             \
  for ((var) = (head)->first; (var); (var) = (var)->entry.le_next)
#define LIST_INSERT_HEAD(head, elem, entry)                                                        \
  do {                                                                                             \
    (elem)->entry.le_next = (head)->first;                                                         \
    (elem)->entry.le_prev = &(head)->first;                                                        \
    if ((head)->first)                                                                             \
      (head)->first->entry.le_prev = &(elem)->entry.le_next;                                       \
    (head)->first = (elem);                                                                        \
  } while (0)
#define LIST_REMOVE(elem, entry)                                                                   \
  do {                                                                                             \
    if ((elem)->entry.le_next)                                                                     \
      (elem)->entry.le_next->entry.le_prev = (elem)->entry.le_prev;                                \
    *(elem)->entry.le_prev = (elem)->entry.le_next;                                                \
  } while (0)

/* ---- tail queues: inserted at the tail ----------------------------------------------------- */

#define TAILQ_HEAD(name, type)                                                                     \
  struct name {                                                                                    \
    struct type *first, **end; /* the NULL behind the last element */                              \
  }
#define TAILQ_HEAD_INITIALIZER(head)                                                               \
  { NULL, &(head).first }
#define TAILQ_ENTRY(type)               LIST_ENTRY(type)
#define TAILQ_INIT(head)                ((void)((head)->first = NULL, (head)->end = &(head)->first))
#define TAILQ_FIRST(head)               ((head)->first)
#define TAILQ_EMPTY(head)               (!(head)->first)
#define TAILQ_NEXT(elem, entry)         ((elem)->entry.le_next)
#define TAILQ_FOREACH(var, head, entry) LIST_FOREACH(var, head, entry)
#define TAILQ_INSERT_TAIL(head, elem, entry)                                                       \
  do {                                                                                             \
    (elem)->entry.le_next = NULL;                                                                  \
    (elem)->entry.le_prev = (head)->end;                                                           \
    *(head)->end = (elem);                                                                         \
    (head)->end = &(elem)->entry.le_next;                                                          \
  } while (0)
#define TAILQ_REMOVE(head, elem, entry)                                                            \
  do {                                                                                             \
    if ((elem)->entry.le_next)                                                                     \
      (elem)->entry.le_next->entry.le_prev = (elem)->entry.le_prev;                                \
    else                                                                                           \
      (head)->end = (elem)->entry.le_prev;                                                         \
    *(elem)->entry.le_prev = (elem)->entry.le_next;                                                \
  } while (0)

#endif /* COLLI_QUEUE_H */
