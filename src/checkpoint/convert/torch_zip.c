/* Writes a zip archive of stored members, as torch.save() does: tensors pass through one block.
 *
 * The header of a member has the checksum of its data, and comes before them. A file is written at
 * any offset. An object is sent in parts: those that the header of the current member touches wait
 * in memory until it is complete. */
#include "base/mem.h"
#include "base/memory_pages.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/write/writer.h"
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
#define PARTS 3u /* those of a header, which may cross from one into the next, and of the data */

/* A part of an object that is not sent yet. */
struct part {
    uint8_t *data; /* owned: BLOCK_BYTES */
    uint64_t index;
    bool used;
};

struct zip {
    struct stk_io *io;
    struct stk_output *output;        /* NULL: an object, or only the length is wanted */
    struct stk_checkpoint_sink *sink; /* of an object; NULL: none */
    struct part parts[PARTS];
    uint64_t header, data; /* of the current member: its header is not written yet */
    struct stk_json_text directory;
    uint64_t at, count;
    struct stoker_error *error;
};

/* ---- the parts of an object ---- */

static int send_part(struct zip *zip, struct part *part)
{
    uint64_t begin = part->index * BLOCK_BYTES;
    uint64_t bytes = stk_min(zip->sink->file_bytes[STK_SAVE_SHARD] - begin, BLOCK_BYTES);

    part->used = false;
    return stk_sink_has_parts(zip->sink)
               ? stk_sink_write(zip->sink, STK_SAVE_SHARD, begin,
                                (struct stk_view){part->data, bytes}, zip->error)
               : stk_sink_finish(zip->sink, (struct stk_view){part->data, bytes}, zip->error);
}

/* Sends the parts before `index`, but those that the current header touches. */
static int send_parts_before(struct zip *zip, uint64_t index)
{
    int status = 0;

    for (uint32_t i = 0; status == 0 && i < PARTS; i++) {
        struct part *part = &zip->parts[i];
        bool waits = zip->header < zip->data && part->index >= zip->header / BLOCK_BYTES &&
                     part->index <= (zip->data - 1) / BLOCK_BYTES;

        if (part->used && part->index < index && !waits) {
            status = send_part(zip, part);
        }
    }
    return status;
}

/* The part of this number; a new one replaces one that was sent. */
static struct part *find_part(struct zip *zip, uint64_t index)
{
    struct part *found = NULL;

    for (uint32_t i = 0; i < PARTS; i++) {
        if (zip->parts[i].used && zip->parts[i].index == index) {
            return &zip->parts[i];
        }
        found = zip->parts[i].used ? found : &zip->parts[i];
    }
    STK_ASSERT(found);
    if (!found->data) {
        found->data = stk_pages_alloc(BLOCK_BYTES);
    }
    found->used = found->data != NULL;
    found->index = index;
    return found->used ? found : NULL;
}

/* Writes bytes at an offset: of a file, or of the parts of an object. */
static int put(struct zip *zip, uint64_t offset, const void *data, uint64_t bytes)
{
    int status = 0;

    if (zip->output) {
        return stk_io_write_at(zip->io, zip->output, offset, data, bytes, zip->error);
    }
    for (uint64_t done = 0, some; zip->sink && status == 0 && done < bytes; done += some) {
        uint64_t at = offset + done, index = at / BLOCK_BYTES;
        struct part *part;

        some = stk_min(bytes - done, (index + 1) * BLOCK_BYTES - at);
        status = send_parts_before(zip, index);
        part = status == 0 ? find_part(zip, index) : NULL;
        if (part) {
            memcpy(part->data + at % BLOCK_BYTES, (const uint8_t *)data + done, some);
        } else if (status == 0) {
            status = stk_fail_memory(zip->error, "a part of an object");
        }
    }
    return status;
}

/* ---- members ---- */

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
static void begin(struct zip *zip, struct member *member)
{
    uint64_t behind = zip->at + HEADER_BYTES + strlen(member->name) + EXTRA_BYTES + 4;

    member->header = zip->at;
    member->data = stk_round_up(behind, ALIGNMENT);
    member->crc = (uint32_t)crc32_z(0, NULL, 0);
    member->bytes = 0;
    zip->header = member->header;
    zip->data = member->data;
}

