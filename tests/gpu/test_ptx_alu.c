/* test_ptx_alu.c: arithmetic of the PTX interpreter against C and against known values. */
#include "tests/gpu/support_ptx.h"

#include <criterion/criterion.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(ptx_alu, .timeout = 60);

/* An instruction's result. `sources` is how many of a, b, c, d it takes. */
static uint64_t compute(const char *op, int sources, uint64_t a, uint64_t b, uint64_t c,
                        uint64_t d) {
  static const char *const operands[] = {"", "%d1", "%d1, %d2", "%d1, %d2, %d3"};
  char text[400], fourth[32] = "";
  if (sources == 4)
    snprintf(fourth, sizeof fourth, ", %llu", (unsigned long long)d);
  snprintf(text, sizeof text, ".version 7.0\n.entry k() { .reg .b64 %%d<5>; %s %%d0, %s%s; ret; }",
           op, operands[sources < 3 ? sources : 3], fourth);
  ptx_module *m = must_parse(text, false);
  const uint64_t x[4] = {a, b, c, d};
  uint64_t result = ptx_compute(&m->kernels[0].code[0], x);
  ptx_free(m);
  return result;
}

static uint64_t from_float(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static uint64_t from_double(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static const uint64_t values[] = {
    0,
    1,
    2,
    3,
    7,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
    32767,
    32768,
    65535,
    65536,
    0x7fffffff,
    0x80000000,
    0xffffffff,
    0x100000000,
    0x123456789abcdef0,
    0x7fffffffffffffff,
    0x8000000000000000,
    0xfffffffffffffff9,
    0xffffffffffffffff,
};
enum { NVALUES = sizeof values / sizeof *values };

/* Fails unless the low `size` bits of op(a, b) are those of `should`. */
static void check(const char *op, const char *type, unsigned size, uint64_t a, uint64_t b,
                  uint64_t should) {
  char name[32];
  snprintf(name, sizeof name, "%s.%s", op, type);
  uint64_t is = compute(name, 2, a, b, 0, 0) << (64 - size) >> (64 - size);
  should = should << (64 - size) >> (64 - size);
  cr_assert_eq(is, should, "%s %#llx %#llx: %#llx, not %#llx", name, (unsigned long long)a,
               (unsigned long long)b, (unsigned long long)is, (unsigned long long)should);
}

/* Defines a test of all operations on integers of one type; `wide` holds products. */
#define INTEGERS(name, c_type, wide, size)                                                         \
  static void check_##name(uint64_t a, uint64_t b) {                                               \
    const c_type x = (c_type)a, y = (c_type)b;                                                     \
    const uint32_t n = (uint32_t)b;                                                                \
    const wide product = (wide)x * (wide)y;                                                        \
    check("add", #name, size, a, b, (uint64_t)x + (uint64_t)y);                                    \
    check("sub", #name, size, a, b, (uint64_t)x - (uint64_t)y);                                    \
    check("mul.lo", #name, size, a, b, (uint64_t)product);                                         \
    check("mul.hi", #name, size, a, b, (uint64_t)(product >> size));                               \
    check("min", #name, size, a, b, (uint64_t)(x < y ? x : y));                                    \
    check("max", #name, size, a, b, (uint64_t)(x > y ? x : y));                                    \
    check("setp.lt", #name, size, a, b, x < y);                                                    \
    check("setp.le", #name, size, a, b, x <= y);                                                   \
    check("setp.gt", #name, size, a, b, x > y);                                                    \
    check("setp.ge", #name, size, a, b, x >= y);                                                   \
    check("setp.eq", #name, size, a, b, x == y);                                                   \
    check("setp.ne", #name, size, a, b, x != y);                                                   \
    check("shr", #name, size, a, b,                                                                \
          (uint64_t)(n >= size ? (wide)x >> (size - 1) >> 1 : (wide)x >> n));                      \
    if (y) {                                                                                       \
      check("div", #name, size, a, b, (uint64_t)((wide)x / (wide)y));                              \
      check("rem", #name, size, a, b, (uint64_t)((wide)x % (wide)y));                              \
    }                                                                                              \
  }                                                                                                \
  Test(ptx_alu, integers_##name) {                                                                 \
    for (int i = 0; i < NVALUES; i++)                                                              \
      for (int j = 0; j < NVALUES; j++)                                                            \
        check_##name(values[i], values[j]);                                                        \
  }

INTEGERS(u16, uint16_t, uint64_t, 16)
INTEGERS(s16, int16_t, int64_t, 16)
INTEGERS(u32, uint32_t, uint64_t, 32)
INTEGERS(s32, int32_t, int64_t, 32)
INTEGERS(u64, uint64_t, unsigned __int128, 64)
INTEGERS(s64, int64_t, __int128, 64)

Test(ptx_alu, bits) {
  for (int i = 0; i < NVALUES; i++) {
    for (int j = 0; j < NVALUES; j++) {
      uint64_t a = values[i], b = values[j];
      check("and", "b32", 32, a, b, a & b);
      check("or", "b64", 64, a, b, a | b);
      check("xor", "b16", 16, a, b, a ^ b);
      check("shl", "b32", 32, a, b, (uint32_t)b > 31 ? 0 : a << (uint32_t)b);
      check("shl", "b64", 64, a, b, (uint32_t)b > 63 ? 0 : a << (uint32_t)b);
      check("mul.wide", "u32", 64, a, b, (uint64_t)(uint32_t)a * (uint32_t)b);
      check("mul.wide", "s32", 64, a, b, (uint64_t)((int64_t)(int32_t)a * (int32_t)b));
      check("mul.wide", "s16", 32, a, b, (uint64_t)((int64_t)(int16_t)a * (int16_t)b));
    }
  }
}

typedef struct {
  const char *op;
  int sources;
  uint64_t a, b, c, d, result;
} known;

static const known integers[] = {
    {"not.b32", 1, 0xf0f0f0f0, 0, 0, 0, 0x0f0f0f0f},
    {"not.pred", 1, 1, 0, 0, 0, 0},
    {"cnot.b32", 1, 0, 0, 0, 0, 1},
    {"cnot.b32", 1, 5, 0, 0, 0, 0},
    {"neg.s32", 1, 5, 0, 0, 0, 0xfffffffb},
    {"abs.s32", 1, 0xfffffffb, 0, 0, 0, 5},
    {"mad.lo.s32", 3, 7, 6, 0xffffffff, 0, 41},
    {"mad.wide.u32", 3, 0xffffffff, 0xffffffff, 1, 0, 0xfffffffe00000002},
    {"mad.hi.u32", 3, 0x80000000, 4, 5, 0, 7},
    {"sad.u32", 3, 3, 10, 1, 0, 8},
    {"div.u32", 2, 7, 0, 0, 0, 0xffffffff},
    {"div.s32", 2, 0x80000000, 0xffffffff, 0, 0, 0x80000000},
    {"rem.s64", 2, 1ull << 63, ~0ull, 0, 0, 0},
    {"clz.b32", 1, 1, 0, 0, 0, 31},
    {"clz.b32", 1, 0, 0, 0, 0, 32},
    {"clz.b64", 1, 1, 0, 0, 0, 63},
    {"popc.b32", 1, 0xffff0001ffff0001, 0, 0, 0, 17},
    {"popc.b64", 1, 0xffff0001ffff0001, 0, 0, 0, 34},
    {"brev.b32", 1, 1, 0, 0, 0, 0x80000000},
    {"brev.b64", 1, 2, 0, 0, 0, 1ull << 62},
    {"bfe.u32", 3, 0x12345678, 8, 8, 0, 0x56},
    {"bfe.s32", 3, 0x00008000, 8, 8, 0, 0xffffff80},
    {"bfe.s32", 3, 0x80000000, 24, 20, 0, 0xffffff80},
    {"bfe.u32", 3, 0x80000000, 24, 20, 0, 0x80},
    {"bfe.u32", 3, 0x80000000, 40, 4, 0, 0},
    {"bfe.s32", 3, 0x80000000, 40, 4, 0, 0xffffffff},
    {"bfe.u64", 3, 0x123456789abcdef0, 0, 64, 0, 0x123456789abcdef0},
    {"bfe.u32", 3, 0x80000000, 4, 0, 0, 0},
    {"bfi.b32", 4, 0xab, 0x12345678, 8, 8, 0x1234ab78},
    {"bfi.b64", 4, 1, 0, 63, 1, 1ull << 63},
    {"bfi.b32", 4, 0xab, 0x12345678, 40, 8, 0x12345678},
    {"prmt.b32", 3, 0x33221100, 0x77665544, 0x7531, 0, 0x77553311},
    {"prmt.b32", 3, 0x00008000, 0, 0x9990, 0, 0xffffff00},
    {"shf.l.wrap.b32", 3, 0x80000000, 1, 1, 0, 3},
    {"shf.r.wrap.b32", 3, 0x80000000, 1, 1, 0, 0xc0000000},
    {"shf.r.wrap.b32", 3, 0x80000000, 1, 33, 0, 0xc0000000},
    {"shf.r.clamp.b32", 3, 0x80000000, 1, 33, 0, 1},
    {"shf.l.clamp.b32", 3, 0x80000000, 1, 32, 0, 0x80000000},
    {"lop3.b32", 4, 0xf0f0f0f0, 0xcccccccc, 0xaaaaaaaa, 0x96, 0x96969696},
    {"selp.b32", 3, 5, 6, 1, 0, 5},
    {"selp.b32", 3, 5, 6, 0, 0, 6},
    {"slct.u32.s32", 3, 5, 6, 0xffffffff, 0, 6},
    {"set.lt.u32.s32", 2, 0xffffffff, 1, 0, 0, 0xffffffff},
    {"set.lt.f32.u32", 2, 1, 2, 0, 0, 0x3f800000},
    {"setp.lo.u32", 2, 1, 0xffffffff, 0, 0, 1},
    {"setp.hs.u32", 2, 1, 1, 0, 0, 1},
    {"add.sat.s32", 2, 0x7fffffff, 1, 0, 0, 0x7fffffff},
    {"sub.sat.s32", 2, 0x80000000, 1, 0, 0, 0x80000000},
    {"cvta.shared.u64", 1, 16, 0, 0, 0, (uint64_t)PTX_SHARED << 56 | 16},
    {"cvta.to.shared.u64", 1, (uint64_t)PTX_SHARED << 56 | 16, 0, 0, 0, 16},
    {"cvta.to.global.u64", 1, 0x7f0000001000, 0, 0, 0, 0x7f0000001000},
};

/* Checks known results; those of 32 bits or less in as many bits. */
static void check_known(const known *list, size_t count) {
  for (size_t i = 0; i < count; i++) {
    const known *k = &list[i];
    uint64_t is = compute(k->op, k->sources, k->a, k->b, k->c, k->d);
    if (!strstr(k->op, "64"))
      is &= k->result >> 32 ? ~0ull : UINT32_MAX;
    cr_expect_eq(is, k->result, "%s %#llx %#llx %#llx: %#llx, not %#llx", k->op,
                 (unsigned long long)k->a, (unsigned long long)k->b, (unsigned long long)k->c,
                 (unsigned long long)is, (unsigned long long)k->result);
  }
}

Test(ptx_alu, known_integers) {
  check_known(integers, sizeof integers / sizeof *integers);
}

static const known floats[] = {
    {"add.rn.f32", 2, 0x3f800000, 0x33800000, 0, 0, 0x3f800000}, /* a tie goes to even */
    {"add.rz.f32", 2, 0x3f800001, 0x33ffffff, 0, 0, 0x3f800001},
    {"add.rp.f32", 2, 0x3f800000, 0x00000001, 0, 0, 0x3f800001},
    {"add.rm.f32", 2, 0xbf800000, 0x80000001, 0, 0, 0xbf800001},
    {"mul.f32", 2, 0x7f800000, 0, 0, 0, 0x7fffffff}, /* inf * 0 */
    {"add.ftz.f32", 2, 0x00000001, 0x00000001, 0, 0, 0},
    {"add.f32", 2, 0x00000001, 0x00000001, 0, 0, 2},
    {"add.sat.f32", 2, 0x3f800000, 0x3f800000, 0, 0, 0x3f800000},
    {"fma.rn.f32", 3, 0x3f800001, 0x3f800001, 0xbf800002, 0, 0x28800000}, /* 2^-46 */
    {"div.rn.f32", 2, 0x3f800000, 0x40400000, 0, 0, 0x3eaaaaab},
    {"div.rz.f32", 2, 0x3f800000, 0x40400000, 0, 0, 0x3eaaaaaa},
    {"rcp.rn.f32", 1, 0x40400000, 0, 0, 0, 0x3eaaaaab},
    {"sqrt.rn.f32", 1, 0x40000000, 0, 0, 0, 0x3fb504f3},
    {"rsqrt.approx.f32", 1, 0x40800000, 0, 0, 0, 0x3f000000},
    {"ex2.approx.f32", 1, 0x40400000, 0, 0, 0, 0x41000000},
    {"lg2.approx.f32", 1, 0x41000000, 0, 0, 0, 0x40400000},
    {"neg.f32", 1, 0, 0, 0, 0, 0x80000000},
    {"abs.f32", 1, 0xbf800000, 0, 0, 0, 0x3f800000},
    {"min.f32", 2, 0x7fc00000, 0x3f800000, 0, 0, 0x3f800000}, /* a number wins over a NaN */
    {"max.f32", 2, 0x3f800000, 0x7fc00000, 0, 0, 0x3f800000},
    {"min.f32", 2, 0, 0x80000000, 0, 0, 0x80000000},
    {"max.f32", 2, 0x80000000, 0, 0, 0, 0},
    {"max.f32", 2, 0x7fc00000, 0x7fc00000, 0, 0, 0x7fffffff},
    {"copysign.f32", 2, 0x80000000, 0x3f800000, 0, 0, 0xbf800000},
    {"add.f64", 2, 0x3ff0000000000000, 0x3ff0000000000000, 0, 0, 0x4000000000000000},
    {"fma.rn.f64", 3, 0x4000000000000000, 0x4008000000000000, 0x3ff0000000000000, 0,
     0x401c000000000000},
    {"min.f64", 2, 0x4000000000000000, 0x3ff0000000000000, 0, 0, 0x3ff0000000000000},
    {"add.f16", 2, 0x3c00, 0x1000, 0, 0, 0x3c00}, /* 1 + 2^-11: a tie */
    {"add.f16", 2, 0x3c01, 0x1000, 0, 0, 0x3c02},
    {"mul.f16", 2, 0x7bff, 0x4000, 0, 0, 0x7c00},
    {"fma.rn.f16", 3, 0x3c00, 0x4000, 0x3c00, 0, 0x4200},
    {"add.f16x2", 2, 0x3c004000, 0x3c003c00, 0, 0, 0x40004200},
    {"neg.f16", 1, 0x3c00, 0, 0, 0, 0xbc00},
    {"neg.f16x2", 1, 0x3c003c00, 0, 0, 0, 0xbc00bc00},
    {"setp.lt.f32", 2, 0x3f800000, 0x40000000, 0, 0, 1},
    {"setp.lt.f32", 2, 0x7fc00000, 0x40000000, 0, 0, 0},
    {"setp.ltu.f32", 2, 0x7fc00000, 0x40000000, 0, 0, 1},
    {"setp.ne.f32", 2, 0x7fc00000, 0x40000000, 0, 0, 0},
    {"setp.neu.f32", 2, 0x7fc00000, 0x40000000, 0, 0, 1},
    {"setp.nan.f64", 2, 0x7ff8000000000000, 0, 0, 0, 1},
    {"setp.num.f16", 2, 0x3c00, 0x3c00, 0, 0, 1},
    {"setp.eq.f32", 2, 0, 0x80000000, 0, 0, 1},
};

Test(ptx_alu, known_floats) {
  check_known(floats, sizeof floats / sizeof *floats);
}

static const known conversions[] = {
    {"cvt.s64.s8", 1, 0x80, 0, 0, 0, 0xffffffffffffff80},
    {"cvt.u64.s8", 1, 0x80, 0, 0, 0, 0xffffffffffffff80},
    {"cvt.u64.u8", 1, 0xff80, 0, 0, 0, 0x80},
    {"cvt.s32.u16", 1, 0xffff, 0, 0, 0, 0xffff},
    {"cvt.s32.s16", 1, 0xffff, 0, 0, 0, 0xffffffff},
    {"cvt.u16.u32", 1, 0x12345, 0, 0, 0, 0x2345},
    {"cvt.s8.s32", 1, 0x180, 0, 0, 0, 0xffffff80},
    {"cvt.sat.s8.s32", 1, 1000, 0, 0, 0, 127},
    {"cvt.sat.u8.s32", 1, 0xffffffff, 0, 0, 0, 0},
    {"cvt.sat.u32.u64", 1, 1ull << 40, 0, 0, 0, 0xffffffff},
    {"cvt.rzi.s32.f32", 1, 0xc0200000, 0, 0, 0, 0xfffffffe}, /* -2.5 */
    {"cvt.rni.s32.f32", 1, 0xc0200000, 0, 0, 0, 0xfffffffe},
    {"cvt.rmi.s32.f32", 1, 0xc0200000, 0, 0, 0, 0xfffffffd},
    {"cvt.rpi.s32.f32", 1, 0x40200000, 0, 0, 0, 3},
    {"cvt.rzi.s32.f32", 1, 0x7f800000, 0, 0, 0, 0x7fffffff},
    {"cvt.rzi.s32.f32", 1, 0xff800000, 0, 0, 0, 0x80000000},
    {"cvt.rzi.u32.f32", 1, 0xc0200000, 0, 0, 0, 0},
    {"cvt.rzi.u32.f32", 1, 0x7fc00000, 0, 0, 0, 0},
    {"cvt.rzi.u8.f32", 1, 0x43960000, 0, 0, 0, 255}, /* 300 */
    {"cvt.rzi.s64.f64", 1, 0x7ff8000000000000, 0, 0, 0, 1ull << 63},
    {"cvt.rzi.u64.f64", 1, 0x43f0000000000000, 0, 0, 0, ~0ull},
    {"cvt.rzi.u64.f32", 1, 0x5f000000, 0, 0, 0, 1ull << 63},
    {"cvt.rzi.s16.f16", 1, 0xc500, 0, 0, 0, 0xfffffffb}, /* -5 */
    {"cvt.rn.f32.u32", 1, 0xffffffff, 0, 0, 0, 0x4f800000},
    {"cvt.rz.f32.u32", 1, 0xffffffff, 0, 0, 0, 0x4f7fffff},
    {"cvt.rp.f32.s32", 1, 0x80000001, 0, 0, 0, 0xceffffff},
    {"cvt.rm.f32.s32", 1, 0x80000001, 0, 0, 0, 0xcf000000},
    {"cvt.rn.f32.s64", 1, ~0ull, 0, 0, 0, 0xbf800000},
    {"cvt.rn.f64.u64", 1, ~0ull, 0, 0, 0, 0x43f0000000000000},
    {"cvt.rn.f16.s32", 1, 2049, 0, 0, 0, 0x6800},
    {"cvt.rn.f16.u32", 1, 70000, 0, 0, 0, 0x7c00},
    {"cvt.rn.f16.f32", 1, 0x3f802000, 0, 0, 0, 0x3c01},
    {"cvt.rn.f16.f32", 1, 0x477ff000, 0, 0, 0, 0x7c00}, /* 65520 */
    {"cvt.rn.f16.f32", 1, 0x477fefff, 0, 0, 0, 0x7bff},
    {"cvt.rn.f16.f32", 1, 0x33000000, 0, 0, 0, 0}, /* 2^-25: a tie */
    {"cvt.rn.f16.f32", 1, 0x33000001, 0, 0, 0, 1},
    {"cvt.rn.f16.f32", 1, 0x7fc00000, 0, 0, 0, 0x7fff},
    {"cvt.rz.f16.f32", 1, 0x477fffff, 0, 0, 0, 0x7bff},
    {"cvt.rp.f16.f32", 1, 0x00000001, 0, 0, 0, 1},
    {"cvt.rm.f16.f32", 1, 0x00000001, 0, 0, 0, 0},
    {"cvt.f32.f16", 1, 0x0001, 0, 0, 0, 0x33800000},
    {"cvt.rn.f32.f64", 1, 0x3ff0000010000000, 0, 0, 0, 0x3f800000},
    {"cvt.rp.f32.f64", 1, 0x3ff0000000000001, 0, 0, 0, 0x3f800001},
    {"cvt.f64.f32", 1, 0x3f800000, 0, 0, 0, 0x3ff0000000000000},
    {"cvt.rni.f32.f32", 1, 0x40200000, 0, 0, 0, 0x40000000},
    {"cvt.rmi.f64.f64", 1, 0xbfe0000000000000, 0, 0, 0, 0xbff0000000000000},
    {"cvt.sat.f32.f32", 1, 0x40000000, 0, 0, 0, 0x3f800000},
    {"cvt.ftz.f32.f16", 1, 0x0001, 0, 0, 0, 0x33800000},
    {"cvt.rn.ftz.f16.f32", 1, 0x00000001, 0, 0, 0, 0},
};

Test(ptx_alu, known_conversions) {
  check_known(conversions, sizeof conversions / sizeof *conversions);
}

Test(ptx_alu, halves) {
  for (uint64_t h = 0; h < 65536; h += 7) {
    uint64_t f = compute("cvt.f32.f16", 1, h, 0, 0, 0);
    uint64_t back = compute("cvt.rn.f16.f32", 1, f, 0, 0, 0);
    bool nan = (h & 0x7fff) > 0x7c00;
    cr_assert_eq(back, nan ? 0x7fff : h);
    if (nan || (h & 0x7fff) >= 0x7bff)
      continue;
    uint64_t next = compute("cvt.f32.f16", 1, h + 1, 0, 0, 0);
    float low, high;
    memcpy(&low, &f, 4);
    memcpy(&high, &next, 4);
    uint64_t middle = from_float((low + high) / 2); /* between two halves: even wins */
    cr_assert_eq(compute("cvt.rn.f16.f32", 1, middle, 0, 0, 0), h + (h & 1));
    cr_assert_eq(compute("cvt.rz.f16.f32", 1, middle, 0, 0, 0), h);
    cr_assert_eq(compute("cvt.rp.f16.f32", 1, middle, 0, 0, 0), h & 0x8000 ? h : h + 1);
  }
}

Test(ptx_alu, floats_as_in_c) {
  static const double numbers[] = {0, 1, -1, 0.1, 3, 1e-40, 1e38, -7.25, 1.0 / 3, INFINITY};
  enum { N = sizeof numbers / sizeof *numbers };
  for (int i = 0; i < N * N; i++) {
    float a = (float)numbers[i / N], b = (float)numbers[i % N];
    double c = numbers[i / N], d = numbers[i % N];
    uint64_t x = from_float(a), y = from_float(b), u = from_double(c), v = from_double(d);
    float sums[] = {a + b, a - b, a * b, a / b};
    double wide[] = {c + d, c - d, c * d, c / d};
    static const char *const ops[] = {"add", "sub", "mul", "div.rn"};
    for (int k = 0; k < 4; k++) {
      check(ops[k], "f32", 32, x, y, isnan(sums[k]) ? 0x7fffffff : from_float(sums[k]));
      if (!isnan(wide[k]))
        check(ops[k], "f64", 64, u, v, from_double(wide[k]));
    }
    check("setp.lt", "f32", 1, x, y, a < b);
    check("setp.ge", "f64", 1, u, v, c >= d);
  }
}

/* Operations, most of which have a loop of their own for whole warps. */
static const char *const fast_ops[] = {
    "add.f32",     "mul.f32",     "add.s32",        "add.s64",     "sub.s32",      "and.b32",
    "or.b64",      "xor.b32",     "mul.lo.s32",     "mul.lo.u64",  "mul.wide.u32", "mul.wide.s32",
    "shl.b32",     "shl.b64",     "setp.eq.s32",    "setp.ne.s64", "setp.lt.u32",  "setp.lt.s32",
    "setp.ge.u64", "setp.ge.s64", "setp.gt.s32",    "min.s32",     "setp.lt.f32",  "cvt.u64.u32",
    "cvt.s64.s32", "cvt.u32.u64", "cvt.rn.f32.s32", "mov.u64",     "max.f32",      "shr.s32",
};

/* Runs an instruction in all of a block's threads and compares with ptx_compute. */
static void check_warp(const char *op, uint32_t threads) {
  char text[1000];
  bool one = !strncmp(op, "cvt", 3) || !strncmp(op, "mov", 3);
  uint64_t in[80][2], out[80], params[2] = {(uint64_t)(uintptr_t)in, (uint64_t)(uintptr_t)out};
  for (int i = 0; i < 80; i++) {
    in[i][0] = values[i * 5 % NVALUES] * (i % 3 + 1);
    in[i][1] = values[i * 3 % NVALUES];
    out[i] = 99;
  }
  snprintf(
      text, sizeof text,
      ".version 7.0\n.entry k(.param .u64 a, .param .u64 b) { .reg .b64 %%d<9>; .reg .pred %%p;\n"
      "mov.u32 %%d0, %%tid.x; mov.u64 %%d7, 99; ld.param.u64 %%d1, [a]; ld.param.u64 %%d2, [b];\n"
      "shl.b64 %%d3, %%d0, 4; add.s64 %%d1, %%d1, %%d3; shl.b64 %%d3, %%d0, 3;\n"
      "add.s64 %%d2, %%d2, %%d3; ld.global.v2.u64 {%%d5, %%d6}, [%%d1];\n"
      "setp.ne.u32 %%p, %%d0, 3; @%%p %s %%d7, %%d5%s;\nst.global.u64 [%%d2], %%d7; ret; }",
      op, one ? "" : ", %d6");
  ptx_module *m = must_parse(text, false);
  const gpu_launch launch = {.module = m,
                             .kernel = m->kernels,
                             .params = params,
                             .grid = {1, 1, 1},
                             .block = {threads, 1, 1}};
  must_end(&(gpu_options){.seed = 1}, &launch, NULL);
  for (uint32_t i = 0; i < threads; i++) {
    const uint64_t x[4] = {in[i][0], in[i][1], 0, 0};
    uint64_t should = i == 3 ? 99 : ptx_compute(&m->kernels[0].code[10], x);
    uint64_t mask = strstr(op, "64") || strstr(op, "wide") ? ~0ull : UINT32_MAX;
    cr_assert_eq(out[i] & mask, should & mask, "%s, thread %u", op, i);
  }
  ptx_free(m);
}

Test(ptx_alu, whole_and_partial_warps) {
  for (size_t i = 0; i < sizeof fast_ops / sizeof *fast_ops; i++) {
    check_warp(fast_ops[i], 64);
    check_warp(fast_ops[i], 45);
  }
}
