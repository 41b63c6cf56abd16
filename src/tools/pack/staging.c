/* The .part folder: its plan file, names of shards, and the commit. */
#include "tools/pack/staging.h"

#include "base/crypto/digest.h"
#include "base/mem.h"
#include "base/text/text_match.h"
#include "format/compress/decompress.h"
#include "index/index.h"
#include "tools/pack/shard_done.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PLAN_BYTES_MAX (1u << 20)
#define HASH_BYTES (1u << 20)
#define PATTERN_BYTES_MAX 200u
#define PATTERN_WIDTH_MAX 12u

static int lock_destination(struct stk_staging *staging, struct stoker_error *error);
static int check_destination(struct stk_staging *staging, const char *text,
                             struct stoker_error *error);
static int check_staging(struct stk_staging *staging, const char *text, struct stoker_error *error);
static int open_files(struct stk_staging *staging, struct stoker_error *error);
static int read_plan(struct stk_staging *staging, const char *text, struct stoker_error *error);

/* The plan file's text; NULL: no memory. */
static char *plan_text(json_t *settings, const char *stamp, size_t *bytes_out)
{
    const size_t flags = JSON_SORT_KEYS | JSON_INDENT(1);
    json_t *plan = json_pack("{s:O, s:s}", "settings", settings, "stamp", stamp);
    size_t bytes = plan ? json_dumpb(plan, NULL, 0, flags) : 0;
    char *text = bytes ? stk_alloc(bytes + 1, 1) : NULL;

    if (text && json_dumpb(plan, text, bytes, flags) != bytes) {
        stk_free(text);
        text = NULL;
    }
    json_decref(plan);
    *bytes_out = bytes;
    return text;
}

int stk_staging_open(struct stk_staging *staging, struct stk_io *io, const char *destination,
                     struct json_t *settings, const char *stamp, struct stoker_error *error)
{
    struct stk_sha256 sha;
    size_t bytes = 0, length;
    char *text = NULL;
    int status;

    *staging = (struct stk_staging){.io = io, .settings = json_incref(settings)};
    destination = destination ? stk_text_skip_file_scheme(destination) : "";
    length = strlen(destination);
    if (length == 0 || strspn(destination, "/") == length) {
        status = stk_fail(error, STOKER_ERROR_ARGUMENT, "no output folder is set",
                          "choose one that does not exist", "destination");
        goto done;
    }
    staging->destination = stk_strdup(destination);
    while (staging->destination && staging->destination[length - 1] == '/') {
        staging->destination[--length] = 0;
    }
    text = plan_text(settings, stamp, &bytes);
    if (!staging->destination || !text) {
        status = stk_fail_memory(error, "'%.400s'", destination);
        goto done;
    }
    stk_sha256_init(&sha);
    stk_sha256_add(&sha, text, bytes);
    stk_sha256_done(&sha, staging->plan);
    status = lock_destination(staging, error);
    status = status < 0 ? status : check_destination(staging, text, error);
    if (status == 0) {
        status =
            staging->is_renamed ? open_files(staging, error) : check_staging(staging, text, error);
    }
done:
    stk_free(text);
    if (status < 0) {
        stk_staging_close(staging);
    }
    return status;
}

void stk_staging_close(struct stk_staging *staging)
{
    stk_io_close_beneath(staging->io, staging->files);
    stk_io_unlock(staging->io, staging->lock);
    json_decref(staging->settings);
    stk_free(staging->destination);
    stk_free(staging->directory);
    *staging = (struct stk_staging){0};
}

/* Next to DST.part, which is renamed at the end. Locked before anything is read, so that no action
 * of another run in between is missed. */
static int lock_destination(struct stk_staging *staging, struct stoker_error *error)
{
    char *path = stk_staging_path(staging->destination, "", ".lock");
    int status = path ? stk_io_lock(staging->io, path, &staging->lock, error)
                      : stk_fail_memory(error, "'%.400s'", staging->destination);

    stk_free(path);
    return status;
}

