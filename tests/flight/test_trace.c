/* test_trace.c: the clock of a trace, numbers in its file, and how ranks find out how far their
 * clocks are apart. */
#include <criterion/criterion.h>

#include "libcoll/base/prng.h"
#include "libcoll/trace/packet.h"
#include "libcoll/trace/trace_clock.h"
#include "libcoll/wireup/bootstrap/time.h"

#define NEAR_NS 100000 /* a reading may be disturbed this much on a busy machine */

/* ---- clock ----------------------------------------------------------------------------------- */

/* Reads a clock for some periods, and until its counter's rate is known, if it has one; false if it
 * is not near CLOCK_MONOTONIC, or runs backwards. */
static bool keeps_time(colli_trace_clock *clock) {
  uint64_t last_ns = clock->latest_ns;
  const uint64_t until_ns = colli_now_ns() + 50 * COLLI_NS_PER_MS;
  const uint64_t deadline_ns = colli_now_ns() + 20 * COLLI_NS_PER_S;
  for (;;) {
    const uint64_t before_ns = colli_now_ns(), read_ns = colli_trace_clock_read(clock, 0);
    const uint64_t after_ns = colli_now_ns();
    if (read_ns < last_ns || read_ns + NEAR_NS < before_ns || read_ns > after_ns + NEAR_NS)
      return false;
    if (after_ns > until_ns && (clock->valid_ticks || !clock->counts || after_ns > deadline_ns))
      return clock->counts == (clock->valid_ticks > 0);
    last_ns = read_ns;
  }
}

Test(trace_clock, counter_keeps_time) {
  colli_trace_clock clock;
  colli_trace_clock_start(&clock, colli_trace_clock_counts());
  cr_expect(keeps_time(&clock));
}

Test(trace_clock, kernel_keeps_time_without_a_counter) {
  colli_trace_clock clock;
  colli_trace_clock_start(&clock, false);
  cr_expect(keeps_time(&clock));
}

