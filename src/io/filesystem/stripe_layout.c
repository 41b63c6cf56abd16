/* Layouts of Lustre (little endian, as clients and their lustre.lov give it on the machines that we
 * build for) and of CephFS. */
#include "io/filesystem/stripe_layout.h"

#include "base/byte_order.h"

#include <string.h>

#define LOV_V1 0x0bd10bd0u
#define LOV_V3 0x0bd30bd0u
#define LOV_SPECIFIC 0x0bd50bd0u
#define LOV_COMPOSITE 0x0bd60bd0u
#define PLAIN_BYTES 32u      /* of lov_user_md_v1 before its objects */
#define POOL_BYTES 16u       /* of lov_user_md_v3, after it */
#define HEAD_BYTES 32u       /* of lov_comp_md_v1 */
#define ENTRY_BYTES 48u      /* of lov_comp_md_entry_v1 */
#define RELEASED 0x80000000u /* in the pattern: HSM */
#define ON_METADATA 0x100u   /* in the pattern: data is with the metadata */
#define HAS_OBJECTS 0x10u    /* in a component's flags: it has objects */

/* One plain layout, alone or a part of a composite one; the widest part is reported. */
static int read_plain(struct stk_view value, struct stk_stripe_layout *layout)
{
    uint32_t magic = value.bytes >= PLAIN_BYTES ? stk_little32(value.data) : 0, pattern, count;
    bool has_pool = magic == LOV_V3 || magic == LOV_SPECIFIC;

    if ((magic != LOV_V1 && !has_pool) || (has_pool && value.bytes < PLAIN_BYTES + POOL_BYTES)) {
        return STOKER_ERROR_CORRUPT;
    }
    pattern = stk_little32(value.data + 4);
    count = stk_little16(value.data + 28);
    count = count == UINT16_MAX ? STK_STRIPE_LAYOUT_ALL : count;
    layout->is_released = layout->is_released || (pattern & RELEASED) != 0;
    if (layout->stripe_bytes > 0 && ((pattern & ON_METADATA) || count <= layout->stripe_count)) {
        return 0;
    }
    layout->stripe_count = count;
    layout->stripe_bytes = stk_little32(value.data + 24);
    layout->pool[0] = '\0';
    if (has_pool) {
        memcpy(layout->pool, value.data + PLAIN_BYTES, POOL_BYTES);
        layout->pool[POOL_BYTES] = '\0';
    }
    return 0;
}

static int read_composite(struct stk_view value, struct stk_stripe_layout *layout)
{
    uint32_t count = value.bytes >= HEAD_BYTES ? stk_little16(value.data + 14) : 0;

    if (count == 0 || count > STK_STRIPE_LAYOUT_PARTS_MAX ||
        value.bytes < HEAD_BYTES + (size_t)count * ENTRY_BYTES) {
        return STOKER_ERROR_CORRUPT;
    }
    layout->parts = count;
    layout->mirrors = stk_little16(value.data + 16) + 1;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *entry = value.data + HEAD_BYTES + (size_t)i * ENTRY_BYTES;
        uint32_t offset = stk_little32(entry + 24), bytes = stk_little32(entry + 28);
        int status;

        if (offset > value.bytes || bytes > value.bytes - offset) {
            return STOKER_ERROR_CORRUPT;
        }
        if (!(stk_little32(entry + 4) & HAS_OBJECTS) && layout->stripe_bytes > 0) {
            continue; /* only for parts that are not written yet */
        }
        status = read_plain((struct stk_view){value.data + offset, bytes}, layout);
        if (status < 0) {
            return status;
        }
    }
    return 0;
}

int stk_stripe_layout_lustre(struct stk_view value, struct stk_stripe_layout *layout_out)
{
    struct stk_stripe_layout layout = {.parts = 1, .mirrors = 1};
    bool composite = value.bytes >= 4 && stk_little32(value.data) == LOV_COMPOSITE;
    int status = composite ? read_composite(value, &layout) : read_plain(value, &layout);

    *layout_out = status == 0 ? layout : (struct stk_stripe_layout){0};
    return status;
}

static bool ceph_word(struct stk_view text, const char *name, struct stk_view *value_out)
{
    size_t name_bytes = strlen(name);

    while (text.bytes > 0) {
        const uint8_t *end = memchr(text.data, ' ', text.bytes);
        size_t bytes = end ? (size_t)(end - text.data) : text.bytes;

        if (bytes > name_bytes && memcmp(text.data, name, name_bytes) == 0 &&
            text.data[name_bytes] == '=') {
            *value_out = (struct stk_view){text.data + name_bytes + 1, bytes - name_bytes - 1};
            return true;
        }
        bytes += end != NULL;
        text = (struct stk_view){text.data + bytes, text.bytes - bytes};
    }
    return false;
}

static bool ceph_number(struct stk_view text, const char *name, uint64_t most, uint64_t *number_out)
{
    struct stk_view value = {NULL, 0};
    uint64_t number = 0;

    if (!ceph_word(text, name, &value) || value.bytes == 0) {
        return false;
    }
    for (size_t i = 0; i < value.bytes; i++) {
        if (value.data[i] < '0' || value.data[i] > '9' || number > most) {
            return false;
        }
        number = 10 * number + (uint64_t)(value.data[i] - '0');
    }
    *number_out = number;
    return number <= most;
}

int stk_stripe_layout_ceph(struct stk_view text, struct stk_stripe_layout *layout_out)
{
    struct stk_view pool = {NULL, 0};
    uint64_t count = 0, unit = 0;

    *layout_out = (struct stk_stripe_layout){0};
    if (!ceph_number(text, "stripe_count", UINT32_MAX - 1, &count) ||
        !ceph_number(text, "stripe_unit", UINT32_MAX, &unit) || count == 0 || unit == 0) {
        return STOKER_ERROR_CORRUPT;
    }
    *layout_out = (struct stk_stripe_layout){
        .parts = 1, .mirrors = 1, .stripe_count = (uint32_t)count, .stripe_bytes = unit};
    if (ceph_word(text, "pool", &pool) && pool.bytes > 0) {
        size_t bytes = stk_min(pool.bytes, STK_STRIPE_LAYOUT_POOL_BYTES - 1);

        memcpy(layout_out->pool, pool.data, bytes);
        layout_out->pool[bytes] = '\0';
    }
    return 0;
}
