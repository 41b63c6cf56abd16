/* Seals the files of another tool: a text with the SHA-256 of each MiB of them, and of itself.
 *
 *   stoker-seal 1 1048576
 *   BYTES NAME
 *   64 digits for each MiB, one a line
 *   ...
 *   end 64 digits: SHA-256 of all before this line */
#include "base/compare.h"
#include "base/crypto/digest.h"
#include "base/crypto/sha256_many.h"
#include "base/mem.h"
#include "base/memory_pages.h"
#include "base/text/parse_number.h"
#include "checkpoint/convert/task.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((uint64_t)STK_SAFETENSORS_BLOCK_BYTES)
#define LEAF_BYTES ((uint64_t)STK_SAFETENSORS_LEAF_BYTES)
#define LEAVES (BLOCK_BYTES / LEAF_BYTES)
#define HEAD "stoker-seal 1 1048576\n"
#define FILE_SUFFIX ".stoker-seal"
#define OTHER "copy the checkpoint again, or restore another one"

/* What is sealed: a file, or the files of a folder. */
struct sealing {
    const struct stk_checkpoint_task *task;
    struct stk_checkpoint_place place;
    bool single;
    char *seal;   /* owned: path of the seal */
    char **names; /* owned; sorted */
    size_t count;
};

static void sealing_close(struct sealing *sealing)
{
    for (size_t i = 0; sealing->names && i < sealing->count; i++) {
        stk_free(sealing->names[i]);
    }
    stk_free(sealing->names);
    stk_free(sealing->seal);
    stk_place_deinit(&sealing->place);
}

static int list_files(struct sealing *sealing, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(sealing->place.io, sealing->place.root, &listing, error);

    if (status < 0) {
        return status;
    }
    sealing->names = stk_alloc(listing.count + 1, sizeof *sealing->names);
    status = sealing->names ? 0 : stk_fail_memory(error, "seal");
    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const char *name = listing.entries[i].name;

        if (listing.entries[i].kind != STK_ENTRY_FILE || strcmp(name, STK_SEAL_NAME) == 0 ||
            strstr(name, STK_PLACE_PART_SUFFIX) || strpbrk(name, "\n\r")) {
            continue;
        }
        sealing->names[sealing->count] = stk_strdup(name);
        status = sealing->names[sealing->count++] ? 0 : stk_fail_memory(error, "seal");
    }
    stk_listing_free(&listing);
    if (status == 0) {
        qsort(sealing->names, sealing->count, sizeof *sealing->names, stk_compare_texts);
    }
    return status;
}

static int sealing_open(struct sealing *sealing, bool write, struct stoker_error *error)
{
    const char *path = sealing->task->options->source;
    struct stk_stat stat = {0};
    int status = stk_place_init(&sealing->place, sealing->task->engine->io, path, write, error);

    if (status < 0) {
        return status;
    }
    path = sealing->place.root;
    status = stk_place_stat_now(&sealing->place, path, &stat, error);
    if (status < 0 && !(sealing->place.remote && stk_place_is_absent(status))) {
        return status;
    }
    sealing->single = status == 0 && stat.kind == STK_ENTRY_FILE;
    if (sealing->single) {
        size_t bytes = strlen(path);

        sealing->seal = stk_alloc(bytes + sizeof FILE_SUFFIX, 1);
        sealing->names = stk_alloc(1, sizeof *sealing->names);
        if (!sealing->seal || !sealing->names || !(sealing->names[0] = stk_strdup(""))) {
            return stk_fail_memory(error, "seal");
        }
        sealing->count = 1;
        memcpy(sealing->seal, path, bytes);
        memcpy(sealing->seal + bytes, FILE_SUFFIX, sizeof FILE_SUFFIX);
        return 0;
    }
    sealing->seal = stk_place_path(&sealing->place, NULL, STK_SEAL_NAME);
    return sealing->seal ? 0 : stk_fail_memory(error, "seal");
}

/* Hashes a file leaf by leaf. want: digits that the leaves must have, 65 bytes each; NULL: adds
 * them to text. */