static int append(struct zip *zip, struct member *member, const void *data, size_t bytes)
{
    int status = put(zip, member->data + member->bytes, data, bytes);

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
    int status;

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
    status = put(zip, member->header, header, member->data - member->header);
    zip->header = zip->data = 0;
    return status;
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

/* block: for its data; NULL: only the length is wanted. */
static int add_tensor(struct zip *zip, struct stk_convert_plan *plan, uint64_t output,
                      uint8_t *block)
{
    uint64_t bytes = plan->outputs.tensors[output].bytes;
    struct member member;
    int status = 0;

    snprintf(member.name, sizeof member.name, FOLDER "/data/%" PRIu64, output);
    begin(zip, &member);
    if (!block) {
        member.bytes = bytes;
    }
    for (uint64_t at = 0; block && status == 0 && at < bytes; at += BLOCK_BYTES) {
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
    status = put(zip, at, zip->directory.text, bytes);
    zip->at = at + bytes + sizeof records;
    return status < 0 ? status : put(zip, at + bytes, records, sizeof records);
}

static int add_members(struct zip *zip, struct stk_convert_plan *plan,
                       const struct stk_json_text *pickle, uint8_t *block)
{
    int status = add_small(zip, "data.pkl", pickle->text, pickle->bytes);

    status = status < 0 ? status : add_small(zip, "byteorder", "little", 6);
    for (uint64_t i = 0; status == 0 && i < plan->outputs.count; i++) {
        status = add_tensor(zip, plan, i, block);
    }
    status = status < 0 ? status : add_small(zip, "version", "3\n", 2);
    return status < 0 ? status : write_directory(zip);
}

static int write_members(struct zip *zip, struct stk_convert_plan *plan,
                         const struct stk_json_text *pickle)
{
    uint8_t *block = stk_pages_alloc(BLOCK_BYTES);
    int status;

    if (!block) {
        return stk_fail_memory(zip->error, "a block of a conversion");
    }
    status = add_members(zip, plan, pickle, block);
    stk_pages_free(block, BLOCK_BYTES);
    return status;
}

/* The length of the archive: the same members, without their data. 0: no memory. */
static uint64_t archive_bytes(struct stk_convert_plan *plan, const struct stk_json_text *pickle,
                              struct stoker_error *error)
{
    struct zip zip = {.error = error};
    int status = add_members(&zip, plan, pickle, NULL);

    stk_json_text_deinit(&zip.directory);
    return status < 0 ? 0 : zip.at;
}

/* Sends the archive as an object, in parts. */
static int write_object(struct stk_convert_plan *plan, struct stk_io *io, const char *path,
                        const struct stk_json_text *pickle, struct stoker_error *error)
{
    struct stk_checkpoint_place place = {0};
    struct stk_checkpoint_sink sink = {.place = &place, .ranks = 1, .single = true};
    struct zip zip = {.io = io, .sink = &sink, .error = error};
    char *folder = stk_strdup(path), *slash = folder ? strrchr(folder, '/') : NULL;
    bool parts;
    int status = folder ? stk_place_make_id(sink.id, error) : stk_fail_memory(error, "'%s'", path);

    if (status == 0 && (!slash || strlen(slash + 1) == 0 ||
                        strlen(slash + 1) >= sizeof sink.names[STK_SAVE_SHARD])) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "the name of the object is not valid",
                          "use a name of at most 79 bytes", "'%.400s'", path);
    }
    if (status == 0) {
        *slash = '\0';
        snprintf(sink.names[STK_SAVE_SHARD], sizeof sink.names[0], "%s", slash + 1);
        sink.file_bytes[STK_SAVE_SHARD] = archive_bytes(plan, pickle, error);
        status = sink.file_bytes[STK_SAVE_SHARD] > 0
                     ? stk_place_init(&place, io, folder, true, error)
                     : stk_fail_memory(error, "'%.400s'", path);
    }
    status = status < 0 ? status : stk_sink_open(&sink, error);
    parts = stk_sink_has_parts(&sink);
    status = status < 0 ? status : write_members(&zip, plan, pickle);
    status = status < 0 ? status : send_parts_before(&zip, UINT64_MAX);
    if (status == 0 && parts) {
        status = stk_sink_finish(&sink, (struct stk_view){NULL, 0}, error);
    }
    if (status < 0 && place.root) {
        stk_sink_abort(&sink);
    }
    if (place.root) {
        stk_sink_close(&sink);
    }
    for (uint32_t i = 0; i < PARTS; i++) {
        if (zip.parts[i].data) {
            stk_pages_free(zip.parts[i].data, BLOCK_BYTES);
        }
    }
    stk_json_text_deinit(&zip.directory);
    stk_place_deinit(&place);
    stk_free(folder);
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

static int write_file(struct stk_convert_plan *plan, struct stk_io *io, const char *path,
                      const struct stk_json_text *pickle, struct stoker_error *error)
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
    status = status < 0 ? status : write_members(&zip, plan, pickle);
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

int stk_convert_write_torch(struct stk_convert_plan *plan, struct stk_io *io, const char *path,
                            struct stoker_error *error)
{
    struct stk_json_text pickle = {0};
    int status = stk_convert_pickle(plan, &pickle, error);

    if (status == 0) {
        status = stk_io_is_url(path) ? write_object(plan, io, path, &pickle, error)
                                     : write_file(plan, io, path, &pickle, error);
    }
    stk_json_text_deinit(&pickle);
    return status;
}
