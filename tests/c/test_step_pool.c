/* Pools: slots, skipped rows, rows that start afresh; and that the bits of a row depend on nothing around it. */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "step.h"
#include "test.h"

static const width_layout *const layouts[] = {NULL, &step_rows};
static const gdn2_index types[] = {GDN2_I32, GDN2_I64};

static width_case batch(uint64_t seed, int64_t B, int64_t T) { return width_new(seed, B, T, 2, 4, 20, 35); }

/* Row n alone, from its own state. */
static width_result alone(const width_case *c, int64_t n, gdn2_dtype o_dtype, const step_how *how) {
  const width_case part = width_sequence(c, n);
  const step_how single = {.dtype = how->dtype, .layout = how->layout};
  return step_run(&part, o_dtype, &single);
}

static void expect_rows_alone(const width_case *c, const width_result *got, const step_how *how) {
  for (int64_t n = 0; n < c->N; n++) {
    const width_case part = width_sequence(c, n);
    const width_result want = alone(c, n, got->dtype, how);
    if (!how->slot || how->slot[n] >= 0) width_expect_equal_part(c, got, &part, &want, n);
  }
}

/* Rows in slots here and there of a pool of NaN, in place and elsewhere, have the bits of a call of their own. A slot without a
 * row keeps its NaN: step_call_run looks. */
static void test_slots(void **state) {
  (void)state;
  static const int64_t slots[5] = {7, 0, 11, 3, 4};
  for (int type = 0; type < 2; type++)
    for (int l = 0; l < 2; l++)
      for (int elsewhere = 0; elsewhere < 2; elsewhere++)
        for (int held = GDN2_F32; held <= GDN2_F16; held++) {
          width_case c = batch(700, 5, 1 + l);
          width_set_dtype(&c, W_H0, (gdn2_dtype)held);
          const step_how how = {.dtype = (gdn2_dtype)held,
                                .to_dtype = (gdn2_dtype)held,
                                .layout = layouts[l],
                                .to = elsewhere ? (l ? &step_rows : &width_contiguous) : NULL,
                                .slot = slots,
                                .slot_type = types[type],
                                .slots = 12};
          const width_result got = step_run(&c, GDN2_F32, &how);
          expect_rows_alone(&c, &got, &how);
        }
}

static void expect_slots_kept(const step_call *call, const width_case *c, const int64_t *used, int count) {
  const tensor t = {"pool", {12, c->HV, c->K, c->V}};
  float *pool = test_floats(tensor_count(&t));
  width_buffer_load(&call->to, pool, NULL);
  for (int64_t slot = 0; slot < 12; slot++) {
    bool mine = false;
    for (int n = 0; n < count; n++) mine = mine || used[n] == slot;
    for (int64_t i = 0; i < c->HV * c->K * c->V; i++) assert_true(isnan(pool[slot * c->HV * c->K * c->V + i]) == !mine);
  }
}

/* A skipped row: o is 0, whatever its inputs are; no state is touched. The others do not notice. */
static void test_skipped_rows(void **state) {
  (void)state;
  static const int64_t slots[5] = {7, -1, 11, -1, 4}, used[3] = {7, 11, 4}, none[5] = {-1, -1, -1, -1, -1};
  for (int type = 0; type < 2; type++)
    for (int all = 0; all < 2; all++) {
      width_case c = batch(710, 5, 2);
      width_own(&c, W_V);
      for (int64_t i = 0; i < c.HV * c.V; i++) width_row(&c, W_V, 1, 0, 0)[i] = NAN;
      const step_how how = {.slot = all ? none : slots, .slot_type = types[type], .slots = 12};
      step_call call = step_call_new(&c, GDN2_BF16, &how);
      const width_result got = step_call_run(&c, &call, &how);
      expect_rows_alone(&c, &got, &how);
      expect_slots_kept(&call, &c, used, all ? 0 : 3);
      for (int64_t n = 0; n < 5; n++)
        for (int64_t i = 0; how.slot[n] < 0 && i < c.T * c.HV * c.V; i++) assert_int_equal(got.bits[n * c.T * c.HV * c.V + i], 0);
    }
}

/* A reset row starts from zeros though its slot is full of NaN; without the flag NaN comes out. */
static void test_reset(void **state) {
  (void)state;
  static const uint8_t flags[3] = {0, 1, 255};
  for (int l = 0; l < 2; l++)
    for (int T = 1; T <= 2; T++)
      for (int held = GDN2_F32; held <= GDN2_F16; held++) {
        width_case c = batch(720, 3, T), fresh = c;
        width_set_dtype(&c, W_H0, (gdn2_dtype)held);
        const size_t one = width_count(&c, W_H0) / 3;
        for (size_t i = one; i < 3 * one; i++) c.in[W_H0][i] = NAN;
        fresh.in[W_H0] = NULL;
        const step_how how = {.dtype = (gdn2_dtype)held, .layout = layouts[l]};
        step_call call = step_call_new(&c, GDN2_F32, &how), live = step_call_new(&c, GDN2_F32, &how);
        call.args.reset = flags;
        const width_result got = step_call_run(&c, &call, &how), spoiled = step_call_run(&c, &live, &how);
        for (int64_t n = 0; n < 3; n++) {
          const width_case part = width_sequence(n ? &fresh : &c, n);
          const width_result want = step_run(&part, GDN2_F32, &how);
          width_expect_equal_part(&c, &got, &part, &want, n);
          assert_true(isnan(spoiled.o[n * c.T * c.HV * c.V]) == (n > 0));
        }
      }
}

/* ---- Bits ---- */

