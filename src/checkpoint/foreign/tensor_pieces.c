/* Tensors made of pieces: their runs, and whether pieces cover a tensor. */
#include "base/compare.h"
#include "base/mem.h"
#include "checkpoint/foreign/foreign_private.h"
#include "checkpoint/layout/dtype.h"

#include <stdlib.h>
#include <string.h>

#define PAIRS_MAX 4096u /* pieces whose boxes are compared pair by pair */

/* ---- building ---- */

struct stk_foreign_tensor *stk_foreign_add_tensor(struct stk_foreign *foreign, uint64_t *capacity,
                                                  const struct stk_foreign_form *form)
{
    uint32_t dimensions = form->dimension_count;
    struct stk_foreign_tensor *tensor;

    if (foreign->count == *capacity) {
        uint64_t wanted = *capacity ? *capacity * 2 : 64;
        void *grown = stk_realloc(foreign->tensors, *capacity, wanted, sizeof *foreign->tensors);

        if (!grown) {
            return NULL;
        }
        foreign->tensors = grown;
        *capacity = wanted;
    }
    tensor = &foreign->tensors[foreign->count++];
    tensor->name = stk_strdup(form->name);
    tensor->shape = stk_alloc(dimensions + 1, sizeof *tensor->shape);
    tensor->pieces = stk_alloc(form->piece_count + 1, sizeof *tensor->pieces);
    tensor->numbers =
        stk_alloc((size_t)form->piece_count * dimensions * 3 + 1, sizeof *tensor->numbers);
    if (!tensor->name || !tensor->shape || !tensor->pieces || !tensor->numbers) {
        return NULL;
    }
    for (uint32_t i = 0; i < dimensions; i++) {
        tensor->shape[i] = form->shape[i];
    }
    tensor->dimension_count = dimensions;
    tensor->element_bytes = stk_checkpoint_dtype_bits(form->dtype, &tensor->dtype) / 8;
    tensor->piece_count = form->piece_count;
    (void)stk_checkpoint_tensor_bytes(tensor->element_bytes * 8, form->shape, dimensions,
                                      &tensor->bytes);
    return tensor;
}

uint32_t stk_foreign_add_file(struct stk_foreign *foreign, uint32_t *capacity, const char *name,
                              uint64_t bytes)
{
    if (foreign->file_count == *capacity) {
        uint32_t wanted = *capacity ? *capacity * 2 : 16;
        void *grown = stk_realloc(foreign->files, *capacity, wanted, sizeof *foreign->files);

        if (!grown) {
            return UINT32_MAX;
        }
        foreign->files = grown;
        *capacity = wanted;
    }
    foreign->files[foreign->file_count] =
        (struct stk_foreign_file){.name = stk_strdup(name), .bytes = bytes};
    return foreign->files[foreign->file_count].name ? foreign->file_count++ : UINT32_MAX;
}

void stk_foreign_set_piece(struct stk_foreign_tensor *tensor, uint32_t index,
                           const struct stk_foreign_piece *piece)
{
    uint32_t dimensions = tensor->dimension_count;
    uint64_t *numbers = tensor->numbers + (size_t)index * dimensions * 3;

    for (uint32_t i = 0; i < dimensions; i++) { /* they may be those of the piece itself */
        numbers[i] = piece->origin ? piece->origin[i] : 0;
        numbers[dimensions + i] = piece->sizes[i];
        numbers[2 * dimensions + i] = piece->strides[i];
    }
    tensor->pieces[index] = (struct stk_foreign_piece){.file = piece->file,
                                                       .offset = piece->offset,
                                                       .origin = numbers,
                                                       .sizes = numbers + dimensions,
                                                       .strides = numbers + 2 * dimensions};
}

void stk_foreign_deinit(struct stk_foreign *foreign)
{
    for (uint64_t i = 0; i < foreign->count; i++) {
        stk_free(foreign->tensors[i].name);
        stk_free(foreign->tensors[i].shape);
        stk_free(foreign->tensors[i].pieces);
        stk_free(foreign->tensors[i].numbers);
    }
    for (uint32_t i = 0; i < foreign->file_count; i++) {
        stk_free(foreign->files[i].name);
    }
    stk_free(foreign->tensors);
    stk_free(foreign->files);
    stk_free(foreign->wanted);
    stk_free(foreign->tree);
    stk_free(foreign->values);
    *foreign = (struct stk_foreign){0};
}