Test(trace_clock, counter_that_was_set_is_measured_again) {
  colli_trace_clock clock;
  const uint64_t jumps[] = {1ull << 40, -(1ull << 40)};
  for (int i = 0; i < 2; i++) {
    colli_trace_clock_start(&clock, colli_trace_clock_counts());
    cr_expect(keeps_time(&clock));
    clock.last.ticks += jumps[i];
    clock.since.ticks += jumps[i];
    clock.next.ticks += jumps[i];
    cr_expect(keeps_time(&clock), "after a jump by %lld", (long long)jumps[i]);
  }
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Decodes a number as any reader of protobuf does. */
static uint64_t decode(const uint8_t *from, size_t *bytes) {
  uint64_t number = 0;
  for (*bytes = 0;; ++*bytes) {
    number |= (uint64_t)(from[*bytes] & 0x7f) << 7 * *bytes;
    if (from[*bytes] < 0x80)
      break;
  }
  ++*bytes;
  return number;
}

Test(trace_packet, numbers_of_a_fixed_size_are_read_as_written) {
  colli_prng prng = {1};
  uint8_t to[16];
  size_t bytes;
  for (int i = 0; i < 100000; i++) {
    const uint64_t number = colli_prng_next(&prng) >> (1 + i % 63);
    colli_packet_set_long(to, number);
    cr_assert_eq(decode(to, &bytes), number);
    cr_assert_eq(bytes, COLLI_LONG_BYTES);
    colli_packet_set_5(to, number & 0x7ffffffffull);
    cr_assert_eq(decode(to, &bytes), number & 0x7ffffffffull);
    cr_assert_eq(bytes, 5);
  }
}

Test(trace_packet, padding_ends_where_it_should) {
  for (size_t size = COLLI_PADDING_BYTES; size < 70000; size += 1 + size / 3) {
    uint8_t to[COLLI_PADDING_BYTES];
    size_t outer, key, inner;
    colli_packet_pad(to, size);
    cr_assert_eq(to[0], COLLI_TRACE_PACKET);
    cr_assert_eq(decode(to + 1, &outer) + 1 + outer, size);
    cr_assert_eq(decode(to + 1 + outer, &key), 16383 << 3 | 2);
    cr_assert_eq(decode(to + 1 + outer + key, &inner) + 1 + outer + key + inner, size);
  }
}

/* ---- offsets --------------------------------------------------------------------------------- */

/* The time that both clocks showed, with a question that took `there` and an answer that took
 * `back`. */
static void ask(boot_bounds *ahead, int64_t offset_ns, uint64_t now_ns, uint64_t there,
                uint64_t back) {
  const boot_time answer = {.heard_ns = now_ns + there + (uint64_t)offset_ns,
                            .told_ns = now_ns + there + 5 + (uint64_t)offset_ns};
  boot_time_add(ahead, now_ns, &answer, now_ns + there + 5 + back);
}

Test(boot_time, the_offset_is_within_its_error) {
  colli_prng prng = {2};
  for (int i = 0; i < 1000; i++) {
    boot_time time = {.ahead = BOOT_BOUNDS_ALL, .zero_ns = 1ull << 60};
    const int64_t offset_ns = (int64_t)(colli_prng_next(&prng) >> 8) - (1ll << 55);
    uint64_t total = UINT64_MAX;
    for (int question = 0; question < BOOT_QUESTIONS; question++) {
      const uint64_t there = 10 + colli_prng_next(&prng) % 1000;
      const uint64_t back = 10 + colli_prng_next(&prng) % 100000;
      ask(&time.ahead, offset_ns, 1ull << 56, there, back);
      total = there + back < total ? there + back : total;
    }
    const colli_shared_time shared = boot_time_share(&time);
    const uint64_t wrong = (uint64_t)(shared.offset_ns > offset_ns ? shared.offset_ns - offset_ns
                                                                   : offset_ns - shared.offset_ns);
    cr_assert_leq(wrong, shared.error_ns);
    cr_assert_leq(shared.error_ns, (total + 1) / 2); /* no worse than the best exchange */
    cr_assert_eq(shared.zero_ns, (1ull << 60) + (uint64_t)shared.offset_ns);
  }
}

Test(boot_time, ranks_of_one_clock_get_what_the_first_of_them_measured) {
  static colli_rank_info table[6];
  static const uint64_t clocks[6] = {7, 8, 7, 0, 8, 9};
  boot_bounds ahead[6] = {{0}}, told[6];
  for (int r = 0; r < 6; r++)
    table[r].clock_id = clocks[r];
  colli_rank_table *packed = colli_rank_table_create(table, 6);
  cr_assert(packed);
  for (int r = 1; r < 6; r++)
    cr_expect_eq(boot_time_asks(packed, 0, r), r == 1 || r == 5, "rank %d", r);
  colli_rank_table_free(packed);
  ahead[1] = (boot_bounds){.least_ns = -30, .most_ns = -9};
  ahead[4] = (boot_bounds){.least_ns = 100, .most_ns = 200}; /* of no interest */
  const colli_shared_time expected[5] = {
      {1000, 0, 4}, {980, -20, 15}, {1000, 0, 4}, {0, 0, 0}, {980, -20, 15}};
  boot_time_tell(table, 6, 0, ahead, told);
  for (int r = 0; r < 5; r++) {
    const boot_time time = {.ahead = told[r], .zero_ns = 1000, .error_ns = 4};
    const colli_shared_time shared = boot_time_share(&time);
    cr_expect_eq(shared.zero_ns, expected[r].zero_ns, "rank %d", r);
    cr_expect_eq(shared.offset_ns, expected[r].offset_ns, "rank %d", r);
    cr_expect_eq(shared.error_ns, expected[r].error_ns, "rank %d", r);
  }
}

Test(boot_time, bounds_that_contradict_each_other_are_no_use) {
  boot_time time = {.ahead = BOOT_BOUNDS_ALL, .zero_ns = 1};
  ask(&time.ahead, 1000, 1ull << 40, 10, 10);
  ask(&time.ahead, 2000, 1ull << 40, 10, 10); /* a clock was set */
  cr_expect_eq(boot_time_share(&time).zero_ns, 0);
}

Test(boot_time, in_a_tree_bounds_add_up) {
  const boot_bounds near = {10, 12}, far = {-100, 50};
  const boot_bounds both = boot_time_chain(near, far);
  cr_expect_eq(both.least_ns, -90);
  cr_expect_eq(both.most_ns, 62);
  const boot_bounds nothing = boot_time_chain(near, (boot_bounds){5, 4});
  cr_expect_gt(nothing.least_ns, nothing.most_ns);
  const boot_bounds huge = boot_time_chain(near, BOOT_BOUNDS_ALL);
  cr_expect_gt(huge.least_ns, huge.most_ns);
  const colli_rank_info host = {.clock_id = 7}, same = {.clock_id = 7}, other = {.clock_id = 8},
                        none = {.clock_id = 0};
  cr_expect_eq(boot_time_of_child(&host, &same, far).most_ns, 0);
  cr_expect_eq(boot_time_of_child(&host, &other, far).most_ns, 50);
  const boot_bounds unknown = boot_time_of_child(&host, &none, far);
  cr_expect_gt(unknown.least_ns, unknown.most_ns);
}
