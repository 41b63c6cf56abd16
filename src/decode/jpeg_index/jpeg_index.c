/* Look-ups: the file as it is mapped, each page checked once, each place before it is read. */
#include "decode/jpeg_index/jpeg_index.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "decode/jpeg_index/jpeg_index_file.h"
#include "io/io.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct stk_jpeg_index {
    struct stk_io *io; /* NULL: the image is borrowed */
    struct stk_view image;
    struct stk_jpeg_index_header head; /* copies */
    struct stk_jpeg_index_footer foot;
    struct stk_paged_file file; /* the image's pages */
};

static int fail_file(int status, const char *what, struct stoker_error *error)
{
    return stk_fail(error, status, "the marks of JPEGs are not used",
                    "make it again: stoker index --jpeg-index", "%s", what);
}

/* Returns the data at this position after checking its pages, NULL if it is out of bounds or
 * damaged. */
static const void *verify_page(const struct stk_jpeg_index *index, uint64_t at, uint64_t bytes)
{
    uint64_t damaged;

    return stk_paged_file_view(&index->file, at, bytes, &damaged);
}

static bool foot_is_sane(const struct stk_jpeg_index *index)
{
    const struct stk_jpeg_index_footer *foot = &index->foot;
    uint64_t bytes = index->image.bytes, samples = index->head.samples;
    uint64_t table = (samples + 1) * sizeof(uint64_t); /* samples are below 2^32 */

    return foot->foot_sum == stk_xxh3_64(foot, offsetof(struct stk_jpeg_index_footer, foot_sum)) &&
           foot->file_bytes == bytes && stk_paged_file_fits(bytes, foot->pages_at, sizeof *foot) &&
           foot->table_at >= sizeof(struct stk_jpeg_index_header) &&
           foot->table_at <= foot->pages_at && foot->pages_at - foot->table_at == table;
}

static int check(struct stk_jpeg_index *index, const uint8_t *identity, struct stoker_error *error)
{
    const struct stk_view *image = &index->image;
    int status;

    if (image->bytes < sizeof index->head ||
        memcmp(image->data, STK_JPEG_INDEX_HEADER_MAGIC, 8) != 0) {
        return fail_file(STOKER_ERROR_FORMAT, "the file is another one", error);
    }
    memcpy(&index->head, image->data, sizeof index->head);
    if (index->head.version != STK_JPEG_INDEX_VERSION ||
        index->head.page_bytes != STK_JPEG_INDEX_PAGE_BYTES) {
        return fail_file(STOKER_ERROR_UNSUPPORTED, "they have another version", error);
    }
    if (image->bytes < sizeof index->head + sizeof index->foot) {
        return fail_file(STOKER_ERROR_TRUNCATED, "the file ends too early", error);
    }
    memcpy(&index->foot, image->data + image->bytes - sizeof index->foot, sizeof index->foot);
    if (memcmp(index->foot.magic, STK_JPEG_INDEX_FOOTER_MAGIC, 8) != 0) {
        return fail_file(STOKER_ERROR_TRUNCATED, "the file has no foot: it may be cut", error);
    }
    if (index->head.samples > STK_JPEG_INDEX_SAMPLES_MAX || !foot_is_sane(index)) {
        return fail_file(STOKER_ERROR_CORRUPT, "the file's foot is damaged", error);
    }
    status = stk_paged_file_open(&index->file, *image, index->foot.pages_at, index->foot.pages_sum);
    if (status < 0) {
        return status == -ENOMEM
                   ? stk_fail_memory(error, "JPEG index")
                   : fail_file(status, "the sums of the file's pages are damaged", error);
    }
    if (!verify_page(index, 0, sizeof index->head)) {
        return fail_file(STOKER_ERROR_CORRUPT, "the file's head is damaged", error);
    }
    if (memcmp(index->head.identity, identity, STK_JPEG_INDEX_IDENTITY_BYTES) != 0) {
        return fail_file(STOKER_ERROR_CHANGED, "they were made of other data", error);
    }
    return 0;
}

