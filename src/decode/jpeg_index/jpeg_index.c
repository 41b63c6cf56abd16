/* Look-ups: the file as it is mapped, each page checked once, each place before it is read. */
#include "decode/jpeg_index/jpeg_index.h"

#include "base/mem.h"
#include "base/xxh3.h"
#include "decode/jpeg_index/jpeg_index_file.h"
#include "io/io.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

struct stk_marks {
    struct stk_io *io; /* NULL: the image is lent */
    struct stk_view image;
    struct stk_marks_head head; /* copies */
    struct stk_marks_foot foot;
    const uint64_t *sums;   /* of pages; in the image */
    _Atomic uint64_t *good; /* owned: a bit a page that was checked */
};

static int refuse(int status, const char *what, struct stoker_error *error)
{
    return stk_fail(error, status, "the marks of JPEGs are not used",
                    "make them anew: stoker index --jpeg-rows", "%s", what);
}

/* What lies there, its pages checked; NULL: out of bounds or damaged. */
static const void *touch(const struct stk_marks *marks, uint64_t at, uint64_t bytes)
{
    uint64_t end, pages_at = marks->foot.pages_at;

    if (!stk_add(at, bytes, &end) || end > pages_at) {
        return NULL;
    }
    for (uint64_t page = at / STK_MARKS_PAGE_BYTES; page * STK_MARKS_PAGE_BYTES < end; page++) {
        uint64_t from = page * STK_MARKS_PAGE_BYTES, bit = UINT64_C(1) << page % 64;

        if (atomic_load_explicit(&marks->good[page / 64], memory_order_relaxed) & bit) {
            continue;
        }
        if (stk_sum64(marks->image.data + from, stk_min(STK_MARKS_PAGE_BYTES, pages_at - from)) !=
            marks->sums[page]) {
            return NULL;
        }
        atomic_fetch_or_explicit(&marks->good[page / 64], bit, memory_order_relaxed);
    }
    return marks->image.data + at;
}

static bool foot_is_sane(const struct stk_marks *marks)
{
    const struct stk_marks_foot *foot = &marks->foot;
    uint64_t bytes = marks->image.bytes, samples = marks->head.samples;
    uint64_t table = (samples + 1) * sizeof(uint64_t); /* samples are below 2^32 */
    uint64_t pages =
        foot->pages_at / STK_MARKS_PAGE_BYTES + (foot->pages_at % STK_MARKS_PAGE_BYTES != 0);

    return foot->foot_sum == stk_sum64(foot, offsetof(struct stk_marks_foot, foot_sum)) &&
           foot->file_bytes == bytes && foot->pages_at <= bytes && foot->pages_at % 8 == 0 &&
           bytes - foot->pages_at == pages * 8 + sizeof *foot &&
           foot->table_at >= sizeof(struct stk_marks_head) && foot->table_at <= foot->pages_at &&
           foot->pages_at - foot->table_at == table;
}

static int check(struct stk_marks *marks, const uint8_t *identity, struct stoker_error *error)
{
    const struct stk_view *image = &marks->image;
    uint64_t sums_bytes;

    if (image->bytes < sizeof marks->head || memcmp(image->data, STK_MARKS_HEAD_MAGIC, 8) != 0) {
        return refuse(STOKER_ERROR_FORMAT, "the file is another one", error);
    }
    memcpy(&marks->head, image->data, sizeof marks->head);
    if (marks->head.version != STK_MARKS_VERSION ||
        marks->head.page_bytes != STK_MARKS_PAGE_BYTES) {
        return refuse(STOKER_ERROR_UNSUPPORTED, "they have another version", error);
    }
    if (image->bytes < sizeof marks->head + sizeof marks->foot) {
        return refuse(STOKER_ERROR_TRUNCATED, "the file ends too early", error);
    }
    memcpy(&marks->foot, image->data + image->bytes - sizeof marks->foot, sizeof marks->foot);
    if (memcmp(marks->foot.magic, STK_MARKS_FOOT_MAGIC, 8) != 0) {
        return refuse(STOKER_ERROR_TRUNCATED, "the file has no foot: it may be cut", error);
    }
    if (marks->head.samples > STK_MARKS_SAMPLES_MAX || !foot_is_sane(marks)) {
        return refuse(STOKER_ERROR_CORRUPT, "the file's foot is damaged", error);
    }
    sums_bytes = image->bytes - sizeof marks->foot - marks->foot.pages_at;
    marks->sums = (const uint64_t *)(const void *)(image->data + marks->foot.pages_at);
    if (stk_sum64(marks->sums, sums_bytes) != marks->foot.pages_sum) {
        return refuse(STOKER_ERROR_CORRUPT, "the sums of the file's pages are damaged", error);
    }
    marks->good = stk_alloc(sums_bytes / 8 / 64 + 1, sizeof *marks->good);
    if (!marks->good) {
        return stk_fail(error, -ENOMEM, "cannot map marks of JPEGs", "free memory", "marks");
    }
    if (!touch(marks, 0, sizeof marks->head)) {
        return refuse(STOKER_ERROR_CORRUPT, "the file's head is damaged", error);
    }
    if (memcmp(marks->head.identity, identity, STK_MARKS_IDENTITY_BYTES) != 0) {
        return refuse(STOKER_ERROR_CHANGED, "they were made of other data", error);
    }
    return 0;
}

