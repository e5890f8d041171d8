/* test_io.c - element types converted and tensor files written, read back, refused. */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"
#include "tensor_file.h"

/* ---- Conversions ---------------------------------------------------------------------------------------------------------- */

/* The value of a small float by its definition. */
static double value_of(unsigned bits, int exponent_bits, int fraction_bits) {
  unsigned fraction = bits & ((1u << fraction_bits) - 1), top = (1u << exponent_bits) - 1, exponent = bits >> fraction_bits & top;
  int bias = (1 << (exponent_bits - 1)) - 1;
  double sign = bits >> (exponent_bits + fraction_bits) ? -1 : 1;
  if (exponent == top) return fraction ? NAN : sign * INFINITY;
  if (!exponent) return sign * ldexp(fraction, 1 - bias - fraction_bits);
  return sign * ldexp(fraction + (1u << fraction_bits), (int)exponent - bias - fraction_bits);
}

typedef struct kind {
  io_dtype dtype;
  int exponent_bits, fraction_bits;
  float (*widen)(uint16_t);
  uint16_t (*narrow)(float);
} kind;
static const kind kinds[2] = {{IO_F16, 5, 10, io_f16_to_f32, io_f32_to_f16}, {IO_BF16, 8, 7, io_bf16_to_f32, io_f32_to_bf16}};

static void every_16_bit_number_is_exact(void **state) {
  (void)state;
  for (const kind *k = kinds; k < kinds + 2; k++)
    for (unsigned bits = 0; bits < 1u << 16; bits++) {
      double wanted = value_of(bits, k->exponent_bits, k->fraction_bits);
      float x = k->widen((uint16_t)bits);
      if (isnan(wanted)) {
        assert_true(isnan(x) && isnan(k->widen(k->narrow(x))));
        continue;
      }
      assert_true((double)x == wanted && !signbit(x) == !signbit(wanted));
      assert_int_equal(k->narrow(x), bits);
    }
}

/* Between two neighbours: their middle goes to the even one, the float32 numbers next to the middle to the nearer one. */
static void rounding_is_to_nearest_even(void **state) {
  (void)state;
  for (const kind *k = kinds; k < kinds + 2; k++) {
    unsigned infinite = ((1u << k->exponent_bits) - 1) << k->fraction_bits;
    for (unsigned bits = 0; bits < infinite; bits++) {
      double low = value_of(bits, k->exponent_bits, k->fraction_bits),
             high = value_of(bits + 1, k->exponent_bits, k->fraction_bits);
      if (bits + 1 == infinite) high = 2 * low - value_of(bits - 1, k->exponent_bits, k->fraction_bits); /* where it would be */
      float middle = (float)(low / 2 + high / 2);
      if (isinf(middle)) continue;
      for (int negative = 0; negative < 2; negative++) {
        float sign = negative ? -1 : 1;
        unsigned top = negative ? 0x8000u : 0u;
        assert_int_equal(k->narrow(sign * middle), top | (bits % 2 ? bits + 1 : bits));
        assert_int_equal(k->narrow(sign * nextafterf(middle, 0)), top | bits);
        assert_int_equal(k->narrow(sign * nextafterf(middle, INFINITY)), top | (bits + 1));
      }
    }
  }
}

static void nan_with_a_low_payload_stays_nan(void **state) {
  (void)state;
  uint32_t bits = 0xff800001; /* the set bit is one of those that are cut off */
  float x;
  memcpy(&x, &bits, sizeof x);
  for (const kind *k = kinds; k < kinds + 2; k++) assert_true(isnan(k->widen(k->narrow(x))) && signbit(k->widen(k->narrow(x))));
}

static void numbers_that_do_not_fit_are_told(void **state) {
  (void)state;
  const double wide[5] = {1, INFINITY, 1e39, NAN, -1e300};
  float narrow[5];
  assert_int_equal(io_to_f32(IO_F64, wide, narrow, 2), -1);
  assert_int_equal(io_to_f32(IO_F64, wide, narrow, 5), 2);
  const float large[4] = {65519, 65520, -1e9f, INFINITY};
  uint16_t half[4];
  assert_int_equal(io_from_f32(IO_F16, large, half, 4), 2);
  assert_int_equal(half[0], 0x7bff);
  assert_int_equal(half[2], 0xfc00);
}

