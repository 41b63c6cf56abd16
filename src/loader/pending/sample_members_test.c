/* Goal: a field gets the member with its most preferred extension; the span contains the members of
 * all fields, and is scattered if they are far apart; a copy has the same members.
 * Method: a tar in the simulator, and a loader that has fields and a data set only. */
#include "loader/pending/sample_members.h"

#include "loader/pending/error_policy_test.h"

#include "loader/pending/loader_private.h"

#define LARGE (300u << 10)

/* Samples: a: jpg, cls, txt; b: txt, png; c: jpg, large.txt, cls. */
static void open_members(struct rig *rig)
{
    static uint8_t large[LARGE];
    const char *urls[] = {"/members.tar"};
    struct stoker_dataset_options options = {
        .struct_size = sizeof options, .urls = urls, .url_count = 1};
    struct t_tar tar = {0};

    t_tar_add(&tar, "a.jpg", "ajpg", 4);
    t_tar_add(&tar, "a.cls", "1", 1);
    t_tar_add(&tar, "a.txt", "text", 4);
    t_tar_add(&tar, "b.txt", "bt", 2);
    t_tar_add(&tar, "b.png", "bpng", 4);
    t_tar_add(&tar, "c.jpg", "cjpgs", 5);
    t_tar_add(&tar, "c.large.txt", large, sizeof large);
    t_tar_add(&tar, "c.cls", "3", 1);
    t_tar_end(&tar);
    T_EQ("add", stk_sim_add(rig->world, "/members.tar", tar.data, tar.bytes), 0);
    t_tar_free(&tar);
    stoker_dataset_close(rig->dataset);
    T_EQ("open", stoker_dataset_open(&rig->dataset, rig->engine, &options, NULL), 0);
}

static void add_field(struct stoker_loader *loader, uint32_t kind, const char *first,
                      const char *second)
{
    struct stk_loader_field *field = &loader->fields[loader->field_count++];
    const char *names[2] = {first, second};

    field->kind = kind;
    for (int i = 0; i < 2 && names[i]; i++) {
        int64_t id = stk_index_extension_id(loader->dataset->index, names[i]);

        T_TRUE(names[i], id >= 0);
        field->extensions[field->extension_count++] = (uint32_t)id;
    }
}

static const struct row {
    const char *name;
    uint64_t sample;
    uint64_t bytes[4]; /* of the field's member; 0: none */
    bool scattered;
} rows[] = {
    {"all members", 0, {4, 1, 0, 4}, false},
    {"the second choice, and no label", 1, {4, 0, 0, 2}, false},
    {"far apart", 2, {5, 1, 0, 5}, true},
};

static void check_row(const struct stoker_loader *loader, const struct row *row)
{
    struct stk_sample_part parts[STK_BATCH_FIELDS_MAX], copies[STK_BATCH_FIELDS_MAX];
    struct stk_sample_members members = {.parts = parts}, copy = {.parts = copies};
    uint64_t first = UINT64_MAX, end = 0;

    stk_sample_members_find(loader, row->sample, &members);
    T_TRUE(row->name, !members.is_index_damaged && !members.is_entire_object);
    T_TRUE(row->name, members.span.scattered == row->scattered);
    T_EQ(row->name, members.sample.key.data[0], 'a' + (int)row->sample);
    for (uint32_t f = 0; f < 4; f++) {
        T_EQ(row->name, parts[f].found, row->bytes[f] > 0);
        T_EQ(row->name, parts[f].found ? parts[f].member.bytes : 0, row->bytes[f]);
        first = parts[f].found ? stk_min(first, parts[f].member.offset) : first;
        end = parts[f].found ? stk_max(end, parts[f].member.offset + parts[f].member.bytes) : end;
    }
    T_EQ(row->name, members.span.offset, first);
    T_EQ(row->name, members.span.bytes, end - first);
    stk_sample_members_copy(loader, &members, &copy);
    T_TRUE("its own parts", copy.parts == copies);
    T_EQ("copy", copy.span.bytes, members.span.bytes);
    for (uint32_t f = 0; f < 4; f++) {
        T_EQ("copy", copies[f].found, parts[f].found);
    }
}

static void check_value_bytes(struct stoker_loader *loader)
{
    const struct stk_loader_field key = {.kind = STOKER_FIELD_KEY};

    T_EQ("first choice", stk_sample_value_bytes(loader, &loader->fields[0], 0), 4);
    T_EQ("no such member", stk_sample_value_bytes(loader, &loader->fields[1], 1), 0);
    T_EQ("key", stk_sample_value_bytes(loader, &key, 2), 1);
    T_EQ("no such sample", stk_sample_value_bytes(loader, &loader->fields[0], 2), 5);
}

int main(void)
{
    static struct stoker_loader loader;
    struct stoker_error error = {.status = STOKER_ERROR_CORRUPT, .offset = STOKER_NO_OFFSET};
    struct stk_sample_part parts[STK_BATCH_FIELDS_MAX];
    struct stk_sample_members members = {.parts = parts};
    struct rig rig;

    if (!rig_open(&rig, 1, 0, false)) {
        return t_finish();
    }
    open_members(&rig);
    loader.engine = rig.engine;
    loader.dataset = rig.dataset;
    add_field(&loader, STOKER_FIELD_BYTES, "jpg", "png");
    add_field(&loader, STOKER_FIELD_LABEL, "cls", NULL);
    add_field(&loader, STOKER_FIELD_KEY, NULL, NULL);
    add_field(&loader, STOKER_FIELD_BYTES, NULL, NULL); /* the first member */
    T_EACH(row, row, rows)
    {
        check_row(&loader, row);
    }
    check_value_bytes(&loader);
    stk_sample_members_find(&loader, 1, &members);
    stk_sample_members_locate_error(&loader, &members, 7, &error);
    T_HAS("shard", error.shard, "members.tar");
    T_STR("key", error.key, "b");
    T_EQ("offset", error.offset, 7);
    rig_close(&rig);
    return t_finish();
}
