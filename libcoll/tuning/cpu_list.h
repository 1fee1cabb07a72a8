/* cpu_list.h: lists of processors as Linux writes them: "0-3,8". */
#ifndef COLLI_TUNING_CPU_LIST_H
#define COLLI_TUNING_CPU_LIST_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/* Reads a list of processors below CPU_SETSIZE. False: it is none, or empty. */
bool colli_cpu_list_read(const char *text, cpu_set_t *set);

/* Writes the list of a set of set_bytes bytes; what does not fit into `bytes` is cut. */
void colli_cpu_list_write(const cpu_set_t *set, size_t set_bytes, char *text, size_t bytes);

#endif
