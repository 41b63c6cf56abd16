/* Goal: a field's options become its member, its shape and its values' place; options that cannot
 * be are refused by name. Method: rows of options, opened into a loader that has nothing but a data
 * set. */
#include "loader/pending/loader_field.h"

#include "loader/pending/error_policy_test.h"
#include "loader/pending/loader_private.h"

static const struct row {
    const char *name;
    struct stoker_field_options options;
    int status;
    const char *what;
    uint32_t dtype;
    uint64_t slot_bytes;
    bool out_of_line;
} rows[] = {
    {.name = "bytes",
     .options = {.kind = STOKER_FIELD_BYTES, .extensions = "bin"},
     .dtype = STOKER_BYTES},
    {.name = "label",
     .options = {.kind = STOKER_FIELD_LABEL},
     .dtype = STOKER_INT64,
     .slot_bytes = 8},
    {.name = "text at a path",
     .options = {.kind = STOKER_FIELD_TEXT, .extensions = "bin", .path = "a.b"},
     .dtype = STOKER_BYTES,
     .out_of_line = true},
    {.name = "an array",
     .options =
         {.kind = STOKER_FIELD_ARRAY, .extensions = "bin", .dimension_count = 2, .shape = {3, 5}},
     .dtype = STOKER_FLOAT32,
     .slot_bytes = 60},
    {.name = "a ragged array",
     .options = {.kind = STOKER_FIELD_ARRAY,
                 .extensions = "bin",
                 .dtype = STOKER_INT64,
                 .dimension_count = 2,
                 .shape = {-1, 5}},
     .dtype = STOKER_INT64,
     .out_of_line = true},
    {.name = "no kind",
     .options = {.kind = 99},
     .status = STOKER_ERROR_ARGUMENT,
     .what = "a field has an unknown kind"},
    {.name = "no member",
     .options = {.kind = STOKER_FIELD_BYTES, .extensions = "jpg;png"},
     .status = STOKER_ERROR_MISSING,
     .what = "no sample has a member for a field"},
    {.name = "no side",
     .options = {.kind = STOKER_FIELD_ARRAY, .dimension_count = 1, .shape = {0}},
     .status = STOKER_ERROR_ARGUMENT,
     .what = "a side of an array is not valid"},
    {.name = "four sides",
     .options = {.kind = STOKER_FIELD_ARRAY, .dimension_count = 4},
     .status = STOKER_ERROR_ARGUMENT,
     .what = "the dtype or shape of an array is not valid"},
    {.name = "labels without a path",
     .options = {.kind = STOKER_FIELD_BOX_LABELS},
     .status = STOKER_ERROR_ARGUMENT,
     .what = "labels are for BOX_LABELS, which needs them"},
    {.name = "boxes of no image",
     .options = {.kind = STOKER_FIELD_BOXES, .extensions = "bin"},
     .status = STOKER_ERROR_ARGUMENT,
     .what = "there is no image field that a mask or boxes can follow"},
};

static void check_row(struct stoker_dataset *dataset, const struct row *row)
{
    static struct stoker_loader loader;
    struct stoker_field_options field = row->options;
    struct stoker_loader_options options = {
        .struct_size = sizeof options, .fields = &field, .field_count = 1};
    struct stoker_error error = {0};

    memset(&loader, 0, sizeof loader);
    loader.dataset = dataset;
    field.name = "its name";
    T_EQ(row->name, stk_loader_fields_open(&loader, &options, &error), row->status);
    if (row->status < 0) {
        T_ERROR(row->name, &error);
        T_STR(row->name, error.what, row->what);
    } else {
        T_EQ(row->name, loader.field_count, 1);
        T_EQ(row->name, loader.out_of_line_count, row->out_of_line);
        T_EQ(row->name, loader.fields[0].shape.dtype, row->dtype);
        T_EQ(row->name, loader.fields[0].shape.slot_bytes, row->slot_bytes);
    }
    stk_loader_fields_close(&loader);
}

int main(void)
{
    struct rig rig;

    if (!rig_open(&rig, 1, 0, false)) {
        return t_finish();
    }
    T_EACH(row, row, rows)
    {
        check_row(rig.dataset, row);
    }
    rig_close(&rig);
    return t_finish();
}