/* Takes the view if there is an io. */
static int start(struct stk_marks **marks_out, struct stk_io *io, struct stk_view image,
                 const uint8_t *identity, struct stoker_error *error)
{
    struct stk_marks *marks = stk_alloc(1, sizeof *marks);
    int status;

    if (!marks) {
        if (io) {
            stk_io_unmap(io, image);
        }
        return stk_fail(error, -ENOMEM, "cannot map marks of JPEGs", "free memory", "marks");
    }
    marks->io = io;
    marks->image = image;
    status = check(marks, identity, error);
    if (status < 0) {
        stk_marks_close(marks);
        return status;
    }
    *marks_out = marks;
    return 0;
}

int stk_marks_open_image(struct stk_marks **marks_out, struct stk_view image,
                         const uint8_t *identity, struct stoker_error *error)
{
    *marks_out = NULL;
    STK_ASSERT((uintptr_t)image.data % 8 == 0);
    return start(marks_out, NULL, image, identity, error);
}

int stk_marks_open(struct stk_marks **marks_out, struct stk_io *io, const char *path,
                   const uint8_t *identity, struct stoker_error *error)
{
    struct stk_file *file = NULL;
    struct stk_view image;
    int status = stk_io_open_file(io, path, &file, error);

    *marks_out = NULL;
    if (status == 0) {
        status = stk_io_map(io, file, &image, error);
        stk_io_close_file(io, file);
    }
    return status < 0 ? status : start(marks_out, io, image, identity, error);
}

void stk_marks_close(struct stk_marks *marks)
{
    if (marks) {
        if (marks->io) {
            stk_io_unmap(marks->io, marks->image);
        }
        stk_free(marks->good);
        stk_free(marks);
    }
}

uint64_t stk_marks_samples(const struct stk_marks *marks)
{
    return marks->head.samples;
}

uint32_t stk_marks_mcus(const struct stk_marks *marks)
{
    return marks->head.mcus;
}

struct stk_marks_of stk_marks_of(const struct stk_marks *marks, uint64_t sample)
{
    struct stk_marks_of of = {marks->head.mcus, {NULL, 0}};
    uint64_t place[2]; /* a copy: the file may be changed while it is mapped */
    const void *row;

    if (sample >= marks->head.samples) {
        return of;
    }
    row = touch(marks, marks->foot.table_at + sample * sizeof *place, sizeof place);
    if (!row) {
        return of;
    }
    memcpy(place, row, sizeof place);
    if (place[0] <= place[1] && place[1] <= marks->foot.table_at) {
        of.entries.data = touch(marks, place[0], place[1] - place[0]);
        of.entries.bytes = of.entries.data ? place[1] - place[0] : 0;
    }
    return of;
}

bool stk_marks_find(const struct stk_marks_of *of, struct stk_view picture,
                    struct stk_jpeg_marks *marks_out)
{
    struct stk_view left = of->entries;
    struct stk_marks_entry entry;
    uint64_t sum = 0;
    bool summed = false;

    while (left.bytes >= sizeof entry) {
        uint64_t bytes;

        memcpy(&entry, left.data, sizeof entry);
        bytes = (uint64_t)entry.count * STK_JPEG_MARK_BYTES;
        left.data += sizeof entry;
        left.bytes -= sizeof entry;
        if (bytes > left.bytes) {
            return false;
        }
        if (entry.bytes == picture.bytes) {
            sum = summed ? sum : stk_sum64(picture.data, picture.bytes);
            summed = true;
            if (entry.sum == sum) {
                *marks_out = (struct stk_jpeg_marks){of->mcus, {left.data, bytes}};
                return true;
            }
        }
        left.data += bytes;
        left.bytes -= bytes;
    }
    return false;
}