static int hash_file(const struct sealing *sealing, const char *path, uint64_t bytes,
                     const char *want, struct stk_json_text *text, struct stoker_error *error)
{
    struct stk_io *io = sealing->place.io;
    uint8_t *block = stk_pages_alloc(BLOCK_BYTES);
    struct stk_file *file = NULL;
    int status = block ? stk_io_open_file(io, path, &file, error)
                       : stk_fail_memory(error, "a block of a seal");

    for (uint64_t at = 0; status == 0 && at < bytes; at += BLOCK_BYTES) {
        uint64_t part = stk_min(bytes - at, BLOCK_BYTES),
                 leaves = (part + LEAF_BYTES - 1) / LEAF_BYTES;
        struct stk_sha256_message messages[LEAVES];
        uint8_t digests[LEAVES][32];
        char digits[66];
        int64_t got = stk_io_read_wait(file, at, block, part);

        if (got < (int64_t)part) {
            status = got < 0 ? stk_io_fail_read(file, got, "cannot read a sealed file", error)
                             : stk_fail(error, STOKER_ERROR_TRUNCATED, "the file ends too early",
                                        OTHER, "file");
            stk_error_set_location(error, path, at, NULL);
            break;
        }
        for (uint64_t i = 0; i < leaves; i++) {
            messages[i] = (struct stk_sha256_message){
                block + i * LEAF_BYTES, stk_min(part - i * LEAF_BYTES, LEAF_BYTES), digests[i]};
        }
        stk_sha256_many(messages, leaves);
        for (uint64_t i = 0; status == 0 && i < leaves; i++) {
            stk_hex(digests[i], 32, digits);
            digits[64] = '\n';
            if (!want) {
                stk_json_text_add(text, digits, 65);
            } else if (memcmp(want + (at / LEAF_BYTES + i) * 65, digits, 65) != 0) {
                status = stk_fail(error, STOKER_ERROR_CORRUPT, "the bytes do not match the seal",
                                  OTHER, "1 MiB");
                stk_error_set_location(error, path, at + i * LEAF_BYTES, NULL);
            }
        }
        status = status < 0 ? status : stk_task_account(sealing->task, part, error);
    }
    stk_io_close_file(file);
    if (block) {
        stk_pages_free(block, BLOCK_BYTES);
    }
    return status;
}

static int seal_file(const struct sealing *sealing, const char *name, struct stk_json_text *text,
                     struct stoker_error *error)
{
    char *path = stk_place_path(&sealing->place, NULL, name[0] ? name : NULL), size[32];
    struct stk_stat stat = {0};
    int status = path ? stk_place_stat_now(&sealing->place, path, &stat, error)
                      : stk_fail_memory(error, "seal");

    if (status == 0) {
        atomic_fetch_add(sealing->task->bytes, stat.bytes);
        snprintf(size, sizeof size, "%" PRIu64 " ", stat.bytes);
        stk_json_text_add(text, size, strlen(size));
        stk_json_text_add(text, name, strlen(name));
        stk_json_text_add(text, "\n", 1);
        status = hash_file(sealing, path, stat.bytes, NULL, text, error);
    }
    stk_free(path);
    return status;
}

int stk_task_seal(const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct sealing sealing = {.task = task};
    struct stk_json_text text = {0};
    uint8_t root[32];
    char digits[66];
    int status = sealing_open(&sealing, true, error);

    status = status < 0 || sealing.single ? status : list_files(&sealing, error);
    if (status == 0 && sealing.count == 0) {
        status = stk_fail(error, STOKER_ERROR_EMPTY, "the folder has no files", "check the path",
                          "'%.400s'", sealing.place.root);
    }
    stk_json_text_add(&text, HEAD, sizeof HEAD - 1);
    for (size_t i = 0; status == 0 && i < sealing.count; i++) {
        status = seal_file(&sealing, sealing.names[i], &text, error);
    }
    if (status == 0 && !text.failed) {
        stk_sha256_one(text.text, text.bytes, root);
        stk_hex(root, 32, digits);
        stk_json_text_add(&text, "end ", 4);
        stk_json_text_add(&text, digits, 64);
        stk_json_text_add(&text, "\n", 1);
    }
    if (status == 0 && text.failed) {
        status = stk_fail_memory(error, "seal");
    }
    status = status < 0 ? status
                        : stk_place_write(&sealing.place, sealing.seal,
                                          (struct stk_view){(const uint8_t *)text.text, text.bytes},
                                          false, error);
    stk_json_text_deinit(&text);
    sealing_close(&sealing);
    return status;
}

