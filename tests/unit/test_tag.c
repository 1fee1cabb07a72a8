/* test_tag.c: the bits of a tag (libcoll/sched/tag.h). */
#include <criterion/criterion.h>
#include <string.h>

#include "libcoll/call/ops.h"
#include "libcoll/call/tag.h"
#include "libcoll/p2p/p2p_tag.h"

/* Fails if two fields of a layout have a bit in common. */
static void check_disjoint(const colli_tag_field *fields, int count) {
  for (int i = 0; i < count; i++)
    for (int j = 0; j < i; j++)
      cr_assert(fields[i].word != fields[j].word ||
                    !(colli_tag_mask(fields[i]) & colli_tag_mask(fields[j])),
                "fields %d and %d", i, j);
}

Test(tag, fields_have_no_bit_in_common) {
  const colli_tag_field collective[] = {
      COLLI_TAG_COUNT,       COLLI_TAG_USER_TYPE, COLLI_TAG_ROOT,    COLLI_TAG_COMM_NUMBER,
      COLLI_TAG_SEQUENCE,    COLLI_TAG_COLL,      COLLI_TAG_VARYING, COLLI_TAG_TYPE,
      COLLI_TAG_OP,          COLLI_TAG_ALGO,      COLLI_TAG_PASSES,  COLLI_TAG_SHARED_CHANNEL,
      COLLI_TAG_SHARED_KIND,
  };
  const colli_tag_field p2p[] = {
      COLLI_TAG_P2P_WORD, COLLI_TAG_USER_TYPE,  COLLI_TAG_P2P_CHECK, COLLI_TAG_COMM_NUMBER,
      COLLI_TAG_P2P_TAG,  COLLI_TAG_COLL,       COLLI_TAG_VARYING,   COLLI_TAG_TYPE,
      COLLI_TAG_P2P_KIND, COLLI_TAG_P2P_NUMBER, COLLI_TAG_SHARED,
  };
  const colli_tag_field long_type[] = {COLLI_TAG_LONG_COUNT, COLLI_TAG_LONG_TYPE};
  const colli_tag_field user_op[] = {COLLI_TAG_OP, COLLI_TAG_ALGO, COLLI_TAG_USER_OP,
                                     COLLI_TAG_USER_PASSES, COLLI_TAG_SHARED};
  check_disjoint(long_type, 2);
  check_disjoint(user_op, sizeof(user_op) / sizeof(*user_op));
  check_disjoint(collective, sizeof(collective) / sizeof(*collective));
  check_disjoint(p2p, sizeof(p2p) / sizeof(*p2p));
}

/* Ranks of different builds communicate, so the layout is a format that must not change. */
Test(tag, bits_are_where_they_have_always_been) {
  coll_tag tag = colli_tag_make(COLLI_REDUCE, true, 0x123456789abcull, COLL_TYPE_USER_BASE + 12,
                                0xab1234, 0x4321, 0x7fedcba98ull, 0x55, 0x654321);
  cr_assert_eq(tag.word[0], 0x000c123456789abcull);
  cr_assert_eq(tag.word[1], 0xfedcba9800004321ull);
  cr_assert_eq(tag.word[2], 0x0021123455abff85ull);
  tag = p2p_tag_make(P2P_PUT, 0x7fffffff, COLL_FLOAT32, 77, 0xfedcba98u);
  cr_assert_eq(tag.word[0], 77);
  cr_assert_eq(tag.word[1] >> 32, 0x7fffffff);
  cr_assert_eq(tag.word[2],
               0x00fedcba98000004ull | (uint64_t)P2P_PUT << 16 | (uint64_t)COLL_FLOAT32 << 8);
}

Test(tag, a_field_is_read_as_it_was_written) {
  coll_tag tag = {{~0ull, ~0ull, ~0ull}};
  colli_tag_clear(&tag, COLLI_TAG_COMM_NUMBER);
  cr_assert_eq(colli_tag_get(&tag, COLLI_TAG_COMM_NUMBER), 0);
  cr_assert_eq(colli_tag_get(&tag, COLLI_TAG_ROOT), 0xffff);
  colli_tag_put(&tag, COLLI_TAG_COMM_NUMBER, 0x1abcd); /* its low bits */
  cr_assert_eq(colli_tag_get(&tag, COLLI_TAG_COMM_NUMBER), 0xabcd);
  cr_assert_eq(colli_tag_get(&tag, COLLI_TAG_SEQUENCE), 0xffffffff);
  for (int type = 0; type < COLL_TYPE_COUNT; type++) {
    tag = colli_tag_make(COLLI_BROADCAST, false, 1, type, 0, 0, 0, 0, 0);
    cr_assert_eq(colli_tag_type(&tag), type);
  }
}

Test(tag, sizes_and_counts_of_long_elements_are_told_apart) {
  const size_t most = (size_t)1 << 47; /* bytes of a vector */
  const size_t sizes[] = {1, 12, 65535, 65536, 65537, (1 << 20) + 3, COLL_TYPE_USER_BYTES_MAX};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    const int type = (int)COLL_TYPE_USER(sizes[i]);
    const size_t counts[] = {0, 1, 77, most / sizes[i] - 1};
    for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
      coll_tag tag = colli_tag_make(COLLI_BROADCAST, false, counts[c], type, 0, 3, 9, 1, 2);
      cr_assert_eq(colli_tag_type(&tag), type);
      cr_assert_eq(colli_tag_count(&tag), counts[c], "%zu x %zu", counts[c], sizes[i]);
      colli_p2p_header head;
      tag = p2p_tag_make(P2P_RENDEZVOUS, 5, type, counts[c], 7);
      cr_assert(p2p_tag_read(&tag, &head));
      cr_assert(head.type == type && head.word == counts[c] && head.tag == 5 && head.number == 7);
    }
  }
  char text[COLLI_TAG_TEXT];
  coll_tag tag = colli_tag_make(COLLI_BROADCAST, false, 3, COLL_TYPE_USER(70001), 0, 1, 9, 1, 2);
  cr_assert_str_eq(colli_tag_text(&tag, text),
                   "broadcast(count 3, elements of 70001 bytes, root 1)");
  tag = (coll_tag){{~0ull, ~0ull, ~0ull}}; /* a damaged one has no size that is used */
  colli_tag_clear(&tag, COLLI_TAG_TYPE);
  colli_tag_put(&tag, COLLI_TAG_TYPE, COLLI_TAG_LONG_TYPE_CODE);
  cr_assert_eq(coll_type_bytes((coll_type)colli_tag_type(&tag)), 0);
}