/* Returns 1 if a path exists, 0 (with *error unchanged) if not, or an error. */
static int exists(struct stk_io *io, const char *path, struct stk_stat *about,
                  struct stoker_error *error)
{
    struct stoker_error local = {0};
    int status = stk_io_stat_path(io, path, about, &local);

    if (status < 0 && status != -ENOENT && error) {
        *error = local;
    }
    return status == -ENOENT ? 0 : status < 0 ? status : 1;
}

/* DST may be missing, an empty folder, or this very work, which lacks only its last step. */
static int check_destination(struct stk_staging *staging, const char *text,
                             struct stoker_error *error)
{
    struct stk_listing listing = {0};
    struct stk_stat about = {0};
    bool has_plan = false;
    int status = exists(staging->io, staging->destination, &about, error);

    if (status <= 0) {
        return status;
    }
    if (about.kind == STK_ENTRY_DIRECTORY) {
        status = stk_io_list(staging->io, staging->destination, &listing, error);
        if (status < 0 || listing.count == 0) {
            goto done;
        }
        for (size_t i = 0; i < listing.count; i++) {
            has_plan |= strcmp(listing.entries[i].name, STK_STAGING_PLAN_NAME) == 0;
        }
    }
    if (has_plan) {
        staging->directory = stk_strdup(staging->destination);
        status = staging->directory ? read_plan(staging, text, error)
                                    : stk_fail_memory(error, "'%.400s'", staging->destination);
        staging->is_renamed =
            status ==
            1; /* STATE names the difference, which is more useful than "already exists" */
        staging->state = STK_STAGING_COMPLETE;
    } else {
        status = stk_fail(error, -EEXIST, "the destination already exists",
                          "choose another one, or remove it", "'%.400s'", staging->destination);
    }
done:
    stk_listing_free(&listing);
    return status < 0 ? status : 0;
}

/* The folder that has the names of DST and DST.part. */
static int sync_parent(struct stk_staging *staging, struct stoker_error *error)
{
    char *parent = stk_staging_parent(staging->destination);
    int status = parent ? stk_io_sync_directory(staging->io, parent, error)
                        : stk_fail_memory(error, "'%.400s'", staging->destination);

    stk_free(parent);
    return status;
}

static int open_files(struct stk_staging *staging, struct stoker_error *error)
{
    int status = stk_io_open_beneath(staging->io, staging->directory, &staging->files, error);

    if (status < 0) {
        staging->files = NULL;
    }
    return status;
}

static int check_staging(struct stk_staging *staging, const char *text, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    struct stk_manifest manifest = {0};
    char *plan = NULL, *manifest_path = NULL;
    uint8_t *data = NULL;
    size_t bytes = 0;
    int status;

    stk_free(staging->directory);
    staging->directory = stk_staging_path(staging->destination, "", ".part");
    plan =
        staging->directory ? stk_staging_path(staging->directory, STK_STAGING_PLAN_NAME, "") : NULL;
    manifest_path = plan ? stk_staging_path(staging->directory, STK_MANIFEST_NAME, "") : NULL;
    if (!manifest_path) {
        status = stk_fail_memory(error, "'%.400s'", staging->destination);
        goto done;
    }
    status = stk_io_make_directory(staging->io, staging->directory, false, error);
    status = status < 0 ? status : open_files(staging, error);
    if (status == 0) {
        status = read_plan(staging, text, error);
    }
    if (status == 0) { /* no plan: only a folder where nothing was begun may be used */
        status = stk_io_list(staging->io, staging->directory, &listing, error);
        for (size_t i = 0; status == 0 && i < listing.count; i++) {
            if (strcmp(listing.entries[i].name, STK_STAGING_PLAN_NAME STK_STAGING_TEMP_SUFFIX) !=
                0) {
                status = stk_fail(error, -EEXIST, "the folder for unfinished work has other files",
                                  "remove the folder, or choose another destination", "'%.300s/%s'",
                                  staging->directory, listing.entries[i].name);
            }
        }
        if (status == 0) {
            status = stk_staging_write_file(staging->files, plan, text, strlen(text), error);
        }
        if (status == 0) { /* a power cut may remove later files, but not the plan */
            status = stk_io_sync_directory(staging->files, staging->directory, error);
        }
        if (status == 0) { /* else removing the folder would lose files of another writer */
            status = sync_parent(staging, error);
        }
    } else if (status > 0) {
        status = stk_staging_find_file(staging->io, manifest_path, STK_MANIFEST_BYTES_MAX, &data,
                                       &bytes, error);
        if (status == 1 &&
            stk_manifest_parse(&manifest, (struct stk_view){data, bytes}, NULL) == 0) {
            staging->state = STK_STAGING_COMPLETE; /* it is written last */
        }
        status = status > 0 ? 0 : status;
    }
done:
    stk_manifest_deinit(&manifest);
    stk_listing_free(&listing);
    stk_free(data);
    stk_free(plan);
    stk_free(manifest_path);
    return status;
}

