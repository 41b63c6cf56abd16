/* All keys are read once. Samples of a folder are mostly neighbours, so that most look-ups are
 * comparisons with the folder of the key before. */
#include "index/path_classes.h"

#include "base/compare.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The last folder of a key; no bytes if there is none. */
static struct stk_view folder_of(struct stk_view key)
{
    size_t end = key.bytes, begin;

    while (end > 0 && key.data[end - 1] != '/') {
        end--;
    }
    end -= end > 0; /* without the slash */
    for (begin = end; begin > 0 && key.data[begin - 1] != '/'; begin--) {
    }
    return (struct stk_view){key.data + begin, end - begin};
}

static bool is_same(struct stk_view a, struct stk_view b)
{
    return a.bytes == b.bytes && (a.bytes == 0 || memcmp(a.data, b.data, a.bytes) == 0);
}

static int fail_key(struct stoker_error *error, int status, const char *what, const char *advice,
                    struct stk_view key)
{
    return stk_fail(error, status, what, advice, "key '%.*s'", (int)stk_min(key.bytes, 600),
                    (const char *)key.data);
}

static int add_name(struct stk_path_classes *classes, struct stk_view name,
                    struct stoker_error *error)
{
    uint32_t number;
    int status = stk_string_table_add(&classes->names, name, STK_PATH_CLASSES_MAX, &number);

    if (status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, status, "there are too many classes",
                        "a class is the folder of a sample's key; use the number in a member",
                        "at most %u classes", STK_PATH_CLASSES_MAX);
    }
    return status < 0 ? stk_fail_memory(error, "classes") : 0;
}

/* Reads the folders of all keys. is_given: all names are known. */
static int read_keys(struct stk_path_classes *classes, const struct stk_index *index, bool is_given,
                     struct stoker_error *error)
{
    uint64_t count = stk_index_samples(index);
    struct stk_view before = {0};
    int status = 0;

    for (uint64_t i = 0; status == 0 && i < count; i++) {
        struct stk_sample sample = {0};
        struct stk_view name;

        status = stk_index_sample(index, i, &sample, error);
        name = folder_of(sample.key);
        if (status < 0 || (name.bytes > 0 && is_same(name, before))) {
            continue;
        }
        if (name.bytes == 0) {
            status = fail_key(
                error, STOKER_ERROR_MISSING, "a sample is in no folder, so it has no class",
                "label='path' takes the folder of the sample's key as its class", sample.key);
        } else if (!is_given) {
            status = add_name(classes, name, error);
        } else if (stk_string_table_find(&classes->names, name) < 0) {
            status =
                fail_key(error, STOKER_ERROR_ARGUMENT, "classes lacks a folder of the data set",
                         "add its name, or leave classes out", sample.key);
        }
        before = name;
    }
    return status;
}

/* Numbers the names in the order of their bytes (is_given: as they are). */
static int number_names(struct stk_path_classes *classes, bool is_given, struct stoker_error *error)
{
    uint32_t count = classes->names.count;

    classes->labels = stk_alloc(count + 1u, sizeof *classes->labels);
    classes->sorted = stk_alloc(count + 1u, sizeof *classes->sorted);
    for (uint32_t i = 0; classes->sorted && i < count; i++) {
        struct stk_view name = stk_string_table_get(&classes->names, i);

        classes->sorted[i] = stk_alloc(name.bytes + 1, 1);
        if (!classes->sorted[i]) {
            return stk_fail_memory(error, "classes");
        }
        memcpy(classes->sorted[i], name.data, name.bytes);
    }
    if (!classes->labels || !classes->sorted) {
        return stk_fail_memory(error, "classes");
    }
    if (!is_given) {
        qsort(classes->sorted, count, sizeof *classes->sorted, stk_compare_texts);
    }
    for (uint32_t i = 0; i < count; i++) {
        struct stk_view name = {(const uint8_t *)classes->sorted[i], strlen(classes->sorted[i])};
        int64_t number = stk_string_table_find(&classes->names, name);

        STK_ASSERT(number >= 0);
        classes->labels[number] = i;
    }
    return 0;
}

int stk_path_classes_open(struct stk_path_classes **classes_out, const struct stk_index *index,
                          const char *const *names, size_t name_count, struct stoker_error *error)
{
    struct stk_path_classes *classes = stk_alloc(1, sizeof *classes);
    int status = classes ? 0 : stk_fail_memory(error, "classes");

    *classes_out = NULL;
    for (size_t i = 0; status == 0 && i < name_count; i++) {
        struct stk_view name = {(const uint8_t *)names[i], strlen(names[i])};

        status = stk_string_table_find(&classes->names, name) >= 0
                     ? stk_fail(error, STOKER_ERROR_ARGUMENT, "classes has a name twice",
                                "pass each name once", "'%.600s'", names[i])
                     : add_name(classes, name, error);
    }
    status = status < 0 ? status : read_keys(classes, index, name_count > 0, error);
    status = status < 0 ? status : number_names(classes, name_count > 0, error);
    if (status < 0) {
        stk_path_classes_close(classes);
        return status;
    }
    *classes_out = classes;
    return 0;
}

void stk_path_classes_close(struct stk_path_classes *classes)
{
    if (!classes) {
        return;
    }
    for (uint32_t i = 0; classes->sorted && i < classes->names.count; i++) {
        stk_free(classes->sorted[i]);
    }
    stk_free(classes->sorted);
    stk_free(classes->labels);
    stk_string_table_deinit(&classes->names);
    stk_free(classes);
}

int64_t stk_path_classes_label(const struct stk_path_classes *classes, struct stk_view key)
{
    struct stk_view name = folder_of(key);
    int64_t number = name.bytes > 0 ? stk_string_table_find(&classes->names, name) : -1;

    return number < 0 ? -1 : (int64_t)classes->labels[number];
}
