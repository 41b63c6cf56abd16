/* A list of paths in one text. */
#include "storage/source/path_list.h"

#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int compare_names(const void *left, const void *right, void *text)
{
    const uint64_t *a = left, *b = right;

    return strcmp((const char *)text + *a, (const char *)text + *b);
}

int stk_path_list_add(struct stk_path_list *names, const char *name, size_t bytes)
{
    void *text = names->text, *offsets = names->offsets;
    int status;

    if (names->count >= STK_SOURCE_FILES_MAX || bytes >= STK_PATH_LIST_BYTES_MAX - names->bytes) {
        return STOKER_ERROR_LIMIT;
    }
    status = stk_reserve(&text, &names->capacity, names->bytes + bytes + 1, 1);
    names->text = text;
    if (status == 0) {
        status = stk_reserve(&offsets, &names->offsets_capacity, names->count + 1,
                             sizeof *names->offsets);
        names->offsets = offsets;
    }
    if (status == 0) {
        memcpy(names->text + names->bytes, name, bytes);
        names->text[names->bytes + bytes] = '\0';
        names->offsets[names->count++] = names->bytes;
        names->bytes += bytes + 1;
    }
    return status;
}

void stk_path_list_sort(struct stk_path_list *names, uint64_t first, bool unique)
{
    uint64_t unique_count = first;

    if (names->count - first < 2) {
        return;
    }
    qsort_r(names->offsets + first, names->count - first, sizeof *names->offsets, compare_names,
            names->text);
    for (uint64_t i = first; i < names->count && unique; i++) {
        if (unique_count == first ||
            strcmp(stk_path_list_get(names, i), stk_path_list_get(names, unique_count - 1)) != 0) {
            names->offsets[unique_count++] = names->offsets[i];
        }
    }
    names->count = unique ? unique_count : names->count;
}

void stk_path_list_deinit(struct stk_path_list *names)
{
    stk_free(names->text);
    stk_free(names->offsets);
    *names = (struct stk_path_list){0};
}

int stk_path_list_fail(struct stoker_error *error, int status, const char *path)
{
    if (status == STOKER_ERROR_LIMIT) {
        return stk_fail(error, status, "the data set has too many files",
                        "pack them into tars: at most 2^31 objects", "'%.400s'", path);
    }
    return stk_fail_errno(error, -status, "cannot list the data set",
                          "give the process more memory", "'%.400s'", path);
}

int stk_path_list_reserve(struct stk_path_list *names, uint64_t bytes)
{
    void *text = names->text;
    int status = stk_reserve(&text, &names->capacity, bytes, 1);

    names->text = text;
    return status;
}

void stk_source_free_problems(struct stk_source_files *files)
{
    for (uint64_t i = 0; i < files->problems_listed; i++) {
        stk_free(files->problems[i].path);
    }
    stk_free(files->problems);
    files->problems = NULL;
    files->problems_listed = 0;
}

int stk_source_add_problem(struct stk_source_files *files, uint32_t kind, int status,
                           const char *path)
{
    void *problems = files->problems;
    char *copy;
    int grown;

    files->problem_count++;
    files->system_count += kind == STK_SOURCE_SYSTEM_FILE;
    if (files->problems_listed == STK_SOURCE_PROBLEMS_MAX) {
        return 0;
    }
    grown = stk_reserve(&problems, &files->problem_capacity, files->problems_listed + 1,
                        sizeof *files->problems);
    files->problems = problems;
    copy = grown == 0 ? stk_strdup(path) : NULL;
    if (!copy) {
        return -ENOMEM;
    }
    files->problems[files->problems_listed++] = (struct stk_source_problem){kind, status, copy};
    return 0;
}
