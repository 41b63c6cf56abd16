/* The one EXIF tag that affects pixels: orientation (TIFF 6.0, tag 274). Every offset in the block
 * is untrusted and checked against its end. */
#include "decode/codec/codec_backend.h"

#include <string.h>

#define TAG_ORIENTATION 0x0112u
#define TYPE_BYTE 1u
#define TYPE_SHORT 3u
#define TYPE_LONG 4u
#define ENTRY_BYTES 12u

struct tiff {
    struct stk_view view;
    bool big;
};

static uint32_t word16(const struct tiff *tiff, uint64_t at)
{
    return tiff->big ? stk_big16(tiff->view.data + at) : stk_little16(tiff->view.data + at);
}

static uint32_t word32(const struct tiff *tiff, uint64_t at)
{
    return tiff->big ? stk_big32(tiff->view.data + at) : stk_little32(tiff->view.data + at);
}

static uint8_t valid_orientation(uint32_t value)
{
    return value >= 1 && value <= 8 ? (uint8_t)value : 0;
}

static uint8_t entry_value(const struct tiff *tiff, uint64_t at)
{
    if (word32(tiff, at + 4) != 1) {
        return 0;
    }
    switch (word16(tiff, at + 2)) {
    case TYPE_BYTE:
        return valid_orientation(tiff->view.data[at + 8]);
    case TYPE_SHORT:
        return valid_orientation(word16(tiff, at + 8));
    case TYPE_LONG:
        return valid_orientation(word32(tiff, at + 8));
    default:
        return 0;
    }
}

uint8_t stk_exif_orientation(struct stk_view view)
{
    struct tiff tiff = {.view = view};
    uint64_t at, count;

    if (view.bytes >= 6 && memcmp(view.data, "Exif\0\0", 6) == 0) {
        tiff.view = (struct stk_view){view.data + 6, view.bytes - 6};
    }
    if (tiff.view.bytes < 8) {
        return 0;
    }
    tiff.big = memcmp(tiff.view.data, "MM\0*", 4) == 0;
    if (!tiff.big && memcmp(tiff.view.data, "II*\0", 4) != 0) {
        return 0;
    }
    at = word32(&tiff, 4);
    if (at > tiff.view.bytes - 2) {
        return 0;
    }
    count = word16(&tiff, at); /* at most 65,535 turns */
    at += 2;
    for (uint64_t i = 0; i < count && at + ENTRY_BYTES <= tiff.view.bytes; i++) {
        if (word16(&tiff, at) == TAG_ORIENTATION) {
            return entry_value(&tiff, at);
        }
        at += ENTRY_BYTES;
    }
    return 0;
}

uint8_t stk_xmp_orientation(struct stk_view packet)
{
    static const char name[] = "tiff:Orientation";
    const size_t name_bytes = sizeof name - 1;
    const uint8_t *end = packet.data + packet.bytes;
    const uint8_t *hit = packet.data;

    /* As an attribute, Orientation="6", or as an element, Orientation>6. */
    while (hit < end && (hit = memmem(hit, (size_t)(end - hit), name, name_bytes))) {
        hit += name_bytes;
        if (end - hit >= 2 && hit[0] == '>' && hit[1] >= '0' && hit[1] <= '9') {
            return valid_orientation((uint32_t)(hit[1] - '0'));
        }
        if (end - hit >= 3 && hit[0] == '=' && hit[1] == '"' && hit[2] >= '0' && hit[2] <= '9') {
            return valid_orientation((uint32_t)(hit[2] - '0'));
        }
    }
    return 0;
}
