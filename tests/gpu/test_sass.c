/*
 * test_sass.c: SASS in the library: it is what the PTX says, the right one is chosen, and PTX takes
 * over where none is. The fake driver refuses SASS that it would not have on a real device.
 */
#include <criterion/criterion.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/gpu/code.h"
#include "support_sum.h"
#include "tests/gpu/device/cubin.h"
#include "tests/gpu/support_ptx.h"

enum { LIMIT_S = 60 };

TestSuite(sass, .timeout = 200);

/* Skips a test in a build that found no ptxas. */
#define NEEDS_SASS                                                                                 \
  if (!colli_gpu_sass[0])                                                                          \
  cr_skip_test("this build has no SASS (COLL_CUDA_ARCHITECTURES, ptxas)")

/* The architectures of the build, from the text about them; returns how many there are. */
static int architectures(int list[16]) {
  int count = 0;
  char *end;
  for (const char *at = colli_gpu_sass_architectures; *at && count < 16; at = end) {
    list[count++] = (int)strtol(at, &end, 10);
    end += strspn(end, ", ");
  }
  return count;
}

/* ---- what is in the library ------------------------------------------------------------------ */

/* Compares a cubin with the PTX that it was made from. */
static void compare(const cubin *sass, const ptx_module *ptx, int arch) {
  cr_assert_eq(sass->arch, arch);
  cr_assert_eq(sass->nkernels, ptx->nkernels);
  for (int i = 0; i < ptx->nkernels; i++) {
    const ptx_kernel *kernel = &ptx->kernels[i];
    const cubin_kernel *code = cubin_find(sass, kernel->name);
    cr_assert(code, "%s for sm_%d", kernel->name, arch);
    cr_assert_eq(code->param_bytes, (int)kernel->param_bytes, "%s for sm_%d", kernel->name, arch);
    cr_assert_eq(code->frame_bytes, 0, "%s for sm_%d uses local memory", kernel->name, arch);
    cr_assert_geq(code->code_bytes, 128, "%s for sm_%d", kernel->name, arch);
  }
}

Test(sass, is_what_the_PTX_says) {
  int list[16];
  NEEDS_SASS;
  const int count = architectures(list);
  cubin *code = malloc(sizeof(*code));
  cr_assert(code && count > 0);
  for (int file = 0; file < COLLI_GPU_FILE_COUNT; file++) {
    fatbin_image image;
    ptx_module *ptx = must_parse(colli_gpu_ptx[file], false);
    cr_assert(fatbin_is(colli_gpu_sass[file]));
    for (int i = 0; i < count; i++) {
      cr_assert(fatbin_get(colli_gpu_sass[file], i, &image) && image.sass, "file %d", file);
      cr_assert_eq(image.arch, list[i]);
      uint8_t *elf = fatbin_unpack(&image);
      cr_assert(elf && cubin_read(elf, image.bytes, code), "file %d for sm_%d", file, list[i]);
      compare(code, ptx, list[i]);
      free(elf);
    }
    cr_assert_not(fatbin_get(colli_gpu_sass[file], count, &image), "more than was asked for");
    ptx_free(ptx);
  }
  free(code);
}

Test(sass, none_without_architectures) {
  cr_assert_eq(colli_gpu_sass[0] == NULL, !*colli_gpu_sass_architectures);
  for (int file = 0; file < COLLI_GPU_FILE_COUNT; file++)
    cr_assert_eq(!colli_gpu_sass[file], !colli_gpu_sass[0]);
}

/* ---- what is loaded -------------------------------------------------------------------------- */

/* In a child, with the settings of the environment: loads the kernels, and sums 3 + 3 with one of
 * them. 0 if the text about their origin contains `words`, or is "SASS..." if they are. */