/* Takes ownership of the view if there is an io. */
static int start(struct stk_jpeg_index **marks_out, struct stk_io *io, struct stk_view image,
                 const uint8_t *identity, struct stoker_error *error)
{
    struct stk_jpeg_index *index = stk_alloc(1, sizeof *index);
    int status;

    if (!index) {
        if (io) {
            stk_io_unmap(io, image);
        }
        return stk_fail(error, -ENOMEM, "cannot map marks of JPEGs", "free memory", "marks");
    }
    index->io = io;
    index->image = image;
    status = check(index, identity, error);
    if (status < 0) {
        stk_jpeg_index_close(index);
        return status;
    }
    *marks_out = index;
    return 0;
}

int stk_jpeg_index_open_image(struct stk_jpeg_index **marks_out, struct stk_view image,
                              const uint8_t *identity, struct stoker_error *error)
{
    *marks_out = NULL;
    STK_ASSERT((uintptr_t)image.data % 8 == 0);
    return start(marks_out, NULL, image, identity, error);
}

int stk_jpeg_index_open(struct stk_jpeg_index **marks_out, struct stk_io *io, const char *path,
                        const uint8_t *identity, struct stoker_error *error)
{
    struct stk_file *file = NULL;
    struct stk_view image;
    int status = stk_io_open_file(io, path, &file, error);

    *marks_out = NULL;
    if (status == 0) {
        status = stk_io_map(io, file, &image, error);
        stk_io_close_file(file);
    }
    return status < 0 ? status : start(marks_out, io, image, identity, error);
}

void stk_jpeg_index_close(struct stk_jpeg_index *index)
{
    if (index) {
        if (index->io) {
            stk_io_unmap(index->io, index->image);
        }
        stk_paged_file_close(&index->file);
        stk_free(index);
    }
}

uint64_t stk_jpeg_index_samples(const struct stk_jpeg_index *index)
{
    return index->head.samples;
}

uint32_t stk_jpeg_index_mcus(const struct stk_jpeg_index *index)
{
    return index->head.mcus;
}

int stk_jpeg_index_check_map(const struct stk_jpeg_index *index, struct stoker_error *error)
{
    int status = index->io ? stk_io_map_check(index->io, index->image, error) : 0;

    return status < 0 && stk_paged_file_is_unchanged(&index->file) ? 0 : status;
}

struct stk_jpeg_index_entries stk_jpeg_index_get(const struct stk_jpeg_index *index,
                                                 uint64_t sample)
{
    struct stk_jpeg_index_entries of = {index->head.mcus, {NULL, 0}};
    uint64_t place[2]; /* a copy: the file may be changed while it is mapped */
    const void *row;

    if (sample >= index->head.samples) {
        return of;
    }
    row = verify_page(index, index->foot.table_at + sample * sizeof *place, sizeof place);
    if (!row) {
        return of;
    }
    memcpy(place, row, sizeof place);
    if (place[0] <= place[1] && place[1] <= index->foot.table_at) {
        of.entries.data = verify_page(index, place[0], place[1] - place[0]);
        of.entries.bytes = of.entries.data ? place[1] - place[0] : 0;
    }
    return of;
}

bool stk_jpeg_index_find(const struct stk_jpeg_index_entries *of, struct stk_view picture,
                         struct stk_jpeg_entry_points *marks_out)
{
    struct stk_view left = of->entries;
    struct stk_jpeg_index_entry entry;
    uint64_t sum = 0;
    bool summed = false;

    while (left.bytes >= sizeof entry) {
        uint64_t bytes;

        memcpy(&entry, left.data, sizeof entry);
        bytes = (uint64_t)entry.count * STK_JPEG_ENTRY_POINT_BYTES;
        left.data += sizeof entry;
        left.bytes -= sizeof entry;
        if (bytes > left.bytes) {
            return false;
        }
        if (entry.bytes == picture.bytes) {
            sum = summed ? sum : stk_xxh3_64(picture.data, picture.bytes);
            summed = true;
            if (entry.sum == sum) {
                *marks_out = (struct stk_jpeg_entry_points){of->mcus, {left.data, bytes}};
                return true;
            }
        }
        left.data += bytes;
        left.bytes -= bytes;
    }
    return false;
}