/* The first setting that differs, as text: "shuffle: 7 before, 8 now". */
static void difference(const json_t *before, json_t *now, char *text, size_t capacity)
{
    const char *key;
    json_t *value;

    json_object_foreach(now, key, value)
    {
        json_t *old = json_object_get(before, key);

        if (!json_equal(old, value)) {
            char was[96] = "nothing", is[96] = "";

            if (old) {
                was[stk_min(json_dumpb(old, was, sizeof was - 1, JSON_ENCODE_ANY),
                            sizeof was - 1)] = 0;
            }
            is[stk_min(json_dumpb(value, is, sizeof is - 1, JSON_ENCODE_ANY), sizeof is - 1)] = 0;
            snprintf(text, capacity, "%s: %s before, %s now", key, was, is);
            return;
        }
    }
    snprintf(text, capacity, "files were changed, added or removed since");
}

/* Returns 1: the plan there is ours; 0: there is none; STATE: it is another. */
static int read_plan(struct stk_staging *staging, const char *text, struct stoker_error *error)
{
    char *path = stk_staging_path(staging->directory, STK_STAGING_PLAN_NAME, "");
    json_t *before = NULL;
    char detail[256];
    uint8_t *data = NULL;
    size_t bytes = 0;
    int status;

    if (!path) {
        return stk_fail_memory(error, "'%.400s'", staging->directory);
    }
    status = stk_staging_find_file(staging->io, path, PLAN_BYTES_MAX, &data, &bytes, error);
    if (status <= 0) {
        goto done;
    }
    if (bytes == strlen(text) && memcmp(data, text, bytes) == 0) {
        status = 1;
    } else {
        before = json_loadb((const char *)data, bytes, 0, NULL);
        difference(json_object_get(before, "settings"), staging->settings, detail, sizeof detail);
        json_decref(before);
        status = stk_fail(error, STOKER_ERROR_STATE,
                          "the unfinished work there was started with other settings",
                          "use the same settings to continue, or remove that folder to start again",
                          "'%.300s': %s", staging->directory, detail);
    }
done:
    stk_free(data);
    stk_free(path);
    return status;
}

/* A finished shard's members for the index, and its entry for the manifest. */
static int add_shard(struct stk_staging *staging, const char *name, uint32_t shard,
                     struct stk_index *index, struct stk_manifest *manifest,
                     struct stoker_error *error)
{
    struct stk_index_shard_builder *builder = NULL;
    struct stk_shard_done done = {0};
    char *path = stk_staging_path(staging->directory, name, "");
    int status = path ? stk_shard_done_read(&done, staging->files, staging->directory, name,
                                            staging->plan, error)
                      : stk_fail_memory(error, "'%.400s'", name);

