/* hosts_print.c: prints what coll_calibrate --hosts has found, and writes it as a file of levels.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "hosts.h"
#include "libcoll/base/file.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/levels_file.h"
#include "libcoll/tuning/units.h"

#define SLOW 0.6 /* of the median: such a host gets less to do */

/* ---- groups ---------------------------------------------------------------------------------- */

/* Whether hosts are at several sites, and in racks of these, or of their only site. */
static bool has_sites(const hosts_found *found) {
  return found->depth > 0 && found->levels.sites.count > 1;
}
static bool has_racks(const hosts_found *found) {
  return found->depth > has_sites(found);
}

/* Prints the reason for groups of a kind. */
static void print_reason(const colli_measured_groups *groups, const char *kind, FILE *out) {
  fprintf(out,
          "%d %ss: round trips in a %s take at most %.4g ms, to another one at least %.4g ms\n",
          groups->count, kind, kind, groups->inside_ns * 1e-6, groups->apart_ns * 1e-6);
}

/* Prints which hosts are in each group. */
static void print_members(const hosts_found *found, FILE *out) {
  const size_t skip = strlen(COLLI_LEVEL_MEASURED);
  for (int first = 0; first < found->delegates.count; first++) {
    const char *levels = found->info[first].levels;
    bool seen = false;
    for (int host = 0; host < first && !seen; host++)
      seen = strcmp(found->info[host].levels, levels) == 0;
    if (seen)
      continue;
    fprintf(out, "  %s:", levels + skip);
    for (int host = first; host < found->delegates.count; host++)
      if (strcmp(found->info[host].levels, levels) == 0)
        fprintf(out, " %s", found->info[host].host);
    fputc('\n', out);
  }
}

