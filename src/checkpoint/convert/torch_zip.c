/* Writes a zip archive of stored members, as torch.save() does: tensors pass through one block. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "checkpoint/convert/convert.h"
#include "io/write.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

#define FOLDER "archive"
#define ALIGNMENT 64u /* of the bytes of a member, as torch has it */
#define HEADER_BYTES 30u
#define EXTRA_BYTES 20u /* two sizes of 64 bits, in a local header */
#define NAME_BYTES 40u
#define SUFFIX ".stoker-part"
#define BLOCK_BYTES STK_SAFETENSORS_BLOCK_BYTES

struct zip {
    struct stk_io *io;
    struct stk_output *output;
    struct stk_json_text directory;
    uint64_t at, count;
    struct stoker_error *error;
};

static void number(uint8_t **to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        *(*to)++ = (uint8_t)(i < sizeof value ? value >> (8 * i) : 0);
    }
}

/* A member that is being written. */
struct member {
    char name[NAME_BYTES];
    uint64_t header, data, bytes;
    uint32_t crc;
};

/* Its data begins at a multiple of ALIGNMENT: an extra field fills the gap. */
static void begin(const struct zip *zip, struct member *member)
{
    uint64_t behind = zip->at + HEADER_BYTES + strlen(member->name) + EXTRA_BYTES + 4;

    member->header = zip->at;
    member->data = stk_round_up(behind, ALIGNMENT);
    member->crc = (uint32_t)crc32_z(0, NULL, 0);
    member->bytes = 0;
}

static int append(struct zip *zip, struct member *member, const void *data, size_t bytes)
{
    int status = stk_io_write_at(zip->io, zip->output, member->data + member->bytes, data, bytes,
                                 zip->error);

    member->crc = (uint32_t)crc32_z(member->crc, data, bytes);
    member->bytes += bytes;
    return status;
}

/* Writes the header, and the entry of the directory. */
static int end(struct zip *zip, const struct member *member)
{
    uint8_t header[HEADER_BYTES + NAME_BYTES + EXTRA_BYTES + 4 + ALIGNMENT] = {0}, *to = header;
    uint8_t entry[46 + NAME_BYTES + 28], *into = entry;
    size_t name = strlen(member->name);
    uint64_t extra = member->data - member->header - HEADER_BYTES - name;

    number(&to, 0x04034b50, 4);
    number(&to, 45, 2); /* version: 64-bit sizes */
    number(&to, 0, 2 + 2 + 4);
    number(&to, member->crc, 4);
    number(&to, UINT32_MAX, 4);
    number(&to, UINT32_MAX, 4);
    number(&to, name, 2);
    number(&to, extra, 2);
    memcpy(to, member->name, name);
    to += name;
    number(&to, 1, 2);
    number(&to, 16, 2);
    number(&to, member->bytes, 8);
    number(&to, member->bytes, 8);
    number(&to, 0x4246, 2); /* "FB": padding, as torch names it */
    number(&to, extra - EXTRA_BYTES - 4, 2);

    number(&into, 0x02014b50, 4);
    number(&into, 45, 2);
    number(&into, 45, 2);
    number(&into, 0, 2 + 2 + 4);
    number(&into, member->crc, 4);
    number(&into, UINT32_MAX, 4);
    number(&into, UINT32_MAX, 4);
    number(&into, name, 2);
    number(&into, 28, 2);
    number(&into, 0, 2 + 2 + 2 + 4);
    number(&into, UINT32_MAX, 4);
    memcpy(into, member->name, name);
    into += name;
    number(&into, 1, 2);
    number(&into, 24, 2);
    number(&into, member->bytes, 8);
    number(&into, member->bytes, 8);
    number(&into, member->header, 8);
    stk_json_text_add(&zip->directory, (const char *)entry, (size_t)(into - entry));
    zip->at = member->data + member->bytes;
    zip->count++;
    return stk_io_write_at(zip->io, zip->output, member->header, header,
                           member->data - member->header, zip->error);
}

static int add_small(struct zip *zip, const char *name, const void *data, size_t bytes)
{
    struct member member;
    int status;

    snprintf(member.name, sizeof member.name, FOLDER "/%s", name);
    begin(zip, &member);
    status = append(zip, &member, data, bytes);
    return status < 0 ? status : end(zip, &member);
}

