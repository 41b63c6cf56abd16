/* The file of a sampling table: its parts, checksums of pages, and a footer with their places. */
#include "order/sampling/sampling_table.h"

#include "base/mem.h"
#include "base/xxh3.h"

#include <errno.h>
#include <string.h>

static bool page_is_valid(const void *context, const void *at, size_t bytes);
static int fail_page(const void *context, struct stoker_error *error);

/* ---- making ---- */

static void source_of(const struct stk_sampling_table_content *content,
                      const void *data[STK_SAMPLING_TABLE_PARTS],
                      uint64_t bytes[STK_SAMPLING_TABLE_PARTS])
{
    const struct stk_subset *subset = content->subset;
    const struct stk_alias_table *alias = content->alias;
    const struct stk_class_balance *classes = content->classes;

    memset(bytes, 0, STK_SAMPLING_TABLE_PARTS * sizeof *bytes);
    if (subset) {
        data[STK_SAMPLING_TABLE_WORDS] = subset->words;
        data[STK_SAMPLING_TABLE_RANKS] = subset->ranks;
        data[STK_SAMPLING_TABLE_SELECTS] = subset->selects;
        bytes[STK_SAMPLING_TABLE_WORDS] = stk_subset_words(subset->sample_count) * 8;
        bytes[STK_SAMPLING_TABLE_RANKS] = stk_subset_ranks(subset->sample_count) * 8;
        bytes[STK_SAMPLING_TABLE_SELECTS] = stk_subset_selects(subset->count) * 8;
    }
    if (alias) {
        data[STK_SAMPLING_TABLE_THRESHOLDS] = alias->thresholds;
        data[STK_SAMPLING_TABLE_ALIASES] = alias->aliases;
        bytes[STK_SAMPLING_TABLE_THRESHOLDS] = bytes[STK_SAMPLING_TABLE_ALIASES] = alias->count * 4;
    }
    if (classes) {
        data[STK_SAMPLING_TABLE_STARTS] = classes->starts;
        data[STK_SAMPLING_TABLE_SAMPLES] = classes->samples;
        bytes[STK_SAMPLING_TABLE_STARTS] = ((uint64_t)classes->class_count + 1) * 8;
        bytes[STK_SAMPLING_TABLE_SAMPLES] = classes->sample_count * 4;
    }
}

int stk_sampling_table_image(const struct stk_sampling_table_content *content,
                             struct stk_view *image_out, struct stoker_error *error)
{
    struct stk_sampling_table_head head = {.version = STK_SAMPLING_TABLE_VERSION,
                                           .page_bytes = STK_SAMPLING_TABLE_PAGE_BYTES};
    struct stk_sampling_table_foot foot = {
        .version = STK_SAMPLING_TABLE_VERSION,
        .page_bytes = STK_SAMPLING_TABLE_PAGE_BYTES,
        .sample_count = content->sample_count,
        .count = content->subset ? content->subset->count : content->sample_count,
        .class_count = content->classes ? content->classes->class_count : 0,
    };
    const void *data[STK_SAMPLING_TABLE_PARTS];
    uint64_t bytes[STK_SAMPLING_TABLE_PARTS], at = sizeof head, page_count;
    uint8_t *image;

    source_of(content, data, bytes);
    for (int part = 0; part < STK_SAMPLING_TABLE_PARTS; part++) {
        foot.parts[part][0] = bytes[part] ? at : 0;
        foot.parts[part][1] = bytes[part];
        at = stk_round_up(at + bytes[part], 8);
    }
    at += content->data_stamp ? sizeof content->data_stamp : 0;
    page_count = stk_paged_file_page_count(at);
    foot.pages_at = at;
    foot.file_bytes = at + page_count * 8 + sizeof foot;
    image = stk_alloc(foot.file_bytes, 1);
    if (!image) {
        return stk_fail_memory(error, "sampling table, %llu bytes",
                               (unsigned long long)foot.file_bytes);
    }
    memcpy(head.magic, STK_SAMPLING_TABLE_HEAD_MAGIC, sizeof head.magic);
    memcpy(foot.magic, STK_SAMPLING_TABLE_FOOT_MAGIC, sizeof foot.magic);
    memcpy(foot.identity, content->identity, sizeof foot.identity);
    memcpy(foot.rule_digest, content->rule_digest, sizeof foot.rule_digest);
    memcpy(image, &head, sizeof head);
    for (int part = 0; part < STK_SAMPLING_TABLE_PARTS; part++) {
        if (bytes[part] > 0) {
            memcpy(image + foot.parts[part][0], data[part], bytes[part]);
        }
    }
    if (content->data_stamp) {
        memcpy(image + at - sizeof content->data_stamp, &content->data_stamp,
               sizeof content->data_stamp);
    }
    stk_paged_file_checksums((struct stk_view){image, at}, (uint64_t *)(void *)(image + at));
    foot.pages_sum = stk_xxh3_64(image + at, page_count * 8);
    foot.foot_sum = stk_xxh3_64(&foot, offsetof(struct stk_sampling_table_foot, foot_sum));
    memcpy(image + at + page_count * 8, &foot, sizeof foot);
    *image_out = (struct stk_view){image, foot.file_bytes};
    return 0;
}