    if (status == 0) {
        status = stk_fail(error, STOKER_ERROR_CHANGED, "a finished shard is missing",
                          "run it again: it continues from there", "'%.400s'", path);
    }
    status = status < 0 ? status : stk_index_shard_begin(index, shard, path, &builder, error);
    for (uint64_t i = 0; status == 0 && i < done.member_count; i++) {
        const struct stk_shard_done_member *member = &done.members[i];
        struct stk_view member_name = {done.text + member->name_at, member->name_bytes};

        status = stk_index_shard_add(builder, member_name, member->offset, member->bytes, error);
        status = status < 0 ? status : stk_index_shard_set_checksum(builder, member->sum, error);
        if (status == 0 && member->label >= 0) {
            status = stk_index_shard_set_label(builder, member->label, error);
        }
    }
    if (status == 0) {
        stk_index_shard_set_digest(builder, done.sha256);
    }
    if (status == 0) {
        status = stk_index_shard_end(builder, done.bytes, STK_COMPRESSION_NONE, error);
        builder = NULL;
    }
    if (status == 0) {
        struct stk_manifest_shard entry = {
            .name = name, .bytes = done.bytes, .samples = done.samples};

        memcpy(entry.sha256, done.sha256, sizeof entry.sha256);
        status = stk_manifest_add(manifest, &entry, error);
    } else if (status < 0 && path) {
        stk_error_set_location(error, path, STOKER_NO_OFFSET, NULL);
    }
    stk_index_shard_cancel(builder);
    stk_shard_done_deinit(&done);
    stk_free(path);
    return status;
}

/* Size and hash of a file, which may be large. */
static int hash_file(struct stk_io *io, const char *path, struct stk_manifest_shard *entry,
                     struct stoker_error *error)
{
    struct stk_file *file = NULL;
    uint8_t *buffer = stk_alloc(HASH_BYTES, 1);
    struct stk_sha256 sha;
    int64_t got = 1;
    int status = buffer ? stk_io_open_file(io, path, &file, error)
                        : stk_fail_memory(error, "'%.400s'", path);

    stk_sha256_init(&sha);
    while (status == 0 && got > 0) {
        got = stk_io_read_wait(file, entry->bytes, buffer, HASH_BYTES);
        if (got < 0) {
            status = stk_io_fail_read(file, got, "cannot read the index", error);
        } else {
            stk_sha256_add(&sha, buffer, (size_t)got);
            entry->bytes += (uint64_t)got;
        }
    }
    stk_sha256_done(&sha, entry->sha256);
    if (file) {
        stk_io_close_file(file);
    }
    stk_free(buffer);
    return status;
}

/* Writes the index, and its size and hash into the manifest. */
static int write_index(struct stk_staging *staging, struct stk_index *index,
                       struct stk_manifest *manifest, struct stoker_error *error)
{
    struct stk_manifest_shard entry = {.name = STK_STAGING_INDEX_NAME};
    char *path = stk_staging_path(staging->directory, STK_STAGING_INDEX_NAME, "");
    int status = path ? stk_index_write(index, staging->files, path, error)
                      : stk_fail_memory(error, "'%.400s'", staging->directory);

    status = status < 0 ? status : hash_file(staging->files, path, &entry, error);
    status = status < 0 ? status : stk_manifest_set_index(manifest, &entry, error);
    stk_free(path);
    return status;
}

/* The settings of the plan, as the manifest has them: an order of the source has no seed. NULL if
 * memory is exhausted. */
static json_t *manifest_settings(const struct stk_staging *staging)
{
    json_t *settings = json_copy(staging->settings);
    const char *order = json_string_value(json_object_get(settings, "order"));

    if (order && strcmp(order, "source") == 0 &&
        json_object_set_new(settings, "seed", json_null()) < 0) {
        json_decref(settings);
        return NULL;
    }
    return settings;
}

/* Writes the index and the manifest of the finished shards; the manifest is last, and says that all
 * is complete: stk_index_write has synced the folder before, with the names of all shards. */
static int write_contents(struct stk_staging *staging, const struct stk_staging_content *content,
                          struct stoker_error *error)
{
    struct stk_index_options options = {.shard_count = content->shard_count,
                                        .key_bytes_max = STK_STAGING_KEY_BYTES_MAX};
    struct stk_manifest manifest = {0};
    struct stk_index *index = NULL;
    char name[STK_SHARD_NAME_MAX];
    char *path = stk_staging_path(staging->directory, STK_MANIFEST_NAME, ""), *text = NULL;
    json_t *settings = manifest_settings(staging);
    size_t bytes = 0;
    int status = path && settings ? stk_manifest_begin(&manifest, settings, error)
                                  : stk_fail_memory(error, "'%.400s'", staging->directory);