/* Of two neighbours the nearer, though in between float32 would sit exactly half-way. */
static void float64_is_rounded_once(void **state) {
  (void)state;
  const struct {
    double x;
    uint16_t f16, bf16;
  } known[] = {{1 + 0x1p-11, 0x3c00, 0x3f80},
               {1 + 0x1p-11 + 0x1p-40, 0x3c01, 0x3f80},
               {1 + 0x1p-11 - 0x1p-40, 0x3c00, 0x3f80},
               {1 + 3 * 0x1p-11 - 0x1p-40, 0x3c01, 0x3f80},
               {1 + 0x1p-8, 0x3c04, 0x3f80},
               {1 + 0x1p-8 + 0x1p-50, 0x3c04, 0x3f81},
               {-1 - 3 * 0x1p-8 + 0x1p-50, 0xbc0c, 0xbf81},
               {0x1p-25 + 0x1p-70, 0x0001, 0x3300},
               {-1e-300, 0x8000, 0x8000}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    uint16_t half, brain;
    assert_int_equal(io_from_f64(IO_F16, &known[i].x, &half, 1) + io_from_f64(IO_BF16, &known[i].x, &brain, 1), 0);
    assert_int_equal(half, known[i].f16);
    assert_int_equal(brain, known[i].bf16);
  }
  const double large[] = {65519.999, 65520, 1e39, -1e300, INFINITY, 0x1.ffp127 - 0x1p90};
  uint16_t half[6], brain[6];
  float single[6];
  assert_int_equal(io_from_f64(IO_F16, large, half, 6), 4);
  assert_int_equal(io_from_f64(IO_BF16, large, brain, 6), 2);
  assert_int_equal(io_from_f64(IO_F32, large, single, 6), 2);
  assert_int_equal(half[0], 0x7bff);
  assert_int_equal(brain[5], 0x7f7f);
  assert_true(isinf(single[2]) && single[3] < 0);
}

/* ---- Files ---------------------------------------------------------------------------------------------------------------- */

static char folder[64];

static int make_folder(void **state) {
  (void)state;
  strcpy(folder, "test_io_XXXXXX");
  return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
  (void)state;
  int left = 0;
  DIR *d = opendir(folder);
  for (struct dirent *e; d && (e = readdir(d));) left += e->d_name[0] == '.' && strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
  if (d) rewinddir(d);
  for (struct dirent *e; d && (e = readdir(d));) unlinkat(dirfd(d), e->d_name, 0);
  if (d) closedir(d);
  return rmdir(folder) || left; /* left: temporary files that nobody removed */
}