/* Prints groups, and why they are. */
static void print_groups(const hosts_found *found, FILE *out) {
  fputc('\n', out);
  if (has_sites(found))
    print_reason(&found->levels.sites, "site", out);
  if (has_racks(found))
    print_reason(&found->levels.racks, "rack", out);
  if (found->depth > 0)
    print_members(found, out);
  else
    fprintf(out, "%d hosts in one group: none are much nearer to each other than to others\n",
            found->delegates.count);
  if (found->levels.racks.late)
    fputs("there was no time to find all groups\n", out);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Sorts numbers. */
static int compare(const void *a, const void *b) {
  const double left = *(const double *)a, right = *(const double *)b;
  return left < right ? -1 : left > right;
}

/* Prints the least of some numbers, the middle one, and the most. */
static void print_range(double *numbers, int count, FILE *out) {
  qsort(numbers, (size_t)count, sizeof(*numbers), compare);
  if (count > 0)
    fprintf(out, " %9.4g %9.4g %9.4g", numbers[0], numbers[count / 2], numbers[count - 1]);
  else
    fprintf(out, " %9s %9s %9s", "-", "-", "-");
}

/* How pairs are called that have so many levels in common. */
static const char *name_pairs(const hosts_found *found, int common) {
  if (common == found->depth)
    return has_racks(found) ? "hosts of a rack" : has_sites(found) ? "hosts of a site" : "hosts";
  if (common == 0 && has_sites(found))
    return "hosts of two sites";
  return "hosts of two racks";
}

/* Prints a row for each level, from the narrowest on. `numbers` has room for all pairs. */
static void print_pairs(const hosts_found *found, double *numbers, FILE *out) {
  fprintf(out, "\n%-18s %6s %29s %29s\n%-18s %6s", "between", "pairs", "round trip (ms)",
          "Mbit/s, each way", "", "");
  fprintf(out, " %9s %9s %9s %9s %9s %9s\n", "least", "median", "most", "least", "median", "most");
  for (int common = found->depth; common >= 0; common--) {
    int pairs = 0, trips = 0, speeds = 0;
    for (int i = 0; i < found->npairs; i++) {
      pairs += found->pair[i].common == common;
      if (found->pair[i].common == common && found->pair[i].ns > 0)
        numbers[trips++] = found->pair[i].ns * 1e-6;
    }
    fprintf(out, "%-18s %6d", name_pairs(found, common), pairs);
    print_range(numbers, trips, out);
    for (int i = 0; i < found->npairs; i++)
      if (found->pair[i].common == common && found->pair[i].mbit > 0)
        numbers[speeds++] = found->pair[i].mbit;
    print_range(numbers, speeds, out);
    fputc('\n', out);
  }
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* A host's speed that was measured, or 0: a host that was not measured has the fastest one's in its
 * record. */
static double speed_of(const hosts_found *found, int host) {
  const colli_rank_info *info = &found->info[host];
  const bool measured = found->levels.measured[found->delegates.rank[host]];
  return measured && info->link_source == COLLI_SPEED_MEASURED ? info->link_mbit : 0;
}

/* Prints the hosts whose links were not measured. */
static void print_unmeasured(const hosts_found *found, int count, FILE *out) {
  fprintf(out, "not measured: the links of %d host%s (", count, count == 1 ? "" : "s");
  for (int host = 0, printed = 0; host < found->delegates.count; host++)
    if (speed_of(found, host) <= 0)
      fprintf(out, "%s%s", printed++ ? ", " : "", found->info[host].host);
  fputs(")\n", out);
}

/* Prints the hosts whose links are slow. `numbers` has room for all hosts. */
static void print_slow(const hosts_found *found, double *numbers, FILE *out) {
  int known = 0, slow = 0;
  for (int host = 0; host < found->delegates.count; host++)
    if (speed_of(found, host) > 0)
      numbers[known++] = speed_of(found, host);
  qsort(numbers, (size_t)known, sizeof(*numbers), compare);
  const double median = known > 0 ? numbers[known / 2] : 0;
  fputc('\n', out);
  for (int host = 0; host < found->delegates.count; host++) {
    const double mbit = speed_of(found, host);
    if (mbit <= 0 || mbit >= SLOW * median)
      continue;
    fprintf(out, "slow: host %s, %.4g Mbit/s; the median is %.4g\n", found->info[host].host, mbit,
            median);
    slow++;
  }
  if (known > 0 && slow == 0)
    fprintf(out, "no host%s is slow: links have %.4g to %.4g Mbit/s\n",
            known < found->delegates.count ? " of those measured" : "", numbers[0],
            numbers[known - 1]);
  if (known < found->delegates.count)
    print_unmeasured(found, found->delegates.count - known, out);
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Prints the levels of a host as a setting. */
static void print_levels(const colli_rank_info *info, FILE *out) {
  char text[32];
  const char *at = info->levels + (*info->levels ? strlen(COLLI_LEVEL_MEASURED) : 0);
  if (!*at)
    fputs("none", out);
  for (int level = 0; *at; level++) {
    const size_t length = strcspn(at, "/");
    const double beta = info->level_beta_ns_per_byte[level], alpha_ns = info->level_alpha_ns[level];
    fprintf(out, "%s%.*s", level ? "/" : "", (int)length, at);
    if (beta > 0) {
      colli_print_speed(COLLI_NS_PER_BYTE_AT_1_MBIT / beta, text, sizeof(text));
      fprintf(out, "@%s", text);
    }
    if (alpha_ns > 0) {
      colli_print_time(2 * alpha_ns, text, sizeof(text));
      fprintf(out, "%c%s", beta > 0 ? ',' : '@', text);
    }
    at += length + (at[length] == '/');
  }
}

/* Prints the setting of each host, or a line of a file. */
static void print_settings(const hosts_found *found, bool file, FILE *out) {
  for (int host = 0; host < found->delegates.count; host++) {
    const colli_rank_info *info = &found->info[host];
    char speed[32] = "";
    if (speed_of(found, host) > 0)
      colli_print_speed(speed_of(found, host), speed, sizeof(speed));
    fprintf(out, file ? "%s " : "  %s: COLL_LEVELS=", info->host);
    print_levels(info, out);
    fprintf(out, "%s%s\n", !*speed ? "" : file ? " " : " COLL_LINK_SPEED=", speed);
  }
}

bool hosts_print(const hosts_found *found, FILE *out) {
  double *numbers = calloc((size_t)(found->npairs + found->delegates.count), sizeof(*numbers));
  if (!numbers)
    return false;
  print_groups(found, out);
  print_pairs(found, numbers, out);
  print_slow(found, numbers, out);
  free(numbers);
  fputs("\nsettings that declare this\n", out);
  print_settings(found, false, out);
  return true;
}

/* Finds two hosts of which one's line would be the other's, too. False: there are none. */
static bool find_twins(const hosts_found *found, const char *twins[2]) {
  for (int host = 0; host < found->delegates.count; host++)
    for (int other = 0; other < host; other++) {
      twins[0] = found->info[other].host;
      twins[1] = found->info[host].host;
      if (colli_levels_file_names(twins[0], twins[1]) ||
          colli_levels_file_names(twins[1], twins[0]))
        return true;
    }
  return false;
}

bool hosts_write(const hosts_found *found, const char *path) {
  char draft[4096], day[32];
  const time_t now = time(NULL);
  struct tm date;
  const char *twins[2];
  if (find_twins(found, twins)) {
    fprintf(stderr,
            "coll_calibrate: %s is not written: two hosts are called %s and %s, which a file of "
            "levels takes for one; see hostname(1)\n",
            path, twins[0], twins[1]);
    return false;
  }
  FILE *file = colli_file_draft(path, draft, sizeof(draft));
  int wrong = file ? 0 : errno;
  if (file) {
    strftime(day, sizeof(day), "%Y-%m-%d", gmtime_r(&now, &date));
    fprintf(file, "# host, levels, speed of its link; coll_calibrate --hosts, %s\n", day);
    print_settings(found, true, file);
    wrong = colli_file_publish(file, draft, path);
  }
  if (wrong)
    fprintf(stderr, "coll_calibrate: cannot write %s: %s\n", path, strerror(wrong));
  else
    printf("\nwritten to %s: COLL_LEVELS=file:%s, on all hosts\n", path, path);
  return !wrong;
}