    status = status < 0 ? status : stk_index_open(&index, &options, error);
    for (uint64_t i = 0; status == 0 && i < content->shard_count; i++) {
        stk_shard_pattern_name(content->pattern, i, name, sizeof name);
        status = add_shard(staging, name, (uint32_t)i, index, &manifest, error);
    }
    for (uint64_t i = 0; status == 0 && i < content->class_count; i++) {
        status = stk_manifest_add_class(&manifest, content->classes[i], error);
        status = status < 0 ? status : stk_index_add_class(index, content->classes[i], error);
    }
    status = status < 0 ? status : stk_index_finish(index, content->block_bytes, error);
    status = status < 0 ? status : write_index(staging, index, &manifest, error);
    status = status < 0 ? status : stk_manifest_set_left_out(&manifest, content->left_out, error);
    status = status < 0 ? status : stk_manifest_text(&manifest, &text, &bytes, error);
    status = status < 0 ? status : stk_staging_write_file(staging->files, path, text, bytes, error);
    stk_index_close(index);
    stk_manifest_deinit(&manifest);
    json_decref(settings);
    stk_free(text);
    stk_free(path);
    return status;
}

int stk_staging_manifest(const struct stk_staging *staging, struct stk_manifest *manifest_out,
                         struct stoker_error *error)
{
    char *path = stk_staging_path(staging->directory, STK_MANIFEST_NAME, "");
    uint8_t *data = NULL;
    size_t bytes = 0;
    int status = path ? stk_staging_read_file(staging->io, path, STK_MANIFEST_BYTES_MAX, &data,
                                              &bytes, error)
                      : stk_fail_memory(error, "'%.400s'", staging->directory);

    *manifest_out = (struct stk_manifest){0};
    if (status == 0) {
        status = stk_manifest_parse(manifest_out, (struct stk_view){data, bytes}, error);
    }
    stk_free(data);
    stk_free(path);
    return status;
}

static int remove_name(struct stk_staging *staging, const char *name, struct stoker_error *error)
{
    char *path = stk_staging_path(staging->directory, name, "");
    int status = path ? stk_io_remove(staging->files, path, error)
                      : stk_fail_memory(error, "'%.400s'", name);

    stk_free(path);
    return status;
}

/* Removes the files of unfinished work, except the plan and the list of samples left out. */
static int remove_unknown(struct stk_staging *staging, struct stoker_error *error)
{
    struct stk_listing listing = {0};
    int status = stk_io_list(staging->io, staging->directory, &listing, error);

    for (size_t i = 0; status == 0 && i < listing.count; i++) {
        const char *name = listing.entries[i].name;

        if (stk_text_stem_bytes(name, ".tar" STK_STAGING_DONE_SUFFIX) > 0 ||
            stk_text_stem_bytes(name, STK_STAGING_TEMP_SUFFIX) > 0) {
            status = remove_name(staging, name, error);
        }
    }
    stk_listing_free(&listing);
    return status;
}

/* After the rename, checks that the folder that was written has the name now. */
static int reopen_files(struct stk_staging *staging, struct stoker_error *error)
{
    struct stk_io *files = staging->files;
    char *before = stk_staging_path(staging->destination, "", ".part");
    struct stk_stat old = {0}, now = {0};
    int status = before ? open_files(staging, error)
                        : stk_fail_memory(error, "'%.400s'", staging->destination);

    if (status == 0 && files != staging->io &&
        (stk_io_stat_path(files, before, &old, NULL) < 0 ||
         stk_io_stat_path(staging->files, staging->destination, &now, NULL) < 0 ||
         old.inode != now.inode || old.device != now.device)) {
        status = stk_fail(error, STOKER_ERROR_CHANGED,
                          "another process replaced the folder of the data set",
                          "remove the folder of that name and write the data set again where no "
                          "other user may write",
                          "'%.400s'", staging->destination);
    }
    stk_io_close_beneath(staging->io, files);
    stk_free(before);
    return status;
}

