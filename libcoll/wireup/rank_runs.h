/*
 * rank_runs.h: what differs between two records of ranks, in runs: how many bytes are equal, how
 * many are not, and these; and so on. That is what a table of ranks is made of.
 */
#ifndef COLLI_WIREUP_RANK_RUNS_H
#define COLLI_WIREUP_RANK_RUNS_H

#include "libcoll/wireup/rank_table.h"

/* Bytes of one record's runs, at most: a run takes two more than it has. */
#define COLLI_RANK_RUNS_MOST (2 * sizeof(colli_rank_info))

/* Runs of one record that are being written. */
typedef struct colli_rank_writer {
  uint8_t *out;            /* room for COLLI_RANK_RUNS_MOST, and for runs that are rewritten */
  size_t used;             /* bytes of it */
  size_t end;              /* where in the record the last run ends */
  colli_rank_words *words; /* which have runs are added here */
} colli_rank_writer;

/* Writes what differs between a record and its base from byte `at` on, before `end`. */
void colli_rank_runs_write(colli_rank_writer *w, const colli_rank_info *base,
                           const colli_rank_info *record, size_t at, size_t end);

/* Writes those parts of some runs that are from `from` on, before `to`. */
void colli_rank_runs_rewrite(colli_rank_writer *w, const uint8_t *runs, size_t bytes, size_t from,
                             size_t to);

/* Makes a copy of the base the record that differs so from it. */
void colli_rank_runs_read(const uint8_t *runs, size_t bytes, colli_rank_info *info);

/* Makes a record its base again. */
void colli_rank_runs_undo(const uint8_t *runs, size_t bytes, const colli_rank_info *base,
                          colli_rank_info *info);

/* Whether some runs are sound; only then may they be read. Adds the words that have them. */
bool colli_rank_runs_check(const uint8_t *runs, size_t bytes, colli_rank_words *words);

/* Whether some of these bytes are in a word that is noted. */
bool colli_rank_words_has(const colli_rank_words *words, size_t at, size_t count);

#endif