/* Rows of different length in one call: packed one behind the other, some empty. */
static void test_packed_rows(void **state) {
  (void)state;
  static const int64_t cu[] = {0, 1, 1, 4, 9, 10}, slots[] = {3, 1, 0, -1, 5};
  for (int l = 0; l < 2; l++) {
    width_case c = width_new(730, 1, 13, 2, 4, 20, 35);
    width_cut(&c, cu, 5, 731);
    const step_how how = {.layout = layouts[l], .slot = slots, .slots = 6};
    const width_result got = step_run(&c, GDN2_F32, &how);
    expect_rows_alone(&c, &got, &how);
    for (int64_t i = 10 * c.HV * c.V; i < 13 * c.HV * c.V; i++) assert_true(got.o[i] == 0);
    for (int64_t i = 4 * c.HV * c.V; i < 9 * c.HV * c.V; i++) assert_true(got.o[i] == 0);
  }
}

static uint64_t hash_of(const width_case *c, const width_result *r) {
  const tensor o = width_o_tensor(c), h = width_h_tensor(c);
  return hash_bits(hash_bits(TEST_HASH, r->o, tensor_count(&o)), r->h_final, tensor_count(&h));
}

/* Any number of threads, thirty times each: one hash. Heads fewer than threads, and enough work for several threads. */
static void test_threads(void **state) {
  (void)state;
  static const int counts[] = {1, 2, 3, 4, 7, 16};
  const int64_t shapes[][4] = {{1, 1, 128, 256}, {1, 3, 256, 200}, {3, 8, 64, 128}, {5, 2, 17, 9}};
  for (int s = 0; s < 4; s++)
    for (int l = 0; l < 2; l++) {
      const int64_t *x = shapes[s], T = s == 0 ? 16 : 5;
      const width_case c = width_new(740 + (uint64_t)s, x[0], T, x[1], x[1], x[2], x[3]);
      const step_how first = {.layout = layouts[l], .exec = {.threads = 1}};
      const width_result want = step_run(&c, GDN2_F32, &first);
      for (int n = 0; n < 6; n++)
        for (int run = 0; run < (s == 3 ? 30 : 3); run++) {
          const void *mark = test_mark();
          const step_how how = {.layout = layouts[l], .exec = {.threads = counts[n]}};
          const width_result got = step_run(&c, GDN2_F32, &how);
          assert_true(hash_of(&c, &got) == hash_of(&c, &want));
          test_release_to(mark);
        }
    }
}

/* Any place in a batch of any size, beside NaN. */
static void test_batches(void **state) {
  (void)state;
  width_case c = batch(750, 8, 3);
  const step_how how = {.exec = {.threads = 2}};
  const width_result whole = step_run(&c, GDN2_F16, &how);
  expect_rows_alone(&c, &whole, &how);
  const width_case kept = width_sequence(&c, 5);
  const width_result want = step_run(&kept, GDN2_F16, &how);
  for (int i = W_Q; i <= W_H0; i++) {
    width_own(&c, i);
    const size_t row = width_count(&c, i) / 8;
    for (size_t x = 0; x < 8 * row; x++)
      if (x / row != 5) c.in[i][x] = NAN;
  }
  const width_result got = step_run(&c, GDN2_F16, &how);
  width_expect_equal_part(&c, &got, &kept, &want, 5);
}

/* ---- A large pool ---- */

static int resident(const char *at, size_t bytes) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = bytes / page;
  unsigned char *map = malloc(pages);
  int count = 0;
  if (!map || mincore((void *)(uintptr_t)at, pages * page, map)) fail_msg("mincore failed");
  for (size_t i = 0; i < pages; i++) count += map[i] & 1;
  free(map);
  return count;
}

/* 4100 slots of 32 heads of 128 x 128, 8.6 GB that are only promised: offsets beyond 2^31. The same bits as in a small pool, and
 * pages of other slots are never touched. */
static void test_large_pool(void **state) {
  (void)state;
  enum { SLOTS = 4100 };
  static const int64_t slots[4] = {0, 4095, 4096, 4099}, near[4] = {0, 1, 2, 3};
  const width_case c = width_new(760, 4, 1, 32, 32, 128, 128);
  const size_t one = (size_t)(32 * 128 * 128), bytes = SLOTS * one * sizeof(float);
  float *pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pool == MAP_FAILED) skip();
  const step_how how = {.slot = near, .slots = 4};
  step_call call = step_call_new(&c, GDN2_F32, &how);
  for (int n = 0; n < 4; n++)
    for (size_t i = 0; i < one; i++) pool[(size_t)slots[n] * one + i] = (float)c.in[W_H0][(size_t)n * one + i];
  const width_result want = step_call_run(&c, &call, &how);
  call.args.from.data = call.args.to.data = pool;
  call.args.slots = SLOTS;
  call.args.slot = slots;
  call.args.slot_type = GDN2_I64;
  assert_int_equal(gdn2_step(&call.args), GDN2_OK);
  for (int n = 0; n < 4; n++)
    assert_memory_equal(pool + (size_t)slots[n] * one, want.h_final + (size_t)n * one, one * sizeof(float));
  const int64_t untouched[] = {1, 2048, 4094, 4097, 4098};
  for (int n = 0; n < 5; n++) assert_int_equal(resident((char *)(pool + (size_t)untouched[n] * one), one * sizeof(float)), 0);
  assert_true(resident((char *)(pool + (size_t)4096 * one), one * sizeof(float)) > 0);
  munmap(pool, bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(test_slots),   TEST(test_skipped_rows), TEST(test_reset),      TEST(test_packed_rows),
      TEST(test_threads), TEST(test_batches),      TEST(test_large_pool),
  };
  return TEST_RUN(tests);
}
