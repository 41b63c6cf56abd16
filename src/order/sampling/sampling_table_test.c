/* Goal: a table in a file gives the same results as in memory, and the same bytes each time; a
 * damaged, truncated or malicious one is refused or reported as damaged, and never read outside.
 * Method: images of every content compared with their tables; each byte of one changed; footers
 * with wrong numbers and valid checksums; failing memory. Takes a seed as its argument. */
#include "order/sampling/sampling_table.h"

#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "test/t.h"

#include <stdlib.h>
#include <string.h>

#define SAMPLES 10000u

static uint64_t seed = 1;

struct rig {
    struct stk_subset subset;
    struct stk_alias_table alias;
    struct stk_class_balance classes;
    struct stk_view image;
};

static void rig_open(struct rig *rig, int content)
{
    struct stk_sampling_table_content parts = {
        .sample_count = SAMPLES,
        .identity = {1},
        .rule_digest = {2},
        .data_stamp = content & 1 ? 0 : 77,
    };
    uint32_t *numbers = stk_alloc(SAMPLES, sizeof *numbers);
    uint64_t count = SAMPLES;

    memset(rig, 0, sizeof *rig);
    if (content & 1) {
        T_EQ("subset", stk_subset_init(&rig->subset, SAMPLES, NULL), 0);
        for (uint64_t i = 0; i < SAMPLES; i++) {
            if (stk_random_key(seed, i) % 3 == 0) {
                stk_subset_add(&rig->subset, i);
            }
        }
        stk_subset_freeze(&rig->subset);
        parts.subset = &rig->subset;
        count = rig->subset.count;
    }
    for (uint64_t i = 0; i < count; i++) {
        numbers[i] = (uint32_t)(stk_random_key(seed, ~i) % 10);
    }
    if (content & 2) {
        T_EQ("alias", stk_alias_table_init(&rig->alias, numbers, count, NULL), 0);
        parts.alias = &rig->alias;
    }
    if (content & 4) {
        T_EQ("classes", stk_class_balance_init(&rig->classes, numbers, count, 10, NULL), 0);
        parts.classes = &rig->classes;
    }
    T_EQ("image", stk_sampling_table_image(&parts, &rig->image, NULL), 0);
    stk_free(numbers);
}

static void rig_close(struct rig *rig)
{
    stk_subset_deinit(&rig->subset);
    stk_alias_table_deinit(&rig->alias);
    stk_class_balance_deinit(&rig->classes);
    stk_free((void *)(uintptr_t)rig->image.data);
}

static void test_contents(void)
{
    for (int content = 0; content < 8; content++) {
        struct rig rig, again;
        struct stk_sampling_table *table;
        bool same = true;

        rig_open(&rig, content);
        rig_open(&again, content);
        T_TRUE("the same bytes",
               rig.image.bytes == again.image.bytes &&
                   memcmp(rig.image.data, again.image.data, rig.image.bytes) == 0);
        rig_close(&again);
        T_EQ("open", stk_sampling_table_open(&table, rig.image, "x.table", NULL), 0);
        T_EQ("subset", table->subset.count, rig.subset.count);
        T_EQ("alias", table->alias.count, rig.alias.count);
        T_EQ("classes", table->classes.class_count, rig.classes.class_count);
        T_EQ("data stamp", table->data_stamp, content & 1 ? 0 : 77);
        T_TRUE("identity", table->foot.identity[0] == 1 && table->foot.rule_digest[0] == 2);
        for (uint64_t k = 0; k < rig.subset.count; k++) {
            uint64_t sample = stk_subset_select(&rig.subset, k);

            same &= stk_subset_select(&table->subset, k) == sample;
            same &= stk_subset_rank(&table->subset, sample) == k;
        }
        for (uint64_t i = 0; i < 5000 && rig.alias.count; i++) {
            same &= stk_alias_table_draw(&table->alias, seed, i) ==
                    stk_alias_table_draw(&rig.alias, seed, i);
        }
        for (uint64_t i = 0; i < 5000 && rig.classes.class_count; i++) {
            same &= stk_class_balance_draw(&table->classes, seed, i) ==
                    stk_class_balance_draw(&rig.classes, seed, i);
        }
        T_TRUE("as in memory", same);
        stk_sampling_table_close(table);
        rig_close(&rig);
    }
}

/* Reads all of a table: returns a status, or 0. */
static int walk(struct stk_view image, struct stoker_error *error)
{
    struct stk_sampling_table *table;
    struct stk_mapped_table mapped;
    uint64_t first, damage = 0, outside = 0;
    int status = stk_sampling_table_open(&table, image, "x.table", error);

    if (status < 0) {
        return status;
    }
    mapped = table->subset.mapped.fail  ? table->subset.mapped
             : table->alias.mapped.fail ? table->alias.mapped
                                        : table->classes.mapped;
    for (uint64_t k = 0; k < stk_min(table->subset.count, SAMPLES); k++) {
        first = stk_subset_select(&table->subset, k);
        damage += first == STK_MAPPED_TABLE_DAMAGED;
        outside += first != STK_MAPPED_TABLE_DAMAGED && first >= table->foot.sample_count;
    }
    for (uint64_t i = 0; i < 5000 && (table->alias.count || table->classes.class_count); i++) {
        first = table->alias.count ? stk_alias_table_draw(&table->alias, seed, i)
                                   : stk_class_balance_draw(&table->classes, seed, i);
        damage += first == STK_MAPPED_TABLE_DAMAGED;
        outside += first != STK_MAPPED_TABLE_DAMAGED && first >= table->foot.count;
    }
    T_EQ("inside", outside, 0);
    status = damage ? mapped.fail(table, error) : 0;
    stk_sampling_table_close(table);
    return status;
}

