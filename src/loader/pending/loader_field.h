/* loader/pending/loader_field.h: the fields of a loader: which member of a sample a field reads,
 * and the shape of its values.
 *
 *   options of a field --open--> extensions, transform plan, shape of a slot
 *
 * Owner: the loader. Threads: open and close: one; constant in between.
 * Memory: texts of the options and transform plans. Bound: STK_BATCH_FIELDS_MAX fields. */
#ifndef LOADER_PENDING_LOADER_FIELD_H
#define LOADER_PENDING_LOADER_FIELD_H

#include "engine/batch/batch.h"

#define STK_LOADER_FIELD_EXTENSIONS_MAX 16u

struct stoker_loader;

struct stk_loader_field {
    uint32_t kind;                                        /* enum stoker_field_kind */
    uint32_t extensions[STK_LOADER_FIELD_EXTENSIONS_MAX]; /* ids, the preferred one first */
    uint32_t extension_count;
    char *requested;                 /* text of the option, for errors; owned */
    struct stk_transform_plan *plan; /* IMAGE, MASK; owned */
    char *path, *labels;             /* paths inside the member; owned */
    bool random;                     /* a random transform selects the part that is decoded */
    bool out_of_line;                /* values of unknown size: loader/pending/ragged_layout.h */
    uint32_t out_of_line_index;
    uint32_t image_field; /* MASK, BOXES: the image's field; IMAGE: its own number */
    uint32_t box_format;
    bool normalised, keep_empty;
    bool has_default;
    bool from_path;                /* LABEL: by dataset->path_classes */
    struct stk_view default_value; /* owned: see struct stoker_field_options */
    struct stk_batch_field_shape shape;
};

/* Opens all fields of the options into the loader, whose data set is open. Returns 0 on success,
 * STOKER_ERROR_ARGUMENT if an option is not valid, STOKER_ERROR_MISSING if no sample of the data
 * set has such a member or label, -ENOMEM. After an error, close frees the fields opened so far. */
int stk_loader_fields_open(struct stoker_loader *loader,
                           const struct stoker_loader_options *options, struct stoker_error *error);
void stk_loader_fields_close(struct stoker_loader *loader);

#endif
