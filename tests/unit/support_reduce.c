/* support_reduce.c: the slow reference of reductions. */
#include "support_reduce.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

size_t ref_bytes(coll_type type) {
  static const size_t bytes[COLL_TYPE_COUNT] = {1, 1, 2, 2, 4, 4,  8, 8,  2,  2,
                                                4, 8, 1, 1, 8, 16, 8, 16, 16, 16};
  return bytes[type];
}

static bool is_int(coll_type type) {
  return type <= COLL_UINT64;
}

static bool is_loc(coll_type type) {
  return type >= COLL_INT32_LOC;
}

bool ref_is_float8(coll_type type) {
  return type == COLL_FLOAT8_E4M3 || type == COLL_FLOAT8_E5M2;
}

bool ref_is_short(coll_type type) {
  return type == COLL_FLOAT16 || type == COLL_BFLOAT16 || ref_is_float8(type);
}

bool ref_takes(coll_type type, coll_op op) {
  if (op == COLL_MINLOC || op == COLL_MAXLOC)
    return is_loc(type);
  return op <= COLL_AVG ? !is_loc(type) : is_int(type);
}

/* ---- short floats ---------------------------------------------------------------------------- */

/* The layout of a short float. */
typedef struct format {
  int exp, frac;
  unsigned nan;
} format;

static format format_of(coll_type type) {
  switch (type) {
  case COLL_FLOAT16:
    return (format){5, 10, 0x7e00};
  case COLL_BFLOAT16:
    return (format){8, 7, 0x7fc0};
  case COLL_FLOAT8_E4M3:
    return (format){4, 3, 0x7f};
  default:
    return (format){5, 2, 0x7e};
  }
}

double ref_widen(coll_type type, unsigned bits) {
  format f = format_of(type);
  int bias = (1 << (f.exp - 1)) - 1, top = (1 << f.exp) - 1, e = (int)(bits >> f.frac) & top;
  double part = bits & ((1u << f.frac) - 1), sign = bits >> (f.exp + f.frac) ? -1 : 1;
  if (type == COLL_FLOAT8_E4M3 && (bits & 0x7f) == 0x7f)
    return (double)NAN;
  if (type != COLL_FLOAT8_E4M3 && e == top)
    return part != 0 ? (double)NAN : sign * (double)INFINITY;
  return e == 0 ? sign * ldexp(part, 1 - bias - f.frac)
                : sign * ldexp(part + (1 << f.frac), e - bias - f.frac);
}

/* The float8 nearest to a value: tries all of them. */
static unsigned nearest_float8(coll_type type, double value, unsigned sign) {
  unsigned best = 0;
  double distance = (double)INFINITY, size = fabs(value);
  unsigned most = type == COLL_FLOAT8_E4M3 ? 0x7e : 0x7b;
  if (size > ref_widen(type, most))
    return sign | most;
  for (unsigned bits = 0; bits <= most; bits++) {
    double d = fabs(ref_widen(type, bits) - size);
    if (d < distance || (d == distance && bits % 2 == 0)) {
      distance = d;
      best = bits;
    }
  }
  return sign | best;
}

