/* Fuzz target of mountinfo.c, read_size.c and stripe_layout.c: any bytes. Rows are within the text;
 * read sizes and stripe layouts are within their bounds. */
#include "io/filesystem/mountinfo.h"
#include "io/filesystem/read_size.h"
#include "io/filesystem/stripe_layout.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check_field(struct stk_view text, struct stk_view field)
{
    char out[64];

    STK_ASSERT(field.bytes == 0 ||
               (field.data >= text.data && field.data + field.bytes <= text.data + text.bytes));
    stk_mount_unescape(field, out, sizeof out);
    STK_ASSERT(memchr(out, '\0', sizeof out));
}

static void check_layout(const struct stk_stripe_layout *layout, int status)
{
    STK_ASSERT(status == 0 || (status == STOKER_ERROR_CORRUPT && layout->parts == 0));
    STK_ASSERT(layout->parts <= STK_STRIPE_LAYOUT_PARTS_MAX);
    STK_ASSERT(status < 0 || (layout->parts > 0 && layout->mirrors > 0));
    STK_ASSERT(memchr(layout->pool, '\0', sizeof layout->pool));
}

static void check_requests(const struct stk_mount_row *row, uint32_t block_bytes)
{
    struct stk_request_size requests = stk_request_size_of(row);
    struct stk_read_sizes reads = stk_read_size_of(&requests, block_bytes);

    STK_ASSERT(reads.free_gap_bytes <= reads.gap_bytes && reads.gap_bytes <= STK_READ_SIZE_GAP_MAX);
    STK_ASSERT(reads.bytes_max >= STK_READ_SIZE_REQUEST_MIN);
    STK_ASSERT(reads.bytes_max <= STK_READ_SIZE_REQUEST_MAX);
    STK_ASSERT(reads.bytes_max % reads.align == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct stk_view text = {data, bytes}, rest = text, value;
    struct stk_stripe_layout layout;
    struct stk_mount_row row, other;
    char server[64];
    int status;

    while (stk_mount_next(&rest, &row)) {
        const struct stk_view fields[] = {row.point, row.type, row.source, row.options, row.super};

        for (size_t i = 0; i < STK_COUNT(fields); i++) {
            check_field(text, fields[i]);
        }
        stk_mount_server(&row, server, sizeof server);
        STK_ASSERT(memchr(server, '\0', sizeof server));
        if (stk_mount_option(&row, "rsize", &value)) {
            check_field(text, value);
        }
        STK_ASSERT(stk_mount_number(&row, "rsize", 7) <= 999999999999999999ull);
        check_requests(&row, (uint32_t)bytes << 12);
        STK_ASSERT(stk_mount_of_id(text, row.id, &other) && other.id == row.id);
    }
    if (stk_mount_of_path(text, "/mnt/a b/c", &row)) {
        check_field(text, row.point);
    }
    status = stk_stripe_layout_lustre(text, &layout);
    check_layout(&layout, status);
    status = stk_stripe_layout_ceph(text, &layout);
    check_layout(&layout, status);
    return 0;
}
