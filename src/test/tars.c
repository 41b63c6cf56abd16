/* Small ustar archives in memory (POSIX.1-1988 header layout). */
#include "test/tars.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void append(struct t_tar *tar, const void *data, size_t bytes)
{
    if (tar->bytes + bytes > tar->capacity) {
        tar->capacity = 2 * (tar->bytes + bytes);
        tar->data = realloc(tar->data, tar->capacity);
        if (!tar->data) {
            abort();
        }
    }
    if (bytes > 0) {
        memcpy(tar->data + tar->bytes, data, bytes);
    }
    tar->bytes += bytes;
}

void t_tar_add(struct t_tar *tar, const char *name, const void *data, size_t bytes)
{
    static const uint8_t zeros[512];
    char header[512] = {0};
    unsigned sum = 0;

    snprintf(header, 100, "%s", name);
    memcpy(header + 100, "0000644\0000000000\0000000000", 24);
    snprintf(header + 124, 12, "%011zo", bytes);
    memcpy(header + 136, "00000000000", 12);
    memset(header + 148, ' ', 8);
    header[156] = '0';
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++) {
        sum += (uint8_t)header[i];
    }
    snprintf(header + 148, 8, "%06o", sum);
    append(tar, header, 512);
    append(tar, data, bytes);
    append(tar, zeros, (512 - bytes % 512) % 512);
}

void t_tar_end(struct t_tar *tar)
{
    static const uint8_t zeros[1024];

    append(tar, zeros, sizeof zeros);
}

void t_tar_free(struct t_tar *tar)
{
    free(tar->data);
    memset(tar, 0, sizeof *tar);
}

void t_tar_gzip(const struct t_tar *tar, struct t_tar *out)
{
    z_stream stream = {0};

    memset(out, 0, sizeof *out);
    if (deflateInit2(&stream, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        abort();
    }
    out->capacity = deflateBound(&stream, tar->bytes);
    out->data = malloc(out->capacity);
    stream.next_in = tar->data;
    stream.avail_in = (unsigned)tar->bytes;
    stream.next_out = out->data;
    stream.avail_out = (unsigned)out->capacity;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) {
        abort();
    }
    out->bytes = stream.total_out;
    deflateEnd(&stream);
}