/* ---- checking ---- */

static int fail_seal(const struct sealing *sealing, const char *what, struct stoker_error *error)
{
    stk_fail(error, STOKER_ERROR_CORRUPT, what, "seal the checkpoint again if its files are right",
             "seal");
    stk_error_set_location(error, sealing->seal, STOKER_NO_OFFSET, NULL);
    return STOKER_ERROR_CORRUPT;
}

/* The hash of the text in its last line. Cuts the line off. */
static bool check_end(char *text, size_t *bytes)
{
    uint8_t root[32], want[32];
    char digits[65];
    size_t end = 4 + 64 + 1;

    if (*bytes < sizeof HEAD - 1 + end || memcmp(text, HEAD, sizeof HEAD - 1) != 0 ||
        memcmp(text + *bytes - end, "end ", 4) != 0 || text[*bytes - 1] != '\n' ||
        text[*bytes - end - 1] != '\n') {
        return false;
    }
    memcpy(digits, text + *bytes - 65, 64);
    digits[64] = '\0';
    *bytes -= end;
    stk_sha256_one(text, *bytes, root);
    text[*bytes] = '\0';
    return stk_hex_decode(digits, want, 32) && memcmp(root, want, 32) == 0;
}

/* A file and its leaves. *at moves behind them. */
static int check_file(const struct sealing *sealing, char *text, size_t bytes, size_t *at,
                      struct stoker_error *error)
{
    char *line = text + *at, *newline = memchr(line, '\n', bytes - *at), *space, *path;
    const char *number_end;
    struct stk_stat stat = {0};
    uint64_t size, leaves;
    int status;

    if (!newline) {
        return fail_seal(sealing, "the seal is damaged", error);
    }
    *newline = '\0';
    if (*line < '0' || *line > '9' || !stk_parse_uint64(line, &number_end, &size)) {
        return fail_seal(sealing, "the seal is damaged", error);
    }
    space = line + (number_end - line);
    leaves = size / LEAF_BYTES + (size % LEAF_BYTES > 0);
    *at = (size_t)(newline + 1 - text);
    if (*space != ' ' || strchr(space + 1, '/') || (space[1] == '\0') != sealing->single ||
        leaves > (bytes - *at) / 65) {
        return fail_seal(sealing, "the seal is damaged", error);
    }
    path = stk_place_path(&sealing->place, NULL, space[1] ? space + 1 : NULL);
    status = path ? stk_place_stat_now(&sealing->place, path, &stat, error)
                  : stk_fail_memory(error, "seal");
    if (stk_place_is_absent(status) || (status == 0 && stat.bytes != size)) {
        status =
            stk_fail(error, status < 0 ? STOKER_ERROR_MISSING : STOKER_ERROR_TRUNCATED,
                     status < 0 ? "a sealed file is missing" : "a sealed file has another length",
                     OTHER, "it had %" PRIu64 " bytes when it was sealed", size);
        stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    }
    if (status == 0) {
        atomic_fetch_add(sealing->task->bytes, size);
        status = hash_file(sealing, path, size, text + *at, NULL, error);
        atomic_fetch_add(sealing->task->files, 1);
        atomic_fetch_add(sealing->task->files_done, 1);
    }
    *at += leaves * 65;
    stk_free(path);
    return status;
}

int stk_task_check_seal(const struct stk_checkpoint_task *task, struct stoker_error *error)
{
    struct sealing sealing = {.task = task};
    uint8_t *data = NULL;
    char *text = NULL;
    size_t bytes = 0, at = sizeof HEAD - 1;
    int status = sealing_open(&sealing, false, error);

    status = status < 0 ? status
                        : stk_place_read(&sealing.place, sealing.seal, STK_SEAL_BYTES_MAX, &data,
                                         &bytes, error);
    if (status == 0) {
        text = (char *)data;
        status = check_end(text, &bytes)
                     ? 0
                     : fail_seal(&sealing, "the seal is damaged, or of a later version", error);
    }
    while (status == 0 && at < bytes) {
        status = check_file(&sealing, text, bytes, &at, error);
    }
    stk_free(data);
    sealing_close(&sealing);
    /* A store that does not let this user list says so instead of that there is none. */
    return (stk_place_is_absent(status) || status == -EACCES) && !text ? -ENOENT : status;
}
