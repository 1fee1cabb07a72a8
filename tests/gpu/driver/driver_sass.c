/*
 * driver_sass.c: modules from SASS. The software GPU cannot run it. So once an image is found to be
 * good, the PTX that it was made from takes its place: the file of COLL_KERNELS with the same
 * kernels.
 */
#include <dirent.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"
#include "tests/gpu/device/cubin.h"

/* ---- images ---------------------------------------------------------------------------------- */

bool driver_is_sass(const void *image) {
  return fatbin_is(image) || memcmp(image, ELFMAG, SELFMAG) == 0;
}

/* Whether SASS for an architecture runs on another one: on later ones of the same family, except
 * that Tegra has its own. */
static bool runs(int sass, int device) {
  const bool tegra = device == 72 || device == 87 || device == 110;
  return sass == device || (!tegra && sass / 10 == device / 10 && sass <= device);
}

/* Reads one cubin. */
static colli_cu_result read_cubin(const uint8_t *elf, size_t bytes, cubin *code) {
  if (!cubin_read(elf, bytes, code))
    return COLLI_CUDA_ERROR_INVALID_IMAGE;
  return runs(code->arch, driver_get()->settings.arch) ? COLLI_CUDA_SUCCESS
                                                       : COLLI_CUDA_ERROR_NO_BINARY_FOR_GPU;
}

/* Reads the cubin of a fat binary that suits the device best. */
static colli_cu_result read_fatbin(const void *fatbin, cubin *code) {
  fatbin_image image, best = {.arch = 0};
  for (int i = 0; fatbin_get(fatbin, i, &image); i++)
    if (image.sass && runs(image.arch, driver_get()->settings.arch) && image.arch > best.arch)
      best = image;
  if (!best.arch)
    return COLLI_CUDA_ERROR_NO_BINARY_FOR_GPU;
  uint8_t *elf = fatbin_unpack(&best);
  colli_cu_result result = COLLI_CUDA_ERROR_INVALID_IMAGE;
  if (elf && best.bytes >= sizeof(Elf64_Ehdr))
    result = read_cubin(elf, best.bytes, code);
  free(elf);
  return result == COLLI_CUDA_SUCCESS && code->arch != best.arch ? COLLI_CUDA_ERROR_INVALID_IMAGE
                                                                 : result;
}

/* ---- the PTX --------------------------------------------------------------------------------- */

/* The text of a file, with its length; the caller frees it. NULL if it cannot be read. */
static char *read_text(const char *name, size_t *length) {
  char path[1024];
  snprintf(path, sizeof(path), "%s/%s", COLL_KERNELS, name);
  FILE *file = fopen(path, "r");
  long bytes = -1;
  if (file && fseek(file, 0, SEEK_END) == 0)
    bytes = ftell(file);
  char *text = bytes >= 0 ? malloc((size_t)bytes + 1) : NULL;
  if (text) {
    rewind(file);
    *length = fread(text, 1, (size_t)bytes, file);
    text[*length] = 0;
  }
  if (file)
    fclose(file);
  return text;
}

/* Whether a text begins a kernel with the name of one of the SASS, to save parsing the others. */
static bool begins_kernel(const char *text, const cubin *code) {
  char line[CUBIN_NAME_BYTES + 20];
  snprintf(line, sizeof(line), ".entry %s(", code->kernels[0].name);
  return strstr(text, line) != NULL;
}

/* Whether SASS and PTX have the same kernels, with parameters of the same lengths. */
static bool are_same(const cubin *sass, const ptx_module *code) {
  bool same = sass->nkernels == code->nkernels;
  for (int i = 0; i < code->nkernels && same; i++) {
    const cubin_kernel *kernel = cubin_find(sass, code->kernels[i].name);
    same = kernel && kernel->param_bytes == (int)code->kernels[i].param_bytes;
  }
  return same;
}

/* Finds the PTX of some SASS; NULL if there is none. */
static ptx_module *find_ptx(const cubin *sass) {
  ptx_module *found = NULL;
  DIR *folder = opendir(COLL_KERNELS);
  for (struct dirent *entry; folder && !found && (entry = readdir(folder));) {
    const size_t length = strlen(entry->d_name);
    ptx_error error;
    size_t bytes;
    if (length < 4 || strcmp(entry->d_name + length - 4, ".ptx") != 0)
      continue;
    char *text = read_text(entry->d_name, &bytes);
    if (text && begins_kernel(text, sass))
      found = ptx_parse(text, bytes, driver_get()->settings.split, &error);
    free(text);
    if (found && !are_same(sass, found)) {
      ptx_free(found);
      found = NULL;
    }
  }
  if (folder)
    closedir(folder);
  return found;
}

colli_cu_result driver_load_sass(const void *image, ptx_module **code, int *arch) {
  if (driver_get()->settings.sass_error)
    return driver_get()->settings.sass_error;
  cubin *sass = malloc(sizeof(*sass));
  if (!sass)
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  colli_cu_result result =
      fatbin_is(image) ? read_fatbin(image, sass) : read_cubin(image, cubin_bytes(image), sass);
  *code = result == COLLI_CUDA_SUCCESS ? find_ptx(sass) : NULL;
  *arch = sass->arch;
  free(sass);
  return result == COLLI_CUDA_SUCCESS && !*code ? COLLI_CUDA_ERROR_INVALID_IMAGE : result;
}