static void test_damage(void)
{
    struct stoker_error error;
    struct rig rig;
    uint8_t *image;
    uint64_t found = 0, tried = 0;

    rig_open(&rig, 1);
    image = (uint8_t *)(uintptr_t)rig.image.data;
    for (uint64_t at = 0; at < rig.image.bytes; at += 1 + stk_random_key(seed, at) % 15) {
        int status;

        error = (struct stoker_error){0};
        image[at] ^= (uint8_t)(1 + stk_random_key(seed, at) % 255);
        status = walk(rig.image, &error);
        image[at] ^= (uint8_t)(1 + stk_random_key(seed, at) % 255);
        tried++;
        found += status == STOKER_ERROR_CORRUPT || status == STOKER_ERROR_FORMAT ||
                 status == STOKER_ERROR_UNSUPPORTED;
        T_TRUE("reported", status == 0 || (error.what[0] && error.where[0] && error.advice[0]));
    }
    T_TRUE("every change", found == tried && tried > 100);
    for (uint64_t bytes = 0; bytes < rig.image.bytes;
         bytes += 1 + stk_random_key(seed, bytes) % 200) {
        T_TRUE("cut", walk((struct stk_view){image, bytes}, &error) < 0);
    }
    T_EQ("complete", walk(rig.image, &error), 0);
    rig_close(&rig);
}

/* As a person who knows the format could write it. */
static void make_sums(uint8_t *image, uint64_t bytes)
{
    struct stk_sampling_table_foot *foot = (void *)(image + bytes - sizeof *foot);
    uint64_t *sums = (uint64_t *)(void *)(image + foot->pages_at), pages = 0;

    for (uint64_t at = 0; at < foot->pages_at; at += STK_SAMPLING_TABLE_PAGE_BYTES) {
        sums[pages++] =
            stk_xxh3_64(image + at, stk_min(STK_SAMPLING_TABLE_PAGE_BYTES, foot->pages_at - at));
    }
    foot->pages_sum = stk_xxh3_64(sums, pages * 8);
    foot->foot_sum = stk_xxh3_64(foot, offsetof(struct stk_sampling_table_foot, foot_sum));
}

/* Wrong numbers with right sums: detected by the code that uses them, never a read outside. */
static void test_forgery(void)
{
    struct stoker_error error = {0};
    struct rig rig;

    for (int content = 1; content < 8; content++) {
        struct stk_sampling_table_foot *foot;
        uint64_t words, harm = 0;
        uint8_t *image;

        rig_open(&rig, content);
        image = (uint8_t *)(uintptr_t)rig.image.data;
        foot = (void *)(image + rig.image.bytes - sizeof *foot);
        words = (foot->pages_at - 16) / 8;
        for (uint64_t i = 0; i < 200; i++) {
            uint64_t *word = (uint64_t *)(void *)(image + 16 + stk_random_key(i, seed) % words * 8);
            uint64_t before = *word;

            *word = i % 3 ? stk_random_key(seed, i) : i % 2 ? UINT64_MAX : before + 1;
            make_sums(image, rig.image.bytes);
            harm += walk(rig.image, &error) != 0;
            *word = before;
        }
        for (size_t at = 16; at < sizeof *foot - 8; at += 8) { /* each number of the foot */
            uint64_t *word = (uint64_t *)(void *)((uint8_t *)foot + at), before = *word;
            bool is_name = at >= offsetof(struct stk_sampling_table_foot, identity);

            for (uint64_t i = 0; i < 4 && !is_name; i++) {
                const uint64_t values[] = {0, UINT64_MAX, before + 8, UINT64_C(1) << 40};

                *word = values[i];
                foot->foot_sum =
                    stk_xxh3_64(foot, offsetof(struct stk_sampling_table_foot, foot_sum));
                T_TRUE("a number of the foot", before == values[i] || walk(rig.image, &error) < 0);
            }
            *word = before;
        }
        T_TRUE("some is found", content == 2 || harm > 0);
        rig_close(&rig);
    }
}

static void test_memory(void)
{
    struct stoker_error error = {0};
    struct stk_view image;
    struct stk_sampling_table *table;
    struct rig rig;

    rig_open(&rig, 1);
    stk_mem_fail_nth(1);
    T_EQ("image",
         stk_sampling_table_image(&(struct stk_sampling_table_content){.sample_count = 5}, &image,
                                  &error),
         -12);
    T_ERROR("image", &error);
    for (uint64_t n = 1; n <= 3; n++) {
        error = (struct stoker_error){0};
        stk_mem_fail_nth(n);
        T_EQ("open", stk_sampling_table_open(&table, rig.image, "x.table", &error), -12);
        T_ERROR("open", &error);
    }
    stk_mem_fail_nth(0);
    rig_close(&rig);
    T_EQ("no leak", stk_mem_alive(), 0);
}

int main(int count, char **arguments)
{
    if (count > 1) {
        seed = strtoull(arguments[1], NULL, 0);
    }
    printf("seed %llu\n", (unsigned long long)seed);
    test_contents();
    test_damage();
    test_forgery();
    test_memory();
    return t_finish();
}