/* ---- using ---- */

static int damaged(const char *name, uint64_t at, const char *detail, struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CORRUPT, "the sampling table is damaged",
             "remove it: it will be created again", "%s", detail);
    stk_error_set_location(error, name, at, NULL);
    return STOKER_ERROR_CORRUPT;
}

/* Returns the size that a part must have; the counts of the footer were bounded before. */
static uint64_t expected_bytes(const struct stk_sampling_table_foot *foot, int part)
{
    switch ((enum stk_sampling_table_part)part) {
    case STK_SAMPLING_TABLE_WORDS:
        return stk_subset_words(foot->sample_count) * 8;
    case STK_SAMPLING_TABLE_RANKS:
        return stk_subset_ranks(foot->sample_count) * 8;
    case STK_SAMPLING_TABLE_SELECTS:
        return stk_subset_selects(foot->count) * 8;
    case STK_SAMPLING_TABLE_STARTS:
        return foot->class_count ? (foot->class_count + 1) * 8 : UINT64_MAX;
    case STK_SAMPLING_TABLE_SAMPLES:
        return foot->class_count ? foot->count * 4 : UINT64_MAX;
    case STK_SAMPLING_TABLE_THRESHOLDS:
    case STK_SAMPLING_TABLE_ALIASES:
    case STK_SAMPLING_TABLE_PARTS:
        break;
    }
    return foot->count * 4;
}

static bool has(const struct stk_sampling_table_foot *foot, enum stk_sampling_table_part part)
{
    return foot->parts[part][1] > 0;
}

/* Checks that the parts of one table are all present, inside the file, and of the right size. */
static bool parts_fit(const struct stk_sampling_table_foot *foot)
{
    bool fit = true;

    for (int part = 0; part < STK_SAMPLING_TABLE_PARTS; part++) {
        uint64_t at = foot->parts[part][0], bytes = foot->parts[part][1], end;

        fit = fit && stk_add(at, bytes, &end) && end <= foot->pages_at && at % 8 == 0 &&
              (bytes == 0 || bytes == expected_bytes(foot, part));
    }
    return fit && has(foot, STK_SAMPLING_TABLE_WORDS) == has(foot, STK_SAMPLING_TABLE_RANKS) &&
           has(foot, STK_SAMPLING_TABLE_WORDS) == has(foot, STK_SAMPLING_TABLE_SELECTS) &&
           has(foot, STK_SAMPLING_TABLE_THRESHOLDS) == has(foot, STK_SAMPLING_TABLE_ALIASES) &&
           has(foot, STK_SAMPLING_TABLE_STARTS) == has(foot, STK_SAMPLING_TABLE_SAMPLES) &&
           has(foot, STK_SAMPLING_TABLE_STARTS) == (foot->class_count > 0) &&
           (has(foot, STK_SAMPLING_TABLE_WORDS) || foot->count == foot->sample_count) &&
           ((!has(foot, STK_SAMPLING_TABLE_THRESHOLDS) && foot->class_count == 0) ||
            (foot->count > 0 && foot->count <= UINT32_MAX));
}

static int read_foot(struct stk_sampling_table *table, struct stoker_error *error)
{
    struct stk_sampling_table_foot *foot = &table->foot;
    struct stk_sampling_table_head head;
    struct stk_view image = table->image;
    uint64_t at = image.bytes - sizeof *foot;
    int status;

    if (image.bytes < sizeof head || memcmp(image.data, STK_SAMPLING_TABLE_HEAD_MAGIC, 8) != 0) {
        return stk_fail(error, STOKER_ERROR_FORMAT, "the file is not a sampling table",
                        "remove it: it will be created again", "'%s'", table->name);
    }
    memcpy(&head, image.data, sizeof head);
    if (head.version != STK_SAMPLING_TABLE_VERSION ||
        head.page_bytes != STK_SAMPLING_TABLE_PAGE_BYTES) {
        return stk_fail(error, STOKER_ERROR_UNSUPPORTED, "the sampling table has another version",
                        "remove it: it will be created again", "'%s' version %u", table->name,
                        head.version);
    }
    if (image.bytes < sizeof head + sizeof *foot || image.bytes % 8 != 0) {
        return damaged(table->name, image.bytes, "it ends too early", error);
    }
    memcpy(foot, image.data + at, sizeof *foot);
    if (memcmp(foot->magic, STK_SAMPLING_TABLE_FOOT_MAGIC, 8) != 0 ||
        foot->foot_sum != stk_xxh3_64(foot, offsetof(struct stk_sampling_table_foot, foot_sum))) {
        return damaged(table->name, at, "its foot is not what was written: it may be cut", error);
    }
    if (foot->version != STK_SAMPLING_TABLE_VERSION ||
        foot->page_bytes != STK_SAMPLING_TABLE_PAGE_BYTES || foot->file_bytes != image.bytes ||
        foot->pages_at < sizeof head ||
        !stk_paged_file_fits(image.bytes, foot->pages_at, sizeof *foot) ||
        foot->sample_count > STK_ORDER_SAMPLES_MAX || foot->count > foot->sample_count ||
        foot->class_count > foot->count || !parts_fit(foot)) {
        return damaged(table->name, at, "its foot contradicts itself", error);
    }
    status = stk_paged_file_open(&table->file, image, foot->pages_at, foot->pages_sum);
    return status == -ENOMEM ? stk_fail_memory(error, "'%s'", table->name)
           : status < 0
               ? damaged(table->name, foot->pages_at, "its sums are not what was written", error)
               : 0;
}

