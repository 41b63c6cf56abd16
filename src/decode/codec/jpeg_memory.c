/* libjpeg's memory manager (the interface is struct jpeg_memory_mgr in jpeglib.h): arrays whose
 * rows are aligned and padded for vector code, and "virtual" coefficient arrays that are simply
 * in memory, because an image too large for that was refused by its header. */
#include "decode/codec/jpeg_memory.h"

#include <jerror.h>
#include <string.h>

/* Vector code may write this far past a row's end; jmemmgr.c pads rows to the same multiple. */
#define ROW_BYTES_MULTIPLE 64u

struct jvirt_barray_control { /* libjpeg only declares its name */
    JBLOCKARRAY rows;
    JDIMENSION row_count, row_blocks;
    boolean zero;
    jvirt_barray_ptr next;
};

static struct stk_jpeg_memory *memory_of(j_common_ptr cinfo)
{
    return (struct stk_jpeg_memory *)cinfo->mem;
}

static void *take(j_common_ptr cinfo, uint64_t bytes)
{
    void *piece = stk_codec_arena_alloc(memory_of(cinfo)->arena, bytes);

    if (!piece) {
        ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 0);
    }
    return piece;
}

static void *alloc_small(j_common_ptr cinfo, int pool, size_t bytes)
{
    (void)pool; /* permanent or not: all of it is freed with the image */
    return take(cinfo, bytes);
}

/* Rows of row_bytes each after a table of pointers. */
static void *alloc_rows(j_common_ptr cinfo, uint64_t row_bytes, JDIMENSION row_count)
{
    uint8_t **rows = take(cinfo, (uint64_t)row_count * sizeof *rows);
    uint64_t bytes;
    uint8_t *data;

    row_bytes = stk_round_up(row_bytes, ROW_BYTES_MULTIPLE);
    if (!stk_multiply(row_bytes, row_count, &bytes)) {
        ERREXIT1(cinfo, JERR_OUT_OF_MEMORY, 1);
    }
    data = take(cinfo, bytes);
    for (JDIMENSION i = 0; i < row_count; i++) {
        rows[i] = data + i * row_bytes;
    }
    return rows;
}

static JSAMPARRAY alloc_sarray(j_common_ptr cinfo, int pool, JDIMENSION samples, JDIMENSION rows)
{
    (void)pool;
    return alloc_rows(cinfo, (uint64_t)samples * sizeof(JSAMPLE), rows);
}

static JBLOCKARRAY alloc_barray(j_common_ptr cinfo, int pool, JDIMENSION blocks, JDIMENSION rows)
{
    (void)pool;
    return alloc_rows(cinfo, (uint64_t)blocks * sizeof(JBLOCK), rows);
}

/* Only colour quantisation, which stoker does not use, has virtual arrays of samples. */
static jvirt_sarray_ptr request_virt_sarray(j_common_ptr cinfo, int pool, boolean zero,
                                            JDIMENSION samples, JDIMENSION rows, JDIMENSION access)
{
    (void)pool, (void)zero, (void)samples, (void)rows, (void)access;
    ERREXIT(cinfo, JERR_NOT_COMPILED);
    return NULL;
}

static JSAMPARRAY access_virt_sarray(j_common_ptr cinfo, jvirt_sarray_ptr array, JDIMENSION start,
                                     JDIMENSION count, boolean writable)
{
    (void)array, (void)start, (void)count, (void)writable;
    ERREXIT(cinfo, JERR_BAD_VIRTUAL_ACCESS);
    return NULL;
}

static jvirt_barray_ptr request_virt_barray(j_common_ptr cinfo, int pool, boolean zero,
                                            JDIMENSION blocks, JDIMENSION rows, JDIMENSION access)
{
    struct stk_jpeg_memory *memory = memory_of(cinfo);
    jvirt_barray_ptr array = take(cinfo, sizeof *array);

    (void)pool, (void)access;
    *array = (struct jvirt_barray_control){
        .row_count = rows, .row_blocks = blocks, .zero = zero, .next = memory->arrays};
    memory->arrays = array;
    return array;
}

static void realize_virt_arrays(j_common_ptr cinfo)
{
    for (jvirt_barray_ptr array = memory_of(cinfo)->arrays; array; array = array->next) {
        if (!array->rows) {
            array->rows = alloc_barray(cinfo, JPOOL_IMAGE, array->row_blocks, array->row_count);
            if (array->zero) {
                memset(array->rows[0], 0,
                       sizeof(JBLOCK) * (size_t)array->row_blocks * array->row_count);
            }
        }
    }
}

static JBLOCKARRAY access_virt_barray(j_common_ptr cinfo, jvirt_barray_ptr array, JDIMENSION start,
                                      JDIMENSION count, boolean writable)
{
    (void)writable;
    if (!array->rows || start > array->row_count || count > array->row_count - start) {
        ERREXIT(cinfo, JERR_BAD_VIRTUAL_ACCESS);
    }
    return array->rows + start;
}

static void free_pool(j_common_ptr cinfo, int pool)
{
    (void)cinfo, (void)pool; /* the arena is reset at once */
}

static void self_destruct(j_common_ptr cinfo)
{
    (void)cinfo;
}

void stk_jpeg_memory_init(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo,
                          struct stk_codec_arena *arena)
{
    *memory = (struct stk_jpeg_memory){
        .manager = {.alloc_small = alloc_small,
                    .alloc_large = alloc_small,
                    .alloc_sarray = alloc_sarray,
                    .alloc_barray = alloc_barray,
                    .request_virt_sarray = request_virt_sarray,
                    .request_virt_barray = request_virt_barray,
                    .realize_virt_arrays = realize_virt_arrays,
                    .access_virt_sarray = access_virt_sarray,
                    .access_virt_barray = access_virt_barray,
                    .free_pool = free_pool,
                    .self_destruct = self_destruct,
                    .max_alloc_chunk = cinfo->mem->max_alloc_chunk},
        .original = cinfo->mem,
        .arena = arena,
    };
    cinfo->mem = &memory->manager;
}

void stk_jpeg_memory_reset(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo)
{
    memory->arrays = NULL;
    memset(cinfo->quant_tbl_ptrs, 0, sizeof cinfo->quant_tbl_ptrs);
    memset(cinfo->dc_huff_tbl_ptrs, 0, sizeof cinfo->dc_huff_tbl_ptrs);
    memset(cinfo->ac_huff_tbl_ptrs, 0, sizeof cinfo->ac_huff_tbl_ptrs);
}

void stk_jpeg_memory_deinit(struct stk_jpeg_memory *memory, struct jpeg_decompress_struct *cinfo)
{
    if (memory->original) {
        cinfo->mem = memory->original;
    }
}
