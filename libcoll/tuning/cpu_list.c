/* cpu_list.c: lists of processors as Linux writes them. */
#include "libcoll/tuning/cpu_list.h"

#include <ctype.h>
#include <stdlib.h>

#include "libcoll/base/line.h"

/* Reads a number at *text and moves behind it; -1: there is none below CPU_SETSIZE. */
static int read_cpu(const char **text) {
  char *end;
  if (!isdigit((unsigned char)**text))
    return -1;
  const unsigned long number = strtoul(*text, &end, 10);
  *text = end;
  return number < CPU_SETSIZE ? (int)number : -1;
}

bool colli_cpu_list_read(const char *text, cpu_set_t *set) {
  CPU_ZERO(set);
  for (;; text++) {
    const int first = read_cpu(&text);
    int last = first;
    if (*text == '-') {
      text++;
      last = read_cpu(&text);
    }
    if (first < 0 || last < first || (*text != ',' && *text != '\0'))
      return false;
    for (int cpu = first; cpu <= last; cpu++)
      CPU_SET(cpu, set);
    if (*text == '\0')
      return true;
  }
}

void colli_cpu_list_write(const cpu_set_t *set, size_t set_bytes, char *text, size_t bytes) {
  colli_line line = {text, bytes, 0};
  const int most = (int)(8 * set_bytes);
  *text = '\0';
  for (int first = 0, end; first < most; first = end + 1) {
    for (end = first; end < most && CPU_ISSET_S((size_t)end, set_bytes, set);)
      end++;
    if (end == first)
      continue;
    colli_line_add(&line, "%s%d", line.used > 0 ? "," : "", first);
    if (end - first > 1)
      colli_line_add(&line, "-%d", end - 1);
  }
}