unsigned ref_narrow(coll_type type, double value) {
  format f = format_of(type);
  if (isnan(value))
    return f.nan;
  unsigned sign = signbit(value) ? 1u << (f.exp + f.frac) : 0, inf = ((1u << f.exp) - 1) << f.frac;
  if (ref_is_float8(type))
    return nearest_float8(type, value, sign);
  int bias = (1 << (f.exp - 1)) - 1;
  double size = fabs(value);
  if (isinf(size))
    return sign | inf;
  int e = size > 0 ? ilogb(size) : -10000;
  if (e < 1 - bias)
    e = 1 - bias;
  /* A whole number of steps of this binade; a carry into the next binade is right, too. */
  double steps = nearbyint(ldexp(size, f.frac - e));
  double bits = steps + ldexp(e - (1 - bias), f.frac);
  return sign | (bits >= inf ? inf : (unsigned)bits);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* Reads a float element. */
static double load_float(coll_type type, const unsigned char *p) {
  float f;
  double d;
  uint16_t bits = 0;
  if (type == COLL_FLOAT32)
    return memcpy(&f, p, 4), (double)f;
  if (type == COLL_FLOAT64)
    return memcpy(&d, p, 8), d;
  memcpy(&bits, p, ref_bytes(type));
  return ref_widen(type, bits);
}

/* Writes a float element; NaN as the canonical one. */
static void store_float(coll_type type, unsigned char *p, double value) {
  float f = (float)value;
  uint32_t nan32 = 0x7fc00000;
  uint64_t nan64 = 0x7ff8000000000000;
  if (type == COLL_FLOAT32) {
    memcpy(p, isnan(value) ? (void *)&nan32 : (void *)&f, 4);
  } else if (type == COLL_FLOAT64) {
    memcpy(p, isnan(value) ? (void *)&nan64 : (void *)&value, 8);
  } else {
    uint16_t bits = (uint16_t)ref_narrow(type, value);
    memcpy(p, &bits, ref_bytes(type));
  }
}

/* Reads an integer element, widened by its sign. */
static __int128 load_int(coll_type type, const unsigned char *p) {
  uint64_t raw = 0;
  memcpy(&raw, p, ref_bytes(type));
  unsigned bits = (unsigned)ref_bytes(type) * 8;
  bool is_signed = type % 2 == 0;
  if (is_signed && (raw >> (bits - 1)) & 1)
    return (__int128)raw - ((__int128)1 << bits);
  return raw;
}

/* One float operation in double or float precision. */
static double float_op(coll_type type, coll_op op, double a, double b) {
  if (op == COLL_MIN || op == COLL_MAX) {
    if (isnan(a) || isnan(b))
      return (double)NAN;
    bool a_less = a < b || (a == b && signbit(a) && !signbit(b));
    return (op == COLL_MIN) == a_less ? a : b;
  }
  if (type == COLL_FLOAT64)
    return op == COLL_PROD ? a * b : a + b;
  return (double)(op == COLL_PROD ? (float)a * (float)b : (float)a + (float)b);
}

/* One integer operation without bounds. */
static __int128 int_op(coll_op op, __int128 a, __int128 b) {
  switch (op) {
  case COLL_PROD:
    return (__int128)((unsigned __int128)a * (unsigned __int128)b);
  case COLL_MIN:
    return a < b ? a : b;
  case COLL_MAX:
    return a > b ? a : b;
  case COLL_BAND:
    return a & b;
  case COLL_BOR:
    return a | b;
  case COLL_BXOR:
    return a ^ b;
  case COLL_LAND:
    return a && b;
  case COLL_LOR:
    return a || b;
  case COLL_LXOR:
    return !a != !b;
  default:
    return a + b;
  }
}

/* The type of a LOC struct's value, and that of its index. */
static coll_type value_type(coll_type type) {
  static const coll_type values[] = {COLL_INT32,   COLL_INT64, COLL_FLOAT32,
                                     COLL_FLOAT64, COLL_INT32, COLL_FLOAT32};
  return values[type - COLL_INT32_LOC];
}
static coll_type index_type(coll_type type) {
  return ref_bytes(type) == 8 ? COLL_INT32 : COLL_INT64;
}

/* Where the index of a LOC struct lies: at its end. */
static size_t index_at(coll_type type) {
  return ref_bytes(type) - ref_bytes(index_type(type));
}

/* Compares the values at a and b: -1, 0 or 1. */
static int compare_values(coll_type value, bool least, const unsigned char *a,
                          const unsigned char *b) {
  if (is_int(value)) {
    __int128 x = load_int(value, a), y = load_int(value, b);
    return x == y ? 0 : (x < y) == least ? -1 : 1;
  }
  double x = load_float(value, a), y = load_float(value, b);
  if (isnan(x) || isnan(y))
    return isnan(y) - isnan(x);
  return x == y ? 0 : (x < y) == least ? -1 : 1;
}

/* out = a or b, whichever wins. */
static void loc_element(coll_type type, coll_op op, unsigned char *out, const unsigned char *a,
                        const unsigned char *b) {
  coll_type value = value_type(type), index = index_type(type);
  size_t bytes = index_at(type);
  bool least = op == COLL_MINLOC;
  int order = compare_values(value, least, a, b);
  if (order == 0) {
    __int128 i = load_int(index, a + bytes), j = load_int(index, b + bytes);
    order = i == j ? 0 : i < j ? -1 : 1;
  }
  if (order == 0 && !is_int(value)) /* zeros of both signs */
    order = signbit(load_float(value, a)) == least ? -1 : 1;
  const unsigned char *winner = order > 0 ? b : a;
  memmove(out, winner, ref_bytes(type));
  if (!is_int(value))
    store_float(value, out, load_float(value, out));
  memset(out + ref_bytes(value), 0, bytes - ref_bytes(value)); /* padding */
}

void ref_element(coll_type type, coll_op op, unsigned char *out, const unsigned char *a,
                 const unsigned char *b) {
  if (is_loc(type)) {
    loc_element(type, op, out, a, b);
  } else if (is_int(type)) {
    uint64_t low = (uint64_t)int_op(op, load_int(type, a), load_int(type, b));
    memcpy(out, &low, ref_bytes(type));
  } else {
    store_float(type, out, float_op(type, op, load_float(type, a), load_float(type, b)));
  }
}

void ref_average(coll_type type, unsigned char *out, const unsigned char *x, int n) {
  if (type == COLL_FLOAT64) {
    store_float(type, out, load_float(type, x) / n);
  } else if (!is_int(type)) {
    store_float(type, out, (double)((float)load_float(type, x) * (1.0f / (float)n)));
  } else {
    uint64_t low = (uint64_t)(load_int(type, x) / n);
    memcpy(out, &low, ref_bytes(type));
  }
}

/* ---- data ------------------------------------------------------------------------------------ */

/* Writes one integer or float. */
static void fill_number(colli_prng *prng, coll_type type, unsigned char *at) {
  static const double edges[] = {0.0,         -0.0,     1.0,     -1.0,    INFINITY, -INFINITY,
                                 (double)NAN, 65504.0,  65520.0, 0x1p-24, 0x1p-14,  -0x1p-25,
                                 0x1p-126,    0x1p-149, 3.3e38,  -1e-40,  0.5,      2049.0};
  static const uint64_t ints[] = {0,
                                  1,
                                  ~0ull,
                                  0x80,
                                  0x7f,
                                  0x8000,
                                  0x7fff,
                                  1ull << 31,
                                  (1ull << 31) - 1,
                                  1ull << 63,
                                  (1ull << 63) - 1};
  uint64_t bits = colli_prng_next(prng);
  unsigned kind = (unsigned)colli_prng_below(prng, 4);
  if (kind == 0 && !is_int(type))
    store_float(type, at, edges[colli_prng_below(prng, sizeof(edges) / sizeof(*edges))]);
  else if (kind == 0)
    memcpy(at, &ints[colli_prng_below(prng, sizeof(ints) / sizeof(*ints))], ref_bytes(type));
  else if (kind == 1 && !is_int(type))
    store_float(type, at, (double)(bits % 2001) / 8 - 125);
  else
    memcpy(at, &bits, ref_bytes(type));
}

/* Writes one LOC struct, of few values and indices, so that equal ones meet. */
static void fill_loc(colli_prng *prng, coll_type type, unsigned char *at) {
  static const double values[] = {0.0, -0.0, 1.0, -1.0, INFINITY, -INFINITY, 0x1p-149};
  static const uint64_t nans[] = {0x7ff8000000000000, 0xfff0000000000001, 0x7fc000017fc00001,
                                  0xffc12345ffc12345};
  coll_type value = value_type(type), index = index_type(type);
  /* With 64 bits: the halves of indices have opposite orders. */
  int64_t where = ((int64_t)colli_prng_below(prng, 5) - 1) *
                  (index == COLL_INT32 ? 1 : (int64_t)(1ull << 33) - 1);
  unsigned kind = (unsigned)colli_prng_below(prng, 4);
  if (kind == 0)
    fill_number(prng, value, at);
  else if (is_int(value))
    memcpy(at, &(int64_t){(int64_t)colli_prng_below(prng, 3) - 1}, ref_bytes(value));
  else if (kind == 1)
    memcpy(at, &nans[colli_prng_below(prng, 4)], ref_bytes(value));
  else
    store_float(value, at, values[colli_prng_below(prng, 7)]);
  memset(at + ref_bytes(value), (int)colli_prng_below(prng, 256),
         index_at(type) - ref_bytes(value));
  memcpy(at + index_at(type), &where, ref_bytes(index));
}

void ref_fill(colli_prng *prng, coll_type type, unsigned char *p, size_t count) {
  for (size_t i = 0; i < count; i++) {
    unsigned char *at = p + i * ref_bytes(type);
    if (is_loc(type))
      fill_loc(prng, type, at);
    else
      fill_number(prng, type, at);
  }
}