static const char *in_folder(const char *name) {
  static char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static const float floats[6] = {1, -2, 3.5f, 0, 1e-30f, 7};
static const double doubles[2] = {0.25, -3};
static const uint16_t halves[3] = {0x3c00, 0xc000, 0x7bff}; /* 1, -2, 65504 */

static void written_tensors_are_read_back(void **state) {
  (void)state;
  const io_tensor list[5] = {{"b \"h\\", IO_BF16, 1, {3}, halves},
                             {"f", IO_F32, 2, {2, 3}, floats},
                             {"d", IO_F64, 1, {2}, doubles},
                             {"h", IO_F16, 3, {3, 1, 1}, halves},
                             {"none", IO_F32, 2, {0, 4}, NULL}};
  io_error error;
  io_file *file;
  float x[6];
  assert_int_equal(io_write_safetensors(in_folder("x.safetensors"), list, 5, &error), 0);
  assert_int_equal(io_open_safetensors(in_folder("x.safetensors"), &file, &error), 0);
  assert_int_equal(file->count, 5);
  for (int i = 0; i < 5; i++) {
    const io_entry *e = io_find(file, list[i].name);
    assert_non_null(e);
    assert_int_equal(e->dtype, list[i].dtype);
    assert_int_equal(e->rank, list[i].rank);
    assert_memory_equal(e->shape, list[i].shape, sizeof e->shape);
    assert_int_equal(e->offset % (int64_t)io_dtype_bytes(e->dtype), 0);
    assert_int_equal(io_read_f32(file, e, x, &error), 0);
    float wanted[6];
    io_to_f32(list[i].dtype, list[i].data, wanted, e->count);
    assert_memory_equal(x, wanted, (size_t)e->count * sizeof *x);
  }
  assert_null(io_find(file, "q"));
  io_close(file);
}

static void written_arrays_are_read_back(void **state) {
  (void)state;
  const io_tensor list[4] = {{"f", IO_F32, 2, {2, 3}, floats},
                             {"d", IO_F64, 1, {2}, doubles},
                             {"h", IO_F16, 0, {0}, halves},
                             {"none", IO_F32, 1, {0}, NULL}};
  io_error error;
  assert_int_equal(io_write_npy(folder, list, 4, &error), 0);
  for (int i = 0; i < 4; i++) {
    char name[32];
    float x[6], wanted[6];
    io_file *file;
    snprintf(name, sizeof name, "%s.npy", list[i].name);
    assert_int_equal(io_open_npy(in_folder(name), &file, &error), 0);
    const io_entry *e = io_find(file, "");
    assert_int_equal(e->rank, list[i].rank);
    assert_int_equal(e->offset % 64, 0);
    assert_int_equal(io_read_f32(file, e, x, &error), 0);
    io_to_f32(list[i].dtype, list[i].data, wanted, e->count);
    assert_memory_equal(x, wanted, (size_t)e->count * sizeof *x);
    io_close(file);
  }
}

/* The second name cannot be written: the first must not be there either. */
static void arrays_are_written_all_or_none(void **state) {
  (void)state;
  const io_tensor list[2] = {{"a", IO_F32, 1, {6}, floats}, {"no/b", IO_F32, 1, {6}, floats}};
  io_error error;
  struct stat status;
  assert_int_equal(io_write_npy(folder, list, 2, &error), -1);
  assert_non_null(strstr(error.text, "no/b.npy: cannot be written"));
  assert_int_equal(stat(in_folder("a.npy"), &status), -1);
}

static void more_files_than_the_list_holds_are_refused(void **state) {
  (void)state;
  char names[40][16];
  io_tensor list[40];
  io_error error;
  struct stat status;
  for (int i = 0; i < 40; i++) {
    snprintf(names[i], sizeof names[i], "t%d", i);
    list[i] = (io_tensor){names[i], IO_F32, 1, {6}, floats};
  }
  assert_int_equal(io_write_npy(folder, list, 40, &error), -1);
  assert_int_equal(stat(in_folder("t0.npy"), &status), -1);
  assert_int_equal(io_write_npy(folder, list, 32, &error), 0); /* and the places are free again */
}

static void shapes_that_overflow_are_not_written(void **state) {
  (void)state;
  const io_tensor large = {"large", IO_F32, 3, {INT64_C(1) << 40, INT64_C(1) << 40, 2}, floats};
  io_error error;
  assert_int_equal(io_write_safetensors(in_folder("x.safetensors"), &large, 1, &error), -1);
  assert_non_null(strstr(error.text, "large: the product of the shape overflows"));
  assert_int_equal(io_write_npy(folder, &large, 1, &error), -1);
}

static void sentences_hold_no_control_characters(void **state) {
  (void)state;
  io_error error;
  io_file *file;
  assert_int_equal(io_open_npy("no\033[2Jfile\n", &file, &error), -1);
  assert_null(file);
  assert_non_null(strstr(error.text, "no?[2Jfile?: cannot be opened"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_16_bit_number_is_exact),
      cmocka_unit_test(rounding_is_to_nearest_even),
      cmocka_unit_test(nan_with_a_low_payload_stays_nan),
      cmocka_unit_test(numbers_that_do_not_fit_are_told),
      cmocka_unit_test(float64_is_rounded_once),
      cmocka_unit_test_setup_teardown(written_tensors_are_read_back, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(written_arrays_are_read_back, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(arrays_are_written_all_or_none, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(more_files_than_the_list_holds_are_refused, make_folder, remove_folder),
      cmocka_unit_test_setup_teardown(shapes_that_overflow_are_not_written, make_folder, remove_folder),
      cmocka_unit_test(sentences_hold_no_control_characters),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
