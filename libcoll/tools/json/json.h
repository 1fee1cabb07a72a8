/*
 * json.h: writes JSON, for the programs of this folder:
 *
 *   colli_json json = {.out = stdout};
 *   colli_json_open(&json, NULL, '{');
 *   colli_json_text(&json, "host", "a");
 *   colli_json_open(&json, "ranks", '[');
 *   colli_json_int(&json, NULL, 3);
 *   colli_json_close(&json, ']');
 *   colli_json_close(&json, '}');
 *
 * writes {"host": "a", "ranks": [3]}. A name is NULL in lists. Objects in lists begin on new lines.
 */
#ifndef COLLI_TOOLS_JSON_H
#define COLLI_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct colli_json {
  FILE *out;
  bool follows; /* a value was written before, in the same list or object */
  int depth;
} colli_json;

/* Begins an object ('{') or a list ('['); ends it ('}', ']'). */
void colli_json_open(colli_json *json, const char *name, char kind);
void colli_json_close(colli_json *json, char kind);

/* A text; NULL becomes null. */
void colli_json_text(colli_json *json, const char *name, const char *text);

/* A number; what is not finite becomes null. */
void colli_json_number(colli_json *json, const char *name, double number);
void colli_json_count(colli_json *json, const char *name, uint64_t count);

/* An index: below 0 it is none, and becomes null. */
void colli_json_int(colli_json *json, const char *name, int index);
void colli_json_bool(colli_json *json, const char *name, bool value);

/* Bytes of the UTF-8 character at the start of a text; 0 if it is none that XML may have. */
int colli_utf8_length(const unsigned char *text);

/* Writes a text in quotes, for JSON and Prometheus. What is no character becomes one that stands
 * for that. */
void colli_json_quote(const char *text, FILE *out);

#endif