static int loads(const char *words) {
  use u;
  colli_gpu_programs *programs;
  coll_error error = COLL_ERROR_INIT;
  use_load(&u);
  use_device(&u, 0);
  if (colli_gpu_programs_load(&u.cuda, 0, &programs, &error) != COLL_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  CHECK(sum_element(&u, programs, use_memory(&u, 1), &error) == COLL_OK);
  const char *origin = colli_gpu_programs_origin(programs);
  const bool exact = strncmp(words, "SASS", 4) == 0; /* what was refused is in the text, too */
  const int status = (exact ? strcmp(origin, words) == 0 : strstr(origin, words) != NULL) ? 0 : 2;
  if (status)
    fprintf(stderr, "not \"%s\": \"%s\"\n", words, origin);
  colli_gpu_programs_free(&u.cuda, programs);
  return status;
}

/* The same in a child, on a device of some compute capability. */
static int loads_on(const char *arch, const char *words) {
  int status;
  setenv("GPU_ARCH", arch, 1);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(LIMIT_S);
    _exit(loads(words));
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status), "%s", arch);
  return WEXITSTATUS(status);
}

/* A device, and the SASS that runs on it of those that a build has by default; 0: none does. */
typedef struct choice {
  const char *device;
  int arch;
} choice;

Test(sass, is_chosen_for_the_device) {
  static const choice choices[] = {
      {"6.1", 0},    {"7.0", 70}, {"7.2", 0},    {"7.5", 75},   {"8.0", 80},
      {"8.6", 80},   {"8.7", 0},  {"8.9", 80},   {"9.0", 90},   {"10.0", 100},
      {"10.3", 100}, {"11.0", 0}, {"12.0", 120}, {"12.1", 120}, {"13.0", 0},
  };
  int list[16];
  NEEDS_SASS;
  if (!strstr(colli_gpu_sass_architectures, "75, 80, 90, 100, 120"))
    cr_skip_test("this build is for other architectures than the default ones");
  const int count = architectures(list);
  for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
    char words[64] = "PTX, compiled by the driver, which does not take SASS";
    bool has = false;
    for (int k = 0; k < count; k++)
      has |= list[k] == choices[i].arch;
    if (has) /* ptxas of CUDA 13 knows no sm_70 any more */
      snprintf(words, sizeof(words), "SASS for sm_%d", choices[i].arch);
    cr_assert_eq(loads_on(choices[i].device, words), 0, "%s", choices[i].device);
  }
}

/* A device that can run the first SASS of the build. */
static void first_device(char text[16]) {
  const int arch = atoi(colli_gpu_sass_architectures);
  snprintf(text, 16, "%d.%d", arch / 10, arch % 10);
}

/* Loads the driver with such a device. */
static void begin(use *u) {
  char device[16];
  first_device(device);
  setenv("GPU_ARCH", device, 1);
  use_load(u);
  use_device(u, 0);
}

Test(sass, PTX_if_the_driver_refuses) {
  static const char *const errors[] = {
      "200", "CUDA_ERROR_INVALID_IMAGE", "209", "CUDA_ERROR_NO_BINARY_FOR_GPU",
      "801", "CUDA_ERROR_NOT_SUPPORTED", "222", "error 222"};
  char device[16], words[40];
  NEEDS_SASS;
  first_device(device);
  snprintf(words, sizeof(words), "SASS for sm_%d", atoi(colli_gpu_sass_architectures));
  cr_assert_eq(loads_on(device, words), 0);
  for (size_t i = 0; i < sizeof(errors) / sizeof(*errors); i += 2) {
    setenv("GPU_SASS_ERROR", errors[i], 1);
    cr_assert_eq(loads_on(device, "PTX, compiled by the driver, which does not take SASS"), 0);
    cr_assert_eq(loads_on(device, errors[i + 1]), 0);
  }
}

/* A driver that does not tell. */
static colli_cu_result tell_nothing(int *value, colli_cu_function_attribute attribute,
                                    colli_cu_function function) {
  (void)value, (void)attribute, (void)function;
  return COLLI_CUDA_ERROR_INVALID_VALUE;
}

