/* json.c: writes JSON. */
#include "libcoll/tools/json/json.h"

#include <inttypes.h>
#include <math.h>

int colli_utf8_length(const unsigned char *text) {
  const int length = text[0] < 0x80       ? 1
                     : text[0] >> 5 == 6  ? 2
                     : text[0] >> 4 == 14 ? 3
                     : text[0] >> 3 == 30 ? 4
                                          : 0;
  unsigned code = length == 1 ? text[0] : text[0] & (0xffu >> (length + 1));
  for (int i = 1; i < length; i++) {
    if (text[i] >> 6 != 2)
      return 0;
    code = code << 6 | (text[i] & 63u);
  }
  static const unsigned least[] = {0, 0x20, 0x80, 0x800, 0x10000};
  const bool sound = code >= least[length] && code != 0x7f && code <= 0x10ffff && code != 0xfffe &&
                     code != 0xffff && (code < 0xd800 || code > 0xdfff);
  return sound ? length : 0;
}

void colli_json_quote(const char *text, FILE *out) {
  fputc('"', out);
  for (const unsigned char *at = (const unsigned char *)text; *at != '\0';) {
    const int length = colli_utf8_length(at);
    if (*at == '"' || *at == '\\')
      fputc('\\', out);
    if (length == 0)
      fputs("\xef\xbf\xbd", out); /* what stands for something that is no character */
    else
      fwrite(at, 1, (size_t)length, out);
    at += length > 0 ? length : 1;
  }
  fputc('"', out);
}

/* Writes what comes before a value. */
static void begin(colli_json *json, const char *name) {
  if (json->follows)
    fputs(", ", json->out);
  json->follows = true;
  if (name == NULL)
    return;
  colli_json_quote(name, json->out);
  fputs(": ", json->out);
}

void colli_json_open(colli_json *json, const char *name, char kind) {
  if (name == NULL && kind == '{' && json->depth > 0) {
    fprintf(json->out, "%s\n%*s", json->follows ? "," : "", json->depth, "");
    json->follows = false;
  }
  begin(json, name);
  fputc(kind, json->out);
  json->follows = false;
  json->depth++;
}

void colli_json_close(colli_json *json, char kind) {
  fputc(kind, json->out);
  json->follows = true;
  if (--json->depth == 0)
    fputc('\n', json->out);
}

void colli_json_text(colli_json *json, const char *name, const char *text) {
  begin(json, name);
  if (text != NULL)
    colli_json_quote(text, json->out);
  else
    fputs("null", json->out);
}

void colli_json_number(colli_json *json, const char *name, double number) {
  begin(json, name);
  if (isfinite(number))
    fprintf(json->out, "%.17g", number);
  else
    fputs("null", json->out);
}

void colli_json_count(colli_json *json, const char *name, uint64_t count) {
  begin(json, name);
  fprintf(json->out, "%" PRIu64, count);
}

void colli_json_int(colli_json *json, const char *name, int index) {
  if (index < 0)
    colli_json_text(json, name, NULL);
  else
    colli_json_count(json, name, (uint64_t)index);
}

void colli_json_bool(colli_json *json, const char *name, bool value) {
  begin(json, name);
  fputs(value ? "true" : "false", json->out);
}
