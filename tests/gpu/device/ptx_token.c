/* ptx_token.c: splits PTX text into words, numbers and marks. */
#include "ptx_parser.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool ptxp_fail(parser *p, const char *format, ...) {
  if (!p->failed) {
    va_list args;
    va_start(args, format);
    vsnprintf(p->error->message, sizeof p->error->message, format, args);
    va_end(args);
    p->error->line = p->now.line ? p->now.line : p->line;
    p->failed = true;
  }
  p->now.kind = TOKEN_END;
  p->now.length = 0;
  return false;
}

/* Steps over spaces and comments. */
static void skip_space(parser *p) {
  while (p->next < p->end) {
    size_t left = (size_t)(p->end - p->next);
    if (isspace((unsigned char)*p->next)) {
      p->line += *p->next++ == '\n';
    } else if (left > 1 && !memcmp(p->next, "//", 2)) {
      while (p->next < p->end && *p->next != '\n')
        p->next++;
    } else if (left > 1 && !memcmp(p->next, "/*", 2)) {
      for (p->next += 2; p->end - p->next > 1 && memcmp(p->next, "*/", 2); p->next++)
        p->line += *p->next == '\n';
      p->next = p->end - p->next > 1 ? p->next + 2 : p->end;
    } else {
      return;
    }
  }
}

/* Whether a character continues a word or a number. */
static bool in_word(char c) {
  return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '.' || c == '%';
}

void ptxp_next(parser *p) {
  if (p->failed)
    return;
  skip_space(p);
  p->now = (token){.kind = TOKEN_END, .at = p->next, .line = p->line};
  if (p->next >= p->end)
    return;
  char first = *p->next++;
  if (first == '"') {
    p->now.kind = TOKEN_STRING;
    while (p->next < p->end && *p->next != '"' && *p->next != '\n')
      p->next++;
    if (p->next < p->end && *p->next == '"')
      p->next++;
  } else if (in_word(first)) {
    p->now.kind = isdigit((unsigned char)first) ? TOKEN_NUMBER : TOKEN_WORD;
    while (p->next < p->end && in_word(*p->next))
      p->next++;
    if (p->next < p->end && *p->next == ':' && p->end - p->next > 1 && p->next[1] == ':') {
      p->next += 2; /* .L2::128B */
      while (p->next < p->end && in_word(*p->next))
        p->next++;
    }
  } else {
    p->now.kind = TOKEN_MARK;
  }
  p->now.length = (int)(p->next - p->now.at);
}

bool ptxp_is(const parser *p, const char *text) {
  return p->now.kind != TOKEN_END && ptxp_same(text, p->now.at, (size_t)p->now.length);
}

bool ptxp_accept(parser *p, const char *text) {
  if (!ptxp_is(p, text))
    return false;
  ptxp_next(p);
  return true;
}

bool ptxp_expect(parser *p, const char *text) {
  if (ptxp_accept(p, text))
    return true;
  if (p->now.kind == TOKEN_END)
    return ptxp_fail(p, "the text ends where %s is expected", text);
  return ptxp_fail(p, "%s expected, not %.*s", text, p->now.length > 60 ? 60 : p->now.length,
                   p->now.at);
}

bool ptxp_name(parser *p, char name[PTX_NAME]) {
  if (p->now.kind != TOKEN_WORD)
    return ptxp_fail(p, "a name is expected");
  if (p->now.length >= PTX_NAME)
    return ptxp_fail(p, "a name has more than %d characters", PTX_NAME - 1);
  memcpy(name, p->now.at, (size_t)p->now.length);
  name[p->now.length] = 0;
  ptxp_next(p);
  return true;
}

/* Fails at the line of a number that was read already. */
static bool bad_number(parser *p, int line, const char *text) {
  p->now.line = line;
  return ptxp_fail(p, "%s is no number that is allowed here: out of range, or no number", text);
}

/* Copies a number's text and steps over it. */
static bool number_text(parser *p, char text[64]) {
  if (p->now.kind != TOKEN_NUMBER || p->now.length >= 63)
    return ptxp_fail(p, "a number is expected");
  memcpy(text, p->now.at, (size_t)p->now.length);
  text[p->now.length] = 0;
  ptxp_next(p);
  size_t length = strlen(text);
  if (length > 1 && text[length - 1] == 'U')
    text[length - 1] = 0;
  return !p->failed;
}

bool ptxp_integer(parser *p, int64_t least, int64_t most, int64_t *value) {
  char text[64], *end;
  bool minus = ptxp_accept(p, "-");
  int line = p->now.line;
  if (!number_text(p, text))
    return false;
  uint64_t size = strtoull(text, &end, 0);
  *value = (int64_t)(minus ? -size : size);
  if (*end || *value < least || *value > most)
    return bad_number(p, line, text);
  return true;
}

/* The bits of a number with a fraction. */
static uint64_t fraction_bits(ptx_type type, double number) {
  uint64_t bits = 0;
  float single = (float)number;
  if (type == PTX_F32)
    memcpy(&bits, &single, 4);
  else
    memcpy(&bits, &number, 8);
  return bits;
}

bool ptxp_number(parser *p, ptx_type type, uint64_t *bits) {
  char text[64], *end;
  bool minus = ptxp_accept(p, "-");
  int line = p->now.line;
  if (!number_text(p, text))
    return false;
  if (text[0] == '0' && text[1] && strchr("fFdD", text[1])) {
    *bits = strtoull(text + 2, &end, 16);
    if (minus)
      *bits ^= strchr("fF", text[1]) ? 1ull << 31 : 1ull << 63;
  } else if (strchr(text, '.')) {
    double number = strtod(text, &end);
    *bits = fraction_bits(type, minus ? -number : number);
  } else {
    *bits = strtoull(text, &end, 0);
    if (minus)
      *bits = -*bits;
  }
  return *end ? bad_number(p, line, text) : true;
}