Test(sass, for_an_unknown_architecture) {
  use u;
  colli_gpu_programs *programs;
  NEEDS_SASS;
  begin(&u);
  u.cuda.func_get_attribute = tell_nothing;
  cr_assert_eq(colli_gpu_programs_load(&u.cuda, 0, &programs, NULL), COLL_OK);
  cr_assert_str_eq(colli_gpu_programs_origin(programs), "SASS");
  colli_gpu_programs_free(&u.cuda, programs);
}

Test(sass, PTX_in_a_build_without) {
  if (colli_gpu_sass[0])
    cr_skip_test("this build has SASS");
  cr_assert_eq(loads_on("9.0", "PTX, compiled by the driver"), 0);
}

/* ---- what the fake driver refuses ------------------------------------------------------------ */

/* Gives the driver an image: its error. */
static colli_cu_result load(use *u, const void *image) {
  colli_cu_module module;
  const colli_cu_result result = u->cuda.module_load(&module, image, 0, NULL, NULL);
  if (result == COLLI_CUDA_SUCCESS)
    OK(u->cuda.module_unload(module));
  return result;
}

/* Writes another letter into the first name of a text in a file. */
static void rename_in(uint8_t *file, size_t bytes, const char *name) {
  const size_t length = strlen(name);
  for (size_t at = 0; at + length < bytes; at++)
    if (memcmp(file + at, name, length) == 0)
      file[at + length - 1] ^= 1;
}

Test(sass, driver_refuses_other_cubins) {
  use u;
  fatbin_image image;
  NEEDS_SASS;
  begin(&u);
  cr_assert(fatbin_get(colli_gpu_sass[COLLI_GPU_FILE_MEET], 0, &image));
  uint8_t *good = fatbin_unpack(&image), *bad = malloc(image.bytes);
  cr_assert(good && bad);
  Elf64_Ehdr *header = (Elf64_Ehdr *)bad;
  cr_assert_eq(load(&u, good), COLLI_CUDA_SUCCESS);

  memcpy(bad, good, image.bytes);
  header->e_machine = EM_X86_64;
  cr_assert_eq(load(&u, bad), COLLI_CUDA_ERROR_INVALID_IMAGE);
  memcpy(bad, good, image.bytes);
  header->e_ident[EI_CLASS] = ELFCLASS32;
  cr_assert_eq(load(&u, bad), COLLI_CUDA_ERROR_INVALID_IMAGE);
  memcpy(bad, good, image.bytes); /* of another family, wherever the architecture is */
  header->e_flags ^= 0x4040;
  cr_assert_eq(load(&u, bad), COLLI_CUDA_ERROR_NO_BINARY_FOR_GPU);
  memcpy(bad, good, image.bytes);
  rename_in(bad, image.bytes, "coll_meet");
  cr_assert_eq(load(&u, bad), COLLI_CUDA_ERROR_INVALID_IMAGE);
  free(good);
  free(bad);
}

Test(sass, driver_refuses_damaged_images) {
  use u;
  fatbin_image image;
  NEEDS_SASS;
  begin(&u);
  const char *good = colli_gpu_sass[COLLI_GPU_FILE_MEET];
  cr_assert(fatbin_get(good, 0, &image));
  const size_t bytes = (size_t)((const char *)image.payload - good) + image.payload_bytes;
  uint64_t all;
  memcpy(&all, good + 8, sizeof(all)); /* behind the header of 16 bytes */
  uint8_t *bad = malloc(16 + all);
  cr_assert(bad);
  memcpy(bad, good, 16 + all);
  cr_assert_eq(load(&u, bad), COLLI_CUDA_SUCCESS);
  bad[bytes - 1] ^= 0xff; /* no length fits any more, or no name does */
  bad[bytes - image.payload_bytes] ^= 0xff;
  cr_assert_eq(load(&u, bad), COLLI_CUDA_ERROR_INVALID_IMAGE);
  memcpy(bad, good, 16 + all);
  memset(bad + 8, 0, 8); /* no images */
  cr_assert_eq(load(&u, bad), COLLI_CUDA_ERROR_NO_BINARY_FOR_GPU);
  free(bad);
}