const char *stk_foreign_tensor_at(const struct stk_foreign *foreign, uint32_t file, uint64_t offset)
{
    for (uint64_t i = 0; i < foreign->count; i++) {
        const struct stk_foreign_tensor *tensor = &foreign->tensors[i];

        for (uint32_t j = 0; j < tensor->piece_count; j++) {
            const struct stk_foreign_piece *piece = &tensor->pieces[j];
            uint64_t bytes = tensor->element_bytes;

            for (uint32_t k = 0; k < tensor->dimension_count; k++) {
                bytes *= piece->sizes[k];
            }
            if (piece->file == file && offset >= piece->offset && offset - piece->offset < bytes) {
                return tensor->name;
            }
        }
    }
    return NULL;
}

/* ---- checks ---- */

int stk_foreign_check_names(const struct stk_foreign *foreign, struct stoker_error *error)
{
    const char **names = stk_alloc(foreign->count + 1, sizeof *names);
    int status = names ? 0 : stk_fail_memory(error, "names of tensors");

    for (uint64_t i = 0; status == 0 && i < foreign->count; i++) {
        names[i] = foreign->tensors[i].name;
    }
    if (status == 0) {
        qsort(names, foreign->count, sizeof *names, stk_compare_texts);
    }
    for (uint64_t i = 1; status == 0 && i < foreign->count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = stk_fail(error, STOKER_ERROR_UNSUPPORTED, "two tensors have the same path",
                              "rename a key of the tree that contains a dot", "tensor '%.300s'",
                              names[i]);
        }
    }
    stk_free(names);
    return status;
}

static int fail_pieces(const struct stk_foreign_tensor *tensor, const char *what,
                       struct stoker_error *error)
{
    return stk_fail(error, STOKER_ERROR_CORRUPT, what, STK_FOREIGN_ADVICE, "tensor '%.300s'",
                    tensor->name);
}

static bool overlap(const struct stk_foreign_piece *a, const struct stk_foreign_piece *b,
                    uint32_t dimensions)
{
    for (uint32_t i = 0; i < dimensions; i++) {
        if (a->origin[i] >= b->origin[i] + b->sizes[i] ||
            b->origin[i] >= a->origin[i] + a->sizes[i]) {
            return false;
        }
    }
    return true;
}

static int by_origin(const void *a, const void *b)
{
    const struct stk_foreign_piece *x = a, *y = b;

    return x->origin[0] < y->origin[0] ? -1 : x->origin[0] > y->origin[0];
}

/* Pieces that are rows of the tensor: sorted, each begins where the one before ends. */
static bool are_rows(const struct stk_foreign_tensor *tensor)
{
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        for (uint32_t j = 1; j < tensor->dimension_count; j++) {
            if (tensor->pieces[i].sizes[j] != tensor->shape[j]) {
                return false;
            }
        }
    }
    return tensor->dimension_count > 0;
}

int stk_foreign_check_pieces(const struct stk_foreign_tensor *tensor, struct stoker_error *error)
{
    struct stk_foreign_piece *pieces = tensor->pieces;
    uint32_t dimensions = tensor->dimension_count;
    uint64_t elements = 0, end = 0;

    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        uint64_t all = 1;

        for (uint32_t j = 0; j < dimensions; j++) {
            uint64_t behind;

            if (!stk_add(pieces[i].origin[j], pieces[i].sizes[j], &behind) ||
                behind > tensor->shape[j]) {
                return fail_pieces(tensor, "a chunk lies outside of its tensor", error);
            }
            all *= pieces[i].sizes[j]; /* at most the elements of the tensor */
        }
        if (!stk_add(elements, all, &elements)) {
            return fail_pieces(tensor, "the chunks of a tensor overlap", error);
        }
    }
    if (elements * tensor->element_bytes != tensor->bytes ||
        elements > UINT64_MAX / tensor->element_bytes) {
        return fail_pieces(tensor, "the chunks of a tensor do not cover it once", error);
    }
    if (are_rows(tensor)) {
        qsort(pieces, tensor->piece_count, sizeof *pieces, by_origin);
        for (uint32_t i = 0; i < tensor->piece_count; i++) {
            if (pieces[i].origin[0] != end && pieces[i].sizes[0] > 0) {
                return fail_pieces(tensor, "the chunks of a tensor do not cover it once", error);
            }
            end = pieces[i].sizes[0] > 0 ? pieces[i].origin[0] + pieces[i].sizes[0] : end;
        }
        return 0;
    }
    if (tensor->piece_count > PAIRS_MAX) {
        return stk_fail(
            error, STOKER_ERROR_LIMIT, "a tensor has more than 4096 chunks that are no rows",
            "load it with torch, and save it on fewer ranks", "tensor '%.300s'", tensor->name);
    }
    for (uint32_t i = 0; i < tensor->piece_count; i++) {
        for (uint32_t j = i + 1; j < tensor->piece_count; j++) {
            if (overlap(&pieces[i], &pieces[j], dimensions)) {
                return fail_pieces(tensor, "the chunks of a tensor overlap", error);
            }
        }
    }
    return 0;
}