static int rename_to_destination(struct stk_staging *staging, struct stoker_error *error)
{
    char *named = stk_strdup(staging->destination);
    struct stk_stat about = {0};
    int status = named ? stk_io_sync_directory(staging->files, staging->directory, error)
                       : stk_fail_memory(error, "'%.400s'", staging->destination);

    if (status == 0) { /* an empty folder of that name is in the way of the rename */
        status = exists(staging->io, staging->destination, &about, error);
    }
    if (status == 1) {
        status = stk_io_remove(staging->io, staging->destination, error);
    }
    status = status < 0 ? status
                        : stk_io_rename(staging->io, staging->directory, staging->destination, true,
                                        error);
    if (status == 0) {
        staging->is_renamed = true;
        stk_free(staging->directory);
        staging->directory = named;
        named = NULL;
        status = reopen_files(staging, error);
        status = status < 0 ? status : sync_parent(staging, error);
    }
    stk_free(named);
    return status;
}

int stk_staging_commit(struct stk_staging *staging, const struct stk_staging_content *content,
                       struct stoker_error *error)
{
    int status = 0;

    if (staging->state == STK_STAGING_OPEN) {
        status = write_contents(staging, content, error);
        /* Before a done file is removed: without them, only the manifest lists the shards. */
        status =
            status < 0 ? status : stk_io_sync_directory(staging->files, staging->directory, error);
    }
    if (status == 0) {
        staging->state = STK_STAGING_COMPLETE;
        status = remove_unknown(staging, error);
    }
    if (status == 0 && !staging->is_renamed) {
        status = rename_to_destination(staging, error);
    }
    if (status == 0 && content->left_out > 0) {
        /* Permanently, before the plan file is removed: without a plan no run would remove it. */
        status = remove_name(staging, STK_STAGING_LEFT_OUT_NAME, error);
        status =
            status < 0 ? status : stk_io_sync_directory(staging->files, staging->directory, error);
    }
    status = status < 0 ? status : remove_name(staging, STK_STAGING_PLAN_NAME, error);
    if (status == 0) {
        /* The data set is complete: if a power cut restores the plan, the next run removes it, so
         * no failure here is worth an error. */
        stk_io_sync_directory(staging->files, staging->directory, NULL);
    }
    return status;
}

int stk_shard_pattern_check(const char *pattern, struct stoker_error *error)
{
    size_t bytes = strlen(pattern);
    const char *percent = strchr(pattern, '%');
    size_t digits = percent ? strspn(percent + 1, "0123456789") : 0;
    char name[STK_SHARD_NAME_MAX];

    if (!percent || percent[1 + digits] != 'd' || strchr(percent + 1, '%') || digits > 2 ||
        (digits > 0 && percent[1] != '0') || bytes > PATTERN_BYTES_MAX || bytes < 5 ||
        !stk_text_ends_with(pattern, ".tar") || strpbrk(pattern, "/*?[]{}\\\n") ||
        pattern[0] == '.' || (digits == 2 && (unsigned)(percent[2] - '0') > 9)) {
        return stk_fail(error, STOKER_ERROR_ARGUMENT, "not a valid pattern for shard names",
                        "use one %06d in a file name that ends with .tar: train-%06d.tar",
                        "'%.200s'", pattern);
    }
    stk_shard_pattern_name(pattern, 0, name, sizeof name);
    return 0;
}

/* Digits that are always there. */
static unsigned pattern_width(const char *pattern)
{
    const char *percent = strchr(pattern, '%');

    return percent[1] == '0' && percent[2] != 'd' ? (unsigned)(percent[2] - '0') : 1;
}

uint64_t stk_shard_pattern_max(const char *pattern)
{
    uint64_t count = 1;

    for (unsigned i = 0; i < pattern_width(pattern); i++) {
        count *= 10;
    }
    return stk_min(count, STK_STAGING_SHARDS_MAX);
}

void stk_shard_pattern_name(const char *pattern, uint64_t shard, char *name, size_t capacity)
{
    const char *percent = strchr(pattern, '%');
    const char *rest = strchr(percent, 'd') + 1;

    snprintf(name, capacity, "%.*s%0*llu%s", (int)(percent - pattern), pattern,
             (int)pattern_width(pattern), (unsigned long long)shard, rest);
}
