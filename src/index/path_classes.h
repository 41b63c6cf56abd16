/* index/path_classes.h: classes of samples by the folders of their keys: the class of
 * "imagenet/n01/img_1" is "n01". For tars of class folders.
 *
 *   first use --reads all keys, or takes the given names--> numbers, sorted by name --> label of a
 * key
 *
 * Owner: the caller. Threads: any after open.
 * Memory: each name once, 16 bytes each. Bound: STK_PATH_CLASSES_MAX. */
#ifndef INDEX_PATH_CLASSES_H
#define INDEX_PATH_CLASSES_H

#include "index/index.h"
#include "index/string_table.h"

#define STK_PATH_CLASSES_MAX (1u << 20)

struct stk_path_classes {
    struct stk_string_table names; /* in the order in which they were found */
    uint32_t *labels;              /* owned: of each name */
    char **sorted;                 /* owned, each too: the name of each label */
};

/* Makes the classes of an index: sorted by name, or the given names in their order (name_count 0:
 * none). Returns 0 on success, STOKER_ERROR_MISSING if a key has no folder, STOKER_ERROR_ARGUMENT
 * if the names lack a folder or have one twice, STOKER_ERROR_LIMIT, -ENOMEM. */
int stk_path_classes_open(struct stk_path_classes **classes_out, const struct stk_index *index,
                          const char *const *names, size_t name_count, struct stoker_error *error);
void stk_path_classes_close(struct stk_path_classes *classes); /* NULL is allowed */
/* The label of a key, -1 if its folder is no class. */
int64_t stk_path_classes_label(const struct stk_path_classes *classes, struct stk_view key);

#endif
