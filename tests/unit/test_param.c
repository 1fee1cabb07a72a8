/* Settings from the environment. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/base/param.h"

static colli_params params;
static coll_error error;

/* Loads the settings with one variable set, and unsets it again. */
static coll_status load_with(const char *name, const char *value) {
  colli_error_clear(&error);
  setenv(name, value, 1);
  coll_status status = colli_params_load(&params, &error);
  unsetenv(name);
  return status;
}

/* Expects that a value is refused, and that the message names the variable. */
static void refused(const char *name, const char *value, const char *says) {
  cr_assert_eq(load_with(name, value), COLL_ERR_INVALID_USAGE, "%s=%s", name, value);
  cr_assert_eq(error.status, COLL_ERR_INVALID_USAGE);
  cr_assert_not_null(strstr(error.message, name), "%s", error.message);
  cr_assert_not_null(strstr(error.message, says), "%s", error.message);
}

Test(param, defaults) {
  cr_assert_eq(colli_params_load(&params, &error), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_TIMEOUT_MS], 60000);
  cr_assert_eq(params.number[COLLI_PARAM_SLOT_BYTES], 65536);
  cr_assert_eq(params.number[COLLI_PARAM_SLOT_COUNT], 8);
  cr_assert_eq(params.number[COLLI_PARAM_ROOT_FD], -1);
  cr_assert_str_eq(params.text[COLLI_PARAM_LOG], "warn");
  for (int i = 0; i < COLLI_PARAM_COUNT; i++) {
    cr_assert_not_null(params.text[i]);
    cr_assert_not(params.from_env[i]);
    cr_assert_not_null(colli_param_table[i].help);
  }
}

Test(param, values) {
  cr_assert_eq(load_with("COLL_SLOT_BYTES", "32k"), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_SLOT_BYTES], 32768);
  cr_assert(params.from_env[COLLI_PARAM_SLOT_BYTES]);
  cr_assert_eq(load_with("COLL_SLOT_BYTES", "1M"), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_SLOT_BYTES], 1 << 20);
  cr_assert_eq(load_with("COLL_TIMEOUT_MS", "1500"), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_TIMEOUT_MS], 1500);
  cr_assert_eq(load_with("COLL_TIMEOUT_MS", ""), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_TIMEOUT_MS], 60000);
  cr_assert_eq(load_with("COLL_TRANSPORT", "shm,tcp"), COLL_OK);
  cr_assert_str_eq(colli_params_text(&params, "COLL_TRANSPORT"), "shm,tcp");
  cr_assert_null(colli_params_text(&params, "COLL_TRANS"));
  cr_assert_eq(load_with("COLLECT", "1"), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_DETERMINISTIC], COLL_DETERMINISTIC_OFF);
  cr_assert_eq(load_with("COLL_DETERMINISTIC", "ordered"), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_DETERMINISTIC], COLL_DETERMINISTIC_ORDERED);
  cr_assert_str_eq(colli_param_word(COLLI_PARAM_DETERMINISTIC, COLL_DETERMINISTIC_ON), "on");
  cr_assert_eq(load_with("COLL_ACCUMULATE", "float32"), COLL_OK);
  cr_assert_eq(params.number[COLLI_PARAM_ACCUMULATE], COLL_ACCUMULATE_FLOAT32);
}

Test(param, bad_values_are_named) {
  refused("COLL_TIMEOUT_MS", "soon", "soon");
  refused("COLL_TIMEOUT_MS", "-5", "from 1 to");
  refused("COLL_TIMEOUT_MS", "0", "from 1 to");
  refused("COLL_TIMEOUT_MS", "5K", "whole number");
  refused("COLL_TIMEOUT_MS", " 5", "whole number");
  refused("COLL_TIMEOUT_MS", "5 ", "whole number");
  refused("COLL_TIMEOUT_MS", "99999999999999999999", "whole number");
  refused("COLL_SLOT_BYTES", "4095", "4096");
  refused("COLL_SLOT_BYTES", "5000", "multiple of 64");
  refused("COLL_SLOT_BYTES", "2M", "1048576");
  refused("COLL_SLOT_BYTES", "32KB", "suffixes");
  refused("COLL_SLOT_BYTES", "9223372036854775807G", "suffixes");
  refused("COLL_SLOT_COUNT", "1", "from 2 to 64");
  refused("COLL_LOG", "loud", "none, error, warn, info or debug");
  refused("COLL_DETERMINISTIC", "yes", "off, on or ordered");
  refused("COLL_DETERMINISTIC", "2", "off, on or ordered");
  refused("COLL_ACCUMULATE", "double", "native or float32");
}

Test(param, unknown_names_get_a_hint_and_show_no_value) {
  refused("COLL_TIMEUOT_MS", "5", "COLL_TIMEOUT_MS");
  refused("COLL_SECRE", "deadbeef", "COLL_SECRET");
  cr_assert_null(strstr(error.message, "deadbeef"));
  refused("COLL_", "1", "no such setting");
}

Test(param, too_long_values_are_an_error_without_their_text) {
  static char text[5000];
  memset(text, 'f', sizeof(text) - 1);
  refused("COLL_ALGO", text, "too long");
  cr_assert_null(strstr(error.message, "ffff"));
}

Test(param, copies_stand_alone) {
  colli_params copy;
  cr_assert_eq(load_with("COLL_TRANSPORT", "tcp"), COLL_OK);
  cr_assert(colli_params_set_text(&params, COLLI_PARAM_TCP_IFNAME, "eth0"));
  colli_params_copy(&copy, &params);
  memset(params.storage, 'x', sizeof(params.storage));
  cr_assert_str_eq(copy.text[COLLI_PARAM_TRANSPORT], "tcp");
  cr_assert_str_eq(copy.text[COLLI_PARAM_TCP_IFNAME], "eth0");
  cr_assert_str_eq(copy.text[COLLI_PARAM_LOG], "warn");
  static char large[4096];
  memset(large, 'y', sizeof(large) - 1);
  cr_assert_not(colli_params_set_text(&copy, COLLI_PARAM_ALGO, large));
  cr_assert_str_eq(copy.text[COLLI_PARAM_ALGO], "");
}

/* docs/parameters.md matches the table. With COLLI_WRITE_DOC=1 the test writes the page. */
Test(param, page_in_docs_is_up_to_date) {
  static char want[16384], have[16384];
  char path[512] = __FILE__; /* of this test, as passed to the compiler */
  char *tests = strstr(path, "tests/unit/");
  cr_assert_not_null(tests);
  strcpy(tests, "docs/parameters.md");
  if (getenv("COLLI_WRITE_DOC")) {
    FILE *page = fopen(path, "w");
    cr_assert_not_null(page, "cannot write %s", path);
    colli_params_write_doc(page);
    cr_assert_eq(fclose(page), 0);
  }
  FILE *out = fmemopen(want, sizeof(want), "w");
  colli_params_write_doc(out);
  fclose(out);
  FILE *page = fopen(path, "r");
  cr_assert_not_null(page, "cannot read %s", path);
  have[fread(have, 1, sizeof(have) - 1, page)] = 0;
  fclose(page);
  cr_assert_str_eq(have, want,
                   "docs/parameters.md is old; to write it anew: "
                   "COLLI_WRITE_DOC=1 build/tests/unit_test_param");
}