static int add_tensor(struct zip *zip, struct stk_convert_plan *plan, uint64_t output,
                      uint8_t *block)
{
    uint64_t bytes = plan->outputs.tensors[output].bytes;
    struct member member;
    int status = 0;

    snprintf(member.name, sizeof member.name, FOLDER "/data/%" PRIu64, output);
    begin(zip, &member);
    for (uint64_t at = 0; status == 0 && at < bytes; at += BLOCK_BYTES) {
        uint64_t part = stk_min(bytes - at, BLOCK_BYTES);

        status = stk_convert_read(plan, output, at, block, part, zip->error);
        status = status < 0 ? status : append(zip, &member, block, part);
    }
    return status < 0 ? status : end(zip, &member);
}

static int write_directory(struct zip *zip)
{
    uint8_t records[56 + 20 + 22], *to = records;
    uint64_t at = zip->at, bytes = zip->directory.bytes;
    int status;

    if (zip->directory.failed) {
        return stk_fail_memory(zip->error, "directory of an archive");
    }
    number(&to, 0x06064b50, 4);
    number(&to, 44, 8);
    number(&to, 45, 2);
    number(&to, 45, 2);
    number(&to, 0, 8);
    number(&to, zip->count, 8);
    number(&to, zip->count, 8);
    number(&to, bytes, 8);
    number(&to, at, 8);
    number(&to, 0x07064b50, 4);
    number(&to, 0, 4);
    number(&to, at + bytes, 8);
    number(&to, 1, 4);
    number(&to, 0x06054b50, 4);
    number(&to, 0, 4);
    number(&to, UINT16_MAX, 2);
    number(&to, UINT16_MAX, 2);
    number(&to, UINT32_MAX, 4);
    number(&to, UINT32_MAX, 4);
    number(&to, 0, 2);
    status = stk_io_write_at(zip->io, zip->output, at, zip->directory.text, bytes, zip->error);
    return status < 0 ? status
                      : stk_io_write_at(zip->io, zip->output, at + bytes, records, sizeof records,
                                        zip->error);
}

static int write_members(struct zip *zip, struct stk_convert_plan *plan)
{
    struct stk_json_text pickle = {0};
    uint8_t *block = stk_pages_alloc(BLOCK_BYTES);
    int status = block ? stk_convert_pickle(plan, &pickle, zip->error)
                       : stk_fail_memory(zip->error, "a block of a conversion");

    status = status < 0 ? status : add_small(zip, "data.pkl", pickle.text, pickle.bytes);
    status = status < 0 ? status : add_small(zip, "byteorder", "little", 6);
    for (uint64_t i = 0; status == 0 && i < plan->outputs.count; i++) {
        status = add_tensor(zip, plan, i, block);
    }
    status = status < 0 ? status : add_small(zip, "version", "3\n", 2);
    status = status < 0 ? status : write_directory(zip);
    if (block) {
        stk_pages_free(block, BLOCK_BYTES);
    }
    stk_json_text_deinit(&pickle);
    return status;
}

static int sync_folder(struct stk_io *io, const char *path, struct stoker_error *error)
{
    char *folder = stk_strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    int status;

    if (!folder) {
        return stk_fail_memory(error, "'%.400s'", path);
    }
    if (slash) {
        slash[slash == folder] = '\0';
    }
    status = stk_io_sync_directory(io, slash ? folder : ".", error);
    stk_free(folder);
    return status;
}

int stk_convert_write_torch(struct stk_convert_plan *plan, struct stk_io *io, const char *path,
                            struct stoker_error *error)
{
    struct zip zip = {.io = io, .error = error};
    char *part = stk_alloc(strlen(path) + sizeof SUFFIX, 1);
    bool made;
    int status;

    if (!part) {
        return stk_fail_memory(error, "'%.400s'", path);
    }
    memcpy(part, path, strlen(path));
    memcpy(part + strlen(path), SUFFIX, sizeof SUFFIX);
    status = stk_io_create(io, part, false, &zip.output, error);
    made = status == 0;
    status = status < 0 ? status : stk_io_reserve(io, zip.output, plan->bytes, error);
    status = status < 0 ? status : write_members(&zip, plan);
    status = status < 0 ? status : stk_io_sync_output(io, zip.output, error);
    stk_io_close_output(io, zip.output);
    status = status < 0 ? status : stk_io_rename(io, part, path, false, error);
    status = status < 0 ? status : sync_folder(io, path, error);
    if (status < 0 && made) {
        (void)stk_io_remove(io, part, NULL);
    }
    stk_json_text_deinit(&zip.directory);
    stk_free(part);
    return status;
}
