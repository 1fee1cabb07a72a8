/*
 * report.h: the state that all parts of a bootstrap share, their failures, and the
 * reports with which ranks tell each other whether they succeeded.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_REPORT_H
#define COLLI_WIREUP_BOOTSTRAP_REPORT_H

#include "libcoll/wireup/bootstrap/bootstrap.h"
#include "libcoll/wireup/bootstrap/tree.h"
#include "libcoll/wireup/bootstrap/wait.h"

/* Descriptors or memory that this rank lacked. */
typedef struct boot_shortage {
  int sys_errno; /* 0: nothing was short */
  bool lasts;    /* it explains all later failures: in a shrink, others do not wait for its end */
  uint64_t until_ns; /* until then, failures are put down to it */
} boot_shortage;

/* What all parts of one bootstrap share. */
typedef struct boot {
  const colli_id *id;
  int rank;
  int nranks;
  colli_rank_info *mine;
  const colli_log *log;
  uint64_t start_ns;
  uint64_t deadline_ns;
  coll_error *error;
  const colli_lifelines *lifelines; /* may be NULL */
  uint64_t hello_word;              /* sent in the hello of outgoing connections */
  bool tls;                         /* COLL_TLS=1 */
  boot_place place;                 /* in the tree of check-ins */
  boot_polls polls;
  boot_shortage *shortage;
} boot;

/* One clock less another is in between; nothing is known of them if least_ns > most_ns. */
typedef struct boot_bounds {
  int64_t least_ns, most_ns;
} boot_bounds;

/* What a report says about clocks, all of them CLOCK_MONOTONIC: see time.h. */
typedef struct boot_time {
  uint64_t heard_ns, told_ns; /* an answer: when the question came, and when this was sent */
  /* That all are ready: the clock of the rank that gets this less the sender's. The outcome: the
   * root's less that of the rank that gets it. */
  boot_bounds ahead;
  uint64_t zero_ns, error_ns; /* the outcome: the root's colli_shared_time */
} boot_time;

/* boot_report.status of messages that are no reports: */
#define BOOT_ASKS_TIME (-1) /* a question for the time, or its answer */
#define BOOT_TABLE     (-2) /* the table follows, for rank 0, from which all others get it */
#define BOOT_DOUBT     (-3) /* `server` is lost, and has told this part of the tree no outcome */
#define BOOT_WAITS     (-4) /* the sender, or one below it, waits for `server` */

/* Tells another rank that this one succeeded, or why it failed. */
typedef struct boot_report {
  int32_t status;        /* coll_status, or one of those */
  uint32_t remaining_ms; /* BOOT_TABLE: until the links must be up, */
  uint32_t margin_ms;    /* and from then until there is an outcome */
  int32_t server;        /* a rank: BOOT_TABLE: the one that sends it; DOUBT, WAITS */
  uint32_t table_bytes;  /* BOOT_TABLE: its length */
  boot_time time;
  coll_error error;
} boot_report;

/* How long all of it may take. */
uint64_t boot_all_ns(const boot *b);

/* Notes the errno of a failed call, if it is a shortage. `for_good`: it will not be tried again. */
void boot_note_errno(const boot *b, int sys_errno, bool for_good);

/* Fills in boot->error: status, this rank, and `peer` (-1: nobody), described by `info` if not
 * NULL. If another rank seems late or lost, but this one had a shortage, that is the error. Returns
 * the status. */
coll_status boot_fail(const boot *b, coll_status status, int peer, const colli_rank_info *info,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

/* If `status` says that another rank seems late or lost, but this one had a shortage, that is the
 * error, and COLL_ERR_SYSTEM; otherwise boot->error stays, and `status`. */
coll_status boot_fail_short(const boot *b, coll_status status);

/*
 * Names the rank that serves: "rank 3" or, as long as its number is not known (server is -1), "the
 * process that made the id (pid 77)". Returns text.
 */
#define BOOT_SERVER_TEXT 64
const char *boot_server_text(const boot *b, int server, char text[BOOT_SERVER_TEXT]);

/* Fails because a message of `peer` (-1: of the server) arrived altered (EBADMSG, sealed.h). */
coll_status boot_fail_altered(const boot *b, int peer, const colli_rank_info *info);

/* Fails because a rank that checks in here has another version of libcoll, or another
 * COLL_TLS. */
coll_status boot_fail_version(const boot *b, int rank, uint32_t version);
coll_status boot_fail_tls(const boot *b, int rank);

/* Fails because the records of all ranks need more memory than there is. */
coll_status boot_fail_table(const boot *b);

/* Adopts a failure that another rank reports, and terminates its strings. */
coll_status boot_fail_reported(const boot *b, boot_report *report);

/* Writes a report: boot->error, unless `status` is COLL_OK. */
void boot_report_fill(const boot *b, boot_report *report, coll_status status);

/* Whether the texts of a record end. */
bool boot_record_ends(const colli_rank_info *info);

/* The check of every record that another rank sends, once, before any use. Terminates its texts.
 * NULL, or what is impossible in it: a rank is damaged or malicious. */
const char *boot_record_check(colli_rank_info *info);

/* The same of a record whose texts end, which stays as it is. */
const char *boot_record_wrong(const colli_rank_info *info);

/* Lists the ranks whose flag is `wanted`, as many as fit: "3, 5-7". */
void boot_list_ranks(const bool *flags, int nranks, bool wanted, char *text, size_t bytes);

/* Whether others notice a failure at once, and decide what follows: a shrink or growth. */
bool boot_is_guarded(const boot *b);

/* Watches the lifelines, and for interruptions. */
void boot_lifelines_watch(boot *b);

/* Fails if there is an interruption, or a lifeline ended or has data. */
coll_status boot_lifelines_check(const boot *b);

#endif
