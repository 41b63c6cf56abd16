/* Fuzz target of sampling_table.c and of the look-ups in mix/ on borrowed tables: any bytes as a
 * file, with valid checksums (the last byte: 1) so that damage passes them. Every look-up returns
 * an existing sample, or reports that the table is damaged. */
#include "base/mem.h"
#include "base/random.h"
#include "base/xxh3.h"
#include "order/sampling/sampling_table.h"
#include "test/overwrite.h"

#include <string.h>

enum { LOOKS = 200 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void make_sums(uint8_t *image, size_t bytes)
{
    struct stk_sampling_table_foot *foot = (void *)(image + bytes - sizeof *foot);

    memcpy(image, STK_SAMPLING_TABLE_HEAD_MAGIC, 8);
    memcpy(foot->magic, STK_SAMPLING_TABLE_FOOT_MAGIC, 8);
    foot->file_bytes = bytes;
    if (foot->pages_at % 8 == 0 && foot->pages_at < bytes - sizeof *foot) {
        uint64_t *sums = (uint64_t *)(void *)(image + foot->pages_at);
        uint64_t room = (bytes - sizeof *foot - foot->pages_at) / 8, pages = 0;

        for (uint64_t at = 0; at < foot->pages_at && pages < room;
             at += STK_SAMPLING_TABLE_PAGE_BYTES) {
            sums[pages++] = stk_xxh3_64(
                image + at, stk_min(STK_SAMPLING_TABLE_PAGE_BYTES, foot->pages_at - at));
        }
        foot->pages_sum = stk_xxh3_64(sums, pages * 8);
    }
    foot->foot_sum = stk_xxh3_64(foot, offsetof(struct stk_sampling_table_foot, foot_sum));
}

static void ask(const struct stk_sampling_table *table)
{
    uint64_t samples = table->foot.sample_count, answer;

    for (uint64_t i = 0; i < LOOKS; i++) {
        uint64_t draw = stk_random_key(samples, i);

        if (table->subset.count) {
            answer = stk_subset_select(&table->subset, draw % table->subset.count);
            STK_ASSERT(answer == STK_MAPPED_TABLE_DAMAGED || answer < samples);
        }
        if (table->subset.words) {
            answer = stk_subset_rank(&table->subset, draw % (samples + 1));
            STK_ASSERT(answer == STK_MAPPED_TABLE_DAMAGED || answer <= table->subset.count);
        }
        if (table->alias.count) {
            answer = stk_alias_table_draw(&table->alias, i, draw);
            STK_ASSERT(answer == STK_MAPPED_TABLE_DAMAGED || answer < table->alias.count);
        }
        if (table->classes.class_count) {
            answer = stk_class_balance_draw(&table->classes, i, draw);
            STK_ASSERT(answer == STK_MAPPED_TABLE_DAMAGED || answer < table->classes.sample_count);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stoker_error error = {0};
    struct stk_sampling_table *table;
    size_t file_bytes = bytes ? bytes - 1 : 0;
    uint8_t *file = stk_alloc(stk_max(file_bytes, 1), 1);

    if (file && file_bytes > 0) {
        memcpy(file, data, file_bytes);
        if (data[bytes - 1] & 1 && file_bytes % 8 == 0 &&
            file_bytes >=
                sizeof(struct stk_sampling_table_head) + sizeof(struct stk_sampling_table_foot)) {
            make_sums(file, file_bytes);
        }
    }
    if (file && stk_sampling_table_open(&table, (struct stk_view){file, file_bytes}, "x.table",
                                        &error) == 0) {
        ask(table);
        for (uint32_t round = 0; round < T_OVERWRITE_ROUNDS; round++) {
            t_overwrite(file, file_bytes, round);
            ask(table);
        }
        stk_sampling_table_close(table);
    } else {
        STK_ASSERT(error.what[0] && error.where[0] && error.advice[0]);
    }
    stk_free(file);
    return 0;
}