/* ---- runs ---- */

struct plan {
    const struct stk_foreign_tensor *tensor;
    uint64_t begin, end; /* bytes of the tensor */
    int (*visit)(void *context, const struct stk_foreign_run *run);
    void *context;
};

/* A box row by row: `inner` is the first dimension from which a row is contiguous, both in the
 * tensor and in the file; run: elements of a row. */
static uint32_t inner_dimension(const struct stk_foreign_tensor *tensor,
                                const struct stk_foreign_piece *piece, uint64_t *run_out)
{
    uint32_t inner = tensor->dimension_count;
    uint64_t run = 1;

    while (inner > 0) {
        uint32_t i = inner - 1;

        /* Joining dimension i needs that everything after it is complete. */
        if (piece->sizes[i] != 1 && piece->strides[i] != run) {
            break;
        }
        run *= piece->sizes[i];
        inner = i;
        if (piece->sizes[i] != tensor->shape[i]) {
            break;
        }
    }
    *run_out = run;
    return inner;
}

static int emit(const struct plan *plan, const struct stk_foreign_piece *piece, uint64_t element,
                uint64_t source, uint64_t run)
{
    uint64_t size = plan->tensor->element_bytes;
    uint64_t first = element * size, last = first + run * size;
    uint64_t from = stk_max(first, plan->begin), to = stk_min(last, plan->end);
    struct stk_foreign_run out;

    if (from >= to) {
        return 0;
    }
    out = (struct stk_foreign_run){.at = from,
                                   .offset = piece->offset + source * size + (from - first),
                                   .bytes = to - from,
                                   .file = piece->file};
    return plan->visit(plan->context, &out);
}

static int visit_piece(const struct plan *plan, const struct stk_foreign_piece *piece)
{
    const struct stk_foreign_tensor *tensor = plan->tensor;
    uint64_t steps[STOKER_CHECKPOINT_DIMENSIONS_MAX], at[STOKER_CHECKPOINT_DIMENSIONS_MAX] = {0};
    uint64_t run, element = 0, source = 0, step = 1;
    uint32_t inner = inner_dimension(tensor, piece, &run);
    int status;

    for (uint32_t i = tensor->dimension_count; i-- > 0;) {
        if (piece->sizes[i] == 0) {
            return 0;
        }
        steps[i] = step;
        element += piece->origin[i] * step;
        step *= tensor->shape[i];
    }
    if (inner > 0) { /* the first row that can reach into the range */
        uint64_t rows = steps[0] * tensor->element_bytes, first = plan->begin / rows;

        at[0] = first > piece->origin[0] ? first - piece->origin[0] : 0;
        element += at[0] * steps[0];
        source += at[0] * piece->strides[0];
    }
    while (inner == 0 || at[0] < piece->sizes[0]) {
        uint32_t i = inner;

        if (element * tensor->element_bytes >= plan->end) {
            return 0; /* later rows are behind the range, too */
        }
        status = emit(plan, piece, element, source, run);
        if (status != 0 || inner == 0) {
            return status;
        }
        while (i-- > 0) { /* the next row */
            at[i]++;
            element += steps[i];
            source += piece->strides[i];
            if (at[i] < piece->sizes[i] || i == 0) {
                break;
            }
            element -= at[i] * steps[i];
            source -= at[i] * piece->strides[i];
            at[i] = 0;
        }
    }
    return 0;
}

int stk_foreign_runs(const struct stk_foreign_tensor *tensor, uint64_t begin, uint64_t end,
                     int (*visit)(void *context, const struct stk_foreign_run *run), void *context)
{
    struct plan plan = {tensor, begin, end, visit, context};
    int status = 0;

    for (uint32_t i = 0; status == 0 && begin < end && i < tensor->piece_count; i++) {
        status = visit_piece(&plan, &tensor->pieces[i]);
    }
    return status;
}