/* Elements of a part are bounded by the longest slot of a GPU: libcoll/stream/staged_parts.h. */
Test(tag, parts_of_different_calls_are_told_apart) {
  const int types[] = {COLL_INT8, COLL_INT64, COLL_TYPE_USER(70001), COLL_TYPE_USER(1 << 28)};
  for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
    const size_t most = ((size_t)1 << 28) / coll_type_bytes((coll_type)types[i]);
    const size_t counts[] = {1, most};
    for (int c = 0; c < 2; c++) {
      const coll_tag call = colli_tag_make(COLLI_SCAN, false, counts[c], types[i], 0, 0, 9, 1, 2);
      coll_tag last = call;
      for (size_t parts = 2; parts < 100; parts++) {
        coll_tag part = call;
        colli_tag_put_part(&part, parts * counts[c]);
        cr_assert_eq(colli_tag_count(&part), counts[c]);
        cr_assert_eq(colli_tag_type(&part), types[i]);
        cr_assert(colli_tag_part(&part) && !colli_tag_part(&call));
        cr_assert_not(colli_tag_same_call(&part, &call));
        cr_assert_not(colli_tag_same_call(&part, &last));
        last = part;
      }
    }
  }
  char text[COLLI_TAG_TEXT];
  coll_tag tag = colli_tag_make(COLLI_BROADCAST, false, 77, COLL_INT8, 0, 1, 9, 1, 2);
  colli_tag_put_part(&tag, 1000);
  cr_assert_str_eq(colli_tag_text(&tag, text),
                   "broadcast(count 77 of a longer call with checksum 422cd, int8, root 1)");
}

Test(tag, what_ranks_choose_is_no_part_of_a_call) {
  coll_tag a = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, COLL_SUM, 0, 5, 1, 2);
  coll_tag b = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, COLL_SUM, 0, 5, 3, 4);
  coll_tag other = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, COLL_MAX, 0, 5, 1, 2);
  char text[COLLI_TAG_TEXT];
  cr_assert(colli_tag_same_call(&a, &b));
  cr_assert_not(colli_tag_same_call(&a, &other));
  cr_assert_str_eq(colli_tag_text(&a, text), "scan(count 9, int8, sum)");
  a = colli_tag_make(COLLI_ALLGATHER, false, 1, COLL_UINT64, COLLI_MAKES_WINDOW, 0, 5, 1, 2);
  cr_assert_str_eq(colli_tag_text(&a, text), "coll_window_create()");
}

/* The code of a user-defined operation with a number. */
static uint32_t user_op(uint32_t number) {
  return COLLI_TAG_USER_OP_CODE << 16 | number;
}

Test(tag, user_defined_operations_are_told_apart) {
  static const uint32_t numbers[] = {COLLI_OP_PREMUL, 1, 0xffff, 0x10000, 0x2c01d5, 0x7fffff};
  char text[COLLI_TAG_TEXT];
  for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
    coll_tag a =
        colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, user_op(numbers[i]), 0, 5, 1, 0x123402);
    coll_tag b = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, user_op(numbers[i]), 0, 5, 3, 4);
    coll_tag sum = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, COLL_SUM, 0, 5, 1, 2);
    cr_assert(colli_tag_has_user_op(&a) && !colli_tag_has_user_op(&sum));
    cr_assert_eq(colli_tag_op(&a), user_op(numbers[i]));
    cr_assert_eq(colli_tag_op(&sum), (uint32_t)COLL_SUM);
    cr_assert_eq(colli_tag_get(&a, COLLI_TAG_ALGO), 1);
    cr_assert_eq(colli_tag_get(&a, COLLI_TAG_USER_PASSES), 2);
    cr_assert_neq(a.word[2], b.word[2]);
    cr_assert(colli_tag_same_call(&a, &b));
    cr_assert_not(colli_tag_same_call(&a, &sum));
    cr_assert_not(colli_tag_same_call(&sum, &a));
    for (size_t j = 0; j < i; j++) {
      b = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, user_op(numbers[j]), 0, 5, 1, 2);
      cr_assert_not(colli_tag_same_call(&a, &b));
    }
  }
  coll_tag tag = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, user_op(0x2c01d), 0, 5, 1, 2);
  cr_assert_str_eq(colli_tag_text(&tag, text), "scan(count 9, int8, operation 0x02c01d)");
  tag = colli_tag_make(COLLI_SCAN, false, 9, COLL_INT8, user_op(COLLI_OP_PREMUL), 0, 5, 1, 2);
  cr_assert_str_eq(colli_tag_text(&tag, text), "scan(count 9, int8, pre-multiplied sum)");
  cr_assert_str_eq(colli_tag_brief(&tag, text), "scan #5 (9 B int8 pre-multiplied sum)");
}