/* Returns the tables in the form that mix/ uses. mix/ only reads the borrowed memory. */
static void *part_of(const struct stk_sampling_table *table, enum stk_sampling_table_part part)
{
    return (void *)(uintptr_t)(table->image.data + table->foot.parts[part][0]);
}

static void set_views(struct stk_sampling_table *table)
{
    const struct stk_sampling_table_foot *foot = &table->foot;
    struct stk_mapped_table mapped = {page_is_valid, fail_page, table};

    if (has(foot, STK_SAMPLING_TABLE_WORDS)) {
        table->subset = (struct stk_subset){.sample_count = foot->sample_count,
                                            .count = foot->count,
                                            .words = part_of(table, STK_SAMPLING_TABLE_WORDS),
                                            .ranks = part_of(table, STK_SAMPLING_TABLE_RANKS),
                                            .selects = part_of(table, STK_SAMPLING_TABLE_SELECTS),
                                            .mapped = mapped};
    }
    if (has(foot, STK_SAMPLING_TABLE_THRESHOLDS)) {
        table->alias =
            (struct stk_alias_table){.count = foot->count,
                                     .thresholds = part_of(table, STK_SAMPLING_TABLE_THRESHOLDS),
                                     .aliases = part_of(table, STK_SAMPLING_TABLE_ALIASES),
                                     .mapped = mapped};
    }
    if (has(foot, STK_SAMPLING_TABLE_STARTS)) {
        table->classes =
            (struct stk_class_balance){.class_count = (uint32_t)foot->class_count,
                                       .sample_count = foot->count,
                                       .starts = part_of(table, STK_SAMPLING_TABLE_STARTS),
                                       .samples = part_of(table, STK_SAMPLING_TABLE_SAMPLES),
                                       .mapped = mapped};
    }
}

/* Reads the data stamp, if there is one behind the parts. */
static void read_data_stamp(struct stk_sampling_table *table)
{
    const struct stk_sampling_table_foot *foot = &table->foot;
    uint64_t end = sizeof(struct stk_sampling_table_head), damaged_at;
    const void *stamp;

    for (int part = 0; part < STK_SAMPLING_TABLE_PARTS; part++) {
        end = stk_max(end, stk_round_up(foot->parts[part][0] + foot->parts[part][1], 8));
    }
    if (foot->pages_at != end + sizeof table->data_stamp) {
        return;
    }
    stamp = stk_paged_file_view(&table->file, end, sizeof table->data_stamp, &damaged_at);
    if (stamp) {
        memcpy(&table->data_stamp, stamp, sizeof table->data_stamp);
    }
}

int stk_sampling_table_open(struct stk_sampling_table **table_out, struct stk_view image,
                            const char *name, struct stoker_error *error)
{
    struct stk_sampling_table *table = stk_alloc(1, sizeof *table);
    int status;

    *table_out = NULL;
    STK_ASSERT((uintptr_t)image.data % 8 == 0);
    if (table) {
        table->image = image;
        table->name = stk_strdup(name);
    }
    status = table && table->name ? read_foot(table, error)
                                  : stk_fail_memory(error, "sampling table, '%s'", name);
    if (status < 0) {
        stk_sampling_table_close(table);
        return status;
    }
    set_views(table);
    read_data_stamp(table);
    *table_out = table;
    return 0;
}

void stk_sampling_table_close(struct stk_sampling_table *table)
{
    if (table) {
        stk_paged_file_close(&table->file);
        stk_free(table->name);
        stk_free(table);
    }
}

static bool page_is_valid(const void *context, const void *at, size_t bytes)
{
    const struct stk_sampling_table *table = context;
    uint64_t first = (uint64_t)((const uint8_t *)at - table->image.data);
    uint64_t damaged_at = STOKER_NO_OFFSET;

    STK_ASSERT(first + bytes <= table->foot.pages_at);
    return stk_paged_file_view(&table->file, first, bytes, &damaged_at) != NULL;
}

/* The damaged page is not stored: search for it again. */
static int fail_page(const void *context, struct stoker_error *error)
{
    const struct stk_sampling_table *table = context;
    uint64_t damaged_at = STOKER_NO_OFFSET;

    if (!stk_paged_file_view(&table->file, 0, table->foot.pages_at, &damaged_at)) {
        return damaged(table->name, damaged_at, "a page is not what was written", error);
    }
    return damaged(table->name, STOKER_NO_OFFSET, "its numbers contradict each other", error);
}
